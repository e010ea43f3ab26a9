//! SSDSim's and MQSim's: `938513000 4 264719034 16 0`.
//!
//! Time in nanoseconds, device, first sector, sectors of 512 bytes, 0 for a write or 1 for a read.
//! Hu et al.: "Performance impact and interplay of SSD parallelism", ICS 2011; Tavakkol et al.:
//! "MQSim", FAST 2018.

use crate::fault::{Checked, field};
use crate::format::{kind_of_bit, sectors};
use crate::gate::{Gate, Record};
use crate::lines::LineParser;
use crate::request::{Kind, Request};
use crate::scan::Cursor;
use crate::writer::{Encoder, Item, Misfit};
use std::io::Write;

/// Reads the format.
pub(crate) struct Parser;

impl LineParser for Parser {
    #[inline]
    fn line(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        let mut cursor = Cursor::new(line);
        let ticks = cursor.word_number("a time in whole nanoseconds")?;
        let key = cursor.word("a device")?;
        let address = cursor.word_number("a first sector")?;
        let bytes = sectors(cursor.word_number("a number of sectors")?)?;
        let kind = match cursor.word_number("0 (write) or 1 (read)")? {
            bit @ (0 | 1) => kind_of_bit(bit),
            other => return field("0 (write) or 1 (read)", other.to_string().as_bytes()),
        };
        cursor.end()?;
        gate.admit(key, Record { ticks, address, bytes, kind })
    }
}

/// Writes it; devices by their number.
pub(crate) struct Writer;

impl Encoder for Writer {
    fn put(&mut self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let (sector, sectors) = item.sectors()?;
        let bit = match item.kind {
            Kind::Read => 1,
            Kind::Write => 0,
            Kind::Trim => return Err(Misfit::Trim),
        };
        let _ = writeln!(out, "{} {} {sector} {sectors} {bit}", item.time_ns, item.volume);
        Ok(())
    }
}
