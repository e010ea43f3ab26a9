//! A budget that is shared with other processes: the engine reports what it has and wants, receives
//! what it may have, and takes or returns frames.
//!
//! A larger share takes effect at once. A smaller one takes effect step by step, between faults:
//! blocks are paged out as ahead of need, and frames that are not needed are returned to the
//! kernel. The engine waits for no other process, and handles a fault in the same way with and
//! without a share.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terapage_policy::frame_need::Done;
use terapage_stats::Counters;
use terapage_sys::thread::now_ns;

/// Looks at the share in a second. Chosen, not measured.
const TICKS: u32 = 4;
/// The time between two regular calls, ms.
pub(crate) const TICK_MS: u64 = 1000 / TICKS as u64;

/// The minimum of frames. Chosen, not measured.
pub(crate) const FRAMES_MIN: usize = 8;

/// The most bytes of frames that are paged out or returned at once, without a check for faults.
/// Chosen, not measured.
pub(crate) const STEP_BYTES: usize = 8 << 20;

/// The source of a pager's budget, if it shares one with other processes. The pager's thread calls
/// its functions, which never wait.
pub trait Share: Debug + Sync {
    /// Called four times a second, and when frames are lacking: the bytes that this pager may have
    /// now.
    fn update(&self, use_: &Use) -> usize;

    /// Whether the budget follows the free memory: only then anything else here is ever true.
    fn is_auto(&self) -> bool {
        false
    }

    /// Whether there was memory for more at the last [`update`](Self::update): then nothing is
    /// paged out ahead of need.
    fn grows(&self) -> bool {
        false
    }

    /// Whether memory is nearly short: then [`update`](Self::update) is also called 40 times a
    /// second.
    fn is_near(&self) -> bool {
        false
    }
}

/// What a pager has and wants.
#[derive(Clone, Copy)]
pub struct Use {
    /// Its counters.
    pub counters: &'static Counters,
    /// Bytes that it has: frames, buffers and bookkeeping.
    pub resident: usize,
    /// The part of these bytes that it cannot return: buffers and bookkeeping.
    pub fixed: usize,
    /// Bytes of frames that it cannot do without while system calls of the program use them.
    pub pinned: usize,
    /// The share that it would need for a call that waits, bytes; 0 if none waits.
    pub wished: usize,
    /// Since when that call has waited, ns.
    pub wished_ns: u64,
    /// Bytes of the soft frames, which have left the program, and are lost next.
    pub soft: usize,
    /// Frames were lacking since the last call.
    pub short: bool,
    /// Whether this is one of the regular calls.
    pub tick: bool,
    /// Blocks are paged out next, unless there may be more frames.
    pub at_once: bool,
}

impl Use {
    /// The pager's counts so far. `ran_ns`: the processor time of the program, ns.
    pub fn done(&self, ran_ns: u64) -> Done {
        let counters = self.counters;
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        Done {
            now_ns: now_ns(),
            ran_ns,
            came: get(&counters.major_faults) + get(&counters.prefetched_blocks),
            soft: get(&counters.minor_faults),
            waited_us: get(&counters.major_wait_us),
            first: get(&counters.first_touches),
            resident: self.resident as u64,
        }
    }
}

/// The engine's part of a shared budget. All in frames.
pub(crate) struct Lease {
    share: Option<&'static dyn Share>,
    /// The number of frames that may exist now, with bookkeeping: the whole budget, if it is not
    /// shared.
    pub frames: usize,
    /// The intended number of frames: fewer than `frames` while frames are being returned.
    pub goal: usize,
    /// Frames were lacking since the last tick.
    pub short: bool,
    /// The last request brought no more: the next one is made at the next tick.
    refused: bool,
    ticks: u32,
}

impl Lease {
    /// `frames` is the budget of this process, or the most that it can have of a shared budget.
    pub fn new(share: Option<&'static dyn Share>, frames: usize) -> Lease {
        Lease { share, frames, goal: frames, short: false, refused: false, ticks: 0 }
    }

    /// Whether the budget is shared.
    pub fn is_shared(&self) -> bool {
        self.share.is_some()
    }

