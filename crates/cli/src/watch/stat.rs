//! `terapage stat`: a process's counters, once.

use super::process::{self, Paged};
use super::regions;
use crate::userfaultfd::GUARDED;
use crate::{complain, print};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;
use terapage_config::Size;
use terapage_stats::{Region, Snapshot};
use terapage_sys::ring::IoEngine;

/// The arguments of `terapage stat`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage stat 4711
  terapage stat 4711 --json | jq .major_faults
  terapage stat 4711 --json | jq -r '.by_region[] | [.name, .resident_bytes] | @tsv'

Exit status:
  0; 1 if the process is not paged.")]
pub struct Stat {
    /// The number of the process
    #[arg(value_name = "PID", value_parser = number)]
    pid: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The number of a process.
fn number(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| "not the number of a process (terapage top lists those that are paged)".to_owned())
}

impl Stat {
    /// Prints the counters.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let paged = match Paged::find(self.pid) {
            Ok(paged) => paged,
            Err(error) => {
                complain(&format!("{error:#}"));
                return Ok(ExitCode::FAILURE);
            }
        };
        let Some((paged, snapshot)) = paged.and_then(|paged| paged.snapshot().map(|now| (paged, now))) else {
            complain(&process::not_paged(self.pid));
            return Ok(ExitCode::FAILURE);
        };
        if self.json {
            let mut value = to_json(&snapshot, &paged.regions())?;
            value["condition"] = json!(paged.condition());
            print(&format!("{value:#}\n"))?;
        } else {
            let condition =
                paged.condition().map_or(String::new(), |words| format!("{:<20}{words}\n", "condition"));
            let condition = in_sync(&snapshot) + &condition;
            let regions = regions::table(paged.regions(), usize::MAX);
            print(&(table(&paged.name, &snapshot) + &condition + &regions))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The counters by name, with the percentiles of the latency, microseconds, and all regions.
fn to_json(snapshot: &Snapshot, regions: &[Region]) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(snapshot)?;
    for (name, p) in [("major_latency_p50_us", 0.5), ("major_latency_p99_us", 0.99)] {
        value[name] = json!(snapshot.major_latency_percentile_us(p));
    }
    value["in_sync"] = json!(snapshot.in_sync());
    value["by_region"] = serde_json::to_value(regions)?;
    Ok(value)
}

/// The counters as a table for people.
pub fn table(name: &str, now: &Snapshot) -> String {
    let bytes = |n: u64| Size(n).to_string();
    let count = |n: u64| n.to_string();
    let percentile = |p| latency(now.major_latency_percentile_us(p));
    let mut text = String::new();
    for (what, value) in [
        ("process", format!("{} ({name})", now.pid)),
        ("budget", budget(now)),
        ("lease", bytes(now.lease_bytes)),
        ("resident", format!("{} (at most {})", bytes(now.resident_bytes), bytes(now.resident_peak_bytes))),
        ("untracked memory", untracked(now)),
        ("paged", if now.region_bytes == 0 { "-".to_owned() } else { bytes(now.region_bytes) }),
        ("no longer paged", bytes(now.released_bytes)),
        ("mapped files", format!("{} (given back {} times)", bytes(now.mapped_file_bytes), now.files_left)),
        ("store", bytes(now.store_bytes)),
        ("block", bytes(now.block_bytes)),
        ("first touches", count(now.first_touches)),
        ("major faults", count(now.major_faults)),
        ("minor faults", count(now.minor_faults)),
        ("requests", count(now.requests)),
        ("threads waited", waited(now)),
        ("stalled", format!("{:.1} s", now.stalled_us as f64 / 1e6)),
        ("major fault wait", format!("p50 {}, p99 {}", percentile(0.5), percentile(0.99))),
        ("demand page-ins", format!("{} blocks", now.demand_blocks)),
        ("prefetched", format!("{} blocks", now.prefetched_blocks)),
        ("prefetch hits", format!("{} runs", now.prefetch_used_runs)),
        ("prefetch waste", format!("{} runs", now.prefetch_wasted_runs)),
        ("prefetch use", prefetch_use(now)),
        ("page-in", bytes(now.page_in_bytes)),
        ("page-out", bytes(now.page_out_bytes)),
        (
            "page-outs",
            format!(
                "{} dirty, {} clean, {} zero",
                now.dirty_page_outs, now.clean_page_outs, now.zero_page_outs
            ),
        ),
        ("retries", count(now.retries)),
        ("I/O", io(now).to_owned()),
        ("mode", mode(now).to_owned()),
        ("forks", count(now.forks)),
    ] {
        let _ = writeln!(text, "{what:<20}{value}");
    }
    text
}

/// How the process is paged.
fn mode(now: &Snapshot) -> &'static str {
    match (now.released, now.guarded) {
        (1, _) => "released: nothing is paged any more",
        (_, 1) => GUARDED,
        _ => "with the right to handle page faults",
    }
}

