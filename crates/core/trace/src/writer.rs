//! Writing a trace.

use crate::record::{Before, RECORD_BYTES};
use crate::zstd::Compressor;
use crate::{FRAME_BYTES, FRAME_HEADER, Header, Record, frame_hash};
use std::io::{self, Write};

/// Writes a trace: a header, frames of records, and an end.
///
/// After an error, the trace is valid up to the previous frame; write nothing further.
pub struct Writer<W: Write> {
    out: W,
    raw: Vec<u8>,
    before: Before,
    compressor: Compressor,
}

impl<W: Write> Writer<W> {
    /// Begins a trace with its header.
    ///
    /// # Errors
    /// `out` fails.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        header.write(&mut out)?;
        out.flush()?;
        let raw = Vec::with_capacity(FRAME_BYTES);
        Ok(Writer { out, raw, before: Before::default(), compressor: Compressor::new()? })
    }

    /// Appends a record. If its time is earlier than that of the last record, the last record's
    /// time is written.
    ///
    /// # Errors
    /// `out` fails to write a frame that has become full.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        if self.raw.len() + RECORD_BYTES > FRAME_BYTES {
            self.flush()?;
        }
        self.before.put(record, &mut self.raw);
        Ok(())
    }

    /// Ends the frame, if it has records, and writes it.
    ///
    /// # Errors
    /// `out` fails.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.raw.is_empty() {
            return Ok(());
        }
        let packed = self.compressor.compress(&self.raw)?;
        let head = frame_head(self.raw.len(), packed);
        self.out.write_all(&head)?;
        self.out.write_all(packed)?;
        self.raw.clear();
        self.before = Before::default();
        self.out.flush()
    }

    /// Changes the bytes of the records that make up the next frame.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.raw);
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// `out` fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        self.out.write_all(&frame_head(0, &[]))?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn frame_head(raw_len: usize, packed: &[u8]) -> [u8; FRAME_HEADER] {
    let mut head = [0; FRAME_HEADER];
    head[..4].copy_from_slice(&(packed.len() as u32).to_le_bytes());
    head[4..8].copy_from_slice(&(raw_len as u32).to_le_bytes());
    let hash = frame_hash(&head[..8], packed);
    head[8..].copy_from_slice(&hash.to_le_bytes());
    head
}
