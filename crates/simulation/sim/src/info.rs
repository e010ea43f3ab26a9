//! `terapage sim info`: the statistics of a block trace.

use crate::progress::Progress;
use crate::publish::command_line;
use crate::show::Show;
use crate::trace::TraceArgs;
use anyhow::ensure;
use terapage_blocktrace::{Profile, ProfileOptions, Profiler};

/// Describe a block trace: mix, sizes, alignment, sequence, times, footprint, reuse.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  terapage sim info prxy_1.csv.gz
  terapage sim info prxy_1.csv.gz --html prxy_1.html
  terapage sim info --volume hm_1 --json - hm.csv | jq .results.footprint_blocks
  zcat trace.gz | terapage sim info --format ssdsim -

Footprint and reuse are exact up to --track blocks. For a trace that touches more they are estimated
from a sample of its blocks, and the result says so.")]
pub struct Info {
    #[command(flatten)]
    trace: TraceArgs,
    /// Bytes of a block, in which footprint and reuse are counted
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(512..))]
    block: u32,
    /// Blocks to track individually, about 80 bytes of memory each
    #[arg(long, value_name = "N", default_value_t = 4 << 20)]
    track: usize,
    #[command(flatten)]
    show: Show,
}

impl Info {
    /// Runs the command.
    ///
    /// # Errors
    /// The trace is wrong, or the result cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        self.show.check([self.trace.path.as_path()])?;
        let profile = self.profile()?;
        let study = profile.study(&command_line());
        self.show.results(&study, &profile, || self.show.text(&study, false))
    }

    fn profile(&self) -> anyhow::Result<Profile> {
        let mut reader = self.trace.open()?;
        let options = ProfileOptions { block_bytes: self.block, tracked_blocks_max: self.track };
        let mut profiler = Profiler::new(reader.meta().format.has_times(), options);
        let progress = Progress::files([self.trace.path.as_path()]);
        let mut reading = progress.reading();
        while let Some(request) = reader.next() {
            profiler.add(&request?);
            reading.step(&reader);
        }
        ensure!(reader.counts().requests > 0, "{}: there is no request in it", self.trace.path.display());
        Ok(profiler.finish(&reader))
    }
}
