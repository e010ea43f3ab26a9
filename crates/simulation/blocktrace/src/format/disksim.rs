//! DiskSim's ASCII format: `7961.833 0 20228336 8 0`.
//!
//! Time in milliseconds, device, first block, blocks of 512 bytes, flags whose lowest bit is set
//! for a read. Bucy et al.: "The DiskSim Simulation Environment Version 4.0 Reference Manual",
//! CMU-PDL-08-101.
//!
//! SSDSim's and MQSim's lines have as many fields, whole nanoseconds and another meaning of the
//! last one. So if one time has decimals, all times of the trace must have them.

use crate::fault::Checked;
use crate::format::{kind_of_bit, sectors};
use crate::gate::{Gate, Record};
use crate::lines::LineParser;
use crate::request::{Kind, Request};
use crate::scan::Cursor;
use crate::writer::{Encoder, Item, Misfit};
use std::io::Write;

/// Reads the format.
#[derive(Default)]
pub(crate) struct Parser {
    /// Whether the first time had decimals.
    decimals: Option<bool>,
}

impl LineParser for Parser {
    #[inline]
    fn line(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        let mut cursor = Cursor::new(line);
        let decimals = has_decimals(line);
        if *self.decimals.get_or_insert(decimals) && !decimals {
            return crate::fault::field("a time in milliseconds with decimals, as the first line has", line);
        }
        let ticks = cursor.decimal_ns(6, "a time in milliseconds")?;
        let key = cursor.word("a device")?;
        let address = cursor.word_number("a first block")?;
        let bytes = sectors(cursor.word_number("a number of blocks")?)?;
        let kind = kind_of_bit(flags(&mut cursor)?);
        cursor.end()?;
        gate.admit(key, Record { ticks, address, bytes, kind })
    }
}

/// Whether the first word has a decimal point.
#[inline]
fn has_decimals(line: &[u8]) -> bool {
    line.trim_ascii_start().iter().take_while(|byte| !byte.is_ascii_whitespace()).any(|byte| *byte == b'.')
}

/// The flags are hexadecimal; a decimal number has the same lowest bit.
#[inline]
fn flags(cursor: &mut Cursor<'_>) -> Checked<u64> {
    let word = cursor.word("flags")?;
    let text = word.strip_prefix(b"0x").unwrap_or(word);
    let value = std::str::from_utf8(text).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
    match value {
        Some(value) if text[0] != b'+' => Ok(value),
        _ => crate::fault::field("flags", word),
    }
}

/// Writes it, with six decimals; devices by their number.
pub(crate) struct Writer;

impl Encoder for Writer {
    fn put(&mut self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let (block, blocks) = item.sectors()?;
        let bit = match item.kind {
            Kind::Read => 1,
            Kind::Write => 0,
            Kind::Trim => return Err(Misfit::Trim),
        };
        let (ms, ns) = (item.time_ns / 1_000_000, item.time_ns % 1_000_000);
        let _ = writeln!(out, "{ms}.{ns:06} {} {block} {blocks} {bit}", item.volume);
        Ok(())
    }
}
