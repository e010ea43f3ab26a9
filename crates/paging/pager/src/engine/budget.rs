//! A budget that is shared with other processes, or belongs to this process alone.

use super::Engine;
use super::learnt::Learning;
use super::table::State;
use crate::error::Error;
use crate::frames::lease::{FRAMES_MIN, STEP_BYTES, Use};
use std::sync::atomic::Ordering::Relaxed;
use terapage_store::packed_bytes;

/// The number of frames that are given up at a time to make room for memory of stores. Chosen, not
/// measured.
const PACKED_STEP: usize = 16;

/// Frames have at least the budget divided by this, however much memory stores need.
const FRAMES_PART: usize = 8;

impl Engine {
    /// Asks for the first share.
    pub(crate) fn begin_lease(&mut self) {
        if self.frames.lease.is_shared() {
            // Nothing is paged yet, so few frames are requested.
            self.frames.lease.frames = 0;
            self.ask_share(true, true);
        }
        self.open_room();
    }

    /// In the child of a fork, which has its parent's frames and no share yet: it takes no more
    /// frames until it has a share.
    pub(crate) fn inherit_lease(&mut self) {
        if self.frames.lease.is_shared() {
            let books = self.fixed_bytes() / self.block;
            self.set_lease((self.frames.count + books).max(FRAMES_MIN));
            self.frames.lease.inherit();
        }
    }

    /// Called in each turn: requests more frames if none can be made, and returns excess frames.
    /// Returns whether it returned any.
    pub(crate) fn see_to_lease(&mut self) -> bool {
        self.want_frames(self.frames.spare, 0);
        self.frames.lease.excess() > 0 && self.give_back()
    }

