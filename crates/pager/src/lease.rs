//! A budget that is shared with other processes: the engine tells what it has and wants, hears how
//! much it may have, and takes or gives frames.
//!
//! More is taken at once. Less is given step by step, between faults: blocks are paged out as they
//! are ahead of need, and frames that nobody needs go back to the kernel. Nothing waits for another
//! process, and what a fault does is the same with and without.

use crate::Error;
use crate::engine::Engine;
use crate::table::State;
use std::fmt::Debug;
use std::sync::atomic::Ordering::Relaxed;
use terapage_stats::Counters;

/// Between two looks at the share, ms.
pub(crate) const TICK_MS: u64 = 250;
/// Looks in a second.
pub(crate) const TICKS: u32 = 4;

/// The most bytes of frames that are paged out or given back at once, without a look for faults.
const STEP_BYTES: usize = 8 << 20;

/// Where a pager's budget comes from, if it shares one with other processes. Its functions are
/// called by the pager's thread, and wait for nobody.
pub trait Share: Debug + Sync {
    /// Called four times a second, and when frames are lacking: the bytes that this pager may have
    /// now.
    fn update(&self, use_: &Use) -> usize;
}

/// What a pager has and wants.
#[derive(Clone, Copy)]
pub struct Use {
    /// Its counters.
    pub counters: &'static Counters,
    /// Bytes that it has: frames, buffers and books.
    pub held: usize,
    /// The part of them that it cannot give: buffers and books.
    pub fixed: usize,
    /// Bytes of the frames that are soft: they have left the program, and are the next to go.
    pub soft: usize,
    /// Frames were lacking since the last call.
    pub short: bool,
    /// Whether this is one of the regular calls.
    pub tick: bool,
}

/// The engine's part of a shared budget. All in frames.
pub(crate) struct Lease {
    share: Option<&'static dyn Share>,
    /// What there may be now, books included: the whole budget, if it is not shared.
    pub frames: usize,
    /// What there is to be: less than `frames` while frames are given back.
    pub goal: usize,
    /// Frames were lacking since the last tick.
    short: bool,
    /// There were no more when it asked last: it asks again at the next tick.
    refused: bool,
    ticks: u32,
}

impl Lease {
    /// `frames` is the budget of this process, or the most that it can have of a shared one.
    pub fn new(share: Option<&'static dyn Share>, frames: usize) -> Lease {
        Lease { share, frames, goal: frames, short: false, refused: false, ticks: 0 }
    }

    /// Whether the budget is shared.
    pub fn is_shared(&self) -> bool {
        self.share.is_some()
    }

    /// How many frames are to be given back.
    pub fn excess(&self) -> usize {
        self.frames.saturating_sub(self.goal)
    }

    /// How many frames, of so many bytes, are to be given back next.
    pub fn excess_now(&self, block: usize) -> usize {
        self.excess().min((STEP_BYTES / block).max(1))
    }

    /// Counts a tick; whether a second is over.
    pub fn ends_second(&mut self) -> bool {
        self.ticks += 1;
        !self.is_shared() || self.ticks.is_multiple_of(TICKS)
    }
}

impl Engine {
    /// Begins with the first share.
    pub(crate) fn begin_lease(&mut self) {
        if self.frames.lease.is_shared() {
            // Nothing is paged yet, and what is asked for is little.
            self.frames.lease.frames = 0;
            self.ask_share(true);
        }
    }

    /// In the child of a fork, which has its parent's frames and no share yet: it takes no more
    /// until it has one.
    pub(crate) fn inherit_lease(&mut self) {
        if self.frames.lease.is_shared() {
            let books = self.fixed_bytes() / self.block;
            self.set_lease((self.frames.count + books).max(crate::requests::FRAMES_MIN));
            self.frames.lease.goal = self.frames.lease.frames;
            (self.frames.lease.short, self.frames.lease.refused, self.frames.lease.ticks) = (false, true, 0);
        }
    }

    /// Called in each turn: asks for more frames if there are none to be made, and gives back what
    /// is too much. Whether it gave any.
    pub(crate) fn see_to_lease(&mut self) -> bool {
        self.want_frames(self.frames.spare);
        self.frames.lease.excess() > 0 && self.give_back()
    }

