//! The commands: their options, and what they do with campaigns and results.

pub mod bonnie;
pub mod compare;
pub mod costs;
pub mod guest;
pub mod program;
pub mod report;
pub mod run;
pub mod running;
pub mod show;
pub mod stack;

use crate::ground::{janitor, record};
use crate::workload::Workload;
use std::process::ExitCode;

/// Programs larger than memory: in memory, on swap, on mmap, on Terapage.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Prints the names of the experiments.
    List,
    /// Runs experiments in turns until their ratios are known, and reports; goes on where it was
    /// ended.
    Run(Box<run::RunOne>),
    /// Measures a program of yours, with more and with less memory than it wants.
    Program(Box<program::Program>),
    /// Measures file systems with Bonnie++, on image files of the lab's own.
    Bonnie(Box<bonnie::Run>),
    /// Measures what an I/O costs in the kernel, by path, scheduler and I/Os per call.
    Stack(Box<stack::Run>),
    /// Runs all experiments.
    All(Box<run::All>),
    /// Reports on results, here or from another machine.
    Report(report::ReportOn),
    /// Holds the results of two machines, kernels or versions against each other.
    Compare(compare::Compare),
    /// Puts several files of results into one.
    Merge(report::Merge),
    /// Takes down what labs that were killed, or lost their power, have left.
    Clean,
    /// The programs that are measured.
    #[command(hide = true, subcommand)]
    Workload(Workload),
    /// Takes down what a dead lab has left.
    #[command(hide = true)]
    Janitor,
}

impl Command {
    /// Runs the experiment and prints its report; the status says whether all that was asked for
    /// was measured.
    ///
    /// # Errors
    /// When an option is wrong, nothing can be measured, or a signal ends it. Nothing that was
    /// set up is left.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Workload(workload) => workload.run().map(|()| ExitCode::SUCCESS),
            Command::List => costs::list(),
            Command::Run(run) => run.run(),
            Command::Program(program) => program.run(),
            Command::Bonnie(bonnie) => bonnie.run(),
            Command::Stack(stack) => stack.run(),
            Command::All(all) => all.run(),
            Command::Report(report) => report.run(),
            Command::Compare(compare) => compare.run(),
            Command::Merge(merge) => merge.run(),
            Command::Clean => clean(),
            Command::Janitor => {
                janitor::serve();
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Says what was taken down, and what could not be.
fn clean() -> anyhow::Result<ExitCode> {
    use std::io::Write;
    let (undone, failed) = record::clean()?;
    let mut out = std::io::stdout().lock();
    for line in &undone {
        writeln!(out, "taken down: {line}")?;
    }
    if undone.is_empty() && failed.is_empty() {
        writeln!(out, "nothing was left")?;
    }
    for line in &failed {
        writeln!(std::io::stderr(), "{line}")?;
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
