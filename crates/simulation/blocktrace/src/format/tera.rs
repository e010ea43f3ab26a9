//! Terapage's own format: frames of up to 16,384 requests, each compressed and with a checksum.
//!
//! The layout in bytes is in `docs/block-traces.md`. A frame can be read without the others, except
//! for the names of volumes. A request that follows on the last one of its volume, with the same
//! length, needs only a byte and its time.

mod frame;
mod header;

use crate::error::Place;
use crate::fault::{Checked, Fault, field};
use crate::format::Opened;
use crate::format::vscsi::{int, long};
use crate::gate::{Gate, Record};
use crate::input::Input;
use crate::reader::{Source, Stop};
use crate::request::Request;
use crate::writer::{Encoder, Item, Misfit, WriterOptions};
use frame::{Decoder, FRAME_REQUESTS, RAW_BYTES_MAX};
use std::io::{self, Read, Write};
use twox_hash::XxHash3_64;

/// Whether a file begins like a tera trace.
pub(crate) fn fits(head: &[u8]) -> bool {
    head.starts_with(header::MAGIC)
}

/// Reads the header.
pub(crate) fn open(input: Input, gate: Gate) -> Result<Opened, Stop> {
    let mut bytes = Bytes { input, offset: 0 };
    let header = header::read(&mut bytes)?;
    let source = Box::new(Reader {
        bytes,
        frame_at: 0,
        decompressor: zstd::bulk::Decompressor::new().map_err(Stop::Io)?,
        packed: Vec::new(),
        raw: Vec::new(),
        decoder: Decoder::default(),
        requests: 0,
    });
    let header::Header { name, comment, synthetic } = header;
    Ok(Opened { source, gate, name, comment, synthetic })
}

/// The file, and the position up to which it has been read.
struct Bytes {
    input: Input,
    offset: u64,
}

impl Bytes {
    /// Exactly `length` bytes.
    fn exact(&mut self, length: usize, bytes: &mut Vec<u8>) -> Result<(), Stop> {
        bytes.clear();
        let read = self.input.by_ref().take(length as u64).read_to_end(bytes).map_err(Stop::Io)?;
        self.offset += read as u64;
        if read < length {
            let (expected_bytes, found_bytes) = (length as u64, read as u64);
            return Err(Stop::Fault(Box::new(Fault::Truncated { expected_bytes, found_bytes })));
        }
        Ok(())
    }
}

/// Compares a checksum.
fn check(expected: u64, found: u64) -> Result<(), Stop> {
    if expected == found { Ok(()) } else { Err(Stop::Fault(Box::new(Fault::Checksum { expected, found }))) }
}

/// A fault as the end of reading.
fn stop<T>(checked: Checked<T>) -> Result<T, Stop> {
    checked.map_err(Stop::Fault)
}

struct Reader {
    bytes: Bytes,
    frame_at: u64,
    decompressor: zstd::bulk::Decompressor<'static>,
    packed: Vec<u8>,
    raw: Vec<u8>,
    decoder: Decoder,
    requests: u64,
}

/// The lengths at the head of a frame.
struct Lengths {
    packed: usize,
    raw: usize,
    requests: usize,
}

impl Reader {
    /// Decompresses the next frame into `raw` and returns the number of its requests; `None` after
    /// the last.
    fn next_frame(&mut self) -> Result<Option<usize>, Stop> {
        self.frame_at = self.bytes.offset;
        self.bytes.exact(20, &mut self.packed)?;
        let head: [u8; 20] = self.packed[..20].try_into().unwrap_or([0; 20]);
        let lengths = Lengths {
            packed: int(&head, 0) as usize,
            raw: int(&head, 4) as usize,
            requests: int(&head, 8) as usize,
        };
        if (lengths.packed, lengths.raw, lengths.requests) == (0, 0, 0) {
            return self.end(&head).map(|()| None);
        }
        let plausible = lengths.packed <= lengths.raw && lengths.raw <= RAW_BYTES_MAX;
        if !plausible || lengths.requests > FRAME_REQUESTS {
            return stop(field("a frame's lengths", &head[..12]));
        }
        // 1. The bytes of the file that follow the lengths, so that the checksum covers both.
        let mut packed = std::mem::take(&mut self.packed);
        self.bytes.exact(lengths.packed, &mut packed)?;
        self.packed = packed;
        check(long(&head, 12), checksum(&head[..12], &self.packed))?;
        // 2. As they were.
        self.raw.clear();
        if lengths.packed == lengths.raw {
            self.raw.extend_from_slice(&self.packed);
        } else {
            self.raw.reserve(lengths.raw);
            self.decompressor.decompress_to_buffer(&self.packed, &mut self.raw).map_err(Stop::Io)?;
        }
        if self.raw.len() != lengths.raw {
            return stop(field("a frame of the length at its head", self.raw.len().to_string().as_bytes()));
        }
        Ok(Some(lengths.requests))
    }

