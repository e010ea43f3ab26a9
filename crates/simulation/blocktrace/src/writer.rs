//! Writers of traces.

use crate::error::{Error, Problem};
use crate::format::{Format, blkparse, disksim, fio, msr, oraclegeneral, spc, ssdsim, tera};
use crate::request::{Kind, Request};
use crate::sink::{Compression, Sink};
use std::io::{self, Write};
use std::path::Path;

/// The metadata of a written trace, and whether losses are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterOptions {
    /// The trace's name; only `tera` keeps it.
    pub name: String,
    /// A comment; only `tera` keeps it.
    pub comment: String,
    /// Whether it is synthetic: made up, not recorded; only `tera` states this.
    pub synthetic: bool,
    /// Whether requests that do not fit are changed: trims are left out, requests grow to whole
    /// sectors, and volumes and kinds are dropped if the format has none. Otherwise such a request
    /// is an error.
    pub lossy: bool,
}

/// The losses of a written trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Losses {
    /// Requests that were written.
    pub requests: u64,
    /// Times that were rounded down to the format's unit.
    pub times_cut: u64,
    /// Trims that were left out.
    pub trims: u64,
    /// Requests that grew to whole sectors.
    pub grown: u64,
    /// Requests that lost their kind.
    pub kinds: u64,
}

/// Why a request does not fit into a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The format has no trims.
    #[error("the format has no trims (--lossy leaves them out)")]
    Trim,
    /// The format counts in sectors.
    #[error("the format counts in sectors of 512 bytes (--lossy lets requests grow to whole ones)")]
    Unaligned,
    /// The format has only one volume.
    #[error("the format has one volume (--volume picks one, --lossy merges them)")]
    ManyVolumes,
    /// The format does not tell reads from writes.
    #[error("the format does not tell reads from writes (--lossy drops the difference)")]
    Kind,
    /// The time is later than the format can express.
    #[error("the format's times end after 2^32 seconds")]
    Time,
    /// The format is not written.
    #[error("the format is read, not written")]
    ReadOnly,
}

/// A request that is being written.
pub(crate) struct Item<'a> {
    pub time_ns: u64,
    pub offset: u64,
    pub bytes: u32,
    pub volume: u16,
    pub kind: Kind,
    pub name: &'a str,
    pub lossy: bool,
}

impl Item<'_> {
    /// Its first sector and the number of its sectors.
    pub fn sectors(&self) -> Result<(u64, u32), Misfit> {
        if self.is_whole() { Ok((self.offset / 512, self.bytes / 512)) } else { Err(Misfit::Unaligned) }
    }

    fn is_whole(&self) -> bool {
        self.offset.is_multiple_of(512) && self.bytes.is_multiple_of(512)
    }

    /// Extends the request to all sectors that it touches.
    fn grow(&mut self) {
        let end = (self.offset + u64::from(self.bytes)).div_ceil(512) * 512;
        self.offset -= self.offset % 512;
        self.bytes = u32::try_from(end - self.offset).unwrap_or(u32::MAX / 512 * 512);
    }
}

/// A format that is written.
pub(crate) trait Encoder: Send {
    /// Writes the part before the first request.
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    /// Appends a request.
    fn put(&mut self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), Misfit>;

    /// Whether `flush` must be called, with this number of bytes in `out`.
    fn is_due(&self, bytes: usize) -> bool {
        bytes >= 64 << 10
    }

    /// Writes the contents of `out`.
    fn flush(&mut self, out: &mut Vec<u8>, sink: &mut dyn Write) -> io::Result<()> {
        sink.write_all(out)?;
        out.clear();
        Ok(())
    }

