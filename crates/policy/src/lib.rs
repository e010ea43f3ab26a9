//! Replacement and prefetch policies: pure code without I/O, clocks or threads, one policy in each
//! file. The pager and the simulators run the same code.
//!
//! Blocks are named by their number, a `u32` that the pager gives out densely
//! from 0, so that a policy can keep arrays indexed by it.
#![forbid(unsafe_code)]

pub mod appetite;
pub mod belady;
pub mod grain;
mod list;
pub mod luck;
pub mod objects;
pub mod pace;
pub mod prefetch;
pub mod replacement;
pub mod shares;
pub mod soft;
mod sparse;
pub mod turns;

/// Bytes of a block if nobody says otherwise: large enough that a scan runs at the device's speed,
/// with neighbours moved together, and small enough for random touches.
pub const BLOCK: usize = 16 << 10;
