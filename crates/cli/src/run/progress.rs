//! `terapage run --progress`: a line on the terminal while the program runs.
//!
//! Shows the progress of a program, which runs as a child. This process watches the child's pagers
//! from outside, as `terapage top` does, and ends when the program ends, in the same way.

use crate::watch::process::{self, Paged};
use crate::watch::sums::Sums;
use anyhow::Context;
use rustix::process::{Pid, WaitOptions, waitpid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terapage_config::Size;
use terapage_stats::Snapshot;

/// The time between two readings of the pagers' counters.
const REFRESH: Duration = Duration::from_secs(1);
/// The time between two checks whether the program has ended: the program must not seem slower than
/// it is.
const LOOK: Duration = Duration::from_millis(20);

/// Starts a child that becomes the program, if standard error is a terminal. Returns the exit
/// status in this process, once the child has ended; `None` in the child, and without a terminal.
///
/// # Errors
/// No further process may be started.
pub fn watch() -> anyhow::Result<Option<ExitCode>> {
    if !stderr().is_terminal() {
        return Ok(None);
    }
    // SAFETY: this process has one active thread, and the child continues in that thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        return Ok(None);
    }
    let child = Pid::from_raw(child.max(0));
    let child = child.ok_or_else(std::io::Error::last_os_error).context("--progress: fork")?;
    // The terminal also sends these signals to the program. Signals that others send to this
    // process are passed on.
    let asked = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(signal, asked.clone(), signal as usize)?;
    }
    let mut shown = Shown::default();
    let status = loop {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG).context("--progress: waitpid")? {
            break status;
        }
        match asked.swap(0, Relaxed) {
            0 => {}
            // SAFETY: nobody has waited for the child yet, so its number is still its own.
            signal => drop(unsafe { libc::kill(child.as_raw_nonzero().get(), signal as i32) }),
        }
        shown.refresh(child.as_raw_nonzero().get() as u32);
        std::thread::sleep(LOOK);
    };
    shown.clear();
    match status.terminating_signal() {
        Some(signal) => {
            signal_hook::low_level::emulate_default_handler(signal)?;
            Ok(Some(ExitCode::from(128 + signal as u8)))
        }
        None => Ok(Some(ExitCode::from(status.exit_status().unwrap_or(0) as u8))),
    }
}

/// The line on the terminal.
#[derive(Default)]
struct Shown {
    is_there: bool,
    last: Option<(Instant, Snapshot)>,
    /// The time when paging was first seen.
    began: Option<Instant>,
}

impl Shown {
    /// Shows the state of the job with this root, if it is time.
    fn refresh(&mut self, root: u32) {
        if self.last.is_some_and(|(at, _)| at.elapsed() < REFRESH) {
            return;
        }
        let mut sums = Sums::default();
        let of_job = |paged: &Paged| process::root_of(paged.pid) == Some(root) && paged.is_alive();
        for paged in process::all().iter().filter(|paged| of_job(paged)) {
            if let Some(now) = paged.snapshot() {
                sums.add_running(&now);
            }
        }
        let at = Instant::now();
        if sums.processes > 0 {
            let began = *self.began.get_or_insert(at);
            if let Some((then, old)) = self.last.filter(|(_, old)| old.budget_bytes > 0) {
                let line = line(&sums, &old, (at - then).as_secs_f64(), (at - began).as_secs_f64());
                self.show(&line);
            }
        }
        self.last = Some((at, sums.sums));
    }

    fn show(&mut self, line: &str) {
        // Some terminals report a size of zero.
        let width = crossterm::terminal::size().map_or(0, |(width, _)| usize::from(width));
        let width = if width < 20 { 160 } else { width };
        let line: String = line.chars().take(width - 1).collect();
        // The program's next output begins at the left edge.
        let _ = write!(stderr(), "\r{line}\x1b[K\r");
        self.is_there = true;
    }

    fn clear(&self) {
        if self.is_there {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// The line for a job: `old` is from `seconds` earlier, and the job has been paged for
/// `paged_seconds`.
fn line(sums: &Sums, old: &Snapshot, seconds: f64, paged_seconds: f64) -> String {
    let now = &sums.sums;
    let per_second =
        |counter: fn(&Snapshot) -> u64| counter(now).saturating_sub(counter(old)) as f64 / seconds.max(1e-3);
    let processes = sums.processes.max(1) as f64;
    let share = |stalled_us: f64, seconds: f64| (stalled_us / 1e6 / seconds.max(1e-3) / processes).min(1.0);
    let lately = share(now.stalled_us.saturating_sub(old.stalled_us) as f64, seconds);
    let in_all = share(now.stalled_us as f64, paged_seconds.max(seconds));
    // Processes of a job share its budget.
    let budget = if sums.processes > 1 { now.lease_bytes } else { now.budget_bytes };
    let mut line = format!(
        "terapage: {} of {} resident, {} in the store, in {:.0} MB/s, out {:.0} MB/s, stalled {:.0} %",
        Size(now.resident_bytes >> 20 << 20),
        Size(budget),
        Size(now.store_bytes >> 20 << 20),
        per_second(|s| s.page_in_bytes) / 1e6,
        per_second(|s| s.page_out_bytes) / 1e6,
        lately * 100.0
    );
    // The time without waits, if these do not overlap with the program's work.
    let _ = match 1.0 / (1.0 - in_all).max(0.01) {
        slower if slower >= 99.0 => write!(line, ", 100 times slower or more"),
        slower => write!(line, ", about {slower:.1} times slower"),
    };
    if sums.processes > 1 {
        let _ = write!(line, " ({} processes)", sums.processes);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_rates_and_the_slow_down() {
        let old = Snapshot { budget_bytes: 1 << 30, stalled_us: 1_000_000, ..Snapshot::default() };
        let now = Snapshot {
            resident_bytes: 1 << 30,
            store_bytes: 3 << 30,
            page_in_bytes: 400_000_000,
            stalled_us: 2_500_000,
            ..old
        };
        let mut sums = Sums::default();
        sums.add_running(&now);
        let text = line(&sums, &old, 2.0, 5.0);
        let wanted = "terapage: 1 GiB of 1 GiB resident, 3 GiB in the store, in 200 MB/s, out 0 MB/s, stalled 75 %, about 2.0 times slower";
        assert_eq!(text, wanted);
        sums.add_running(&now);
        assert!(line(&sums, &old, 2.0, 5.0).ends_with("(2 processes)"));
        let stuck = Sums { processes: 1, sums: Snapshot { stalled_us: 9_000_000, ..now } };
        assert!(line(&stuck, &old, 2.0, 5.0).contains("stalled 100 %, 100 times slower or more"));
    }
}
