//! The simulators as commands: `terapage sim ...`. One subcommand, one file.
#![forbid(unsafe_code)]

mod convert;
mod info;
mod plain;
mod progress;
mod report;
mod ssd;
mod trace;

pub use trace::TraceArgs;

/// The simulators.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Tell what a block trace is like
    Info(info::Info),
    /// Convert a block trace to another format
    Convert(convert::Convert),
    /// Replay block traces against SSDs of NAND flash with a cache of SCM or DRAM
    Ssd(Box<ssd::Ssd>),
    /// Show a study that was kept as JSON, in the terminal or as a page
    Report(report::Report),
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Info(info) => info.run(),
            Command::Convert(convert) => convert.run(),
            Command::Ssd(ssd) => ssd.run(),
            Command::Report(report) => report.run(),
        }
    }
}
