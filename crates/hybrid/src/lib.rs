//! Simulated SSDs with a cache in front, and the replay of requests.
#![forbid(unsafe_code)]

mod cache;
mod directory;
mod error;
mod fixed;
mod hits;
mod memory;
mod table;

pub use cache::{Cache, CacheCounters, CacheKind, CacheOptions};
pub use error::Error;
pub use fixed::FixedLatency;
pub use hits::{HitCounts, HitSimulator};
pub use memory::{MemoryOnly, MemoryTiming};
