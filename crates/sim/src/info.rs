//! `terapage sim info`: what a block trace is like.

use crate::progress::Progress;
use crate::publish;
use crate::trace::TraceArgs;
use std::path::PathBuf;
use terapage_blocktrace::{Profile, ProfileOptions, Profiler};
use terapage_report::{Study, TextOptions, render_text_with};

/// Tell what a block trace is like: mix, sizes, alignment, sequence, times, footprint, reuse.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  terapage sim info prxy_1.csv.gz
  terapage sim info prxy_1.csv.gz --html prxy_1.html
  terapage sim info --volume hm_1 --json hm.csv | jq .profile.footprint_blocks
  zcat trace.gz | terapage sim info --format ssdsim -

Footprint and reuse are exact up to --track blocks. For a trace that touches more, a
sample of its blocks stands for all, and the result says so.")]
pub struct Info {
    #[command(flatten)]
    trace: TraceArgs,
    /// Bytes of a block, in which footprint and reuse are counted
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(512..))]
    block: u32,
    /// Blocks to follow one by one, about 80 bytes of memory each
    #[arg(long, value_name = "N", default_value_t = 4 << 20)]
    track: usize,
    /// Write JSON: the study, as `terapage sim report` shows it, and beside it the profile
    #[arg(long)]
    json: bool,
    /// Write a page with tables and plots to this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,
}

/// What `--json` writes.
#[derive(serde::Serialize)]
struct Data {
    #[serde(flatten)]
    study: Study,
    profile: Profile,
}

impl Info {
    /// Runs it.
    ///
    /// # Errors
    /// The trace's, or that the result cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        let profile = self.profile()?;
        let study = profile.study(&publish::command_line());
        if let Some(path) = &self.html {
            publish::html(path, &study)?;
        }
        if self.json {
            return publish::print(&(serde_json::to_string_pretty(&Data { study, profile })? + "\n"));
        }
        let columns = publish::columns();
        let options = TextOptions { columns, charts: false, parameters: false, ..TextOptions::default() };
        publish::print(&render_text_with(&study, &options))
    }

    fn profile(&self) -> anyhow::Result<Profile> {
        let mut reader = self.trace.open()?;
        let options = ProfileOptions { block_bytes: self.block, tracked_blocks_max: self.track };
        let mut profiler = Profiler::new(reader.meta().format.has_times(), options);
        let mut progress = Progress::new(&reader);
        while let Some(request) = reader.next() {
            profiler.add(&request?);
            progress.step(&reader);
        }
        Ok(profiler.finish(&reader))
    }
}
