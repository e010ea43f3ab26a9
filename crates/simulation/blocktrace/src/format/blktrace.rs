//! The output of `blktrace`: binary records of 48 bytes, some of them followed by more bytes.
//!
//! Magic 0x65617407 u32 (its lowest byte is the version), sequence u32, time in nanoseconds u64,
//! first sector u64, bytes u32, action u32, process u32, device u32, processor u32, error u16,
//! length of the bytes that follow u16. The lower half of the action is the step (1 queued, 7
//! issued, 8 completed), and the upper half has bits for the kind.
//! `include/uapi/linux/blktrace_api.h` of Linux.
//!
//! A file has the records of one processor. `blkparse -i DEVICE -d FILE` merges them.

use crate::error::Place;
use crate::fault::{Checked, Fault, field};
use crate::format::vscsi::{int, long};
use crate::gate::{Gate, Record};
use crate::input::Input;
use crate::options::Options;
use crate::reader::{BATCH, Source, Stop};
use crate::request::{Kind, Request};
use std::io::{BufReader, Read};

/// The length of a record without the bytes that follow.
const RECORD: usize = 48;
/// The magic number, without the version.
const MAGIC: u32 = 0x6561_7400;
/// Bits of the upper half of the action.
const WRITE: u32 = 1 << 17;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;

/// Whether a file begins like this.
pub(crate) fn fits(head: &[u8]) -> bool {
    head.len() >= RECORD && int(head, 0) & !0xff == MAGIC
}

/// Reads the format.
pub(crate) struct Records {
    input: BufReader<Input>,
    /// The action that is read.
    action: u32,
    offset: u64,
    next: u64,
}

impl Records {
    pub fn new(input: Input, options: &Options) -> Checked<Records> {
        let action = match options.action.unwrap_or('Q') {
            'Q' => 1,
            'M' => 2,
            'F' => 3,
            'G' => 4,
            'S' => 5,
            'D' => 7,
            'C' => 8,
            'I' => 12,
            other => return field("--action Q, M, F, G, S, I, D or C", other.to_string().as_bytes()),
        };
        Ok(Records { input: BufReader::with_capacity(256 << 10, input), action, offset: 0, next: 0 })
    }

    /// Reads as many bytes as `bytes` has, or none at the end of the file.
    fn read(&mut self, bytes: &mut [u8]) -> Result<bool, Stop> {
        let mut found = 0;
        while found < bytes.len() {
            match self.input.read(&mut bytes[found..]).map_err(Stop::Io)? {
                0 if found == 0 => return Ok(false),
                0 => {
                    let (expected_bytes, found_bytes) = (bytes.len() as u64, found as u64);
                    return Err(Stop::Fault(Box::new(Fault::Truncated { expected_bytes, found_bytes })));
                }
                more => found += more,
            }
        }
        self.next += bytes.len() as u64;
        Ok(true)
    }

    fn request(&self, bytes: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        let action = int(bytes, 28);
        let length = u64::from(int(bytes, 24));
        if action & 0xffff != self.action || action & NOTIFY != 0 || length == 0 {
            return gate.other();
        }
        let kind = match action {
            _ if action & DISCARD != 0 => Kind::Trim,
            _ if action & WRITE != 0 => Kind::Write,
            _ => Kind::Read,
        };
        let device = int(bytes, 36);
        let key = format!("{},{}", device >> 20, device & 0xf_ffff);
        let (ticks, address) = (long(bytes, 8), long(bytes, 16));
        gate.admit(key.as_bytes(), Record { ticks, address, bytes: length, kind })
    }
}

impl Source for Records {
    fn fill(&mut self, gate: &mut Gate, batch: &mut Vec<Request>) -> Result<bool, Stop> {
        let mut more = [0; 1 << 16];
        while batch.len() < BATCH {
            self.offset = self.next;
            let mut record = [0; RECORD];
            if !self.read(&mut record)? {
                return Ok(false);
            }
            if int(&record, 0) & !0xff != MAGIC {
                // The next record cannot be found, since its place depends on this one.
                let text = record[..4].escape_ascii().to_string();
                let fault = Fault::Lost { expected: "a record of blktrace, little-endian", found: text };
                return Err(Stop::Fault(Box::new(fault)));
            }
            let length = usize::from(u16::from_le_bytes([record[46], record[47]]));
            if length > 0 && !self.read(&mut more[..length])? {
                let (expected_bytes, found_bytes) = (length as u64, 0);
                return Err(Stop::Fault(Box::new(Fault::Truncated { expected_bytes, found_bytes })));
            }
            match self.request(&record, gate) {
                Ok(Some(request)) => batch.push(request),
                Ok(None) => {}
                Err(fault) if gate.skip(&fault) => {}
                Err(fault) => return Err(Stop::Fault(fault)),
            }
        }
        Ok(true)
    }

    fn place(&self) -> Place {
        Place::Byte(self.offset)
    }
}
