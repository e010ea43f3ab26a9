//! `terapage sim convert`: a block trace in another format.

use crate::progress::Progress;
use crate::publish::check;
use crate::trace::TraceArgs;
use anyhow::{Context, bail, ensure};
use std::path::PathBuf;
use terapage_blocktrace::{Counts, Format, Losses, Reader, Writer, WriterOptions};

/// Convert a block trace to another format.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  terapage sim convert prxy_1.csv.gz prxy_1.tera
  terapage sim convert --volume hm_1 hm.csv hm_1.trace.zst --to ssdsim
  terapage sim convert trace.blkparse - --to fio

OUT is compressed if its suffix is .gz, .zst or .xz. It appears once it is complete; after an error
nothing remains. A request that does not fit into the format is an error, which names the request;
with --lossy it is changed, and the losses are reported.")]
pub struct Convert {
    #[command(flatten)]
    trace: TraceArgs,
    /// The file to write; - is standard output
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// The format to write: tera, msr, ssdsim, disksim, blkparse, spc, fio, oraclegeneral [default:
    /// by OUT's suffix, or tera]
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
    /// Change requests that do not fit: leave out trims, grow requests to whole sectors, drop kinds
    /// and volumes
    #[arg(long)]
    lossy: bool,
    /// The name in a tera trace [default: the name in the source, if that is a tera trace]
    #[arg(long)]
    name: Option<String>,
    /// Mark a tera trace as synthetic (made up, not recorded); a synthetic tera trace stays marked
    #[arg(long)]
    synthetic: bool,
}

impl Convert {
    /// Runs the command.
    ///
    /// # Errors
    /// The trace is wrong, a request does not fit, or the file cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        let format = self.format()?;
        check(&self.out, &[&self.trace.path])?;
        let mut reader = self.trace.open()?;
        let mut writer = Writer::create(&self.out, format, &self.options(&reader))?;
        let progress = Progress::files([self.trace.path.as_path()]);
        let mut reading = progress.reading();
        while let Some(request) = reader.next() {
            let request = request?;
            let volume = reader.volumes().get(usize::from(request.volume));
            writer
                .write(&request, volume.map_or("", String::as_str))
                .with_context(|| format!("as {format}"))?;
            reading.step(&reader);
        }
        ensure!(reader.counts().requests > 0, "{}: there is no request in it", self.trace.path.display());
        let losses = writer.finish()?;
        drop(progress);
        tell(format, &losses, &reader.counts());
        Ok(())
    }

    /// The format that was asked for, or else the format of the last suffix that does not name a
    /// compression.
    fn format(&self) -> anyhow::Result<Format> {
        let format = self.to.unwrap_or_else(|| {
            let packed = terapage_blocktrace::Compression::of_name(&self.out).is_some();
            let plain = if packed { self.out.with_extension("") } else { self.out.clone() };
            let suffix = plain.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
            suffix.parse().ok().filter(|format| *format != Format::Csv).unwrap_or(Format::Tera)
        });
        if !format.is_written() {
            bail!(
                "{format} traces are read, not written; write tera, msr, ssdsim, disksim, blkparse, spc, fio or oraclegeneral"
            );
        }
        Ok(format)
    }

    fn options(&self, reader: &Reader) -> WriterOptions {
        let meta = reader.meta();
        WriterOptions {
            name: self.name.clone().unwrap_or_else(|| meta.name.clone()),
            comment: meta.comment.clone(),
            synthetic: self.synthetic || meta.synthetic,
            lossy: self.lossy,
        }
    }
}

/// Reports the counts of changed and lost requests on standard error, since standard output may be
/// the trace.
fn tell(format: Format, losses: &Losses, counts: &Counts) {
    let mut parts = vec![format!("{} requests as {format}", losses.requests)];
    for (count, what) in [
        (counts.skipped, "bad records skipped"),
        (counts.late, "times that went back taken as simultaneous"),
        (counts.unwanted, "requests to other volumes left out"),
        (counts.other, "records that are no requests for data left out"),
        (losses.times_cut, "times cut off to the format's unit"),
        (losses.trims, "trims left out"),
        (losses.grown, "requests grown to whole sectors"),
        (losses.kinds, "writes that became reads"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    eprintln!("{}", parts.join("; "));
}
