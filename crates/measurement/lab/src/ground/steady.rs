//! What was written to a device before it was measured, and how fast.

use serde::{Deserialize, Serialize};

/// Speeds within a window that are at most so far from their mean, per cent.
pub const WITHIN_PERCENT: u32 = 10;

/// What was written before the measurements, and how fast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Steady {
    /// Whether the speed settled.
    pub attained: bool,
    /// Seconds that were given to it at most.
    pub most_s: u64,
    /// Seconds of a window.
    pub window_s: u64,
    /// How far the last window's speeds were from their mean, as fio has it.
    pub criterion: String,
    /// Seconds that it took.
    pub took_s: f64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// MiB/s of each second.
    pub bandwidth: Vec<f64>,
}

impl Steady {
    /// What tells results apart: that it was asked for, and how.
    pub fn asked(&self) -> Steady {
        Steady { most_s: self.most_s, ..Steady::default() }
    }
}
