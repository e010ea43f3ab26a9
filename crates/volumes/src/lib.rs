//! Synthetic stand-ins for the MSR Cambridge volumes, for those who do not have the traces.
//!
//! What comes out of them is synthetic, and must be called so wherever it is shown.
#![forbid(unsafe_code)]

mod alias;
mod arrivals;
mod generator;
mod layout;
mod lru;
mod measure;
mod minimum;
mod origin;
mod random;
mod sizes;
mod volume;

pub use generator::Generator;
pub use lru::ObjectLru;
pub use measure::{Properties, measure};
pub use minimum::{Minimum, minimum};
pub use origin::{Origin, Sourced};
pub use volume::{CacheSize, HitRatio, Stream, Volume, VolumeError, names};
