//! The MSR Cambridge traces as revised by TraceTracker's authors:
//! `0.000004981 RS 1432 128 seq 13770.6865422 0.000255738 13770.6862`.
//!
//! Time in seconds, `RS` or `WS`, first sector, sectors of 512 bytes, `seq` or `rand`, and three
//! times in seconds that are not used: an interval, the part of it that is attributed to the
//! device, and the rest. Kwon et al.: "TraceTracker", IISWC 2017; `MSRC-trace-003` at
//! trace.camelab.org, whose other collections have the same layout.

use crate::fault::{Checked, field};
use crate::format::sectors;
use crate::gate::{Gate, Record};
use crate::lines::LineParser;
use crate::request::{Kind, Request};
use crate::scan::Cursor;

/// Reads the format.
pub(crate) struct Parser;

impl LineParser for Parser {
    #[inline]
    fn line(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        let mut cursor = Cursor::new(line);
        let ticks = cursor.decimal_ns(9, "a time in seconds")?;
        let kind = match cursor.word("RS or WS")? {
            b"RS" | b"R" => Kind::Read,
            b"WS" | b"W" => Kind::Write,
            other => return field("RS or WS", other),
        };
        let address = cursor.word_number("a first sector")?;
        let bytes = sectors(cursor.word_number("a number of sectors")?)?;
        match cursor.word("seq or rand")? {
            b"seq" | b"rand" => {}
            other => return field("seq or rand", other),
        }
        gate.admit(b"0", Record { ticks, address, bytes, kind })
    }
}
