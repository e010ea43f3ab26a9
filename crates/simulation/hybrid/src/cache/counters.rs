//! Counters of a cache.

use serde::{Deserialize, Serialize};

/// Counters of a cache. All of them grow, except those whose comment says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCounters {
    /// Read commands.
    pub reads: u64,
    /// Read commands for which nothing had to be read from below.
    pub read_hits: u64,
    /// Write commands.
    pub writes: u64,
    /// Write commands whose lines were all in the cache.
    pub write_hits: u64,
    /// Lines that reads touched.
    pub read_lines: u64,
    /// Lines touched by reads whose wanted sectors were all valid.
    pub read_line_hits: u64,
    /// Lines that writes touched.
    pub write_lines: u64,
    /// Lines touched by writes that were in the cache.
    pub write_line_hits: u64,
    /// Sectors that the host read.
    pub host_read_sectors: u64,
    /// Sectors that the host wrote.
    pub host_written_sectors: u64,
    /// Sectors read from below.
    pub below_read_sectors: u64,
    /// Commands that read from below.
    pub below_reads: u64,
    /// Sectors written below.
    pub below_written_sectors: u64,
    /// Commands that wrote below.
    pub below_writes: u64,
    /// Clean sectors that were written below to fill gaps.
    pub padded_sectors: u64,
    /// Lines that left.
    pub evicted: u64,
    /// Lines that left clean: nothing was written for them.
    pub dropped: u64,
    /// Lines that were written below with an evicted neighbour, or because they had been dirty for
    /// the configured time.
    pub cleaned: u64,
    /// Commands that waited for room.
    pub waited: u64,
    /// Sectors that are dirty now, in the cache or on the way below. A volatile cache loses these
    /// at a power failure.
    pub unsafe_sectors: u64,
    /// The most dirty sectors that there were.
    pub unsafe_sectors_max: u64,
    /// Lines that are in the cache now.
    pub lines: u64,
}

impl CacheCounters {
    /// The counts since `earlier`. Values that are not counts are unchanged.
    pub fn since(&self, earlier: &Self) -> Self {
        CacheCounters {
            reads: self.reads - earlier.reads,
            read_hits: self.read_hits - earlier.read_hits,
            writes: self.writes - earlier.writes,
            write_hits: self.write_hits - earlier.write_hits,
            read_lines: self.read_lines - earlier.read_lines,
            read_line_hits: self.read_line_hits - earlier.read_line_hits,
            write_lines: self.write_lines - earlier.write_lines,
            write_line_hits: self.write_line_hits - earlier.write_line_hits,
            host_read_sectors: self.host_read_sectors - earlier.host_read_sectors,
            host_written_sectors: self.host_written_sectors - earlier.host_written_sectors,
            below_read_sectors: self.below_read_sectors - earlier.below_read_sectors,
            below_reads: self.below_reads - earlier.below_reads,
            below_written_sectors: self.below_written_sectors - earlier.below_written_sectors,
            below_writes: self.below_writes - earlier.below_writes,
            padded_sectors: self.padded_sectors - earlier.padded_sectors,
            evicted: self.evicted - earlier.evicted,
            dropped: self.dropped - earlier.dropped,
            cleaned: self.cleaned - earlier.cleaned,
            waited: self.waited - earlier.waited,
            ..*self
        }
    }
}
