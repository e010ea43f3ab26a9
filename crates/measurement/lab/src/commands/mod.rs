//! The commands: their options, and their use of campaigns and results.

pub mod compare;
pub mod costs;
pub mod program;
pub mod quick;
pub mod report;
pub mod run;
pub mod running;
pub mod show;

use crate::ground::{janitor, record};
use crate::workload::Workload;
use std::process::ExitCode;

/// Programs larger than memory: in memory, on swap, on mmap, on Terapage.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Print the names of the experiments.
    List,
    /// Run experiments in turns until their ratios are known, and report; continue where an earlier
    /// run ended.
    Run(Box<run::RunOne>),
    /// Measure your program, with more and with less memory than it wants.
    Program(Box<program::Program>),
    /// Run all experiments.
    All(Box<run::All>),
    /// Report on results, from here or from another machine.
    Report(report::ReportOn),
    /// Compare the results of two machines, kernels or versions.
    Compare(compare::Compare),
    /// Remove what killed labs, or a loss of power, have left behind.
    Clean,
    /// The programs that are measured.
    #[command(hide = true, subcommand)]
    Workload(Workload),
    /// Removes what a dead lab has left.
    #[command(hide = true)]
    Janitor,
}

impl Command {
    /// Runs the experiment and prints its report; the status says whether everything requested was
    /// measured.
    ///
    /// # Errors
    /// An option is wrong, nothing can be measured, or a signal ends the run. Nothing that was set
    /// up remains.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Workload(workload) => workload.run().map(|()| ExitCode::SUCCESS),
            Command::List => costs::list(),
            Command::Run(run) => run.run(),
            Command::Program(program) => program.run(),
            Command::All(all) => all.run(),
            Command::Report(report) => report.run(),
            Command::Compare(compare) => compare.run(),
            Command::Clean => clean(),
            Command::Janitor => {
                janitor::serve();
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Reports what was removed, and what could not be removed.
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
