//! `terapage paper run bonnie` and `stack-measure`: published measurements, repeated by the lab.

use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terapage_lab::{Running, check_free, run_paper};

/// Names of the experiments, and their texts.
pub const EXPERIMENTS: [(&str, &str); 2] = [
    ("bonnie", include_str!("../experiments/bonnie.toml")),
    ("stack-measure", include_str!("../experiments/stack-measure.toml")),
];

/// Options of `paper run bonnie`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  terapage paper run bonnie --quick
  terapage paper run bonnie --device ssd=/mnt/ssd --prices prices.toml --html bonnie.html
  terapage paper run bonnie --i-may-erase /dev/sdx")]
pub struct Bonnie {
    /// Format this device, and measure it instead of an image file (contenders with one disk that
    /// is not throttled). All data on the device are lost. It must not be in use
    #[arg(long, value_name = "DEVICE", conflicts_with = "device")]
    i_may_erase: Option<PathBuf>,
    #[command(flatten)]
    running: Running,
}

/// Options of `paper run stack-measure`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  terapage paper run stack-measure --quick
  terapage paper run stack-measure --device nvme=/mnt/nvme --html stack.html
  terapage paper run stack-measure /dev/nvme1n1")]
pub struct StackMeasure {
    /// Read this device itself instead of a loop on an image file; nothing is written to it. It
    /// must not be in use
    #[arg(value_name = "DEVICE", conflicts_with = "device")]
    block_device: Option<PathBuf>,
    #[command(flatten)]
    running: Running,
}

impl Bonnie {
    /// Measures file systems.
    ///
    /// # Errors
    /// Nothing can be measured.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(device) = &self.i_may_erase {
            check_free(device).context("--i-may-erase")?;
        }
        measure(EXPERIMENTS[0], &self.running, self.i_may_erase)
    }
}

impl StackMeasure {
    /// Measures the kernel's way from a call to a device.
    ///
    /// # Errors
    /// Nothing can be measured.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.block_device.as_deref().map(Path::new).map_or(Ok(()), check_free)?;
        measure(EXPERIMENTS[1], &self.running, self.block_device)
    }
}

fn measure(
    (name, text): (&str, &str),
    running: &Running,
    device: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    run_paper(name, text, running, device)
}
