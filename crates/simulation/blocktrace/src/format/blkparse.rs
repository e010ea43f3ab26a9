//! What `blkparse` prints: `8,0 3 1 0.000000000 697 Q W 223490 + 8 [kjournald]`.
//!
//! Device, processor, sequence number, time in seconds, process, action, kind (RWBS), first sector,
//! `+`, sectors, the process's name. Only one action is read, by default `Q`; the others are
//! counted. In the kind, a D is a discard, an R a read, a W a write; flushes have no sectors. The
//! summary at the end is not read. The manual page of blkparse(1), "OUTPUT DESCRIPTION AND
//! FORMATTING".

use crate::fault::{Checked, field};
use crate::format::sectors;
use crate::gate::{Gate, Record};
use crate::lines::LineParser;
use crate::options::Options;
use crate::request::{Kind, Request};
use crate::scan::Cursor;
use crate::writer::{Encoder, Item, Misfit};
use std::io::Write;

/// Reads the format.
pub(crate) struct Parser {
    action: char,
    in_summary: bool,
}

impl Parser {
    pub fn new(options: &Options) -> Parser {
        Parser { action: options.action.unwrap_or('Q'), in_summary: false }
    }
}

impl LineParser for Parser {
    #[inline]
    fn line(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        let mut cursor = Cursor::new(line);
        let device = cursor.word("a device")?;
        if !is_device(device) {
            return self.summary(line, gate);
        }
        let key = device;
        cursor.word_number("a processor")?;
        cursor.word_number("a sequence number")?;
        let ticks = cursor.decimal_ns(9, "a time in seconds")?;
        cursor.word_number("a process")?;
        let action = cursor.word("an action")?;
        if action.len() != 1 || char::from(action[0]) != self.action {
            return gate.other();
        }
        let kind = kind_of(cursor.word("a kind such as R, WS or D")?);
        let (Some(kind), true) = (kind, has_sectors(cursor)) else { return gate.other() };
        let address = cursor.word_number("a first sector")?;
        cursor.word("+")?;
        let count = cursor.word_number("a number of sectors")?;
        if count == 0 {
            return gate.other();
        }
        gate.admit(key, Record { ticks, address, bytes: sectors(count)?, kind })
    }
}

impl Parser {
    /// From the first line of the summary on, all lines are passed over.
    #[cold]
    fn summary(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        self.in_summary |= line.starts_with(b"CPU") || line.starts_with(b"Total");
        if self.in_summary {
            return gate.other();
        }
        field("a device as major,minor", line)
    }
}

/// Whether it is a major and a minor number.
#[inline]
fn is_device(word: &[u8]) -> bool {
    let mut commas = 0;
    for byte in word {
        match byte {
            b',' => commas += 1,
            b'0'..=b'9' => {}
            _ => return false,
        }
    }
    commas == 1
}

/// The kind in an RWBS field; `None` for flushes and commands without data.
#[inline]
fn kind_of(rwbs: &[u8]) -> Option<Kind> {
    rwbs.iter().find_map(|letter| match letter {
        b'D' => Some(Kind::Trim),
        b'R' => Some(Kind::Read),
        b'W' => Some(Kind::Write),
        _ => None,
    })
}

/// Whether a sector, `+` and a number follow: flushes and SCSI commands have something else there.
#[inline]
fn has_sectors(mut cursor: Cursor<'_>) -> bool {
    cursor.word_number("").is_ok() && cursor.word("").is_ok_and(|word| word == b"+")
}

/// Writes lines of the action Q.
#[derive(Default)]
pub(crate) struct Writer {
    sequence: u64,
}

impl Encoder for Writer {
    fn put(&mut self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let (sector, sectors) = item.sectors()?;
        let letter = match item.kind {
            Kind::Read => 'R',
            Kind::Write => 'W',
            Kind::Trim => 'D',
        };
        self.sequence += 1;
        let device = if is_device(item.name.as_bytes()) {
            item.name.to_string()
        } else {
            format!("259,{}", item.volume)
        };
        let (seconds, ns) = (item.time_ns / 1_000_000_000, item.time_ns % 1_000_000_000);
        let sequence = self.sequence;
        let _ = writeln!(
            out,
            "{device:>7}  0 {sequence:>8} {seconds:>5}.{ns:09}     0  Q {letter:>3} {sector} + {sectors} [terapage]"
        );
        Ok(())
    }
}
