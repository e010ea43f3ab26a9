//! Replacement and prefetch policies: pure code without I/O, clocks or threads, one policy in each
//! file. The pager and the simulators run the same code.
//!
//! Blocks are named by their number, a `u32`. The pager assigns the numbers densely from 0, so that
//! a policy can keep arrays indexed by them.
#![forbid(unsafe_code)]

pub mod belady;
pub mod companions;
pub mod disk;
pub mod elastic;
pub mod frame_need;
pub mod learnt;
pub mod list;
pub mod objects;
pub mod pace;
pub mod prefetch;
pub mod refaults;
pub mod replacement;
pub mod shares;
pub mod soft;
mod sparse;
pub mod spinning;
pub mod splitting;
pub mod turns;

/// The default block size in bytes: large enough that a scan runs at the device's speed, with
/// neighbours moved together, and small enough for random touches.
pub const BLOCK: usize = 16 << 10;

/// Bytes of a block after a split ([`splitting`]): a page.
pub const SPLIT_BLOCK: usize = 4 << 10;

#[cfg(test)]
mod testing {
    /// `count` numbers below `below`, the same at each call.
    pub fn random(count: u32, below: u32) -> impl Iterator<Item = u32> {
        let mut state = 1u64;
        (0..count).map(move |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32 % below
        })
    }
}
