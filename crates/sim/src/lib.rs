//! The simulators as commands: `terapage sim ...`. One subcommand, one file.
#![forbid(unsafe_code)]

/// The simulators.
#[derive(clap::Subcommand)]
pub enum Command {}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn run(self) -> anyhow::Result<()> {
        match self {}
    }
}
