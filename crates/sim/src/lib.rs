//! The simulators as commands: `terapage sim ...`. One subcommand, one file.
#![forbid(unsafe_code)]

mod fit;
mod paper;
mod report;
mod show;
mod ssd;
mod sweep;
mod volume;

/// The simulators.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Fit the unknowns of the hybrid SSD paper to the gains that it printed
    Fit(fit::FitCommand),
    /// Draw the hybrid SSD paper's figures again, beside what was published
    Paper(paper::Paper),
    /// Show a study that was kept as JSON, in the terminal or as a page
    Report(report::Report),
    /// Replay block traces against SSDs of NAND flash with a cache of SCM or DRAM
    Ssd(Box<ssd::Ssd>),
    /// Simulate every combination of parameters; go on where an earlier sweep ended
    Sweep(sweep::SweepCommand),
    /// Describe or write synthetic stand-ins for the MSR Cambridge volumes
    Volume(volume::VolumeCommand),
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Fit(fit) => fit.run(),
            Command::Paper(paper) => paper.run(),
            Command::Report(report) => report.run(),
            Command::Ssd(ssd) => ssd.run(),
            Command::Sweep(sweep) => sweep.run(),
            Command::Volume(volume) => volume.run(),
        }
    }
}
