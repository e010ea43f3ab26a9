//! Memory far larger than the machine's: [`Paged`] slices and [`MappedFile`]s.
//!
//! What does not fit the budget lies in a store on a local disk, and comes back when it is touched.
//! A program that cannot be changed runs under `terapage run` instead; there, this crate is not
//! needed.
//!
//! The process has one pager. [`init`] starts it with [`Options`]; without that the first use does,
//! with those of the environment (`TERAPAGE_MEMORY`, `TERAPAGE_STORE` and so on).
//!
//! A fork gives the child a pager of its own, with the same budget, over memory as it was at the
//! fork.
//!
//! The functions that hand out addresses ([`allocate`], [`map_file`] and their kin) are what
//! `terapage.h` is made of.

mod error;
mod fork;
mod heap;
mod mapping;
mod options;
mod paged;
mod process;
mod space;

pub use error::{Error, Result};
pub use heap::{ALIGN, allocate, free, reallocate};
pub use mapping::{MappedFile, Place, map_file, sync, unmap};
pub use options::Options;
pub use paged::{Paged, Plain};
pub use process::{Advice, advise, init, stats};
pub use terapage_stats::Snapshot;
#[doc(hidden)]
pub use terapage_sys::{census, thread::Uncancelled};