/// How long threads waited for memory, why, and what part of their time that is.
fn waited(now: &Snapshot) -> String {
    let seconds = |us: u64| us as f64 / 1e6;
    let share = now.waited_share().map_or(String::new(), |share| {
        format!(
            ", {:.0}% of {:.1} s in which they waited or worked",
            share * 100.0,
            seconds(now.waited_us() + now.program_us)
        )
    });
    format!(
        "{:.1} s{share}: {:.1} s for major faults, {:.1} s for minor faults and first touches, {:.1} s for requests",
        seconds(now.waited_us()),
        seconds(now.major_wait_us),
        seconds(now.minor_wait_us),
        seconds(now.request_wait_us)
    )
}

/// Whether all copies of mirrors have all, in a line; nothing without a mirror.
fn in_sync(now: &Snapshot) -> String {
    let (copies, missing) = (now.mirror_copies, now.mirror_missing);
    let words = match now.in_sync() {
        None => return String::new(),
        Some(true) => format!("yes, {copies} copies"),
        Some(false) if missing == 0 => format!("no, {} slots behind", now.mirror_behind),
        Some(false) => {
            format!("no, {} slots behind, {missing} of {copies} copies missing", now.mirror_behind)
        }
    };
    format!("{:<20}{words}\n", "in sync")
}

/// The budget, and the processes that share it.
fn budget(now: &Snapshot) -> String {
    let auto = if now.budget_auto > 0 { "auto, now " } else { "" };
    let budget = format!("{auto}{}", Size(now.budget_bytes));
    match (now.job, now.job_processes) {
        (0, _) => format!("{budget}, of this process"),
        (job, 1) => format!("{budget}, of job {job} (1 process)"),
        (job, count) => format!("{budget}, of job {job} ({count} processes)"),
    }
}

/// How many of the blocks that were read ahead were used, and whether prefetch has stopped.
fn prefetch_use(now: &Snapshot) -> String {
    let (used, wasted) = (now.prefetch_used_blocks, now.prefetch_wasted_blocks);
    let state = if now.prefetch_stopped > 0 { "stopped now" } else { "goes on" };
    format!("about {used} blocks used, {wasted} wasted; stopped {} times, {state}", now.prefetch_stops)
}

/// Untracked memory: its size, the shared part, and the peak.
fn untracked(now: &Snapshot) -> String {
    let [all, shared, most] = [now.untracked_bytes, now.shared_bytes, now.untracked_peak_bytes].map(Size);
    format!("{all}, of which {shared} shared (at most {most})")
}

/// How stores are read and written.
pub fn io(now: &Snapshot) -> &'static str {
    let engine = IoEngine::ALL.into_iter().find(|engine| engine.number() == now.io_engine);
    engine.map_or("-", IoEngine::name)
}

/// A percentile of the latency, as an upper bound in microseconds.
pub fn latency(us: Option<u64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us >= 1 << (terapage_stats::BUCKETS - 1) => "long".to_owned(),
        Some(us) if us >= 1000 => format!("<{} ms", us.div_ceil(1000)),
        Some(us) => format!("<{us} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_json_hold_the_counters() {
        let mut now = Snapshot { pid: 7, budget_bytes: 4 << 30, major_faults: 12345, ..Snapshot::default() };
        assert!(table("sort", &now).contains("4 GiB, of this process"));
        (now.job, now.job_processes) = (12, 3);
        now.major_latency_us[8] = 10;
        let text = table("sort", &now);
        assert!(
            text.contains("7 (sort)")
                && text.contains("4 GiB, of job 12 (3 processes)")
                && text.contains("12345"),
            "{text}"
        );
        assert!(text.contains("p50 <256 us"), "{text}");
        (now.major_wait_us, now.minor_wait_us, now.program_us) = (2_000_000, 1_000_000, 1_000_000);
        let wanted = "threads waited      3.0 s, 75% of 4.0 s in which they waited or worked: 2.0 s for major faults, 1.0 s for minor";
        assert!(table("sort", &now).contains(wanted), "{}", table("sort", &now));
        let heap = Region { name: "heap".to_owned(), minor_faults: 3, ..Region::default() };
        let value = to_json(&now, &[heap]).unwrap();
        assert_eq!(value["by_region"][0]["minor_faults"], 3);
        assert_eq!(value["major_faults"], 12345);
        assert_eq!(value["major_latency_p99_us"], 256);
        let docs = include_str!("../../../../docs/configuration.md");
        for field in value.as_object().unwrap().keys() {
            assert!(docs.contains(&format!("- `{field}`: ")), "{field} is not in docs/configuration.md");
        }
        assert!(in_sync(&now).is_empty() && value["in_sync"].is_null());
        (now.mirror_copies, now.mirror_missing, now.mirror_behind) = (2, 0, 0);
        assert!(in_sync(&now).contains("yes, 2 copies"));
        (now.mirror_missing, now.mirror_behind) = (1, 44);
        assert!(in_sync(&now).contains("no, 44 slots behind, 1 of 2 copies missing"));
        assert_eq!(to_json(&now, &[]).unwrap()["in_sync"], false);
        assert!(to_json(&Snapshot::default(), &[]).unwrap()["major_latency_p50_us"].is_null());
    }
}
