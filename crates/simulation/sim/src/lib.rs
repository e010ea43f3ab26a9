//! The simulators as commands: `terapage sim ...`. One subcommand, one file. `terapage advise` is
//! here too: it simulates the pager.
#![forbid(unsafe_code)]

mod advise;
mod cache;
mod convert;
mod far;
mod fit;
mod info;
mod names;
mod paper;
mod policy;
mod progress;
mod publish;
mod quantity;
mod report;
mod show;
mod ssd;
mod stack;
mod sweep;
mod trace;
mod volume;

pub use advise::Advise;
pub use names::names;

/// The simulators.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Replay a recorded program: each replacement policy against Belady's optimum, at many budgets
    Policy(policy::Policy),
    /// Replay a trace on a plain cache of blocks or objects: miss ratios by policy and size
    Cache(Box<cache::Cache>),
    /// Show a study that was saved as JSON, in the terminal or as a page
    Report(report::Report),
    /// Describe a block trace
    Info(info::Info),
    /// Convert a block trace to another format
    Convert(convert::Convert),
    /// Describe or write synthetic stand-ins for the MSR Cambridge volumes
    Volume(volume::VolumeCommand),
    /// Replay block traces on SSDs of NAND flash with a cache of SCM or DRAM
    Ssd(Box<ssd::Ssd>),
    /// Measure how many requests a second the SSD simulators handle on this machine
    Speed(ssd::Speed),
    /// Simulate Linux's I/O stack: where CPU time goes, and which locks cost it
    #[command(subcommand)]
    Stack(stack::Stack),
    /// Simulate far memory: clients and servers, and which part of them saturates at what scale
    Far(far::Far),
    /// Draw the hybrid SSD paper's figures again, beside what was published
    Paper(paper::Paper),
    /// Fit the unknowns of the hybrid SSD paper to the gains that it printed
    Fit(fit::FitCommand),
    /// Simulate every combination of parameters; continue where an earlier sweep ended
    Sweep(sweep::SweepCommand),
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// The command fails; the error is one line.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Policy(policy) => policy.run(),
            Command::Cache(cache) => cache.run(),
            Command::Report(report) => report.run(),
            Command::Info(info) => info.run(),
            Command::Convert(convert) => convert.run(),
            Command::Volume(volume) => volume.run(),
            Command::Ssd(ssd) => ssd.run(),
            Command::Speed(speed) => speed.run(),
            Command::Stack(stack) => stack.run(),
            Command::Far(far) => far.run(),
            Command::Paper(paper) => paper.run(),
            Command::Fit(fit) => fit.run(),
            Command::Sweep(sweep) => sweep.run(),
        }
    }
}
