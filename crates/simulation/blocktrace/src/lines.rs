//! Text traces: a line is a record.

use crate::error::Place;
use crate::fault::{Checked, Fault};
use crate::gate::Gate;
use crate::input::Input;
use crate::reader::{BATCH, Source, Stop};
use crate::request::Request;
use std::io::Read;

/// The longest line that is accepted. Real lines have about 60 bytes.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// A format whose records are lines.
pub(crate) trait LineParser: Send {
    /// The request of a line, which is given without its end; `None` if it has none that is
    /// selected.
    fn line(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>>;
}

/// A trace of lines.
pub(crate) struct Text<P> {
    lines: Lines,
    parser: P,
}

impl<P: LineParser> Text<P> {
    pub fn new(input: Input, parser: P) -> Text<P> {
        Text { lines: Lines::new(input), parser }
    }
}

impl<P: LineParser> Source for Text<P> {
    fn fill(&mut self, gate: &mut Gate, batch: &mut Vec<Request>) -> Result<bool, Stop> {
        while batch.len() < BATCH {
            let Some(line) = self.lines.next()? else { return Ok(false) };
            if line.first().is_none_or(|first| *first <= b' ') && line.trim_ascii().is_empty() {
                continue;
            }
            match self.parser.line(line, gate) {
                Ok(Some(request)) => batch.push(request),
                Ok(None) => {}
                Err(fault) if gate.skip(&fault) => {}
                Err(fault) => return Err(Stop::Fault(fault)),
            }
        }
        Ok(true)
    }

    fn place(&self) -> Place {
        Place::Line(self.lines.number)
    }
}

/// Lines out of a buffer: nothing is allocated or copied for a line.
struct Lines {
    input: Input,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    number: u64,
    ended: bool,
}

impl Lines {
    fn new(input: Input) -> Lines {
        let buffer = vec![0; 4 * LINE_BYTES_MAX].into_boxed_slice();
        Lines { input, buffer, start: 0, end: 0, number: 0, ended: false }
    }

    /// The next line, without its end.
    #[inline]
    fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        let line = loop {
            if let Some(length) = memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
                let line = self.start..self.start + length;
                self.start = line.end + 1;
                break line;
            }
            if self.ended {
                let line = self.start..self.end;
                if line.is_empty() {
                    return Ok(None);
                }
                self.start = self.end;
                break line;
            }
            self.refill()?;
        };
        self.number += 1;
        let line = &self.buffer[line];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    #[cold]
    fn refill(&mut self) -> Result<(), Stop> {
        if self.end - self.start > LINE_BYTES_MAX {
            self.number += 1;
            return Err(Stop::Fault(Box::new(Fault::LongLine { limit_bytes: LINE_BYTES_MAX })));
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < self.buffer.len() && !self.ended {
            let read = match self.input.read(&mut self.buffer[self.end..]) {
                Ok(read) => read,
                Err(error) => {
                    // This is the number of the expected line, which may be the first.
                    self.number += 1;
                    return Err(Stop::Io(error));
                }
            };
            self.end += read;
            self.ended = read == 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<String> {
        let mut lines = Lines::new(Box::new(std::io::Cursor::new(text.to_vec())));
        let mut found = Vec::new();
        while let Some(line) = lines.next().ok().flatten() {
            found.push(String::from_utf8_lossy(line).into_owned());
        }
        found
    }

    #[test]
    fn lines_end_at_line_feeds_with_or_without_carriage_returns() {
        assert_eq!(lines(b"a\r\nb\n\nc"), ["a", "b", "", "c"]);
        assert_eq!(lines(b""), [""; 0]);
    }

    #[test]
    fn lines_longer_than_a_read_are_joined() {
        let long = "x".repeat(LINE_BYTES_MAX - 1);
        let text = format!("{long}\n").repeat(9);
        assert_eq!(lines(text.as_bytes()), vec![long; 9]);
    }

    #[test]
    fn what_cannot_be_read_is_the_line_that_was_to_come() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("broken"))
            }
        }
        let mut lines = Lines::new(Box::new(Broken));
        assert!(matches!(lines.next(), Err(Stop::Io(_))));
        assert_eq!(lines.number, 1);
    }

    #[test]
    fn endless_lines_are_refused() {
        let mut lines = Lines::new(Box::new(std::io::repeat(b'7')));
        assert!(matches!(lines.next(), Err(Stop::Fault(fault)) if matches!(*fault, Fault::LongLine { .. })));
    }
}
