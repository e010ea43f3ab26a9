//! Settings of a paged process: their names and values, and where they come from.
//!
//! Flags win over `TERAPAGE_*` variables, variables over the configuration file, and the file over
//! the defaults.
#![forbid(unsafe_code)]

mod choices;
mod faults;
mod file;
mod machine;
mod output;
mod partial;
mod resolve;
mod setting;
mod settings;
mod size;
mod store;
mod table;
mod value;
mod variables;

pub use choices::{Heap, Hosted, Io, Mechanism, Placement};
pub use faults::Faults;
pub use machine::{Machine, Read, is_limit_hidden, machine_bytes, memory_bytes};
pub use output::can_be_written;
pub use partial::{Budget, Memory};
pub use resolve::check_block;
pub use setting::{Choices, Flag, Group, Kind, Setting, markdown};
pub use settings::Error;
pub use size::{ParseSizeError, Size, StoreSize};
pub use store::{Codec, StoreSpec, Stores, default_store};
pub use table::{Partial, SETTINGS, Settings};
pub use terapage_policy::elastic::Level;
pub use terapage_policy::{BLOCK as DEFAULT_BLOCK, SPLIT_BLOCK};
pub use variables::{PATH_VARIABLES, UnknownVariable, nearest, unknown_variables};
