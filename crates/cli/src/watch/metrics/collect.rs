//! Collecting: the sums of the processes of each series.

use super::By;
use crate::watch::process::{self, Paged};
use crate::watch::sums::Sums;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use terapage_stats::Snapshot;

/// The labels of a series: names and values.
pub type Labels = Vec<(&'static str, String)>;

/// How many processes have trouble with a server.
pub type Troubled = BTreeMap<String, u64>;

/// Collects the counters of all paged processes. A counter of a series never falls: it keeps the
/// counts of processes that have ended since the first collection.
pub struct Collector {
    by: By,
    /// Processes seen at the last collection: by number and start, their series and counters.
    seen: BTreeMap<(u32, u64), (Labels, Snapshot)>,
    /// Counters of processes that have ended.
    ended: BTreeMap<Labels, Sums>,
}

impl Collector {
    /// Nothing was collected yet.
    pub fn new(by: By) -> Collector {
        Collector { by, seen: BTreeMap::new(), ended: BTreeMap::new() }
    }

    /// The sums of each series now, and how many processes have trouble with which servers.
    pub fn collect(&mut self) -> (BTreeMap<Labels, Sums>, Troubled) {
        let mut troubled = Troubled::new();
        let running = process::all().into_iter().filter(Paged::is_alive).filter_map(|paged| {
            let now = paged.snapshot()?;
            for server in servers_in(&paged.condition().unwrap_or_default()) {
                *troubled.entry(server).or_default() += 1;
            }
            Some(((paged.pid, now.started_s), (labels(self.by, paged.pid, &paged.name), now)))
        });
        let running: BTreeMap<_, _> = running.collect();
        (self.take(running), troubled)
    }

    fn take(&mut self, running: BTreeMap<(u32, u64), (Labels, Snapshot)>) -> BTreeMap<Labels, Sums> {
        let before = std::mem::replace(&mut self.seen, running);
        // A series of one process ends with it.
        if self.by != By::Pid {
            for (process, (labels, last)) in before {
                if !self.seen.contains_key(&process) {
                    self.ended.entry(labels).or_default().add_counters(&last);
                }
            }
        }
        let mut all = self.ended.clone();
        for (labels, now) in self.seen.values() {
            all.entry(labels.clone()).or_default().add_running(now);
        }
        all
    }
}

/// The servers that a condition names.
fn servers_in(condition: &str) -> BTreeSet<String> {
    let words = condition.split([' ', ';', ',']).filter(|word| word.contains("://"));
    words.map(|word| word.trim_end_matches(':').to_owned()).collect()
}

/// The labels of the series that a process belongs to.
fn labels(by: By, pid: u32, name: &str) -> Labels {
    match by {
        By::Pid => vec![("pid", pid.to_string()), ("comm", name.to_owned())],
        By::Comm => vec![("comm", name.to_owned())],
        By::Cgroup => {
            let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            vec![("cgroup", process::cgroup_of(&text).to_owned())]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(processes: &[(u32, u64)]) -> BTreeMap<(u32, u64), (Labels, Snapshot)> {
        let one = |&(pid, faults): &(u32, u64)| {
            let now = Snapshot { major_faults: faults, resident_bytes: 10, ..Snapshot::default() };
            ((pid, 0), (vec![("comm", "x".to_owned())], now))
        };
        processes.iter().map(one).collect()
    }

    #[test]
    fn counters_do_not_fall_when_a_process_ends() {
        let mut collector = Collector::new(By::Comm);
        let of = |all: BTreeMap<Labels, Sums>| {
            let sums = all[&vec![("comm", "x".to_owned())]];
            (sums.processes, sums.sums.major_faults, sums.sums.resident_bytes)
        };
        assert_eq!(of(collector.take(look(&[(1, 5), (2, 7)]))), (2, 12, 20));
        assert_eq!(of(collector.take(look(&[(2, 8)]))), (1, 13, 10));
        assert_eq!(of(collector.take(look(&[]))), (0, 13, 0));
        assert_eq!(of(collector.take(look(&[(3, 1)]))), (1, 14, 10));
    }

    #[test]
    fn servers_are_those_that_the_condition_names() {
        let said = "mirror: 1 of 2 copies, 7 slots behind; valkey://10.0.0.7:6379: Connection refused; unix:///s: no";
        let servers: Vec<_> = servers_in(said).into_iter().collect();
        assert_eq!(servers, ["unix:///s", "valkey://10.0.0.7:6379"]);
    }

    #[test]
    fn the_series_of_a_process_ends_with_it() {
        let mut collector = Collector::new(By::Pid);
        assert_eq!(collector.take(look(&[(1, 5)])).len(), 1);
        assert!(collector.take(look(&[])).is_empty());
    }
}
