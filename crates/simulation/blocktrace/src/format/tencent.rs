//! Tencent's block traces: `1538323200,12910952,128,0,1063`.
//!
//! Time in seconds, offset and length in sectors of 512 bytes, 0 for a read or 1 for a write,
//! volume. Zhang, Huang, Wang, Zhou: "OSCA: An Online-Model Based Cache Allocation Scheme in Cloud
//! Block Storage Systems", USENIX ATC 2020; SNIA IOTTA trace set 27917.

use crate::fault::{Checked, field};
use crate::format::sectors;
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
        let ticks = cursor.number("a time in seconds")?;
        cursor.comma("a comma after the time")?;
        let address = cursor.number("a first sector")?;
        cursor.comma("a comma after the first sector")?;
        let bytes = sectors(cursor.number("a number of sectors")?)?;
        cursor.comma("a comma after the number of sectors")?;
        let kind = match cursor.until_comma("0 (read) or 1 (write)")? {
            b"0" => Kind::Read,
            b"1" => Kind::Write,
            other => return field("0 (read) or 1 (write)", other),
        };
        cursor.comma("a comma after 0 or 1")?;
        let key = cursor.until_comma("a volume")?;
        cursor.end()?;
        gate.admit(key, Record { ticks, address, bytes, kind })
    }
}
