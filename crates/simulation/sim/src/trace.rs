//! The flags of all commands that read block traces.

use crate::quantity::Time;
use std::path::PathBuf;
use terapage_blocktrace::{Error, Format, Options, Reader, open};
use terapage_config::Size;

/// How block traces are read.
#[derive(clap::Args, Clone, Debug)]
pub struct ReadArgs {
    /// The format, by default detected from the first bytes. One of msr, msr-revised, ssdsim,
    /// disksim, blkparse, spc, fio, arc, vscsi, oraclegeneral, tera
    #[arg(long, alias = "from", value_name = "FORMAT")]
    format: Option<Format>,
    /// Skip at most this many bad records, and count them in the result
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad: u64,
    /// Read this volume only; can be given several times
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,
    /// Treat times that go back by at most this (500ns, 20us, 1ms, 2s) as simultaneous with the
    /// request before
    #[arg(long, value_name = "TIME", default_value = "0ns")]
    disorder: Time,
    /// The action of blkparse output to read: Q as queued, D as issued, C as completed
    #[arg(long, value_name = "LETTER", value_parser = action)]
    action: Option<char>,
    /// Bytes of one address in arc and oraclegeneral traces, which do not record it [default: 512]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    unit: Option<u32>,
}

impl ReadArgs {
    /// The options of the reader.
    pub fn options(&self) -> Options {
        Options {
            format: self.format,
            skip_bad: self.skip_bad,
            volumes: self.volumes.clone(),
            capacity: None,
            disorder_ns: self.disorder.ns,
            action: self.action,
            unit_bytes: self.unit,
        }
    }
}

/// A block trace and how to read it.
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
    /// Those of [`open`].
    pub fn open(&self) -> Result<Reader, Error> {
        let options = Options { capacity: self.capacity.map(|Size(bytes)| bytes), ..self.read.options() };
        open(&self.path, &options)
    }
}

fn action(text: &str) -> Result<char, String> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if letter.is_ascii_uppercase() => Ok(letter),
        _ => Err("expected one capital letter, such as Q, D or C".to_string()),
    }
}
