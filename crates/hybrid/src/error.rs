//! What can be wrong with a simulation.

use thiserror::Error as ThisError;

/// What is wrong, and what to do about it.
#[derive(Debug, ThisError)]
pub enum Error {
    /// No such policy.
    #[error("no policy is called {0}; there are {list}", list = terapage_policy::replacement::NAMES.join(", "))]
    Policy(String),
    /// A cache that is empty, or too large to number its lines.
    #[error("a cache of {0} lines: it must have between 1 and 2^31; change its size or that of its lines")]
    Lines(u64),
    /// An impossible size of a line.
    #[error("lines of {0} bytes: they must be a power of two from 512 to 16384 bytes")]
    LineBytes(u32),
    /// The volume has more lines than numbers for them.
    #[error("offset {offset} is beyond 2^32 lines of {line_bytes} bytes; use larger lines")]
    FarLine {
        /// Where, in bytes.
        offset: u64,
        /// The size of a line.
        line_bytes: u32,
    },
    /// An eviction unit that lines do not fill.
    #[error(
        "an eviction unit of {unit} bytes: it must be a multiple of the line's {line} bytes, at most 2 MiB"
    )]
    Unit {
        /// The unit's bytes.
        unit: u64,
        /// The line's bytes.
        line: u64,
    },
    /// Water marks that cannot be kept.
    #[error(
        "water marks {low} and {high}: 0 <= low <= high < 1 must hold (shares of the cache that are free)"
    )]
    Marks {
        /// Eviction begins.
        low: f64,
        /// Eviction ends.
        high: f64,
    },
    /// A number that must not be 0, or not that large.
    #[error("{name} is {value}; {rule}")]
    Value {
        /// Which.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// A request that the device has no room for.
    #[error(
        "request {number} is for {bytes} bytes at offset {offset}, beyond the device's {capacity} bytes; \
         make the device larger (--capacity) or let requests wrap (--wrap)"
    )]
    Beyond {
        /// The request's number, from 1.
        number: u64,
        /// Where it begins, in bytes.
        offset: u64,
        /// How long it is.
        bytes: u32,
        /// The device's bytes.
        capacity: u64,
    },
    /// The SSD cannot be built.
    #[error(transparent)]
    Ssd(#[from] terapage_ssd::ConfigError),
    /// The source of requests failed.
    #[error("{0}")]
    Trace(Box<dyn std::error::Error + Send + Sync>),
    /// No request was left to measure, out of so many.
    #[error("there is nothing to measure: {0} requests came, and all of them were warm-up")]
    Empty(u64),
}
