//! The Storage Performance Council's: `0,20941264,8192,W,0.551706`.
//!
//! Application storage unit, first block of 512 bytes, length in bytes, `R` or `W`, time in
//! seconds. "SPC Trace File Format Specification", revision 1.0.1, 2002; it allows blanks in
//! fields, and further fields, which are not used. The UMass traces (Financial1, WebSearch1 and so
//! on) are in this format.

use crate::fault::{Checked, field};
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
        let key = cursor.until_comma("a storage unit")?;
        if !key.iter().all(u8::is_ascii_digit) {
            return field("a storage unit's number", key);
        }
        cursor.comma("a comma after the storage unit")?;
        let address = cursor.number("a first block")?;
        cursor.blanks();
        cursor.comma("a comma after the first block")?;
        let bytes = cursor.number("a length in bytes")?;
        cursor.blanks();
        cursor.comma("a comma after the length")?;
        let kind = match cursor.until_comma("R or W")? {
            b"R" | b"r" => Kind::Read,
            b"W" | b"w" => Kind::Write,
            other => return field("R or W", other),
        };
        cursor.comma("a comma after R or W")?;
        let ticks = cursor.decimal_ns(9, "a time in seconds")?;
        cursor.blanks();
        if !cursor.rest().is_empty() {
            cursor.comma("a comma or the end of the line after the time")?;
        }
        gate.admit(key, Record { ticks, address, bytes, kind })
    }
}

/// Writes it, with nine decimals; units by their number.
pub(crate) struct Writer;

impl Encoder for Writer {
    fn put(&mut self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), Misfit> {
        if !item.offset.is_multiple_of(512) {
            return Err(Misfit::Unaligned);
        }
        let letter = match item.kind {
            Kind::Read => 'R',
            Kind::Write => 'W',
            Kind::Trim => return Err(Misfit::Trim),
        };
        let (seconds, ns) = (item.time_ns / 1_000_000_000, item.time_ns % 1_000_000_000);
        let (volume, block, bytes) = (item.volume, item.offset / 512, item.bytes);
        let _ = writeln!(out, "{volume},{block},{bytes},{letter},{seconds}.{ns:09}");
        Ok(())
    }
}
