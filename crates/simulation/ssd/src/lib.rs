//! Simulated flash SSDs: NAND chips, channels, flash translation, garbage collection.
//!
//! ```
//! use terapage_ssd::{Command, Config, Device, Operation, Profile, Ssd};
//!
//! let config = Config::new(Profile::by_name("3d-ct-tlc")?, 1 << 30);
//! let mut ssd = Ssd::new(&config)?;
//! let mut done = Vec::new();
//! ssd.submit(0, Command { tag: 7, operation: Operation::Read, sector: 800, sectors: 8 }, &mut done);
//! while ssd.next_time().is_some() {
//!     ssd.step(&mut done);
//! }
//! assert_eq!(done[0].tag, 7);
//! assert!(done[0].time > 80_000); // the time of the array is 80 us
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/design/ssd-model.md` describes the model.
#![forbid(unsafe_code)]

pub mod analytic;
mod blocks;
mod buffer;
mod collect;
mod config;
mod counters;
mod device;
mod die;
mod front;
mod geometry;
mod host;
mod idle;
mod map;
mod precondition;
mod profile;
mod program;
mod provision;
mod schedule;
mod ssd;
#[cfg(test)]
mod tests;

pub use config::{
    Acknowledge, Config, ConfigError, Front, GcPolicy, IdleCollection, PLACEMENTS_MAX, Precondition,
};
pub use counters::Counters;
pub use device::{Command, Device, Done, Operation};
pub use profile::{Figure, Profile, ProfileError, Slc, Value};
pub use provision::{Provision, capacity_within};
pub use ssd::Ssd;
