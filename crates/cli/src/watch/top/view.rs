//! What a frame shows: processes, alone or by job, cgroup or region, sorted, with a line of sums.

use crate::watch::process::{self, Paged};
use crate::watch::stat::latency;
use crate::watch::sums::Sums;
use clap::ValueEnum;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use terapage_config::Size;
use terapage_stats::{Region, Snapshot};

/// What a line stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Each process.
    Process,
    /// All processes that one terapage run has started, with each process below.
    Job,
    /// All processes of one cgroup: of a pod, a unit, a batch job.
    Cgroup,
    /// The uses of a program's memory: heap, mappings, static arrays.
    Region,
}

/// The order of lines: the largest first, except for process numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// The number of the process.
    Pid,
    /// Memory within the budget.
    Resident,
    /// Untracked memory.
    Untracked,
    /// Major faults.
    Major,
    /// Page-ins.
    In,
    /// Page-outs.
    Out,
    /// Stalled time.
    Stall,
}

/// The heads of the columns.
pub const HEAD: &str = concat!(
    "    PID NAME            ",
    "     LEASE   RESIDENT  UNTRACKED MAJOR/s MINOR/s IN MB/s OUT MB/s STALL% WAIT%  HIT% WASTE% DIRTY%      P50      P99\n"
);

/// The characters at which rows are cut for a terminal of `width` characters: at the column of
/// page-ins, or, in narrow terminals, at those of major faults and of prefetched runs.
pub fn folds(width: usize) -> &'static [usize] {
    match width {
        wide if wide >= HEAD.trim_end().len() => &[],
        72.. => &[72],
        _ => &[56, 102],
    }
}

/// Two readings, from which rates are computed.
#[derive(Clone, Copy)]
pub struct Rates {
    pub old: Snapshot,
    pub seconds: f64,
}

impl Rates {
    /// By how much a counter grew each second.
    pub fn of(&self, now: &Snapshot, counter: fn(&Snapshot) -> u64) -> f64 {
        // Another process with the same number starts counting from zero.
        counter(now).saturating_sub(counter(&self.old)) as f64 / self.seconds.max(1e-3)
    }
}

/// A process, or several.
#[derive(Clone)]
pub struct Line {
    /// The number of the process, or of the group's first.
    pub pid: u32,
    pub name: String,
    pub processes: u64,
    pub now: Snapshot,
    pub rates: Option<Rates>,
}

impl Line {
    /// The value by which lines are sorted; larger ones come first.
    fn weight(&self, sort: Sort) -> f64 {
        let rate = |counter| self.rates.as_ref().map_or(0.0, |rates| rates.of(&self.now, counter));
        match sort {
            Sort::Pid => -f64::from(self.pid),
            Sort::Resident => self.now.resident_bytes as f64,
            Sort::Untracked => self.now.untracked_bytes as f64,
            Sort::Major => rate(|s| s.major_faults),
            Sort::In => rate(|s| s.page_in_bytes),
            Sort::Out => rate(|s| s.page_out_bytes),
            Sort::Stall => rate(|s| s.stalled_us),
        }
    }

    /// The sum of lines, under the number of the first.
    pub fn sum(name: String, lines: &[Line]) -> Line {
        let (mut now, mut old, mut seconds) = (Sums::default(), Sums::default(), 0.0_f64);
        for line in lines {
            now.add_running(&line.now);
            // A process that is new since the last reading has no rates.
            old.add_running(&line.rates.map_or(line.now, |rates| rates.old));
            seconds = seconds.max(line.rates.map_or(0.0, |rates| rates.seconds));
        }
        let processes = lines.iter().map(|line| line.processes).sum();
        let rates = (seconds > 0.0).then_some(Rates { old: old.sums, seconds });
        let pid = lines.iter().map(|line| line.pid).min().unwrap_or(0);
        Line { pid, name, processes, now: now.sums, rates }
    }