    /// Sets the budget. A larger budget can be used at once; a smaller one takes effect step by
    /// step, as with a share.
    pub(crate) fn set_budget(&mut self, bytes: usize) -> Result<(), Error> {
        let (frames, most) = (bytes / self.block, self.options.frames);
        let least = FRAMES_MIN.min(most);
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

    /// Requests more frames, if hardly more than `spare`, or fewer than `ready`, may still be made.
    pub(crate) fn want_frames(&mut self, spare: usize, ready: usize) {
        if !self.frames.lease.is_shared() || self.frames.lease.excess() > 0 {
            return;
        }
        // Before the last huge page.
        let least = self.frames.of_huge_page().min(self.frames.limit / 8).max(1).max(ready);
        let room = self.frames.room(spare);
        if self.frames.lease.is_lacking(room, least) {
            self.ask_share(false, true);
        }
    }

    /// Reports what this pager has, and receives what it may have.
    pub(crate) fn ask_share(&mut self, tick: bool, at_once: bool) {
        if !self.frames.lease.is_shared() {
            return;
        }
        let (fixed, (wished, wished_ns)) = (self.fixed_bytes(), self.wished(tick));
        let now = Use {
            counters: self.counters,
            resident: self.frames.count * self.block + fixed,
            fixed,
            // After the wish: a call has pinned what it needs before it ends its wish.
            pinned: self.pinned_bytes(),
            wished,
            wished_ns,
            soft: self.frames.target.now() * self.block,
            short: false,
            tick,
            at_once,
        };
        if let Some(more) = self.frames.lease.ask(now, self.block, self.options.frames) {
            self.set_lease(more);
        }
        self.open_room();
    }

    /// Asks for the share since memory is nearly short, not because frames are lacking.
    pub(crate) fn follow_share(&mut self) {
        let short = std::mem::take(&mut self.frames.lease.short);
        self.ask_share(false, false);
        self.frames.lease.short = short;
    }

    /// Bytes that cannot be returned: bookkeeping, bounce buffers, memory of stores.
    fn fixed_bytes(&self) -> usize {
        self.books_bytes() + self.io.bounce.total_bytes() + packed_bytes()
    }

    /// Bytes of bookkeeping: for blocks, and of what is learnt.
    pub(crate) fn books_bytes(&self) -> usize {
        self.table.usage.books_bytes() + self.learning.as_ref().map_or(0, Learning::bytes)
    }

    /// The most blocks that are read ahead as one run: the prefetch policy knows only the maximum
    /// number of frames.
    pub(crate) fn longest_run(&self) -> usize {
        if self.frames.lease.is_shared() { (self.frames.limit / 8).max(1) } else { usize::MAX }
    }

    /// Sets the number of frames that may exist, with bookkeeping.
    fn set_lease(&mut self, frames: usize) {
        self.frames.lease.frames = frames;
        self.counters.lease_bytes.store((frames * self.block) as u64, Relaxed);
        self.policy.resize(frames);
        self.make_room_for_books();
        let most = self.longest_run();
        self.ahead.postponed.iter_mut().for_each(|run| run.truncate(most));
    }

    /// Returns excess frames that are not needed to the kernel. Returns whether there were any.
    fn give_back(&mut self) -> bool {
        let excess = self.frames.lease.excess();
        // Frames that were never made go first.
        let unmade = self.frames.room(0).min(excess);
        let kept = self.frames.lease.kept(self.frames.target.now());
        let most = (STEP_BYTES / self.block).max(1).min(excess - unmade);
        let count =
            most.min((self.frames.pool.free_len() + self.table.count(State::Soft)).saturating_sub(kept));
        let places: Vec<u32> = std::iter::from_fn(|| self.frames.pool.take_free().or_else(|| self.reclaim()))
            .take(count)
            .collect();
        let given = places.len();
        assert!(given + unmade <= excess, "{given} and {unmade} frames are given back, of {excess}");
        if let Err(error) = self.frames.give_back(places) {
            self.stop(&error.to_string());
        }
        if given + unmade > 0 {
            self.set_lease(self.frames.lease.frames - given - unmade);
            if self.frames.lease.excess() == 0 {
                // Other processes can use them at once.
                self.ask_share(false, false);
            }
        }
        given > 0
    }

    /// The bookkeeping for blocks and bounce buffers count in the budget, up to half of it, and so
    /// does the memory of stores: as they grow, the number of frames falls. A part of the budget
    /// always remains for frames.
    pub(crate) fn make_room_for_books(&mut self) {
        let all = self.frames.lease.frames;
        let buffers = self.io.bounce.bytes_in(all * self.block);
        let limit = self.limit_of(all);
        if limit != self.frames.limit {
            self.policy.resize(self.budget_of(all));
            self.frames.limit = limit;
            self.trials.splitting.resize(limit);
            self.frames.target.resize(limit, self.block, self.options.soft_per_mille);
            if let Err(error) = self.shrink() {
                self.stop(&error.to_string());
            }
            self.open_room();
        }
        self.io.bounce.grow(buffers);
    }

    /// The part of a lease that does not belong to the memory of stores.
    fn budget_of(&self, all: usize) -> usize {
        let packed = packed_bytes().div_ceil(self.block).next_multiple_of(PACKED_STEP);
        all - packed.min(all - all / FRAMES_PART)
    }

    /// The number of frames that may exist with a lease.
    pub(crate) fn limit_of(&self, all: usize) -> usize {
        let budget = self.budget_of(all);
        let buffers = self.io.bounce.bytes_in(all * self.block);
        let books = (self.books_bytes() + buffers) / self.block;
        (budget - books.min(budget / 2)).max(all.min(FRAMES_MIN))
    }

    /// Gives back the frames beyond the limit.
    pub(crate) fn shrink(&mut self) -> Result<(), Error> {
        if self.frames.lease.is_auto() && self.frames.count > self.frames.limit {
            // Blocks that were adopted may belong to a budget that can grow.
            self.want_frames(self.frames.spare, 0);
        }
        while self.frames.count > self.frames.limit {
            let count = (self.frames.count - self.frames.limit).min(PACKED_STEP);
            let places = (0..count).map(|_| self.place()).collect();
            self.frames.give_back(places)?;
        }
        Ok(())
    }
}
