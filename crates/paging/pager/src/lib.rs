//! The pager: memory larger than its frames, in user space.
//!
//! A [`Pager`] has a thread, which resolves the faults of its regions, reads and writes the store,
//! and serves requests. `docs/design/pager.md` describes how. Begin to read in `engine/mod.rs`.

#![cfg_attr(terapage_model, allow(dead_code, reason = "the model's tests use a part of it"))]

#[cfg(terapage_model)]
extern crate terapage_model as terapage_sys;
#[cfg(terapage_model)]
extern crate terapage_model_store as terapage_store;

mod carry;
mod engine;
mod error;
mod event_count;
#[cfg_attr(terapage_model, path = "../../model/engine/follow.rs")]
mod follow;
mod frames;
mod io;
mod mailbox;
#[cfg(terapage_model)]
#[path = "../../model/engine/mod.rs"]
mod model;
mod options;
pub mod owner;
#[cfg_attr(terapage_model, path = "../../model/engine/pager.rs")]
mod pager;
pub mod pins;
mod spans;
#[cfg(not(terapage_model))]
mod sync;
#[cfg_attr(terapage_model, path = "../../model/engine/trace.rs")]
mod trace;

pub use engine::files::FDATASYNC;
pub use error::Error;
pub use frames::lease::{Share, Use};
pub use options::{Options, Tuning};
#[cfg(not(terapage_model))]
pub use pager::{Forking, MakeStore, Pager};
pub use spans::Spans;
#[cfg(terapage_model)]
use terapage_model::sync;

/// The most blocks of one range. Block numbers have 32 bits, and static arrays need some of them.
pub const BLOCKS_MOST: usize = u32::MAX as usize / 16 * 15;