    /// The line as text, under [`HEAD`].
    pub fn row(&self, label: &str) -> String {
        let now = &self.now;
        let rate = |counter, unit: f64| match &self.rates {
            Some(rates) => format!("{:.0}", rates.of(now, counter) / unit),
            None => "-".to_owned(),
        };
        let share = |part: u64, whole: u64| match whole {
            0 => "-".to_owned(),
            _ => format!("{:.0}", part as f64 * 100.0 / whole as f64),
        };
        let left = now.clean_page_outs.saturating_add(now.zero_page_outs).saturating_add(now.dirty_page_outs);
        let judged = now.prefetch_used_runs.saturating_add(now.prefetch_wasted_runs);
        let percentile = |p| latency(now.major_latency_percentile_us(p));
        let name: String = self.name.chars().take(15).collect();
        let mut row = String::new();
        let _ = writeln!(
            row,
            "{label:>7} {name:<15} {:>10} {:>10} {:>10} {:>7} {:>7} {:>7} {:>8} {:>6} {:>5} {:>5} {:>6} {:>6} {:>8} {:>8}",
            Size(now.lease_bytes).to_string(),
            Size(now.resident_bytes).to_string(),
            Size(now.untracked_bytes).to_string(),
            rate(|s| s.major_faults, 1.0),
            rate(|s| s.minor_faults, 1.0),
            rate(|s| s.page_in_bytes, 1e6),
            rate(|s| s.page_out_bytes, 1e6),
            rate(|s| s.stalled_us, 1e4 * self.processes.max(1) as f64),
            now.waited_share().map_or("-".to_owned(), |share| format!("{:.0}", share * 100.0)),
            share(now.prefetch_used_runs, judged),
            share(now.prefetch_wasted_runs, judged),
            share(now.dirty_page_outs, left),
            percentile(0.5),
            percentile(0.99),
        );
        row
    }
}

/// The rows of a frame, and a last row with the sums if there is more than one.
pub fn rows(mut lines: Vec<Line>, by: By, sort: Sort) -> Vec<String> {
    let total = (lines.len() > 1).then(|| Line::sum(format!("{} processes", lines.len()), &lines));
    let heaviest = |lines: &mut Vec<Line>| {
        lines.sort_by(|one, other| other.weight(sort).total_cmp(&one.weight(sort)));
    };
    let mut rows: Vec<String> = match by {
        By::Process | By::Region => {
            heaviest(&mut lines);
            lines.iter().map(|line| line.row(&line.pid.to_string())).collect()
        }
        By::Cgroup => {
            let mut groups: Vec<_> = grouped(lines, |line| cgroup(line.pid))
                .into_iter()
                .map(|(name, lines)| Line::sum(tail(&name), &lines))
                .collect();
            heaviest(&mut groups);
            groups.iter().map(|group| group.row(&format!("x{}", group.processes))).collect()
        }
        By::Job => {
            let mut jobs: Vec<_> = grouped(lines, |line| job(line.pid))
                .into_values()
                .map(|lines| {
                    let first = lines.iter().min_by_key(|line| line.pid);
                    let name = first.map_or_else(String::new, |line| line.name.clone());
                    (Line::sum(name, &lines), lines)
                })
                .collect();
            jobs.sort_by(|(one, _), (other, _)| other.weight(sort).total_cmp(&one.weight(sort)));
            jobs.into_iter().flat_map(|(job, lines)| of_job(&job, lines, sort)).collect()
        }
    };
    rows.extend(total.map(|total| total.row("TOTAL")));
    rows
}

/// The rows of a job: its sums, and its processes as a tree.
fn of_job(job: &Line, lines: Vec<Line>, sort: Sort) -> Vec<String> {
    if let [line] = &lines[..] {
        return vec![line.row(&line.pid.to_string())];
    }
    let parents: HashMap<u32, u32> = lines.iter().map(|line| (line.pid, parent(line.pid))).collect();
    tree(job, lines, &parents, sort)
}

fn tree(job: &Line, mut lines: Vec<Line>, parents: &HashMap<u32, u32>, sort: Sort) -> Vec<String> {
    lines.sort_by(|one, other| other.weight(sort).total_cmp(&one.weight(sort)));
    let mut rows = vec![job.row(&format!("x{}", job.processes))];
    let mut open: Vec<(u32, usize)> = lines
        .iter()
        .rev()
        .filter(|line| !parents.contains_key(&parents[&line.pid]))
        .map(|line| (line.pid, 1))
        .collect();
    while let Some((pid, depth)) = open.pop() {
        let children = lines.iter().rev().filter(|line| parents[&line.pid] == pid && line.pid != pid);
        open.extend(children.map(|line| (line.pid, depth + 1)));
        let Some(line) = lines.iter().find(|line| line.pid == pid) else { continue };
        let shown = Line { name: format!("{}{}", " ".repeat(depth.min(6)), line.name), ..line.clone() };
        rows.push(shown.row(&pid.to_string()));
    }
    rows
}

