//! Options of a pager.

use std::path::PathBuf;
use terapage_stats::Counters;

/// Options of a pager.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a block: a power of two, 4 KiB to 2 MiB.
    pub block: usize,
    /// The budget, in frames; at least 8.
    pub frames: usize,
    /// A name of `terapage_policy::replacement`.
    pub policy: String,
    /// A name of `terapage_policy::prefetch`.
    pub prefetch: String,
    /// Bytes to read ahead of a stream, at most; a quarter of the budget in any case.
    pub ahead_bytes: usize,
    /// The share of the frames that is kept ready at least: soft, free, or on its way out.
    pub soft_per_mille: usize,
    /// Check bytes that come back against their hash.
    pub verify: bool,
    /// Threads of the pager: one that decides, the others put blocks into the program and take them
    /// out.
    pub threads: usize,
    /// Whether threads that lose their blocks to each other take turns, with the default policy.
    pub turns: bool,
    /// Microseconds that the pager looks for more work before it sleeps.
    pub spin_us: u64,
    /// Whether long runs go through bounce buffers; `None`: where frames are scattered, since huge
    /// pages came slowly.
    pub bounce: Option<bool>,
    /// Bytes of a long run, at least.
    pub long_run: usize,
    /// The part of the budget, one in so many, that bounce buffers may take.
    pub bounce_part: usize,
    /// Milliseconds that an operation whose failure may pass is tried again for: a server that does
    /// not answer.
    pub patience_ms: u64,
    /// Do without UFFDIO_MOVE.
    pub copy: bool,
    /// What the pager's thread calls when it begins, and each second: with the counters, and the
    /// bytes of books that come out of the budget. It may not wait for the program.
    pub each_second: Option<fn(&'static Counters, u64)>,
    /// Record the program's block references in this file, with the process's number for each `%p`.
    /// `docs/trace-format.md` tells what is seen. A forked child records nothing.
    pub trace: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            block: 16 << 10,
            frames: 4096,
            policy: "auto".to_owned(),
            prefetch: "auto".to_owned(),
            ahead_bytes: 16 << 20,
            soft_per_mille: terapage_policy::soft::PER_MILLE,
            verify: true,
            threads: 1,
            turns: true,
            spin_us: 100,
            bounce: None,
            long_run: 128 << 10,
            bounce_part: 32,
            patience_ms: 30_000,
            copy: false,
            each_second: None,
            trace: None,
        }
    }
}
