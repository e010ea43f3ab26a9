//! How blocks get and lose frames, and how frames come into the program.

use super::Engine;
use super::table::{COMPANION, State};
use crate::carry::Run;
use terapage_policy::pace;
use terapage_sys::thread;

impl Engine {
    /// Takes a filled place that is not needed, by any means: waits for writes if necessary.
    pub fn place(&mut self) -> u32 {
        let mut patience = 10_000;
        loop {
            if let Some(place) = self.place_at_once() {
                return place;
            }
            if self.table.count(State::Writing) > 0 {
                self.wait();
            } else if self.page_out(pace::at_once(self.frames.limit)) == 0
                && self.table.count(State::Writing) == 0
                && self.table.count(State::Soft) == 0
                && self.frames.pool.free_len() == 0
            {
                if self.table.count(State::Reading) > 0 {
                    self.wait();
                    continue;
                }
                if self.trials.frames() > 0 {
                    self.end_all_trials();
                    continue;
                }
                // All pages are held by I/O of the program, which will end, or pinned by its calls,
                // for which there may be frames beyond a share.
                self.ask_share(false, true);
                if self.frames.room(0) > 0 {
                    continue;
                }
                patience -= 1;
                if patience == 0 {
                    self.stop(
                        "no frame can be freed: the budget (--memory) is too small for the \
                               data that the program uses at once",
                    );
                }
                thread::sleep_ms(1);
            }
        }
    }

    /// Takes a filled place that is not needed, if that needs neither waiting nor a page-out.
    pub fn place_at_once(&mut self) -> Option<u32> {
        if let Some(place) = self.frames.pool.take_free() {
            return Some(place);
        }
        if self.make_frames(self.frames.spare) {
            return self.frames.pool.take_free();
        }
        self.reclaim().or_else(|| if self.make_frames(0) { self.frames.pool.take_free() } else { None })
    }

    /// Takes a filled place that is all zero: like [`place`](Self::place) if `wait`, otherwise like
    /// [`place_at_once`](Self::place_at_once).
    pub fn zero_place(&mut self, wait: bool) -> Option<u32> {
        if let Some(place) = self.frames.pool.take_zero() {
            return Some(place);
        }
        if self.make_frames(self.frames.spare) {
            return self.frames.pool.take_zero();
        }
        let place = if wait { Some(self.place()) } else { self.place_at_once() };
        place.inspect(|&place| self.frames.pool.zero(place))
    }

    /// Makes new frames, if more than `spare` may still be made.
    fn make_frames(&mut self, spare: usize) -> bool {
        if self.frames.room(spare) < self.frames.of_huge_page() {
            self.want_frames(spare, 0);
        }
        let most = self.frames.room(spare);
        if most > 0 {
            let made = self.frames.make(&self.mover, most);
            self.or_stop(made);
        }
        most > 0
    }

    /// Takes the frame of the soft block that has waited longest.
    pub(crate) fn reclaim(&mut self) -> Option<u32> {
        while let Some((block, stamp)) = self.frames.soft.pop() {
            let entry = self.table.get_mut(block);
            if entry.state != State::Soft || entry.stamp != stamp {
                continue;
            }
            let state = if entry.slot().is_some() { State::Stored } else { State::Zero };
            let (place, companion) = (entry.place, entry.has(COMPANION));
            entry.flags = 0;
            self.table.set_state(block, state);
            if companion {
                self.companions.left();
                return Some(place);
            }
            self.frames.target.gone();
            self.policy.gone(block);
            self.trials.gone(block);
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
        let (table, count) = (&self.table, self.table.count(State::Soft));
        self.frames.soft.push(block, stamp, count, |block, stamp| {
            let entry = table.get(block);
            entry.state == State::Soft && entry.stamp == stamp
        });
    }

    /// Puts the frames of `blocks`, ascending, into the program, and wakes the waiters.
    pub fn install(&mut self, blocks: &[u32]) {
        let mut runs = self.plan(blocks);
        for run in &mut runs {
            let installed = run.install(&mut self.mover);
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
            // Blocks of two ranges of addresses may follow each other by number.
            let end = self.table.end_of(first);
            let (from, most) = (self.table.address(first), (end - first) as usize);
            let to = from + most.min(rest.len()) * self.block;
            let end = first + ((self.mover.events.end_of_alike(from, to) - from) / self.block) as u32;
            let count = rest
                .iter()
                .zip(first..end)
                .take_while(|&(&block, next)| {
                    block == next && self.table.get(block).place == place + (block - first)
                })
                .count();
            let copy = self.frames.may_copy(count);
            self.frames.count += if copy { count } else { 0 };
            let (program, place) = (self.table.address(first), self.frames.pool.address(place));
            let len = count * self.block;
            runs.push(Run { program, place, buffer: None, len, blocks: count, copy, copied: false });
            rest = &rest[count..];
        }
        runs
    }

    /// Gives up planned runs.
    pub fn unplan(&mut self, runs: &[Run]) {
        let copied: usize = runs.iter().filter(|run| run.copy).map(|run| run.blocks).sum();
        self.frames.count -= copied;
    }

    /// Notes that the runs, which have exactly these blocks, are in the program.
    pub fn installed(&mut self, blocks: &[u32], runs: &[Run]) {
        let mut rest = blocks;
        for run in runs {
            let (here, others) = rest.split_at(run.blocks);
            rest = others;
            if run.len < run.blocks * self.block {
                // The rest of the block, and its frame, stay in the pool.
                self.table.set_state(here[0], State::Mapped);
                self.table.get_mut(here[0]).flags = 0;
                self.trial_came(here[0], run.copied);
                continue;
            }
            for &block in here {
                self.table.set_state(block, State::Mapped);
                let entry = self.table.get_mut(block);
                entry.flags = 0;
                if run.copied {
                    self.frames.pool.put_free(entry.place);
                } else {
                    self.frames.pool.put_empty(entry.place);
                }
            }
            self.frames.count -= if run.copy && !run.copied { here.len() } else { 0 };
        }
    }

    /// Gives frames back once copies have used up half of the spare frames, while a thread waits in
    /// any case.
    pub fn make_spare(&mut self) {
        let wanted = self.frames.lacks_spare();
        if wanted > 0 {
            self.io.hand_over();
        }
        let mut places: Vec<u32> = Vec::with_capacity(wanted);
        while places.len() < wanted {
            let Some(place) = self.frames.pool.take_free().or_else(|| self.reclaim()) else { break };
            places.push(place);
        }
        if let Err(error) = self.frames.give_back(places) {
            self.stop(&error.to_string());
        }
    }
}
