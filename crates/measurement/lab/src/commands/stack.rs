//! `lab stack`: the cost of an I/O on its way through the kernel, here or in an emulated machine.

use crate::commands::guest;
use crate::commands::run::run_all;
use crate::commands::running::Running;
use crate::experiment::Experiment;
use crate::ground::disk::check_free;
use anyhow::Context;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of measurements here, which machines that are emulated have no use for.
const NOT_OF_GUESTS: [&str; 12] = [
    "device",
    "quick",
    "dry_run",
    "contenders",
    "far",
    "steady",
    "retries",
    "most_minutes",
    "most_written",
    "timeout",
    "prices",
    "csv",
];

/// Options of `lab stack`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  terapage lab stack --quick
  terapage lab stack --device nvme=/mnt/nvme --html stack.html
  terapage lab stack --block-device /dev/nvme1n1
  terapage lab stack --guest")]
pub struct Run {
    /// Count instructions by I/O in an emulated machine instead (needs qemu, not root): null_blk,
    /// scsi_debug, nvme, virtio-blk and virtio-scsi, by scheduler and I/Os per call
    #[arg(long, conflicts_with_all = NOT_OF_GUESTS)]
    guest: bool,
    /// The Debian package with the machine's kernel (linux-image-*-cloud-amd64_*.deb); by default
    /// it is downloaded
    #[arg(long, value_name = "FILE.deb", requires = "guest")]
    kernel: Option<PathBuf>,
    /// Read this device itself instead of a loop on an image file; nothing is written to it. It
    /// must not be in use
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["guest", "device"])]
    block_device: Option<PathBuf>,
    #[command(flatten)]
    running: Running,
}

impl Run {
    /// Measures.
    ///
    /// # Errors
    /// Nothing can be measured.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.guest {
            true => guest::run(self.kernel.as_deref(), &self.running),
            false => {
                if let Some(device) = &self.block_device {
                    check_free(device).context("--block-device")?;
                }
                let experiments = vec![Experiment::find("stack")?];
                run_all("stack", experiments, &self.running, self.block_device, false)
            }
        }
    }
}
