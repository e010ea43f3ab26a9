//! The ARC paper's: `230027 8 0 0`.
//!
//! First block, number of blocks, an ignored number, the request's number. There are no times and
//! no kinds: all times are 0, and all requests count as reads. Blocks have 512 bytes in the traces
//! P1 to P14; others have other sizes, which the files do not state. Megiddo, Modha: "ARC: A
//! Self-Tuning, Low Overhead Replacement Cache", FAST 2003.

use crate::fault::{Checked, Fault};
use crate::gate::{Gate, Record};
use crate::lines::LineParser;
use crate::options::Options;
use crate::request::{Kind, Request};
use crate::scan::Cursor;

/// Reads the format.
pub(crate) struct Parser {
    unit_bytes: u64,
}

impl Parser {
    pub fn new(options: &Options) -> Parser {
        Parser { unit_bytes: u64::from(options.unit_bytes.unwrap_or(512)) }
    }
}

impl LineParser for Parser {
    #[inline]
    fn line(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        let mut cursor = Cursor::new(line);
        let address = cursor.word_number("a first block")?;
        let blocks = cursor.word_number("a number of blocks")?;
        cursor.word_number("an ignored number")?;
        cursor.word_number("a request's number")?;
        cursor.end()?;
        let bytes = blocks.checked_mul(self.unit_bytes).ok_or(Fault::TooLong { bytes: u64::MAX })?;
        gate.admit(b"0", Record { ticks: 0, address, bytes, kind: Kind::Read })
    }
}
