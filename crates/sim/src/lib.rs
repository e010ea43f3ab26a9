//! The simulators as commands: `terapage sim ...`. One subcommand, one file.
#![forbid(unsafe_code)]

mod report;
mod ssd;

/// The simulators.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show a study that was kept as JSON, in the terminal or as a page
    Report(report::Report),
    /// Replay block traces against SSDs of NAND flash with a cache of SCM or DRAM
    Ssd(Box<ssd::Ssd>),
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Report(report) => report.run(),
            Command::Ssd(ssd) => ssd.run(),
        }
    }
}
