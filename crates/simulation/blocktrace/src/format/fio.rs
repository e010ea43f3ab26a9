//! fio's I/O log, versions 2 and 3: `204 /dev/sdb read 8192 4096`.
//!
//! The first line is `fio version 2 iolog` or `fio version 3 iolog`. Then version 3 has a time in
//! microseconds, a file, an action, an offset and a length in bytes; version 2 the same without
//! times, and the action `wait`, whose offset is microseconds after the wait before. The actions
//! `add`, `open`, `close`, `sync` and `datasync` are not requests for data. fio's manual, "Trace
//! file format".

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
    version: Option<Version>,
    waited_us: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Version {
    Two,
    Three,
}

impl LineParser for Parser {
    #[inline]
    fn line(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        let Some(version) = self.version else { return self.head(line, gate) };
        let mut cursor = Cursor::new(line);
        let ticks = match version {
            Version::Two => self.waited_us,
            Version::Three => cursor.word_number("a time in microseconds")?,
        };
        let key = cursor.word("a file")?;
        let kind = match cursor.word("an action")? {
            b"read" => Kind::Read,
            b"write" => Kind::Write,
            b"trim" => Kind::Trim,
            b"add" | b"open" | b"close" | b"sync" | b"datasync" | b"sync_file_range" => return gate.other(),
            b"wait" if version == Version::Two => return self.wait(cursor, gate),
            other => return field("read, write, trim, add, open, close, sync or datasync", other),
        };
        let address = cursor.word_number("an offset in bytes")?;
        let bytes = cursor.word_number("a length in bytes")?;
        cursor.end()?;
        gate.admit(key, Record { ticks, address, bytes, kind })
    }
}

impl Parser {
    fn head(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        self.version = Some(match line.trim_ascii() {
            b"fio version 2 iolog" => Version::Two,
            b"fio version 3 iolog" => Version::Three,
            other => return field("fio version 2 iolog or fio version 3 iolog", other),
        });
        gate.other()
    }

    fn wait(&mut self, mut cursor: Cursor<'_>, gate: &mut Gate) -> Checked<Option<Request>> {
        let wait_us = cursor.word_number("microseconds")?;
        self.waited_us = match self.waited_us.checked_add(wait_us) {
            Some(sum) => sum,
            None => return field("waits of less than 2^64 microseconds in all", b"more"),
        };
        gate.other()
    }
}

/// Writes version 3; each volume is a file that is added and opened before its first request.
#[derive(Default)]
pub(crate) struct Writer {
    opened: Vec<bool>,
}

impl Encoder for Writer {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"fio version 3 iolog\n");
    }

    fn put(&mut self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let file = file_name(item);
        let us = item.time_ns / 1000;
        let volume = usize::from(item.volume);
        if self.opened.len() <= volume {
            self.opened.resize(volume + 1, false);
        }
        if !std::mem::replace(&mut self.opened[volume], true) {
            let _ = writeln!(out, "{us} {file} add\n{us} {file} open");
        }
        let action = match item.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Trim => "trim",
        };
        let _ = writeln!(out, "{us} {file} {action} {} {}", item.offset, item.bytes);
        Ok(())
    }
}

/// fio ends a name at a blank, so there must be none.
fn file_name(item: &Item<'_>) -> String {
    if item.name.is_empty() {
        return format!("volume{}", item.volume);
    }
    item.name
        .chars()
        .map(|letter| if letter.is_whitespace() || letter.is_control() { '-' } else { letter })
        .collect()
}
