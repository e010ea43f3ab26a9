//! The simulators as commands: `terapage sim ...`. Each subcommand has one file. `terapage advise`
//! is here as well, since it simulates the pager.
#![forbid(unsafe_code)]

mod advise;
mod cache;
mod convert;
mod far;
mod given;
mod info;
mod names;
mod policy;
pub mod progress;
pub mod publish;
pub mod quantity;
mod report;
pub mod set;
pub mod show;
mod ssd;
mod trace;

pub use advise::Advise;
pub use names::names;

/// The simulators.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Replay a trace on caches by policy and size: blocks, objects, or a recorded program, whose
    /// policies are compared with Belady's optimum
    Cache(Box<cache::Cache>),
    /// Show a study that was saved as JSON, in the terminal or as a page
    Report(report::Report),
    /// Describe a block trace
    Info(info::Info),
    /// Convert a block trace to another format
    Convert(convert::Convert),
    /// Replay block traces on SSDs of NAND flash with a cache of SCM or DRAM
    Ssd(Box<ssd::Ssd>),
    /// Simulate far memory: clients, servers, and the part of them that saturates at each scale
    Far(far::Far),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The command fails; the error is one line.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Cache(cache) => cache.run(),
            Command::Report(report) => report.run(),
            Command::Info(info) => info.run(),
            Command::Convert(convert) => convert.run(),
            Command::Ssd(ssd) => ssd.run(),
            Command::Far(far) => far.run(),
        }
    }
}
