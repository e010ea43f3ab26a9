//! The simulators as commands: `terapage sim ...`. One subcommand, one file. `terapage advise` is here too: it simulates
//! the pager.
#![forbid(unsafe_code)]

mod advise;
mod convert;
mod info;
mod policy;
mod progress;
mod publish;
mod report;
mod ssd;
mod stack;
mod trace;

pub use advise::Advise;
pub use trace::TraceArgs;

/// The simulators.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Replays a recorded program: each replacement policy against Belady's optimum, at many budgets.
    Policy(policy::Policy),
    /// Show a study that was kept as JSON, in the terminal or as a page
    Report(report::Report),
    /// Tell what a block trace is like
    Info(info::Info),
    /// Convert a block trace to another format
    Convert(convert::Convert),
    /// Replay block traces against SSDs of NAND flash with a cache of SCM or DRAM
    Ssd(Box<ssd::Ssd>),
    /// Simulate Linux's I/O stack: where CPU time goes, and which locks are to blame.
    #[command(subcommand)]
    Stack(stack::Stack),
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Policy(policy) => policy.run(),
            Command::Report(report) => report.run(),
            Command::Info(info) => info.run(),
            Command::Convert(convert) => convert.run(),
            Command::Ssd(ssd) => ssd.run(),
            Command::Stack(stack) => stack.run(),
        }
    }
}
