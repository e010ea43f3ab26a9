//! Frames: how they are found, made and given back, and how they come into the program.

use crate::engine::{Carry, Engine};
use crate::load::Run;
use crate::table::State;
use terapage_sys::memory::HUGE;
use terapage_sys::thread;

/// Neighbours of at most this many bytes are copied into the program, not moved, if there is room:
/// a move interrupts every processor that uses the program's page tables, and wakes idle ones.
const COPIED_BYTES: usize = 16 << 10;

/// Bytes of frames that are left unmade for copies.
const SPARE_BYTES: usize = 256 << 10;
/// They are at most one part in this many of the budget.
const SPARE_PART: usize = 8;

impl Engine {
    /// Takes a filled place that nobody needs, by any means: waits for writes if it must.
    pub fn place(&mut self) -> u32 {
        let mut patience = 10_000;
        loop {
            if let Some(place) = self.place_at_once() {
                return place;
            }
            self.awake.settle();
            if self.leaving + self.writing > 0 {
                self.wait();
            } else if self.page_out((self.limit / 8).clamp(1, 8), Carry::Here) == 0
                && self.writing == 0
                && self.soft_len == 0
                && self.pool.free_len() == 0
            {
                if self.reading > 0 {
                    self.wait();
                    continue;
                }
                // All pages are held by I/O of the program, which will end.
                patience -= 1;
                if patience == 0 {
                    self.stop("no frame can be freed: the budget (--memory) is too small for what the program holds at once");
                }
                thread::sleep_ms(1);
            }
        }
    }

    /// Takes a filled place that nobody needs, if that takes no waiting and no page-out.
    pub fn place_at_once(&mut self) -> Option<u32> {
        if let Some(place) = self.pool.take_free() {
            return Some(place);
        }
        if self.make_frames(self.spare) {
            return self.pool.take_free();
        }
        self.reclaim().or_else(|| if self.make_frames(0) { self.pool.take_free() } else { None })
    }

    /// Takes a filled place that is all zero: like [`place`](Self::place) if `wait`, else like
    /// [`place_at_once`](Self::place_at_once).
    pub fn zero_place(&mut self, wait: bool) -> Option<u32> {
        if let Some(place) = self.pool.take_zero() {
            return Some(place);
        }
        if self.make_frames(self.spare) {
            return self.pool.take_zero();
        }
        let place = if wait { Some(self.place()) } else { self.place_at_once() };
        place.inspect(|&place| self.pool.zero(place))
    }

    /// Makes new frames, if more than `spare` may still be made.
    fn make_frames(&mut self, spare: usize) -> bool {
        let whole = HUGE / self.block;
        if self.frames + spare + whole > self.limit {
            self.want_frames(spare);
        }
        if self.frames + spare >= self.limit {
            return false;
        }
        let most = self.limit - self.frames - spare;
        let made = match self.lease.is_shared() && most < whole {
            // There may be room for a huge page later.
            true => self.pool.make_one(&self.mover).map(|()| 1),
            false => self.pool.make(&self.mover, &mut self.maker, most),
        };
        self.frames += self.or_stop(made);
        true
    }

    /// Takes the frame of the soft block that has waited longest.
    pub(crate) fn reclaim(&mut self) -> Option<u32> {
        while let Some((block, stamp)) = self.soft.pop_front() {
            let entry = self.table.get_mut(block);
            if entry.state != State::Soft || entry.stamp != stamp {
                continue;
            }
            let state = if entry.slot().is_some() { State::Stored } else { State::Zero };
            let place = entry.place;
            entry.flags = 0;
            self.table.set_state(block, state);
            self.soft_len -= 1;
            self.soft_frames.gone();
            self.policy.gone(block);
            if let Some(turns) = &mut self.turns {
                turns.gone(block);
            }
            return Some(place);
        }
        None
    }

    /// Makes a clean block, whose frame is in the pool, soft: it may be taken back or lose its
    /// frame.
    pub fn make_soft(&mut self, block: u32) {
        self.table.set_state(block, State::Soft);
        let entry = self.table.get_mut(block);
        entry.stamp = entry.stamp.wrapping_add(1);
        let stamp = entry.stamp;
        self.soft.push_back((block, stamp));
        self.soft_len += 1;
        if self.soft.len() > 4 * self.soft_len + 1024 {
            let table = &self.table;
            self.soft.retain(|&(block, stamp)| {
                let entry = table.get(block);
                entry.state == State::Soft && entry.stamp == stamp
            });
        }
    }

    /// Puts the frames of `blocks`, ascending, into the program, and wakes the waiters.
    pub fn install(&mut self, blocks: &[u32]) {
        let mut runs = self.plan(blocks);
        for run in &mut runs {
            let installed = run.install(&self.mover);
            self.or_stop(installed);
        }
        self.installed(blocks, &runs);
    }

    /// Groups blocks, ascending, into runs of neighbours in the program and in the pool. Runs that
    /// will be copied have the frames for that reserved from now on.
    pub fn plan(&mut self, blocks: &[u32]) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut rest = blocks;
        while let Some(&first) = rest.first() {
            let place = self.table.get(first).place;
            let count = rest
                .iter()
                .enumerate()
                .take_while(|&(index, &block)| {
                    block == first + index as u32 && self.table.get(block).place == place + index as u32
                })
                .count();
            let copy = self.may_copy(count);
            self.frames += if copy { count } else { 0 };
            let (program, place) = (self.table.address(first), self.pool.address(place));
            runs.push(Run { program, place, len: count * self.block, copy, copied: false, quiet: false });
            rest = &rest[count..];
        }
        runs
    }

    /// Gives up planned runs.
    pub fn unplan(&mut self, runs: &[Run]) {
        let copied: usize = runs.iter().filter(|run| run.copy).map(|run| run.len).sum();
        self.frames -= copied / self.block;
    }

    /// Notes that the runs, which have exactly these blocks, are in the program.
    pub fn installed(&mut self, blocks: &[u32], runs: &[Run]) {
        let mut rest = blocks;
        for run in runs {
            let (here, others) = rest.split_at(run.len / self.block);
            for &block in here {
                self.table.set_state(block, State::Mapped);
                let entry = self.table.get_mut(block);
                entry.flags = 0;
                if run.copied {
                    self.pool.put_free(entry.place);
                } else {
                    self.pool.put_hollow(entry.place);
                }
            }
            self.mapped += here.len();
            self.frames -= if run.copy && !run.copied { here.len() } else { 0 };
            rest = others;
        }
    }

    /// Whether `blocks` blocks are few enough to be copied into the program, and there is room for
    /// that.
    fn may_copy(&mut self, blocks: usize) -> bool {
        if blocks * self.block > COPIED_BYTES {
            return false;
        }
        let room = self.frames + blocks <= self.limit;
        if !room && self.spare == 0 {
            self.spare = (SPARE_BYTES / self.block).min(self.limit / SPARE_PART);
        }
        room
    }

    /// Gives frames back once copies have used up half of the spare frames, while a thread waits in
    /// any case.
    pub fn make_spare(&mut self) {
        if self.frames + self.spare / 2 < self.limit {
            return;
        }
        let wanted = (self.frames + self.spare).saturating_sub(self.limit);
        if wanted > 0 {
            self.io.hand_over();
        }
        let mut places: Vec<u32> = Vec::with_capacity(wanted);
        while places.len() < wanted {
            let Some(place) = self.pool.take_free().or_else(|| self.reclaim()) else { break };
            places.push(place);
        }
        self.frames -= places.len();
        if let Err(error) = self.pool.give_back(places) {
            self.stop(&error.to_string());
        }
    }
}
