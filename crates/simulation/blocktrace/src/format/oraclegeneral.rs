//! libCacheSim's `oracleGeneral`: records of 24 bytes, little-endian, packed.
//!
//! Time in seconds u32, object u64, size in bytes u32, the number of the next request for the same
//! object i64 (the first request has number 1, in some files 0; -1 if there is none). There are no
//! kinds: all requests count as reads. The object counts as an address in units of 512 bytes,
//! unless another unit is given. That is correct for the CloudPhysics traces, whose objects are
//! sectors. The objects of other traces are bytes, blocks or hashes, which the files do not state.
//! Records of size 0 are skipped, as in libCacheSim.

use crate::fault::Checked;
use crate::format::vscsi::{int, long};
use crate::gate::{Gate, Record};
use crate::records::RecordParser;
use crate::request::{Kind, Request};
use crate::writer::{Encoder, Item, Misfit};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The length of a record.
const RECORD: usize = 24;
/// There is no next request.
const NEVER: i64 = -1;

/// Reads the format.
pub(crate) struct Parser;

impl RecordParser for Parser {
    fn record_bytes(&self) -> usize {
        RECORD
    }

    #[inline]
    fn record(&mut self, bytes: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        let length = u64::from(int(bytes, 12));
        if length == 0 {
            return gate.other();
        }
        let (ticks, address) = (u64::from(int(bytes, 0)), long(bytes, 4));
        gate.admit(b"0", Record { ticks, address, bytes: length, kind: Kind::Read })
    }
}

/// Whether a file can begin like this. There is no magic: times must not fall, and next requests
/// must lie ahead.
pub(crate) fn fits(head: &[u8]) -> bool {
    let mut time = 0;
    let mut records = 0;
    for (number, record) in (1i64..).zip(head.chunks_exact(RECORD)) {
        let next = long(record, 16) as i64;
        // If a file counts requests from 0, the next request may have the number that this request
        // has here, counted from 1.
        let ahead = next == NEVER || next == i64::MAX || (next >= number && next < 1 << 40);
        if int(record, 0) < time || !ahead {
            return false;
        }
        time = int(record, 0);
        records += 1;
    }
    records > 0
}

/// Writes it. The next requests are known only at the end, so the records wait in a temporary file.
pub(crate) struct Writer {
    spool: File,
    records: u64,
    volume: Option<u16>,
}

/// The number of records that are completed at once, backwards.
const CHUNK: u64 = 1 << 16;

impl Writer {
    pub fn new() -> io::Result<Writer> {
        Ok(Writer { spool: tempfile::tempfile()?, records: 0, volume: None })
    }

    /// From the last chunk to the first: the next request for each object is the last one that was
    /// seen.
    fn complete(&mut self) -> io::Result<()> {
        let mut next: HashMap<u64, u64> = HashMap::new();
        let mut chunk = Vec::new();
        let mut end = self.records;
        while end > 0 {
            let start = (end - 1) / CHUNK * CHUNK;
            chunk.resize((end - start) as usize * RECORD, 0);
            self.spool.seek(SeekFrom::Start(start * RECORD as u64))?;
            self.spool.read_exact(&mut chunk)?;
            for (number, record) in (1..=end).rev().zip(chunk.chunks_exact_mut(RECORD).rev()) {
                let following = next.insert(long(record, 4), number).map_or(NEVER, |number| number as i64);
                record[16..].copy_from_slice(&following.to_le_bytes());
            }
            self.spool.seek(SeekFrom::Start(start * RECORD as u64))?;
            self.spool.write_all(&chunk)?;
            end = start;
        }
        Ok(())
    }
}

impl Encoder for Writer {
    fn put(&mut self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), Misfit> {
        if *self.volume.get_or_insert(item.volume) != item.volume && !item.lossy {
            return Err(Misfit::ManyVolumes);
        }
        if item.kind != Kind::Read && !item.lossy {
            return Err(Misfit::Kind);
        }
        if item.kind == Kind::Trim {
            return Err(Misfit::Trim);
        }
        if !item.offset.is_multiple_of(512) {
            return Err(Misfit::Unaligned);
        }
        let seconds = u32::try_from(item.time_ns / 1_000_000_000).map_err(|_| Misfit::Time)?;
        self.records += 1;
        out.extend_from_slice(&seconds.to_le_bytes());
        out.extend_from_slice(&(item.offset / 512).to_le_bytes());
        out.extend_from_slice(&item.bytes.to_le_bytes());
        out.extend_from_slice(&NEVER.to_le_bytes());
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<u8>, _: &mut dyn Write) -> io::Result<()> {
        self.spool.write_all(out)?;
        out.clear();
        Ok(())
    }

    fn finish(&mut self, sink: &mut dyn Write) -> io::Result<()> {
        self.complete()?;
        self.spool.rewind()?;
        io::copy(&mut self.spool, sink).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::{NEVER, RECORD, fits};

    #[test]
    fn the_next_request_may_be_counted_from_zero_or_from_one() {
        // Three requests for one object.
        let trace = |first: i64| -> Vec<u8> {
            let next = [first + 1, first + 2, NEVER];
            let record = |next: i64| -> Vec<u8> {
                let parts = [
                    &7u32.to_le_bytes()[..],
                    &9u64.to_le_bytes(),
                    &512u32.to_le_bytes(),
                    &next.to_le_bytes(),
                ];
                parts.concat()
            };
            next.into_iter().flat_map(record).collect()
        };
        assert!(trace(0).len() == 3 * RECORD && fits(&trace(0)) && fits(&trace(1)));
        assert!(!fits(&trace(-1)), "what lies behind is no next request");
    }
}
