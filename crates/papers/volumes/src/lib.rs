//! Synthetic replacements for the MSR Cambridge volumes, for users who do not have the traces.
//!
//! Their results are synthetic, and must be called so wherever they are shown.
#![forbid(unsafe_code)]

mod alias;
mod arrivals;
mod case;
pub mod estimate;
pub mod fit;
mod fitted;
mod gains;
mod generator;
mod layout;
mod lru;
mod measure;
mod minimum;
pub mod published;
mod random;
pub mod settings;
mod sizes;
pub mod sweep;
mod volume;
mod workload;

pub use case::{Amount, Case, CaseError, Layers};
pub use fitted::{Fitted, FittedError};
pub use gains::{MeanGain, correlation, flash_read_share, gain_percent, pairs_in_order, simulate_all};
pub use generator::Generator;
pub use lru::ObjectLru;
pub use measure::{Properties, measure};
pub use minimum::{Minimum, minimum};
pub use volume::{CacheSize, HitRatio, Stream, Volume, VolumeError, names};
pub use workload::{Requests, Workload};
