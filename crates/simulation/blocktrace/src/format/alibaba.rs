//! Alibaba's block traces: `419,W,8792731648,16384,1577808144360767`.
//!
//! Device, `R` or `W`, offset and length in bytes, time in microseconds. Li, Wang, Lee, Shi: "An
//! In-Depth Analysis of Cloud Block Storage Workloads in Large-Scale Production", IISWC 2020; the
//! repository alibaba/block-traces.

use crate::fault::{Checked, field};
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
        let key = cursor.until_comma("a device")?;
        cursor.comma("a comma after the device")?;
        let kind = match cursor.until_comma("R or W")? {
            b"R" => Kind::Read,
            b"W" => Kind::Write,
            b"opcode" => return gate.other(),
            other => return field("R or W", other),
        };
        cursor.comma("a comma after R or W")?;
        let address = cursor.number("an offset in bytes")?;
        cursor.comma("a comma after the offset")?;
        let bytes = cursor.number("a length in bytes")?;
        cursor.comma("a comma after the length")?;
        let ticks = cursor.number("a time in microseconds")?;
        cursor.end()?;
        gate.admit(key, Record { ticks, address, bytes, kind })
    }
}
