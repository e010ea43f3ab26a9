//! The settings themselves.

use crate::Size;
use std::path::PathBuf;

/// Which allocations are paged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heap {
    /// Every allocation, small objects too.
    All,
    /// Allocations of 128 KiB and more.
    Large,
    /// None; only mmap and static arrays.
    Off,
}

/// How blocks spread over several stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Fill one, then the next.
    Simple,
    /// Take turns.
    RoundRobin,
}

/// Where a store lies: a directory, a file or a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePath(pub PathBuf);

/// All settings, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of frames.
    pub memory: Size,
    /// Stores; never empty.
    pub stores: Vec<StorePath>,
    /// How blocks spread over them.
    pub placement: Placement,
    /// Bytes that the store may take; grown as needed where absent.
    pub store_size: Option<Size>,
    /// Bytes of a block; `None` is `auto`.
    pub block: Option<Size>,
    /// Replacement policy, one of `terapage_policy::replacement::NAMES`.
    pub policy: String,
    /// Prefetch policy, one of `terapage_policy::prefetch::NAMES`.
    pub prefetch: String,
    /// Threads of the pager.
    pub threads: u32,
    /// Which allocations are paged.
    pub heap: Heap,
    /// Whether bytes that come back are checked against the hash taken when they left.
    pub verify: bool,
    /// Where the counters go at the end, as JSON.
    pub stats: Option<PathBuf>,
    /// Where the block references go.
    pub trace: Option<PathBuf>,
    /// Say what happens on standard error.
    pub verbose: bool,
}

/// Why settings cannot be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting has a value that it cannot have.
    #[error("{name}: {why}")]
    Value {
        /// The setting's name.
        name: &'static str,
        /// What is wrong and what to do.
        why: String,
    },
}
