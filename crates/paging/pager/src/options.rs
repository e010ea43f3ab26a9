//! Options of a pager.

use crate::frames::lease::Share;
use crate::pins::Pins;
use std::path::PathBuf;
use terapage_policy::{pace, soft};
use terapage_stats::{Control, Counters, Shared};
use terapage_sys::ring::IoEngine;
use terapage_trace::Misses;

/// Options of a pager.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a block: a power of two, a page to 2 MiB.
    pub block: usize,
    /// Whether blocks of four pages become single pages if the program is found to touch scattered
    /// pages (`terapage_policy::splitting`).
    pub splits: bool,
    /// The budget, in frames; at least 8.
    pub frames: usize,
    /// The replacement policy: a name of `terapage_policy::replacement`.
    pub policy: String,
    /// The prefetch policy: a name of `terapage_policy::prefetch`.
    pub prefetch: String,
    /// The smallest share of the frames that is kept ready (soft, free, or being paged out), per
    /// mille.
    pub soft_per_mille: usize,
    /// Whether bytes that are read are checked against their hash.
    pub verify: bool,
    /// How stores are read and written; `None`: by io_uring, or, if that is forbidden, otherwise.
    pub io: Option<IoEngine>,
    /// Whether threads whose blocks displace each other's take turns, with the default policy.
    pub turns: bool,
    /// Whether the program's threads may be bound to the pager's processor. The caller then ends
    /// the binding (`terapage_sys::binding::freed`) before the program begins threads or processes,
    /// asks for its processors or sets them.
    pub follows: bool,
    /// Microseconds that the pager spins before it sleeps.
    pub spin_us: u64,
    /// Do not use UFFDIO_MOVE: copy.
    pub copy: bool,
    /// A function that is called with the counters before the pager begins; also in the child of a
    /// fork. It must not wait for the program.
    pub begins: Option<fn(&'static Shared)>,
    /// A function that the pager's thread calls when it begins, 40 times in the first second, and
    /// then each second, with the counters and the bytes of bookkeeping that count in the budget.
    /// It must not wait for the program.
    pub each_second: Option<fn(&'static Counters, u64)>,
    /// A function that the pager's thread calls again and again while a release is asked for. What
    /// it asks of the pager is done at once. It must not wait for the program. Returns whether
    /// there is more to do now.
    pub releases: Option<fn(&'static Control) -> bool>,
    /// The source of the budget, if it is shared with other processes: then `frames` is the most
    /// that this process can have.
    pub share: Option<&'static dyn Share>,
    /// The file in which to record the program's block references. Each `%p` in the path becomes
    /// the process's number. `docs/design/formats.md` describes the records. A forked child records
    /// nothing.
    pub trace: Option<PathBuf>,
    /// What the program's last run has left (`Pager::finish_learning`), to read blocks ahead in the
    /// same order; without keys if there is nothing. `None`: nothing is recorded either.
    pub learn: Option<Misses>,
    /// The pins of system calls, if the kernel cannot wait for the pager: then the pager takes
    /// nothing away that is pinned.
    pub pins: Option<&'static Pins>,
    /// Sizes and times that only tests change.
    pub tuning: Tuning,
}

/// Sizes and times that are the same for all programs. Tests make them small, so that little memory
/// reaches every path.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// The most bytes to read ahead of a stream; never more than a quarter of the budget.
    pub ahead_bytes: usize,
    /// Whether long runs go through bounce buffers. `None`: only if frames are scattered, because
    /// huge pages were too slow, or pages come in as copies.
    pub bounce: Option<bool>,
    /// The least bytes of a run that counts as long.
    pub long_run_bytes: usize,
    /// The first few bounce buffers may use the budget divided by this; more, half as much.
    pub bounce_part: usize,
    /// How long an operation whose failure may pass is tried again, for example because a server
    /// does not answer: milliseconds.
    pub patience_ms: u64,
}

impl Tuning {
    /// What programs have.
    pub const PROGRAMS: Tuning = Tuning {
        ahead_bytes: pace::AHEAD_BYTES,
        bounce: None,
        long_run_bytes: 128 << 10,
        bounce_part: 16,
        patience_ms: 30_000,
    };
}

impl Default for Options {
    fn default() -> Self {
        Options {
            block: terapage_policy::BLOCK,
            splits: false,
            frames: 4096,
            policy: "auto".to_owned(),
            prefetch: "auto".to_owned(),
            soft_per_mille: soft::PER_MILLE,
            verify: true,
            io: None,
            turns: true,
            follows: false,
            spin_us: pace::SPIN_US,
            copy: false,
            begins: None,
            each_second: None,
            releases: None,
            share: None,
            trace: None,
            learn: None,
            pins: None,
            tuning: Tuning::PROGRAMS,
        }
    }
}
