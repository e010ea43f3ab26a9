//! Experiments on programs whose data are larger than memory.
//!
//! Each runs the same program in memory, on the kernel's swap, on a mapped file and on Terapage, in
//! turns. It compares the figures with the device's speed by fio, and with targets.
//!
//! A folder imports only from those below it, which `tests/floors.rs` checks: `commands`,
//! `campaign`, `result`, `contender`, `ground`, `experiment`, `workload`.

mod campaign;
mod commands;
mod contender;
mod experiment;
mod ground;
mod result;
mod workload;

pub use commands::Command;
