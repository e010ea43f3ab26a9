//! The writes to a device before it was measured, and their speed.

use serde::{Deserialize, Serialize};

/// The largest distance of speeds within a window from their mean, per cent.
pub const WITHIN_PERCENT: u32 = 10;

/// The writes before the measurements, and their speed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Steady {
    /// Whether the speed settled.
    pub attained: bool,
    /// The maximum number of seconds for them.
    pub most_s: u64,
    /// Seconds of a window.
    pub window_s: u64,
    /// The distance of the last window's speeds from their mean, in fio's notation.
    pub criterion: String,
    /// The number of seconds that they took.
    pub took_s: f64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// MiB/s of each second.
    pub bandwidth: Vec<f64>,
}

impl Steady {
    /// The part that distinguishes results: that the writes were requested, and how.
    pub fn asked(&self) -> Steady {
        Steady { most_s: self.most_s, ..Steady::default() }
    }
}