    /// Whether the budget follows the free memory.
    pub fn is_auto(&self) -> bool {
        self.share.is_some_and(Share::is_auto)
    }

    /// Whether to ask for the share often, since memory is nearly short.
    pub fn is_near(&self) -> bool {
        self.share.is_some_and(Share::is_near)
    }

    /// Whether more frames can be had at any time, so that none need to be kept ready.
    pub fn grows(&self) -> bool {
        self.share.is_some_and(Share::grows)
    }

    /// The number of ready frames that stay while others are returned, if `target` should be ready:
    /// below it, blocks are paged out first. None if the budget follows the memory: ready frames
    /// can be returned at once, and whoever needs the memory may not wait for the disk.
    pub fn kept(&self, target: usize) -> usize {
        if self.is_auto() { 0 } else { target * 3 / 4 }
    }

    /// The number of frames to return.
    pub fn excess(&self) -> usize {
        self.frames.saturating_sub(self.goal)
    }

    /// The number of frames, of `block` bytes, to return next.
    pub fn excess_now(&self, block: usize) -> usize {
        self.excess().min((STEP_BYTES / block).max(1))
    }

    /// Counts a tick; returns whether a second is over.
    pub fn ends_second(&mut self) -> bool {
        self.ticks += 1;
        self.ticks.is_multiple_of(TICKS)
    }

    /// Notes that `room` more frames can be made. Returns whether to request more because there are
    /// fewer than `least`.
    pub fn is_lacking(&mut self, room: usize, least: usize) -> bool {
        self.short |= room == 0;
        room < least && !self.refused
    }

    /// Reports what there is, and receives how much there may be: at most `most` frames of `block`
    /// bytes. Returns the new number of frames if there may be more.
    pub fn ask(&mut self, now: Use, block: usize, most: usize) -> Option<usize> {
        let goal = self.share?.update(&Use { short: self.short, ..now }) / block;
        self.goal = goal.clamp(FRAMES_MIN.min(most), most);
        let brings_more = self.goal > self.frames;
        // A budget that follows the machine may grow as soon as what is there is used up.
        self.refused = !brings_more && (now.at_once || !self.is_auto());
        if now.tick {
            self.short = false;
        }
        brings_more.then_some(self.goal)
    }

    /// In the child of a fork: it may have its present number of frames, and no more until it has a
    /// share.
    pub fn inherit(&mut self) {
        self.goal = self.frames;
        (self.short, self.refused, self.ticks) = (false, true, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives 8 bytes.
    #[derive(Debug)]
    struct Eight {
        is_auto: bool,
    }

    impl Share for Eight {
        fn update(&self, _: &Use) -> usize {
            8
        }

        fn is_auto(&self) -> bool {
            self.is_auto
        }
    }

    /// Whether a pager that lacks frames asks again after asks that brought no more.
    fn asks_again(share: &'static Eight, at_once: bool) -> bool {
        let counters: &'static Counters = Box::leak(Box::default());
        let mut lease = Lease::new(Some(share), 8);
        let now = Use {
            counters,
            resident: 8,
            fixed: 0,
            pinned: 0,
            wished: 0,
            wished_ns: 0,
            soft: 0,
            short: false,
            tick: !at_once,
            at_once,
        };
        assert_eq!(lease.ask(now, 1, 8), None);
        lease.is_lacking(0, 1)
    }

    #[test]
    fn a_budget_that_follows_the_machine_returns_ready_frames_first() {
        let lease = |is_auto| Lease::new(Some(Box::leak(Box::new(Eight { is_auto }))), 8);
        assert_eq!((lease(true).kept(100), lease(false).kept(100)), (0, 75));
    }

    #[test]
    fn after_a_tick_only_a_budget_that_follows_the_machine_is_asked_again() {
        let (fixed, auto) = (&Eight { is_auto: false }, &Eight { is_auto: true });
        assert!(asks_again(auto, false) && !asks_again(auto, true));
        assert!(!asks_again(fixed, false) && !asks_again(fixed, true));
    }
}
