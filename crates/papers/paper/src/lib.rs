//! `terapage paper`: figures of papers, simulated or measured beside the published values.
#![forbid(unsafe_code)]

mod fukuchi;
mod list;
mod measured;
mod names;
mod ratios;
mod sato;
mod stack;

pub use names::names;

use std::process::ExitCode;

/// Figures of papers.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  terapage paper list
  terapage paper run fukuchi table2
  terapage paper run sato fig6 --without host-lock
  terapage paper run stack --stack scsi --rate 800k --set multiplicity=4")]
pub enum Command {
    /// List every figure, table and claim: command, whether it can run here, published value, value
    /// here, and why they differ
    List(list::List),
    /// Repeat a figure, beside the published values
    #[command(subcommand)]
    Run(Box<Paper>),
    /// The first process of an emulated machine.
    #[command(hide = true)]
    Guest(terapage_guest::Guest),
}

/// The papers and their commands.
#[derive(clap::Subcommand)]
pub enum Paper {
    /// Fukuchi, Sakaki, Matsui, Takeuchi: SSDs of SCM before four kinds of NAND
    Fukuchi(fukuchi::Figures),
    /// Fit the unknowns of Fukuchi et al. to the gains that they printed
    FukuchiFit(fukuchi::FitCommand),
    /// Describe or write synthetic stand-ins for the volumes of Fukuchi et al. (MSR Cambridge)
    FukuchiVolumes(fukuchi::VolumeCommand),
    /// Simulate every combination of parameters of Fukuchi et al.; a stopped sweep can be continued
    FukuchiSweep(fukuchi::SweepCommand),
    /// Sato, Kondo, Kiyota: Linux's I/O stack, SCSI and NVMe at one storage array
    Sato(sato::Sato),
    /// Simulate any setup of machine, I/O stack and load: where CPU time goes, which locks cost it
    Stack(stack::Run),
    /// Measure this machine, and fit the model of the I/O stack to it
    StackCalibrate(stack::Calibrate),
    /// Measure the cost of an I/O in the kernel, by path, scheduler and I/Os per call
    StackMeasure(measured::StackMeasure),
    /// Count instructions by I/O in an emulated machine (needs qemu, not root): null_blk,
    /// scsi_debug, nvme, virtio-blk and virtio-scsi, by scheduler and I/Os per call
    StackGuest(terapage_guest::Run),
    /// Martin: measure file systems with Bonnie++, on image files of its own
    Bonnie(measured::Bonnie),
    /// The lab and the simulators beside other tools and theory: libCacheSim (if it is here) and
    /// theory now, the others as last measured
    Ratios(ratios::Ratios),
}

impl Command {
    /// Runs the command; the status says whether everything requested was measured.
    ///
    /// # Errors
    /// The study fails; the error is one line.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let done = match self {
            Command::List(list) => list.run(),
            Command::Guest(guest) => guest.run(),
            Command::Run(paper) => return paper.run(),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

impl Paper {
    fn run(self) -> anyhow::Result<ExitCode> {
        let done = match self {
            Paper::Fukuchi(figures) => figures.run(),
            Paper::FukuchiFit(fit) => fit.run(),
            Paper::FukuchiVolumes(volumes) => volumes.run(),
            Paper::FukuchiSweep(sweep) => sweep.run(),
            Paper::Sato(sato) => sato.run(),
            Paper::Stack(run) => run.run(),
            Paper::StackCalibrate(calibrate) => calibrate.run(),
            Paper::StackGuest(guest) => guest.run(),
            Paper::Ratios(ratios) => ratios.run(),
            Paper::StackMeasure(measure) => return measure.run(),
            Paper::Bonnie(bonnie) => return bonnie.run(),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
