//! The policies of the pager against the best possible, and advice for a program.
//!
//! A [`Recording`] is what `terapage run --trace` wrote. [`distances`] and [`optimum`] say what LRU
//! and Belady's optimum make of its references at any budget, [`policies`] what each policy of the
//! pager does, [`replay`] what the whole pager would do and how long that takes, given a [`device`]
//! and [`costs`] measured on the machine. `docs/advise.md` has the method, its sources and its
//! limits.
#![forbid(unsafe_code)]

pub mod advice;
pub mod cache;
pub mod child;
pub mod costs;
pub mod device;
pub mod distances;
pub mod knee;
pub mod optimum;
pub mod policies;
pub mod record;
pub mod recording;
pub mod replay;

pub use costs::Costs;
pub use device::Device;
pub use recording::{Recording, is_recording};
