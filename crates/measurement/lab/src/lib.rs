//! Experiments on programs whose data are larger than memory.
//!
//! Each runs the same program in memory, on the kernel's swap, on a mapped file and on Terapage, in
//! turns. It compares the figures with the device's speed by fio, and with targets.
//!
//! `terapage paper run` also measures with the lab, so some of its items are public.
//!
//! A folder imports only from those below it, which `tools/tidy` checks: `commands`,
//! `campaign`, `result`, `contender`, `ground`, `experiment`, `workload`.

mod campaign;
mod commands;
mod contender;
mod experiment;
mod ground;
mod result;
mod workload;

pub use campaign::session::Session;
pub use commands::Command;
pub use commands::run::run_paper;
pub use commands::running::Running;
pub use commands::show::Show;
pub use ground::disk::check_free;
pub use ground::janitor::OwnedFile;
pub use ground::runner;
pub use ground::site::{PAPER, Site};
pub use result::journal::{results_directory, results_place};
pub use result::kept::Kept;
pub use result::language::Texts;
pub use result::number::number;