    /// The budget is so many bytes from now on. More is there at once; less is given as with a
    /// share.
    pub(crate) fn set_budget(&mut self, bytes: usize) -> Result<(), Error> {
        let (frames, most) = (bytes / self.block, self.options.frames);
        let least = crate::requests::FRAMES_MIN.min(most);
        if self.frames.lease.is_shared() || !(least..=most).contains(&frames) {
            return Err(Error::Budget { least: least * self.block, most: most * self.block });
        }
        self.frames.lease.goal = frames;
        self.counters.budget_bytes.store((frames * self.block) as u64, Relaxed);
        if frames > self.frames.lease.frames {
            self.set_lease(frames);
        }
        Ok(())
    }

    /// Asks for more frames, if hardly more than `spare` of them may still be made.
    pub(crate) fn want_frames(&mut self, spare: usize) {
        if !self.frames.lease.is_shared() || self.frames.lease.excess() > 0 {
            return;
        }
        let room = self.frames.room(spare);
        self.frames.lease.short |= room == 0;
        // Before the last huge page.
        if room < self.frames.of_huge_page().min(self.frames.limit / 8).max(1) && !self.frames.lease.refused {
            self.ask_share(false);
        }
    }

    /// Tells what it has, and hears what it may have.
    pub(crate) fn ask_share(&mut self, tick: bool) {
        let Some(share) = self.frames.lease.share else { return };
        let fixed = self.fixed_bytes();
        let now = Use {
            counters: self.counters,
            held: self.frames.count * self.block + fixed,
            fixed,
            soft: self.frames.target.now() * self.block,
            short: self.frames.lease.short,
            tick,
        };
        let most = self.options.frames;
        let goal = (share.update(&now) / self.block).clamp(crate::requests::FRAMES_MIN.min(most), most);
        self.frames.lease.goal = goal;
        self.frames.lease.refused = goal <= self.frames.lease.frames;
        if tick {
            self.frames.lease.short = false;
        }
        if goal > self.frames.lease.frames {
            self.set_lease(goal);
        }
    }

    /// Bytes that cannot be given back: bookkeeping, and bounce buffers.
    fn fixed_bytes(&self) -> usize {
        let buffers = self.io.bounce.as_ref().map_or(0, crate::io::bounce::Bounce::total_bytes);
        self.table.usage.books_bytes() + buffers
    }

    /// The most blocks that are read ahead as one run: the prefetch policy knows only the most
    /// frames that there can be.
    pub(crate) fn longest_run(&self) -> usize {
        if self.frames.lease.is_shared() { (self.frames.limit / 8).max(1) } else { usize::MAX }
    }

    /// There may be this many frames, books included.
    fn set_lease(&mut self, frames: usize) {
        self.frames.lease.frames = frames;
        self.counters.lease_bytes.store((frames * self.block) as u64, Relaxed);
        self.policy.resize(frames);
        self.make_room_for_books();
        let most = self.longest_run();
        self.ahead.postponed.iter_mut().for_each(|run| run.truncate(most));
    }

    /// Gives back frames that are too many, as far as nobody needs them. Whether it did.
    fn give_back(&mut self) -> bool {
        let excess = self.frames.lease.excess();
        // Frames that were never made are the first to go.
        let unmade = self.frames.room(0).min(excess);
        // Below these, blocks are paged out.
        let kept = self.frames.target.now() * 3 / 4;
        let most = (STEP_BYTES / self.block).max(1).min(excess - unmade);
        let count =
            most.min((self.frames.pool.free_len() + self.table.count(State::Soft)).saturating_sub(kept));
        let places: Vec<u32> = std::iter::from_fn(|| self.frames.pool.take_free().or_else(|| self.reclaim()))
            .take(count)
            .collect();
        let given = places.len();
        if let Err(error) = self.frames.give_back(places) {
            self.stop(&error.to_string());
        }
        if given + unmade > 0 {
            self.set_lease(self.frames.lease.frames - given - unmade);
            if self.frames.lease.excess() == 0 {
                // Others can have them at once.
                self.ask_share(false);
            }
        }
        given > 0
    }
}
