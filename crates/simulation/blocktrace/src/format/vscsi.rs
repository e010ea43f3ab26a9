//! CloudPhysics' records of VMware's vscsi trace, versions 1 and 2, little-endian.
//!
//! Version 1, 32 bytes: serial number u32, length in bytes u32, scatter-gather elements u32,
//! command u16, version u16, first sector u64, time in microseconds u64. Version 2, 40 bytes:
//! command u16, version u16, serial number u32, length u32, elements u32, first sector u64, time
//! u64, response time u64. The version's high byte is 1 or 2. Waldspurger et al.: "Efficient MRC
//! Construction with SHARDS", FAST 2015; libCacheSim, which publishes such traces, reads them in
//! this way.

use crate::fault::{Checked, field};
use crate::gate::{Gate, Record};
use crate::records::RecordParser;
use crate::request::{Kind, Request};

/// The places of the fields of a record.
#[derive(Clone, Copy)]
struct Layout {
    version: u8,
    bytes: usize,
    command_at: usize,
    version_at: usize,
    length_at: usize,
    sector_at: usize,
    time_at: usize,
}

const ONE: Layout = Layout {
    version: 1,
    bytes: 32,
    command_at: 12,
    version_at: 14,
    length_at: 4,
    sector_at: 16,
    time_at: 24,
};
const TWO: Layout =
    Layout { version: 2, bytes: 40, command_at: 0, version_at: 2, length_at: 8, sector_at: 16, time_at: 24 };

/// Reads the format.
pub(crate) struct Parser {
    layout: Layout,
}

/// The version of the records that a file begins with.
pub(crate) fn version_of(head: &[u8]) -> Option<u8> {
    layout_of(head).map(|layout| layout.version)
}

/// The layout of the first records, at most 16 of them.
fn layout_of(head: &[u8]) -> Option<Layout> {
    [TWO, ONE].into_iter().find(|layout| {
        let mut records = head.chunks_exact(layout.bytes).take(16).peekable();
        records.peek().is_some() && records.all(|record| record[layout.version_at + 1] == layout.version)
    })
}

impl Parser {
    pub fn new(head: &[u8]) -> Checked<Parser> {
        match layout_of(head) {
            Some(layout) => Ok(Parser { layout }),
            None => field("records of vscsi version 1 or 2", &head[..head.len().min(16)]),
        }
    }
}

impl RecordParser for Parser {
    fn record_bytes(&self) -> usize {
        self.layout.bytes
    }

    #[inline]
    fn record(&mut self, bytes: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        let layout = self.layout;
        let version = bytes[layout.version_at + 1];
        if version != layout.version {
            return field("the version of the first record", version.to_string().as_bytes());
        }
        let command = u16::from_le_bytes([bytes[layout.command_at], bytes[layout.command_at + 1]]);
        let Some(kind) = kind_of(command) else { return gate.other() };
        let ticks = long(bytes, layout.time_at);
        let address = long(bytes, layout.sector_at);
        let length = u64::from(int(bytes, layout.length_at));
        gate.admit(b"0", Record { ticks, address, bytes: length, kind })
    }
}

/// SCSI's operation codes for data: READ and WRITE of 6, 10, 12 and 16 bytes, WRITE AND VERIFY,
/// WRITE ATOMIC.
#[inline]
fn kind_of(command: u16) -> Option<Kind> {
    match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Kind::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x9c => Some(Kind::Write),
        _ => None,
    }
}

#[inline]
pub(crate) fn int(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(int(bytes, at)) | u64::from(int(bytes, at + 4)) << 32
}
