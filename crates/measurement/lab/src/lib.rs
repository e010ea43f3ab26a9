//! Experiments on programs whose data are larger than memory.
//!
//! Each runs the same program in memory, on the kernel's swap, on a mapped file and on Terapage,
//! in turns, beside what fio gets out of the device, and holds the figures against targets.

mod campaign;
mod commands;
mod contender;
mod experiment;
mod ground;
mod guest;
mod result;
mod workload;

pub use ground::cgroup;

use std::process::ExitCode;

/// Programs larger than memory: in memory, on swap, on mmap, on Terapage.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Prints the names of the experiments.
    List,
    /// Runs experiments in turns until their ratios are known, and reports; goes on where it was
    /// ended.
    Run(Box<commands::RunOne>),
    /// Measures a program of yours, with more and with less memory than it wants.
    Program(Box<commands::program::Program>),
    /// Measures file systems with Bonnie++, on image files of the lab's own.
    Bonnie(Box<commands::bonnie::Run>),
    /// Measures what an I/O costs in the kernel, by path, scheduler and I/Os per call.
    Stack(Box<commands::stack::Run>),
    /// Runs all experiments.
    All(Box<commands::All>),
    /// Reports on results, here or from another machine.
    Report(commands::ReportOn),
    /// Holds the results of two machines, kernels or versions against each other.
    Compare(commands::Compare),
    /// Puts several files of results into one.
    Merge(commands::Merge),
    /// Takes down what labs that were killed, or lost their power, have left.
    Clean,
    /// The programs that are measured.
    #[command(hide = true, subcommand)]
    Workload(workload::Workload),
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
            Command::List => commands::list(),
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
                ground::janitor::serve();
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Says what was taken down, and what could not be.
fn clean() -> anyhow::Result<ExitCode> {
    use std::io::Write;
    let (undone, failed) = ground::record::clean()?;
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
