//! The simulators as commands: `terapage sim ...`. One subcommand, one file.
#![forbid(unsafe_code)]

mod stack;

/// The simulators.
#[derive(clap::Subcommand)]
pub enum Command {
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
            Command::Stack(stack) => stack.run(),
        }
    }
}
