//! The simulators as commands: `terapage sim ...`. One subcommand, one file. `terapage advise` is here too: it simulates
//! the pager.
#![forbid(unsafe_code)]

mod advise;
mod policy;
mod publish;
mod report;

pub use advise::Advise;

/// The simulators.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Replays a recorded program: each replacement policy against Belady's optimum, at many budgets.
    Policy(policy::Policy),
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
            Command::Policy(policy) => policy.run(),
            Command::Report(report) => report.run(),
        }
    }
}
