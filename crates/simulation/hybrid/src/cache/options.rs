//! The options of a cache.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::memory::{MemoryTiming, SECTOR};

/// The kind of a cache: its treatment of reads, and whether it survives a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    /// Non-volatile write-back: all writes go to the cache, and bytes that are read from below are
    /// copied to it.
    NvWb,
    /// Only writes go to the cache; reads find the written bytes.
    WriteOnly,
    /// Like [`NvWb`](Self::NvWb), except that bytes that are read are copied only while more than
    /// [`CacheOptions::copy_above`] is free.
    Space,
    /// As [`NvWb`](Self::NvWb), but volatile: dirty lines are written below after
    /// [`CacheOptions::flush_after_ns`].
    Dram,
}

/// A cache over a slower device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheOptions {
    /// The kind of the cache.
    pub kind: CacheKind,
    /// The size of the cache, rounded down to whole lines.
    pub bytes: u64,
    /// Bytes of a line, a power of two from 512 to 16384. Lines are found and evicted as a whole;
    /// each sector of a line may be valid and may be dirty.
    pub line_bytes: u32,
    /// Dirty lines of one aligned unit of this many bytes are written below together; a multiple of
    /// `line_bytes`.
    pub evict_bytes: u32,
    /// Whether clean sectors in the cache are written with dirty neighbours of the same unit, so
    /// that fewer pages are written partially.
    pub pad: bool,
    /// Whether a read that misses fetches the whole line, instead of only the requested sectors.
    pub whole_lines: bool,
    /// Lines are evicted if at most this share of the cache is free.
    pub low_water: f64,
    /// Lines are evicted until at least this share is free.
    pub high_water: f64,
    /// The share that must be free for [`CacheKind::Space`] to copy bytes that are read.
    pub copy_above: f64,
    /// The name of the replacement policy, see [`terapage_policy::replacement::NAMES`].
    pub policy: String,
    /// The speed of the memory.
    pub memory: MemoryTiming,
    /// The time for which a line may be dirty in a [`CacheKind::Dram`].
    pub flush_after_ns: u64,
}

impl Default for CacheOptions {
    fn default() -> Self {
        CacheOptions {
            kind: CacheKind::NvWb,
            bytes: 64 << 20,
            line_bytes: 4096,
            evict_bytes: 16384,
            pad: true,
            whole_lines: false,
            low_water: 0.2,
            high_water: 0.2,
            copy_above: 0.3,
            policy: "lru".to_owned(),
            memory: MemoryTiming::default(),
            flush_after_ns: 5_000_000_000,
        }
    }
}

impl CacheOptions {
    /// The lines for which the cache has room.
    pub fn lines(&self) -> u64 {
        self.bytes / u64::from(self.line_bytes.max(1))
    }

    /// Checks the options, as far as possible without the device.
    pub(crate) fn check(&self, device_sectors: u64) -> Result<(), Error> {
        if !self.line_bytes.is_power_of_two() || !(512..=16384).contains(&self.line_bytes) {
            return Err(Error::LineBytes(self.line_bytes));
        }
        let line = u64::from(self.line_bytes);
        if !(1..=1 << 31).contains(&self.lines()) {
            return Err(Error::Lines(self.lines()));
        }
        let unit = u64::from(self.evict_bytes);
        if unit == 0 || unit % line != 0 || unit > 2 << 20 {
            return Err(Error::Unit { unit, line });
        }
        let (low, high) = (self.low_water, self.high_water);
        if !(0.0..1.0).contains(&low) || !(low..1.0).contains(&high) {
            return Err(Error::Marks { low, high });
        }
        if !(0.0..=1.0).contains(&self.copy_above) {
            let value = self.copy_above.to_string();
            let rule = "it must be a share from 0 to 1";
            return Err(Error::Value { name: "the free share above which reads are copied", value, rule });
        }
        if device_sectors.div_ceil(line / SECTOR) >= u64::from(u32::MAX) {
            return Err(Error::FarLine { offset: device_sectors * SECTOR, line_bytes: self.line_bytes });
        }
        Ok(())
    }
}
