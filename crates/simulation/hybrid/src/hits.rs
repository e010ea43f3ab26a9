//! Hit ratios of a policy, without time: nearly as fast as the policy itself.

use serde::{Deserialize, Serialize};
use terapage_blocktrace::{Kind, Request};

use crate::directory::Directory;
use crate::error::Error;

/// Requests of a cache, and its hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitCounts {
    /// Requests, without trims.
    pub requests: u64,
    /// Requests whose lines were all in the cache.
    pub request_hits: u64,
    /// Lines that requests touched.
    pub lines: u64,
    /// Touched lines that were in the cache.
    pub line_hits: u64,
}

impl HitCounts {
    /// Hits divided by lines; 0 without lines.
    pub fn line_hit_ratio(&self) -> f64 {
        self.line_hits as f64 / self.lines.max(1) as f64
    }
}

/// A cache of whole lines that inserts everything that is read or written, with one policy and
/// without time.
///
/// Other cache simulators work like this. [`Cache`](crate::Cache) also models which sectors of a
/// line are valid, free space that is kept ready, and time.
pub struct HitSimulator {
    directory: Directory,
    lines: usize,
    shift: u32,
    counts: HitCounts,
}

impl HitSimulator {
    /// A cache of `lines` lines of `line_bytes`, which is a power of two. `policy` is a name of
    /// [`terapage_policy::replacement::NAMES`].
    ///
    /// # Errors
    /// The policy is unknown, there is no line, or the size of a line is not a power of two.
    pub fn new(policy: &str, lines: usize, line_bytes: u32) -> Result<Self, Error> {
        if lines == 0 || lines > u32::MAX as usize / 2 {
            return Err(Error::Lines(lines as u64));
        }
        if !line_bytes.is_power_of_two() {
            return Err(Error::LineBytes(line_bytes));
        }
        let directory = Directory::new(policy, lines).ok_or_else(|| Error::Policy(policy.to_owned()))?;
        Ok(HitSimulator {
            directory,
            lines,
            shift: line_bytes.trailing_zeros(),
            counts: HitCounts::default(),
        })
    }

    /// Does `request`. Returns whether all its lines were in the cache. A trim removes whole lines,
    /// and is not counted.
    ///
    /// # Errors
    /// [`Error::FarLine`] if a line's number is 2^32 or more.
    pub fn request(&mut self, request: &Request) -> Result<bool, Error> {
        let (first, last) = (request.offset >> self.shift, (request.end() - 1) >> self.shift);
        if last >= u64::from(u32::MAX) {
            return Err(Error::FarLine { offset: request.offset, line_bytes: 1 << self.shift });
        }
        if request.kind == Kind::Trim {
            self.trim(request);
            return Ok(false);
        }
        let mut hits = 0;
        for line in first as u32..=last as u32 {
            hits += u64::from(self.line(line));
        }
        let lines = last - first + 1;
        self.counts.requests += 1;
        self.counts.request_hits += u64::from(hits == lines);
        self.counts.lines += lines;
        self.counts.line_hits += hits;
        Ok(hits == lines)
    }

    fn line(&mut self, line: u32) -> bool {
        if let Some(slot) = self.directory.find(line) {
            self.directory.touch(slot);
            return true;
        }
        if self.directory.len() == self.lines {
            self.directory.pop();
        }
        self.directory.insert(line);
        false
    }

    fn trim(&mut self, request: &Request) {
        let past = (1_u64 << self.shift) - 1;
        let (first, end) = ((request.offset + past) >> self.shift, request.end() >> self.shift);
        for line in first..end {
            if let Some(slot) = self.directory.find(line as u32) {
                self.directory.remove(slot);
            }
        }
    }

    /// The requests so far, and the hits.
    pub fn counts(&self) -> HitCounts {
        self.counts
    }

    /// Bytes of the directory.
    pub fn bytes(&self) -> usize {
        self.directory.bytes()
    }
}
