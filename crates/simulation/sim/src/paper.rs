//! `terapage sim paper`: figures of papers, simulated beside the published values.

mod fukuchi;
mod sato;

use crate::publish::print;
use clap::{Args, Subcommand};

/// The list for `terapage sim paper` without a name.
const LIST: &str = "\
Fukuchi, Sakaki, Matsui, Takeuchi (Chuo University), on SSDs of SCM before four kinds of NAND
  sim paper fukuchi table2      the gains of 3D CT TLC, with their signs and order
  sim paper fukuchi fig3        IOPS of four kinds of NAND by volume
  sim paper fukuchi fig5        one characteristic of 3D CT TLC at a time
  sim paper fukuchi fig6        the gain against the share of reads at the flash
  sim paper fukuchi-fit         the unknowns of the paper, from the gains that it printed
  sim paper fukuchi-volumes     synthetic stand-ins for the volumes of its traces
  sim paper fukuchi-sweep       any of its parameters, all combinations

Sato, Kondo, Kiyota, on Linux's I/O stack: SCSI and NVMe at one storage array
  sim paper sato fig5           CPU use against IOPS
  sim paper sato fig6           busy time for an I/O against IOPS
  sim paper sato fig7           the highest rate at each multiplicity
  sim paper sato anchors        published results of other authors, beside the model's
  sim paper sato mechanisms     the findings with each mechanism switched off in turn
  sim paper sato predict        the multi-queue stacks, which the report did not measure
";

/// The arguments of `terapage sim paper`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage sim paper
  terapage sim paper fukuchi table2
  terapage sim paper sato fig6 --without host-lock")]
pub struct Papers {
    #[command(subcommand)]
    paper: Option<Paper>,
}

/// The papers and their commands.
#[derive(Subcommand)]
enum Paper {
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
}

impl Papers {
    /// Runs the command; without a name it prints the list.
    ///
    /// # Errors
    /// The study fails; the error is one line.
    pub fn run(self) -> anyhow::Result<()> {
        match self.paper {
            None => print(LIST),
            Some(Paper::Fukuchi(figures)) => figures.run(),
            Some(Paper::FukuchiFit(fit)) => fit.run(),
            Some(Paper::FukuchiVolumes(volumes)) => volumes.run(),
            Some(Paper::FukuchiSweep(sweep)) => sweep.run(),
            Some(Paper::Sato(sato)) => sato.run(),
        }
    }
}
