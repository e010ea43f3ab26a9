//! The traces of Systor '17: `1455592400.004283667,0.000301,R,4,1296498688,4096`.
//!
//! Time in seconds, response time in seconds (not used, and empty in places), `R` or `W`, logical
//! unit, offset and length in bytes; a line of column names comes first. Lee, Kumano, Matsuki,
//! Endo, Fukumoto, Sugawara: "Understanding Storage Traffic Characteristics on Enterprise Virtual
//! Desktop Infrastructure", SYSTOR 2017; SNIA IOTTA trace set 4964.

use crate::fault::{Checked, field};
use crate::gate::{Gate, Record};
use crate::lines::LineParser;
use crate::request::{Kind, Request};
use crate::scan::Cursor;

/// Reads the format.
#[derive(Default)]
pub(crate) struct Parser {
    begun: bool,
}

impl LineParser for Parser {
    #[inline]
    fn line(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        if !std::mem::replace(&mut self.begun, true)
            && line.get(..9).is_some_and(|word| word.eq_ignore_ascii_case(b"timestamp"))
        {
            return gate.other();
        }
        let mut cursor = Cursor::new(line);
        let ticks = cursor.decimal_ns(9, "a time in seconds")?;
        cursor.comma("a comma after the time")?;
        if !cursor.rest().starts_with(b",") {
            cursor.decimal_ns(9, "a response time in seconds, or nothing")?;
        }
        cursor.comma("a comma after the response time")?;
        let kind = match cursor.until_comma("R or W")? {
            b"R" => Kind::Read,
            b"W" => Kind::Write,
            other => return field("R or W", other),
        };
        cursor.comma("a comma after R or W")?;
        let key = cursor.until_comma("a logical unit")?;
        cursor.comma("a comma after the logical unit")?;
        let address = cursor.number("an offset in bytes")?;
        cursor.comma("a comma after the offset")?;
        let bytes = cursor.number("a length in bytes")?;
        cursor.end()?;
        gate.admit(key, Record { ticks, address, bytes, kind })
    }
}
