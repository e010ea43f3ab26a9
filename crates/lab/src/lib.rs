//! Experiments on programs whose data are larger than memory.
//!
//! Each runs the same program in memory, on the kernel's swap, on a mapped file and on Terapage,
//! in turns, beside what fio gets out of the device, and holds the figures against targets.

pub mod cgroup;
mod fio;
mod janitor;
mod optimum;
mod progress;
mod random;
mod report;
mod runner;
mod scan;
mod session;
mod sizes;
mod sort;
mod statistics;
mod swap;
mod workload;

use std::process::ExitCode;

/// Programs larger than memory: in memory, on swap, on mmap, on Terapage.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Goes through memory from end to end: writes, reads, read-modify-writes, STREAM's triad.
    Scan(scan::Scan),
    /// Reads 8-byte words at random places.
    Random(random::Random),
    /// Sorts a text file with GNU sort.
    Sort(sort::Sort),
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
            Command::Scan(scan) => scan.run(),
            Command::Random(random) => random.run(),
            Command::Sort(sort) => sort.run(),
            Command::Workload(workload) => workload.run().map(|()| ExitCode::SUCCESS),
            Command::Janitor => {
                janitor::serve();
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
