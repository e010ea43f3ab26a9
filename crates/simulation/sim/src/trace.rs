//! The flags of all commands that read block traces.

use crate::quantity::Time;
use anyhow::ensure;
use std::path::PathBuf;
use terapage_blocktrace::{BlockColumns, Format, Options, Reader, open};
use terapage_config::Size;

/// How block traces are read.
#[derive(clap::Args, Clone, Debug)]
pub struct ReadArgs {
    /// The format, by default detected from the first bytes. One of msr, msr-revised, ssdsim,
    /// disksim, blkparse, spc, fio, arc, vscsi, oraclegeneral, alibaba, tencent, systor17, fiu,
    /// blktrace, csv, tera
    #[arg(long, alias = "from", value_name = "FORMAT")]
    format: Option<Format>,
    /// Columns of any CSV, by name or number: offset=lba:512,size=4,time=ts:us,op=rw,volume=disk. A
    /// unit follows a colon (s, ms, us, ns; bytes of an address); after op's colon is the value of
    /// writes
    #[arg(long, value_name = "COLUMNS")]
    columns: Option<BlockColumns>,
    /// Skip at most this many bad records, and count them in the result
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad: u64,
    /// Read only this volume; can be given several times
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,
    /// Treat times that go back by at most this (500ns, 20us, 1ms, 2s) as simultaneous with the
    /// request before
    #[arg(long, value_name = "TIME", default_value = "0ns")]
    disorder: Time,
    /// The action of blkparse output and blktrace records to read: Q as queued, D as issued, C as
    /// completed
    #[arg(long, value_name = "LETTER", value_parser = action)]
    action: Option<char>,
    /// Bytes of one address in arc and oraclegeneral traces, which do not record it [default: 512]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    unit: Option<u32>,
}

impl ReadArgs {
    /// Refuses options that apply to none of the traces, which have these formats.
    ///
    /// # Errors
    /// An option applies to none of them.
    pub fn check_used(&self, formats: &[Format]) -> anyhow::Result<()> {
        let is = |one: &[Format]| formats.iter().any(|format| one.contains(format));
        let names = || formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
        let unit = self.unit.is_none() || is(&[Format::Arc, Format::OracleGeneral]);
        ensure!(unit, "--unit: it is for arc and oraclegeneral traces, and this was read as {}", names());
        let action = self.action.is_none() || is(&[Format::Blkparse, Format::Blktrace]);
        ensure!(action, "--action: it is for blkparse and blktrace traces, and this was read as {}", names());
        let columns = self.columns.is_none() || is(&[Format::Csv]);
        ensure!(columns, "--columns: it is for CSV, and --format names {}", names());
        Ok(())
    }

    /// The options of the reader.
    pub fn options(&self) -> Options {
        Options {
            format: self.format,
            columns: self.columns.clone(),
            skip_bad: self.skip_bad,
            volumes: self.volumes.clone(),
            capacity: None,
            disorder_ns: self.disorder.ns,
            action: self.action,
            unit_bytes: self.unit,
        }
    }
}

/// A block trace and the options for reading it.
#[derive(clap::Args, Clone, Debug)]
pub struct TraceArgs {
    /// The trace, compressed or not; - is standard input
    #[arg(value_name = "TRACE", value_hint = clap::ValueHint::FilePath)]
    pub path: PathBuf,
    #[command(flatten)]
    read: ReadArgs,
    /// Refuse requests that end beyond this many bytes (4096, 10GiB)
    #[arg(long, value_name = "BYTES")]
    capacity: Option<Size>,
}

impl TraceArgs {
    /// Opens the trace.
    ///
    /// # Errors
    /// Errors of [`open`], or an option that does not apply to the trace.
    pub fn open(&self) -> anyhow::Result<Reader> {
        let options = Options { capacity: self.capacity.map(|Size(bytes)| bytes), ..self.read.options() };
        let reader = open(&self.path, &options)?;
        self.read.check_used(&[reader.meta().format])?;
        Ok(reader)
    }
}

fn action(text: &str) -> Result<char, String> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if letter.is_ascii_uppercase() => Ok(letter),
        _ => Err("expected one capital letter, such as Q, D or C".to_string()),
    }
}
