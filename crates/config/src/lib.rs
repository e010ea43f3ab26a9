//! Settings of a paged process: what they are, where they come from, what they may be.
//!
//! Flags win over `TERAPAGE_*` variables, these over the configuration file, this over the
//! defaults.
#![forbid(unsafe_code)]

mod file;
mod machine;
mod partial;
mod settings;
mod size;
mod store;

pub use machine::memory_bytes;
pub use partial::{KEYS, Key, Memory, Partial, can_be_made, check_block};
pub use settings::{Error, Heap, Placement, Settings};
pub use size::{ParseSizeError, Size};
pub use store::{StoreSpec, Stores, default_store};