    /// The end of the file: the number of requests, and a checksum.
    fn end(&mut self, head: &[u8; 20]) -> Result<(), Stop> {
        let mut tail = Vec::new();
        self.bytes.exact(8, &mut tail)?;
        check(long(&tail, 0), XxHash3_64::oneshot(head))?;
        let expected = long(head, 12);
        if expected != self.requests {
            return stop(field("as many requests as the end says", self.requests.to_string().as_bytes()));
        }
        let mut more = Vec::new();
        self.bytes.input.by_ref().take(1).read_to_end(&mut more).map_err(Stop::Io)?;
        if more.is_empty() { Ok(()) } else { stop(field("the end of the file", &more)) }
    }
}

impl Source for Reader {
    fn fill(&mut self, gate: &mut Gate, batch: &mut Vec<Request>) -> Result<bool, Stop> {
        let Some(count) = self.next_frame()? else { return Ok(false) };
        self.requests += count as u64;
        let mut rest = stop(self.decoder.begin(&self.raw))?;
        for _ in 0..count {
            let (name, record) = stop(self.decoder.request(&mut rest))?;
            match gate.admit(name, record) {
                Ok(Some(request)) => batch.push(request),
                Ok(None) => {}
                Err(fault) if gate.skip(&fault) => {}
                Err(fault) => return Err(Stop::Fault(fault)),
            }
        }
        if rest.is_empty() { Ok(true) } else { stop(field("the end of the frame", rest)) }
    }

    fn place(&self) -> Place {
        Place::Byte(self.frame_at)
    }
}

/// The checksum of the lengths and the bytes of a frame.
fn checksum(lengths: &[u8], packed: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = XxHash3_64::new();
    hasher.write(lengths);
    hasher.write(packed);
    hasher.finish()
}

/// Writes the format.
pub(crate) struct Writer {
    header: header::Header,
    encoder: frame::Encoder,
    compressor: zstd::bulk::Compressor<'static>,
    requests: u64,
}

/// zstd's level: 1 is as small as 3 here, within a twentieth, and faster.
const LEVEL: i32 = 1;

impl Writer {
    pub fn new(options: &WriterOptions) -> io::Result<Writer> {
        Ok(Writer {
            header: header::Header::new(options),
            encoder: frame::Encoder::default(),
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            requests: 0,
        })
    }

    fn end_frame(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let count = self.encoder.len();
        let raw = self.encoder.take();
        let mut packed = self.compressor.compress(&raw)?;
        if packed.len() >= raw.len() {
            packed = raw.clone();
        }
        let mut lengths = Vec::with_capacity(12);
        for length in [packed.len(), raw.len(), count] {
            lengths.extend_from_slice(&(length as u32).to_le_bytes());
        }
        out.extend_from_slice(&lengths);
        out.extend_from_slice(&checksum(&lengths, &packed).to_le_bytes());
        out.extend_from_slice(&packed);
        Ok(())
    }
}

impl Encoder for Writer {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.header.write(out);
    }

    fn put(&mut self, item: &Item<'_>, _: &mut Vec<u8>) -> Result<(), Misfit> {
        self.encoder.put(item);
        self.requests += 1;
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<u8>, sink: &mut dyn Write) -> io::Result<()> {
        if self.encoder.is_full() {
            self.end_frame(out)?;
        }
        sink.write_all(out)?;
        out.clear();
        Ok(())
    }

    fn finish(&mut self, sink: &mut dyn Write) -> io::Result<()> {
        let mut out = Vec::new();
        if self.encoder.len() > 0 {
            self.end_frame(&mut out)?;
        }
        let mut end = [0; 20];
        end[12..].copy_from_slice(&self.requests.to_le_bytes());
        out.extend_from_slice(&end);
        out.extend_from_slice(&XxHash3_64::oneshot(&end).to_le_bytes());
        sink.write_all(&out)
    }

    /// A byte or two for most requests are not in `out` before the frame is full.
    fn is_due(&self, _: usize) -> bool {
        self.encoder.is_full()
    }
}

impl Decoder {
    /// The next request: the name of its volume, and its record.
    #[inline]
    fn request(&mut self, rest: &mut &[u8]) -> Checked<(&[u8], Record)> {
        match self.decode(rest) {
            Some((volume, record)) => Ok((&self.names[volume], record)),
            None => field("a request", &rest[..rest.len().min(16)]),
        }
    }
}
