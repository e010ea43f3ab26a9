//! Options of the commands that run experiments.

use crate::campaign::bounds::Bounds;
use crate::campaign::session::Session;
use crate::campaign::steady;
use crate::commands::show::Show;
use crate::contender::far::{self, Far, Where};
use crate::experiment::Experiment;
use crate::ground::chosen::Chosen;
use std::path::PathBuf;
use std::time::Duration;
use terapage_config::Size;

/// Options of the commands that run experiments.
#[derive(Clone, Debug, clap::Args)]
pub struct Running {
    /// Where swap files, mapped files and stores lie
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// A device to measure instead, by a name and a directory on it; @hdd, @hdd-2008, @sata-ssd,
    /// @volume-3000 or @volume-500 emulates a slower one, on a throttled image file. May be
    /// repeated
    #[arg(long, value_name = "NAME=PATH[@CLASS]", conflicts_with = "dir")]
    pub device: Vec<Chosen>,
    /// Where results are kept; by default ~/.local/share/terapage-lab
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Less data, fewer cells, two rounds (of `program`: one): a first impression
    #[arg(long)]
    pub quick: bool,
    /// Say how long the run would take and how much it would write, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Only these contenders, separated by commas, and the baseline
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub contenders: Vec<String>,
    /// Measures far memory too: on the server of this URL, which may be repeated; or on servers
    /// that the lab starts and ends: loopback (also without a value), unix (sockets), veth (network
    /// namespaces; root), veth:1gbit (with a rate)
    #[arg(long, value_name = "URL|HOW", num_args = 0..=1, default_missing_value = far::DEFAULT)]
    pub far: Vec<String>,
    /// Before each device is measured, write to it until its speed stays within a tenth of its mean
    /// for a while, at most for SECONDS (600): needs fio, and wears an SSD
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = steady::SECONDS,
          value_parser = clap::value_parser!(u64).range(8..))]
    pub steady: Option<u64>,
    /// Minutes after which no further run begins; the same command continues later
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub most_minutes: Option<u64>,
    /// Bytes that all runs together may write to the device, by the device's count; the run that
    /// reaches them is the last, and the same command continues later
    #[arg(long, value_name = "SIZE")]
    pub most_written: Option<Size>,
    /// Seconds that one run may take; by default 600, with --quick 60
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// How results are shown.
    #[command(flatten)]
    pub show: Show,
}

impl Running {
    /// The number of times that a disturbed run is repeated. Tests set the variable, because their
    /// machines are seldom quiet.
    pub fn retries(&self) -> u32 {
        let asked = std::env::var("TERAPAGE_LAB_RETRIES").ok().and_then(|text| text.parse().ok());
        asked.unwrap_or(if self.quick { 0 } else { 2 })
    }

    /// The stores of the far contenders of these experiments, if there are any.
    ///
    /// # Errors
    /// The stores cannot be provided.
    pub fn far(&self, session: &Session, experiments: &[Experiment]) -> anyhow::Result<Option<Far>> {
        let Some(place) = Where::parse(&self.far)? else { return Ok(None) };
        let (mut servers, mut bytes) = (1, 0);
        for experiment in experiments {
            servers = servers.max(experiment.servers());
            for cell in experiment.cells() {
                bytes = bytes.max(far::part(experiment, &cell, &experiment.sizes_of(&cell)?, 1)?);
            }
        }
        Far::up(&session.site, &place, servers, bytes).map(Some)
    }

    /// When no further run begins.
    pub fn bounds(&self) -> Bounds {
        Bounds::new(self.most_minutes, self.most_written.map(|Size(bytes)| bytes))
    }

    /// The maximum time of a run.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.unwrap_or(if self.quick { 60 } else { 600 }))
    }
}