fn grouped<K: Ord>(lines: Vec<Line>, key: impl Fn(&Line) -> K) -> BTreeMap<K, Vec<Line>> {
    let mut groups = BTreeMap::<K, Vec<Line>>::new();
    for line in lines {
        groups.entry(key(&line)).or_default().push(line);
    }
    groups
}

fn cgroup(pid: u32) -> String {
    process::cgroup_of(&fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()).to_owned()
}

/// The end of a cgroup's path, as long as there is room.
fn tail(path: &str) -> String {
    let name = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("/");
    let name = name.trim_end_matches(".scope").trim_end_matches(".service").trim_end_matches(".slice");
    let skipped = name.chars().count().saturating_sub(15);
    name.chars().skip(skipped).collect()
}

/// The name of a job: the process that `terapage run` became, and the namespace in which that
/// process has its number.
fn job(pid: u32) -> (String, u32) {
    let root = process::root_of(pid).unwrap_or(pid);
    let namespace = fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap_or_default();
    (namespace.display().to_string(), root)
}

fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in brackets, may contain anything.
    let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
    parent.unwrap_or(0)
}

/// The regions of all processes; regions of one name are combined.
pub fn regions(all: &[Paged]) -> Vec<Region> {
    let mut sums = BTreeMap::<String, Region>::new();
    for region in all.iter().flat_map(Paged::regions) {
        let sum = sums
            .entry(region.name.clone())
            .or_insert_with(|| Region { name: region.name.clone(), ..Region::default() });
        sum.size_bytes += region.size_bytes;
        sum.resident_bytes += region.resident_bytes;
        sum.stored_bytes += region.stored_bytes;
        sum.major_faults += region.major_faults;
        sum.minor_faults += region.minor_faults;
        sum.page_in_bytes += region.page_in_bytes;
    }
    let mut all: Vec<_> = sums.into_values().collect();
    all.sort_by_key(|region| std::cmp::Reverse(region.resident_bytes));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: u32, name: &str, resident_bytes: u64, major_faults: u64) -> Line {
        let old = Snapshot { lease_bytes: 1 << 30, ..Snapshot::default() };
        let now = Snapshot { resident_bytes, major_faults, ..old };
        Line { pid, name: name.to_owned(), processes: 1, now, rates: Some(Rates { old, seconds: 2.0 }) }
    }

    fn words(row: &str) -> Vec<&str> {
        row.split_whitespace().collect()
    }

    #[test]
    fn lines_are_sorted_and_summed() {
        let lines = vec![line(1, "a", 5 << 20, 10), line(2, "b", 7 << 20, 4)];
        let by_memory = rows(lines.clone(), By::Process, Sort::Resident);
        assert_eq!(by_memory.iter().map(|row| words(row)[0]).collect::<Vec<_>>(), ["2", "1", "TOTAL"]);
        assert_eq!(words(&by_memory[2])[1..7], ["2", "processes", "2", "GiB", "12", "MiB"]);
        let by_faults = rows(lines.clone(), By::Process, Sort::Major);
        assert_eq!(by_faults.iter().map(|row| words(row)[0]).collect::<Vec<_>>(), ["1", "2", "TOTAL"]);
        assert_eq!(rows(lines[..1].to_vec(), By::Process, Sort::Pid).len(), 1, "one needs no sum");
    }

    #[test]
    fn processes_of_a_job_stand_below_their_parents() {
        let lines =
            vec![line(10, "sh", 1, 0), line(12, "cc", 3, 0), line(11, "make", 2, 0), line(13, "as", 9, 0)];
        let parents = HashMap::from([(10, 1), (11, 10), (12, 11), (13, 11)]);
        let job = Line::sum("sh".to_owned(), &lines);
        let rows = tree(&job, lines, &parents, Sort::Resident);
        let shown: Vec<_> = rows.iter().map(|row| row.chars().take(23).collect::<String>()).collect();
        let wanted = ["     x4 sh", "     10  sh", "     11   make", "     13    as", "     12    cc"];
        assert_eq!(shown.iter().map(|row| row.trim_end()).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn a_cgroup_is_shown_by_its_end() {
        assert_eq!(tail("/system.slice/docker-0123456789abcdef0123.scope"), "56789abcdef0123");
        assert_eq!(tail("/user.slice/job.service"), "job");
        assert_eq!(tail("/"), "/");
    }
}
