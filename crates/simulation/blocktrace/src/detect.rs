//! Finds the format of a trace from its first bytes.

use crate::fault::Fault;
use crate::format::{Format, blktrace, oraclegeneral, tera, vscsi};
use crate::gate::Gate;
use crate::options::Options;

/// The number of bytes that are examined.
pub(crate) const HEAD_BYTES: u64 = 64 << 10;
/// The number of lines that are examined.
const LINES: usize = 40;

/// The format that the first bytes fit best.
pub(crate) fn format_of(head: &[u8], options: &Options) -> Option<Format> {
    if tera::fits(head) {
        return Some(Format::Tera);
    }
    if memchr::memchr(0, head).is_none() {
        return text_format_of(head, options);
    }
    if blktrace::fits(head) {
        return Some(Format::Blktrace);
    }
    if vscsi::version_of(head).is_some() {
        return Some(Format::Vscsi);
    }
    oraclegeneral::fits(head).then_some(Format::OracleGeneral)
}

/// Whether these first bytes are text whose first line does not end within them.
pub(crate) fn is_endless_line(head: &[u8]) -> bool {
    head.len() as u64 == HEAD_BYTES && memchr::memchr2(0, b'\n', head).is_none()
}

/// Each text format tries the first lines. The one that recognises most lines wins; among equals
/// the first of [`Format::ALL`].
fn text_format_of(head: &[u8], options: &Options) -> Option<Format> {
    let lines = lines(head);
    let mut best = (0, None);
    for format in Format::ALL {
        let score = score(format, &lines, options);
        if score > best.0 {
            best = (score, Some(format));
        }
    }
    best.1
}

/// The first lines that are not empty. The last one may be cut off, and counts only if there is no
/// other.
fn lines(head: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = head.split(|byte| *byte == b'\n').collect();
    if lines.len() > 1 {
        lines.pop();
    }
    let lines = lines.into_iter().map(|line| line.trim_ascii_end());
    lines.filter(|line| !line.is_empty()).take(LINES).collect()
}

/// Two points for each request and one for another known record; 0 if more than half of the lines
/// are bad.
fn score(format: Format, lines: &[&[u8]], options: &Options) -> u64 {
    let options = Options { disorder_ns: u64::MAX, capacity: None, volumes: Vec::new(), ..options.clone() };
    let Some(mut parser) = format.line_parser(&options) else { return 0 };
    let mut gate: Gate = format.gate(&options);
    let (mut bad, mut absurd) = (0, 0);
    for line in lines {
        match parser.line(line, &mut gate) {
            Ok(_) => {}
            // The form is that of this format, whose reader reports the error best.
            Err(fault)
                if matches!(*fault, Fault::TooLong { .. } | Fault::TooFar { .. } | Fault::ZeroLength) =>
            {
                absurd += 1;
            }
            Err(_) => bad += 1,
        }
    }
    let (requests, other) = (gate.counts.requests, gate.counts.other + absurd);
    if bad > requests + other { 0 } else { 2 * requests + other }
}