    /// Writes the part after the last request.
    fn finish(&mut self, _sink: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a trace. The file appears when [`Writer::finish`] is called; otherwise nothing remains.
pub struct Writer {
    file: String,
    tick_ns: u64,
    has_kinds: bool,
    encoder: Box<dyn Encoder>,
    sink: Sink,
    out: Vec<u8>,
    lossy: bool,
    count: u64,
    losses: Losses,
}

impl Writer {
    /// Writes to a file, compressed by the suffix of its name (`.gz`, `.zst`, `.xz`); `-` is
    /// standard output.
    ///
    /// # Errors
    /// The file cannot be created, or the format cannot be written.
    pub fn create(path: &Path, format: Format, options: &WriterOptions) -> Result<Writer, Error> {
        let file = path.display().to_string();
        let sink = Sink::create(path).map_err(|cause| Problem::Write { file: file.clone(), cause })?;
        Writer::new(file, sink, format, options)
    }

    /// Writes to any destination; errors call it `name`.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn to(
        name: &str,
        target: impl Write + Send + 'static,
        compression: Option<Compression>,
        format: Format,
        options: &WriterOptions,
    ) -> Result<Writer, Error> {
        let sink = Sink::to(Box::new(target), compression);
        let sink = sink.map_err(|cause| Problem::Write { file: name.to_string(), cause })?;
        Writer::new(name.to_string(), sink, format, options)
    }

    fn new(file: String, sink: Sink, format: Format, options: &WriterOptions) -> Result<Writer, Error> {
        let fail = |cause| Problem::Write { file: file.clone(), cause };
        let mut encoder: Box<dyn Encoder> = match format {
            Format::Msr => Box::new(msr::Writer),
            Format::Ssdsim => Box::new(ssdsim::Writer),
            Format::Disksim => Box::new(disksim::Writer),
            Format::Blkparse => Box::new(blkparse::Writer::default()),
            Format::Spc => Box::new(spc::Writer),
            Format::Fio => Box::new(fio::Writer::default()),
            Format::OracleGeneral => Box::new(oraclegeneral::Writer::new().map_err(fail)?),
            Format::Tera => Box::new(tera::Writer::new(options).map_err(fail)?),
            Format::MsrRevised
            | Format::Arc
            | Format::Vscsi
            | Format::Alibaba
            | Format::Tencent
            | Format::Systor17
            | Format::Fiu
            | Format::Blktrace
            | Format::Csv => {
                return Err(Problem::Misfit { number: 1, misfit: Misfit::ReadOnly }.into());
            }
        };
        let tick_ns = match format {
            Format::Msr => 100,
            Format::Fio => 1000,
            Format::OracleGeneral => 1_000_000_000,
            _ => 1,
        };
        let mut out = Vec::new();
        encoder.begin(&mut out);
        let (lossy, losses) = (options.lossy, Losses::default());
        let has_kinds = format.has_kinds();
        Ok(Writer { file, tick_ns, has_kinds, encoder, sink, out, lossy, count: 0, losses })
    }

    /// Writes a request; `volume` is the name of its volume.
    ///
    /// # Errors
    /// The request does not fit into the format, or the file cannot be written.
    pub fn write(&mut self, request: &Request, volume: &str) -> Result<(), Error> {
        self.count += 1;
        let Request { time_ns, offset, bytes, volume: number, kind } = *request;
        let mut item = Item { time_ns, offset, bytes, volume: number, kind, name: volume, lossy: self.lossy };
        let mut put = self.encoder.put(&item, &mut self.out);
        if self.lossy && put == Err(Misfit::Unaligned) {
            self.losses.grown += 1;
            item.grow();
            put = self.encoder.put(&item, &mut self.out);
        }
        match put {
            Ok(()) => {}
            Err(Misfit::Trim) if self.lossy => {
                self.losses.trims += 1;
                return Ok(());
            }
            Err(misfit) => return Err(Problem::Misfit { number: self.count, misfit }.into()),
        }
        self.losses.requests += 1;
        self.losses.times_cut += u64::from(time_ns % self.tick_ns != 0);
        self.losses.kinds += u64::from(!self.has_kinds && kind != Kind::Read);
        if self.encoder.is_due(self.out.len()) {
            let flushed = self.encoder.flush(&mut self.out, &mut self.sink);
            flushed.map_err(|cause| Problem::Write { file: self.file.clone(), cause })?;
        }
        Ok(())
    }

    /// Writes the end and gives the file its name. It returns the losses.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<Losses, Error> {
        let done = self.encoder.flush(&mut self.out, &mut self.sink);
        let done = done.and_then(|()| self.encoder.finish(&mut self.sink)).and_then(|()| self.sink.finish());
        done.map_err(|cause| Problem::Write { file: self.file, cause })?;
        Ok(self.losses)
    }
}
