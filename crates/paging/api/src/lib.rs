//! Memory far larger than the machine's: [`Paged`] slices and [`MappedFile`]s.
//!
//! Data that do not fit into the budget lie in a store on a local disk, and are read when they are
//! touched. A program that cannot be changed runs under `terapage run` instead, and does not need
//! this crate.
//!
//! The process has one pager. [`init`] starts it with [`Options`]. Otherwise the first use starts
//! it with the options of the environment (`TERAPAGE_MEMORY`, `TERAPAGE_STORE` and so on). Under
//! `terapage run` the pager already exists, and options have no effect.
//!
//! The child of a fork gets its own pager, with the same budget, over memory as it was at the fork.
//!
//! `terapage.h` consists of the functions that return addresses ([`allocate`], [`map_file`] and
//! their kin).

mod error;
mod fork;
mod heap;
mod mapping;
mod options;
mod paged;
mod pages;
mod process;
mod space;

pub use error::{Error, Result};
pub use heap::{ALIGN, allocate, free, reallocate};
pub use mapping::{MappedFile, Place, map_file, sync, unmap};
pub use options::Options;
pub use paged::{Paged, Plain};
pub use process::{Advice, advise, init, set_budget, stats};
pub use terapage_stats::Snapshot;
#[doc(hidden)]
pub use terapage_sys::{census, thread::Uncancelled};
