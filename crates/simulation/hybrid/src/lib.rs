//! Simulated SSDs with a cache of storage-class memory (SCM) or DRAM in front, and the replay of
//! requests.
//!
//! [`simulate`] takes a [`Setup`] and requests, and returns an [`Outcome`]. Its parts can be used
//! separately: [`Cache`] is a device over a device, [`Fronted`] a device behind a link, [`replay`]
//! sends requests to any device, and [`HitSimulator`] counts hits without time.
#![forbid(unsafe_code)]

mod cache;
mod directory;
mod error;
mod fixed;
mod front;
mod hits;
mod latency;
mod machine;
mod memory;
mod replay;
mod simulate;
mod survey;
mod table;

pub use cache::{Cache, CacheCounters, CacheKind, CacheOptions};
pub use error::Error;
pub use fixed::FixedLatency;
pub use front::Fronted;
pub use hits::{HitCounts, HitSimulator};
pub use latency::Latencies;
pub use memory::{MemoryOnly, MemoryTiming};
pub use replay::{Load, Plan, Replayed, replay};
pub use simulate::{Outcome, Setup, Storage, simulate};
pub use survey::{Layout, Placement, Survey, Surveyor};
