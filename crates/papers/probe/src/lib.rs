//! Measures the steps of an I/O on this machine: system calls, switches, wake-ups, interrupts,
//! cache lines, and whole reads at several depths.
//!
//! Each function takes a fraction of a second, and repeats many short measurements, so that other
//! work on the machine has little effect.

mod reads;
mod steps;

pub use reads::{Interface, Reads, read_at_random};
pub use steps::{
    clock_ghz, empty_getevents_ns, interrupt_ns, line_transfer_ns, sleep_ns, switch_ns, syscall_ns, wake_ns,
};

/// A step that could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {cause}")]
pub struct Error {
    doing: &'static str,
    cause: std::io::Error,
}

/// The last error of the C library, for `doing`.
fn last(doing: &'static str) -> Error {
    Error { doing, cause: std::io::Error::last_os_error() }
}

/// The median of some values; NaN for none.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    share(values, 0.5)
}

/// The value that a tenth of them does not exceed; NaN for none.
fn tenth(values: impl IntoIterator<Item = f64>) -> f64 {
    share(values, 0.1)
}

fn share(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    terapage_figures::quantile(&values.into_iter().collect::<Vec<_>>(), share).unwrap_or(f64::NAN)
}
