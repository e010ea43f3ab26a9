//! MSR Cambridge: `128166385295514663,hm,0,Write,9056014336,2048,2833`.
//!
//! Time as a FILETIME (units of 100 ns), host, disk, `Read` or `Write`, offset and length in bytes,
//! response time in units of 100 ns. Narayanan, Donnelly, Rowstron: "Write Off-Loading", FAST 2008;
//! the SNIA IOTTA repository's trace set 388. A line of column names may come first. The response
//! time is not used: the replaying device has its own.

use crate::fault::{Checked, field};
use crate::gate::{Gate, Record};
use crate::lines::LineParser;
use crate::request::{Kind, Request};
use crate::scan::Cursor;
use crate::writer::{Encoder, Item, Misfit};
use std::io::Write;

/// Reads the format.
#[derive(Default)]
pub(crate) struct Parser {
    begun: bool,
}

impl LineParser for Parser {
    #[inline]
    fn line(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        if !self.begun {
            self.begun = true;
            if line.len() >= 9 && line[..9].eq_ignore_ascii_case(b"timestamp") {
                return gate.other();
            }
        }
        let mut cursor = Cursor::new(line);
        let ticks = cursor.number("a time in units of 100 ns")?;
        cursor.comma("a comma after the time")?;
        let key = volume(&mut cursor)?;
        let kind = kind(cursor.until_comma("Read or Write")?)?;
        cursor.comma("a comma after Read or Write")?;
        let address = cursor.number("an offset in bytes")?;
        cursor.comma("a comma after the offset")?;
        let bytes = cursor.number("a length in bytes")?;
        cursor.comma("a comma after the length")?;
        cursor.until_comma("a response time")?;
        cursor.end()?;
        gate.admit(key, Record { ticks, address, bytes, kind })
    }
}

/// Host and disk with the comma between them.
#[inline]
fn volume<'a>(cursor: &mut Cursor<'a>) -> Checked<&'a [u8]> {
    let start = cursor.rest();
    cursor.until_comma("a host's name")?;
    cursor.comma("a comma after the host's name")?;
    cursor.until_comma("a disk's number")?;
    let length = start.len() - cursor.rest().len();
    cursor.comma("a comma after the disk's number")?;
    Ok(&start[..length])
}

#[inline]
fn kind(word: &[u8]) -> Checked<Kind> {
    match word {
        b"Read" => Ok(Kind::Read),
        b"Write" => Ok(Kind::Write),
        _ if word.eq_ignore_ascii_case(b"read") => Ok(Kind::Read),
        _ if word.eq_ignore_ascii_case(b"write") => Ok(Kind::Write),
        _ => field("Read or Write", word),
    }
}

/// Writes it, with times from 0 and response times of 0.
pub(crate) struct Writer;

impl Encoder for Writer {
    fn put(&mut self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let (host, disk) = host_and_disk(item.name);
        let kind = match item.kind {
            Kind::Read => "Read",
            Kind::Write => "Write",
            Kind::Trim => return Err(Misfit::Trim),
        };
        let (time, offset, bytes) = (item.time_ns / 100, item.offset, item.bytes);
        let _ = writeln!(out, "{time},{host},{disk},{kind},{offset},{bytes},0");
        Ok(())
    }
}

/// `hm_0` is disk 0 of the host `hm`; other names are hosts with one disk.
fn host_and_disk(name: &str) -> (String, &str) {
    let plain = |name: &str| -> String {
        let safe = |letter: char| if letter.is_ascii_graphic() && letter != ',' { letter } else { '-' };
        if name.is_empty() { "volume".to_string() } else { name.chars().map(safe).collect() }
    };
    match name.rsplit_once('_') {
        Some((host, disk))
            if !host.is_empty() && !disk.is_empty() && disk.bytes().all(|d| d.is_ascii_digit()) =>
        {
            (plain(host), disk)
        }
        _ => (plain(name), "0"),
    }
}
