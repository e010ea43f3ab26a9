//! The errors of a simulation.

use thiserror::Error as ThisError;

/// An error: what is wrong, and what to do.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The policy is unknown.
    #[error("there is no policy {0} (there are {list})", list = terapage_policy::replacement::NAMES.join(", "))]
    Policy(String),
    /// The cache is empty, or has too many lines to be numbered.
    #[error("a cache of {0} lines: it must have between 1 and 2^31; change its size or that of its lines")]
    Lines(u64),
    /// The size of a line is impossible.
    #[error("lines of {0} bytes: they must be a power of two from 512 to 16384 bytes")]
    LineBytes(u32),
    /// The volume has too many lines to be numbered.
    #[error("offset {offset} is beyond 2^32 lines of {line_bytes} bytes; use larger lines")]
    FarLine {
        /// The offset in bytes.
        offset: u64,
        /// The size of a line.
        line_bytes: u32,
    },
    /// The eviction unit is not a multiple of the line.
    #[error(
        "an eviction unit of {unit} bytes: it must be a multiple of the line's {line} bytes, at most 2 MiB"
    )]
    Unit {
        /// The unit's bytes.
        unit: u64,
        /// The line's bytes.
        line: u64,
    },
    /// The water marks are impossible.
    #[error(
        "water marks {low} and {high}: 0 <= low <= high < 1 must hold (shares of the cache that are free)"
    )]
    Marks {
        /// The mark at which eviction begins.
        low: f64,
        /// The mark at which eviction ends.
        high: f64,
    },
    /// A number is 0, or too large.
    #[error("{name} is {value}; {rule}")]
    Value {
        /// The name of the number.
        name: &'static str,
        /// Its value.
        value: String,
        /// The possible values.
        rule: &'static str,
    },
    /// A request reaches beyond the device.
    #[error(
        "request {number} is for {bytes} bytes at offset {offset}, beyond the device's {capacity} bytes; \
         make the device larger (--capacity) or let requests wrap (--set wrap=yes)"
    )]
    Beyond {
        /// The request's number, from 1.
        number: u64,
        /// The offset of the request, in bytes.
        offset: u64,
        /// The length of the request, in bytes.
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
    /// None of this many requests was left to measure.
    #[error("there is nothing to measure: all of the {0} requests were warm-up")]
    Empty(u64),
}
