//! Settings of a paged process: what they are, where they come from, what they may be.
//!
//! Flags win over `TERAPAGE_*` variables, these over the configuration file, this over the defaults.
#![forbid(unsafe_code)]

mod settings;
mod size;

pub use settings::{Error, Heap, Placement, Settings, StorePath};
pub use size::{ParseSizeError, Size};
