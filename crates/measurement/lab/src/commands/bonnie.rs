//! `lab bonnie`: file systems by Bonnie++.

use crate::commands::run::run_all;
use crate::commands::running::Running;
use crate::experiment::Experiment;
use crate::ground::disk::check_free;
use anyhow::Context;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `lab bonnie`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  terapage lab bonnie --quick
  terapage lab bonnie --device ssd=/mnt/ssd --prices prices.toml --html bonnie.html
  terapage lab bonnie --i-may-erase /dev/sdx")]
pub struct Run {
    /// Format this device, and measure it instead of an image file (contenders with one disk that
    /// is not throttled). All data on the device are lost. It must not be in use
    #[arg(long, value_name = "DEVICE", conflicts_with = "device")]
    i_may_erase: Option<PathBuf>,
    #[command(flatten)]
    running: Running,
}

impl Run {
    /// Measures file systems.
    ///
    /// # Errors
    /// Nothing can be measured.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(device) = &self.i_may_erase {
            check_free(device).context("--i-may-erase")?;
        }
        run_all("bonnie", vec![Experiment::find("bonnie")?], &self.running, self.i_may_erase, false)
    }
}
