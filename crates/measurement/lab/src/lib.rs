//! Experiments on programs whose data are larger than memory.
//!
//! Each runs the same program in memory, on the kernel's swap, on a mapped file and on Terapage,
//! in turns, beside what fio gets out of the device, and holds the figures against targets.
//!
//! A folder imports from those below it only, which `tests/floors.rs` checks: `commands`,
//! `campaign`, `result`, `contender`, `ground`, `experiment`, `workload`.

mod campaign;
mod commands;
mod contender;
mod experiment;
mod ground;
mod result;
mod workload;

pub use commands::Command;
pub use ground::cgroup;
