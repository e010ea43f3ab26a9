//! Reading a trace.

use crate::header::{fill, try_fill};
use crate::record::Before;
use crate::zstd::Decompressor;
use crate::{Error, FRAME_BYTES, FRAME_HEADER, Header, Record, frame_hash};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Reads a trace: an iterator over its records, which ends after an error.
pub struct Reader<R: Read> {
    from: R,
    header: Header,
    /// Bytes read.
    offset: u64,
    /// The offset of the frame in `raw`.
    frame: u64,
    raw: Vec<u8>,
    at: usize,
    before: Before,
    /// The time of the last record.
    last_us: u64,
    packed: Vec<u8>,
    decompressor: Decompressor,
    ended: bool,
    allow_cut_short: bool,
    cut_short: Option<Error>,
}

impl Reader<BufReader<File>> {
    /// Opens a trace file.
    ///
    /// # Errors
    /// The file does not exist, or is not a trace.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|cause| Error::Io { offset: 0, cause })?;
        Reader::new(BufReader::new(file))
    }
}

impl<R: Read> Reader<R> {
    /// Opens a trace, and reads the header.
    ///
    /// # Errors
    /// No trace.
    pub fn new(mut from: R) -> Result<Self, Error> {
        let (header, offset) = Header::read(&mut from)?;
        let decompressor = Decompressor::new().map_err(|cause| Error::Io { offset, cause })?;
        Ok(Reader {
            from,
            header,
            offset,
            frame: offset,
            raw: Vec::new(),
            at: 0,
            before: Before::default(),
            last_us: 0,
            packed: Vec::new(),
            decompressor,
            ended: false,
            allow_cut_short: false,
            cut_short: None,
        })
    }

    /// The run in which the trace was recorded.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Lets a truncated trace end after its last whole frame, without an error:
    /// [`cut_short`](Self::cut_short) tells whether that happened. [`cut_short`](Self::cut_short)
    /// says so. A killed program leaves such a trace.
    #[must_use]
    pub fn allow_cut_short(mut self) -> Self {
        self.allow_cut_short = true;
        self
    }

    /// The place where the trace was truncated, after its end was reached.
    pub fn cut_short(&self) -> Option<&Error> {
        self.cut_short.as_ref()
    }

    /// Reads the next frame. False at the end of the trace.
    fn next_frame(&mut self) -> Result<bool, Error> {
        self.frame = self.offset;
        let offset = self.frame;
        let mut head = [0; FRAME_HEADER];
        fill(&mut self.from, &mut head, offset, "a frame or the end")?;
        let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (packed_len, raw_len) = (u32_at(0) as usize, u32_at(4) as usize);
        let hash = u64::from_le_bytes(head[8..].try_into().expect("eight bytes"));
        if raw_len > FRAME_BYTES || packed_len > zstd_safe::compress_bound(FRAME_BYTES) {
            let found = format!("{packed_len} compressed bytes of {raw_len}");
            return Err(Error::Corrupt { offset, expected: "a frame of up to 1 MiB", found });
        }
        self.packed.resize(packed_len, 0);
        fill(&mut self.from, &mut self.packed, offset, "all bytes of a frame")?;
        let real = frame_hash(&head[..8], &self.packed);
        if real != hash {
            let found = format!("bytes with the hash {real:016x}");
            return Err(Error::Corrupt { offset, expected: "a frame that fits its hash", found });
        }
        self.offset += (FRAME_HEADER + packed_len) as u64;
        if raw_len == 0 {
            return self.end();
        }
        self.raw.resize(raw_len, 0);
        let unpacked = self.decompressor.decompress(&self.packed, &mut self.raw);
        if unpacked != Ok(raw_len) {
            let found = match unpacked {
                Ok(len) => format!("{len} bytes, where the frame names {raw_len}"),
                Err(name) => name.to_owned(),
            };
            return Err(Error::Corrupt { offset, expected: "zstd's compressed bytes", found });
        }
        self.at = 0;
        self.before = Before::default();
        Ok(true)
    }

    /// Checks that nothing follows the end.
    fn end(&mut self) -> Result<bool, Error> {
        let offset = self.offset;
        if try_fill(&mut self.from, &mut [0], offset, "nothing")? {
            let found = "more bytes".to_owned();
            return Err(Error::Corrupt { offset, expected: "nothing after the end", found });
        }
        Ok(false)
    }

    fn next_record(&mut self) -> Result<Option<Record>, Error> {
        while self.at == self.raw.len() {
            if !self.next_frame()? {
                return Ok(None);
            }
        }
        let mut rest = &self.raw[self.at..];
        let record = self.before.take(&mut rest).map_err(|expected| Error::Corrupt {
            offset: self.frame,
            expected,
            found: format!("unknown bytes at byte {} of the frame's records", self.at),
        })?;
        self.at = self.raw.len() - rest.len();
        if record.time_us < self.last_us {
            let found = format!("{} us after {} us", record.time_us, self.last_us);
            return Err(Error::Corrupt { offset: self.frame, expected: "times in order", found });
        }
        self.last_us = record.time_us;
        Ok(Some(record))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.next_record() {
            Ok(Some(record)) => return Some(Ok(record)),
            Ok(None) => self.ended = true,
            Err(error @ Error::CutShort { .. }) if self.allow_cut_short => {
                self.ended = true;
                self.cut_short = Some(error);
            }
            Err(error) => {
                self.ended = true;
                return Some(Err(error));
            }
        }
        None
    }
}
