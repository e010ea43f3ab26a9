//! Settings of a paged process: their names and values, and where they come from.
//!
//! Flags win over `TERAPAGE_*` variables, variables over the configuration file, and the file over
//! the defaults.
#![forbid(unsafe_code)]

mod file;
mod machine;
mod partial;
mod settings;
mod size;
mod store;

pub use machine::memory_bytes;
pub use partial::{KEYS, Key, Memory, Partial, can_be_made, check_block};
pub use settings::{Error, Heap, Io, Placement, Settings};
pub use size::{ParseSizeError, Size};
pub use store::{Codec, StoreSpec, Stores, default_store};
