//! Binary traces with records of one length.

use crate::error::Place;
use crate::fault::{Checked, Fault};
use crate::gate::Gate;
use crate::input::Input;
use crate::reader::{BATCH, Source, Stop};
use crate::request::Request;
use std::io::Read;

/// A format whose records all have the same length.
pub(crate) trait RecordParser: Send {
    /// The length of a record, from 1.
    fn record_bytes(&self) -> usize;

    /// The request of a record; `None` if it has none that is selected.
    fn record(&mut self, bytes: &[u8], gate: &mut Gate) -> Checked<Option<Request>>;
}

/// A trace of records.
pub(crate) struct Binary<P> {
    input: Input,
    parser: P,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    ended: bool,
}

impl<P: RecordParser> Binary<P> {
    pub fn new(input: Input, parser: P) -> Binary<P> {
        let buffer = vec![0; parser.record_bytes() * BATCH];
        Binary { input, parser, buffer, start: 0, end: 0, offset: 0, ended: false }
    }

    fn refill(&mut self) -> Result<(), Stop> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < self.buffer.len() && !self.ended {
            let read = self.input.read(&mut self.buffer[self.end..]).map_err(Stop::Io)?;
            self.end += read;
            self.ended = read == 0;
        }
        Ok(())
    }
}

impl<P: RecordParser> Source for Binary<P> {
    fn fill(&mut self, gate: &mut Gate, batch: &mut Vec<Request>) -> Result<bool, Stop> {
        let length = self.parser.record_bytes();
        while batch.len() < BATCH {
            if self.end - self.start < length {
                self.refill()?;
                let found_bytes = (self.end - self.start) as u64;
                if found_bytes == 0 {
                    return Ok(false);
                }
                if found_bytes < length as u64 {
                    let expected_bytes = length as u64;
                    return Err(Stop::Fault(Box::new(Fault::Truncated { expected_bytes, found_bytes })));
                }
            }
            let record = &self.buffer[self.start..self.start + length];
            match self.parser.record(record, gate) {
                Ok(Some(request)) => batch.push(request),
                Ok(None) => {}
                Err(fault) if gate.skip(&fault) => {}
                Err(fault) => return Err(Stop::Fault(fault)),
            }
            self.start += length;
            self.offset += length as u64;
        }
        Ok(true)
    }

    fn place(&self) -> Place {
        Place::Byte(self.offset)
    }
}
