//! What the lab is doing now, on standard error: on a terminal a line that changes, elsewhere a
//! line for each run.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The progress of an experiment.
pub struct Progress {
    bar: ProgressBar,
    /// Whether the bar is visible.
    terminal: bool,
    /// Seconds that further experiments are expected to take, as bits.
    later_s: AtomicU64,
}

impl Progress {
    /// Of an experiment that begins.
    pub fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {pos}/{len} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar, terminal: io::stderr().is_terminal(), later_s: AtomicU64::new(0) }
    }

    /// Announces this many further runs.
    pub fn expect(&self, runs: usize) {
        self.bar.inc_length(runs as u64);
    }

    /// Takes back this many announced runs.
    pub fn leave(&self, runs: usize) {
        let length = self.bar.length().unwrap_or(0);
        self.bar.set_length(length.saturating_sub(runs as u64));
    }

    /// A run begins.
    pub fn begin(&self, what: String) {
        if !self.terminal {
            let length = self.bar.length().unwrap_or(0);
            let now = HumanDuration(self.bar.elapsed());
            line(&format!("run {} of {length}, after {now:#}: {what}", self.bar.position() + 1));
        }
        self.bar.set_message(what);
    }

    /// It has ended.
    pub fn end(&self) {
        self.bar.inc(1);
    }

    /// Announces that further experiments will take this many seconds after this one.
    pub fn later(&self, seconds: f64) {
        self.later_s.store(seconds.to_bits(), Relaxed);
    }

    /// Seconds that further experiments are expected to take.
    pub fn later_s(&self) -> f64 {
        f64::from_bits(self.later_s.load(Relaxed))
    }

    /// The number of remaining runs.
    pub fn left(&self) -> u64 {
        self.bar.length().unwrap_or(0).saturating_sub(self.bar.position())
    }

    /// Says something that stays.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| line(text));
    }

    /// The experiment is over.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// The time of day, here, as 23:41.
pub fn clock(seconds: u64) -> String {
    let seconds = seconds as _;
    // SAFETY: `tm` is plain data, for which zeros are valid (its zone is a pointer that may be
    // null).
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to values of ours that live through the call.
    if unsafe { libc::localtime_r(&seconds, &mut parts) }.is_null() {
        return "?".into();
    }
    format!("{:02}:{:02}", parts.tm_hour, parts.tm_min)
}

/// Writes a line to standard error, and ignores errors.
fn line(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
