//! The traces of Florida International University: `89966207863541 4892 syslogd 904265560 8 W 6 0
//! 531e779e39cb9e9a1d0ed6cc56fbd4d5`.
//!
//! Time in nanoseconds, process, its name, first sector, sectors of 512 bytes, `W` or `R`, major
//! and minor number, MD5 of the bytes (not used, and not always there). Koller, Rangaswami: "I/O
//! Deduplication", FAST 2010; SNIA IOTTA trace sets 390 and 391.

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
        let ticks = cursor.word_number("a time in nanoseconds")?;
        cursor.word_number("a process")?;
        cursor.word("the process's name")?;
        let address = cursor.word_number("a first sector")?;
        let bytes = sectors(cursor.word_number("a number of sectors")?)?;
        let kind = match cursor.word("R or W")? {
            b"R" | b"r" => Kind::Read,
            b"W" | b"w" => Kind::Write,
            other => return field("R or W", other),
        };
        cursor.blanks();
        let start = cursor.rest();
        cursor.word_number("a major number")?;
        cursor.word_number("a minor number")?;
        let key = &start[..start.len() - cursor.rest().len()];
        gate.admit(key, Record { ticks, address, bytes, kind })
    }
}
