//! The policies of the pager against the best possible, and advice for a program.
//!
//! A [`Recording`] is a file of `terapage run --trace`. [`distances`] and [`optimum`] compute the
//! page-ins of LRU and of Belady's optimum for its references at any budget, and [`policies`] those
//! of each policy of the pager. [`replay`] computes what the whole pager would do and how long that
//! takes, given a [`device`] and [`costs`] measured on the machine. `docs/advise.md` describes the
//! method, its sources and its limits.
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
