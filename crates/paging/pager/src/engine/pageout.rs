//! Page-outs, ahead of need.

use super::Engine;
use super::table::{LEARNT, MARKER, SAMPLE, State, WANTED};
use crate::carry::hash::Hashed;
use crate::carry::mover::Taken;
use crate::carry::{self, Departure};
use crate::io::transfers::Operation;
use crate::trace::Kind;
use terapage_policy::pace::{self, Need};
use terapage_stats::Counters;
use terapage_store::{EXTENT, OpKind};

impl Engine {
    /// Frames that can be used at once.
    pub(crate) fn ready(&self) -> usize {
        self.frames.unused() + self.table.count(State::Soft)
    }

    /// The need of frames.
    fn need(&self) -> Need {
        Need {
            target: if self.frames.lease.grows() { 0 } else { self.frames.target.now() },
            extra: self.ahead.next_postponed() + self.frames.lease.excess_now(self.block),
            ready: self.ready(),
            on_their_way: self.table.count(State::Writing),
            run: EXTENT / self.block,
        }
    }

    /// Whether blocks should be paged out now.
    pub(crate) fn is_short(&self) -> bool {
        let need = self.need();
        self.forks_ahead == 0
            && need.is_short()
            && !self.io.bounce.is_waited_for(OpKind::Write, need.missing())
    }

    /// Pages out ahead of need, so that some frames can be used at once.
    pub(crate) fn balance(&mut self) {
        if self.frames.lease.is_auto() && self.is_short() {
            // Nothing is paged out while there may be more frames.
            self.want_frames(self.frames.spare, self.frames.target.now());
        }
        while self.is_short() {
            let is_waited_for = self.demands > 0 && self.table.count(State::Writing) == 0;
            if self.page_out(self.need().next(is_waited_for)) == 0 {
                return;
            }
            self.io.enter(0);
            if self.table.count(State::Reading) > 0 || !self.queue.is_empty() {
                // A thread may be waiting: check for that, and come back.
                return;
            }
        }
    }

    /// Takes up to `count` victims out of the program, and begins to write the dirty ones. Returns
    /// the number of victims that have left or are leaving.
    pub(crate) fn page_out(&mut self, count: usize) -> usize {
        let before = self.policy.len();
        let now_ns = if self.grace.is_empty() { 0 } else { self.now() };
        let (mut victims, mut spared) = (Vec::new(), Vec::new());
        while victims.len() < count {
            let Some(block) = self.policy.victim() else { break };
            if self.grace.has(block, now_ns) { &mut spared } else { &mut victims }.push(block);
        }
        spared.into_iter().for_each(|block| self.policy.rescue(block));
        victims.sort_unstable();
        self.page_out_these(&victims);
        let after = self.policy.len();
        self.watch();
        before.saturating_sub(after)
    }

    /// Takes blocks out of the program that the policy wants to watch.
    fn watch(&mut self) {
        if self.forks_ahead > 0 {
            return;
        }
        for _ in 0..pace::WATCH_BATCH {
            let Some(block) = self.policy.watch() else { return };
            self.end_trial(block);
            if self.table.state(block) != State::Mapped {
                continue;
            }
            if !self.take_out(block) {
                self.policy.seen(block);
            }
        }
    }

    /// Takes the frame of a mapped block into the pool, and watches the block. Returns whether that
    /// was possible: something else may hold the block.
    pub(crate) fn take_out(&mut self, block: u32) -> bool {
        let place = self.frames.pool.take_empty(1).start;
        let (to, from) = (self.frames.pool.address(place), self.table.address(block));
        let taken = self.mover.take(to, from, self.block);
        match self.or_stop(taken) {
            Taken::All => {
                let entry = self.table.get_mut(block);
                (entry.place, entry.flags) = (place, 0);
                self.table.set_state(block, State::Watched);
                true
            }
            Taken::Busy => {
                self.frames.pool.put_empty(place);
                false
            }
        }
    }

    /// Takes blocks (mapped or watched, ascending) that the policy has chosen as victims out of the
    /// program, and begins to write those whose bytes the store does not have.
    pub(crate) fn page_out_these(&mut self, victims: &[u32]) {
        if victims.is_empty() {
            return;
        }
        for &block in victims {
            self.leaves_in_trial(block);
        }
        let mut departures = Vec::with_capacity(victims.len());
        let mut rest = victims;
        while let Some(&first) = rest.first() {
            if self.table.state(first) == State::Watched {
                self.unwatch(first);
                let place = self.frames.pool.address(self.table.get(first).place);
                let sealed = self.is_sealed(first);
                departures.push(Departure { program: None, place, sealed, hashed: None });
                rest = &rest[1..];
                continue;
            }
            let end = self.table.end_of(first);
            let run = rest
                .iter()
                .enumerate()
                .take_while(|&(at, &block)| {
                    block == first + at as u32 && block < end && self.table.state(block) == State::Mapped
                })
                .count();
            // The places are neighbours if possible.
            let places = self.frames.pool.take_empty(run);
            for (&block, place) in rest.iter().zip(places.clone()) {
                let (at, sealed) = (self.table.address(block), self.is_sealed(block));
                let entry = self.table.get_mut(block);
                (entry.place, entry.flags) = (place, 0);
                let place = self.frames.pool.address(place);
                departures.push(Departure { program: Some(at), place, sealed, hashed: None });
            }
            rest = &rest[places.len()..];
        }
        let carried = carry::out(&mut self.mover, self.block, &mut departures);
        self.or_stop(carried);
        self.taken_out(victims, &departures);
    }

    /// Handles blocks that were taken out of the program, or could not be taken because something
    /// else holds them.
    fn taken_out(&mut self, blocks: &[u32], departures: &[Departure]) {
        let mut dirty = Vec::with_capacity(blocks.len());
        for (&block, departure) in blocks.iter().zip(departures) {
            match departure.hashed {
                None => {
                    self.stays(block);
                    self.give_grace(block);
                }
                // A block that is zero, or whose bytes the store has, needs no write.
                Some(hashed) if self.is_clean(block, hashed) => self.make_soft(block),
                Some(_) => dirty.push(block),
            }
        }
        self.write(&dirty);
    }

    /// Puts a block back that could not be taken out of the program.
    fn stays(&mut self, block: u32) {
        assert_eq!(self.table.state(block), State::Mapped, "block {block} stays, but was not there");
        self.frames.pool.put_empty(self.table.get(block).place);
        self.policy.rescue(block);
    }

    /// Gives a block grace: it stays in the program for a while.
    pub(crate) fn give_grace(&mut self, block: u32) {
        let now_ns = self.now();
        self.grace.give(block, self.frames.limit, now_ns);
    }

    /// Puts a block back that was touched on its way out.
    fn take_back(&mut self, block: u32) {
        self.frames.target.touched();
        self.record(Kind::MinorFault, [block]);
        self.install(&[block]);
        self.late_waits_end(&[block], false);
        self.policy.rescue(block);
        self.note_minor_fault(block);
    }

    /// Ends watching a block in the pool that was not touched.
    fn unwatch(&mut self, block: u32) {
        let entry = self.table.get_mut(block);
        let (marker, sample, learnt) = (entry.has(MARKER), entry.has(SAMPLE), entry.has(LEARNT));
        entry.flags = 0;
        if learnt {
            self.wasted_learnt(block);
        }
        if sample {
            self.sampled(block, false);
        }
        if marker {
            self.ahead.policy.outcome(0, 1);
            self.policy.unused(block);
            Counters::add(&self.counters.prefetch_wasted_runs, 1);
        }
    }

    /// Whether a block that was just taken out needs no write. If it needs one, its hash is noted.
    fn is_clean(&mut self, block: u32, hashed: Hashed) -> bool {
        let entry = self.table.get(block);
        let (slot, old) = (entry.slot(), entry.hash);
        if self.is_sealed(block) && slot.is_some() {
            Counters::add(&self.counters.clean_page_outs, 1);
            self.record(Kind::PageOutClean, [block]);
            return true;
        }
        let hash = if hashed.zero { self.zero_hash } else { hashed.hash };
        if hashed.zero && slot.is_some() && self.is_file(entry.origin) && hash == old && !entry.half {
            // A hole in a mapped file, which must not be filled.
            Counters::add(&self.counters.clean_page_outs, 1);
            self.record(Kind::PageOutClean, [block]);
            return true;
        }
        if hashed.zero {
            self.drop_slot(block);
            Counters::add(&self.counters.zero_page_outs, 1);
            self.record(Kind::PageOutZero, [block]);
            return true;
        }
        if slot.is_some() && hash == old && !entry.half {
            Counters::add(&self.counters.clean_page_outs, 1);
            self.record(Kind::PageOutClean, [block]);
            return true;
        }
        if slot.is_some() && !self.trials.are_off() {
            self.trials.splitting.rewritten(self.table.changed_pages(block, &hashed.parts));
        }
        self.table.set_hash(block, hash, hashed.parts);
        Counters::add(&self.counters.dirty_page_outs, 1);
        self.record(Kind::PageOutDirty, [block]);
        false
    }

    /// Drops the slot of a block: its bytes in the store are no longer needed.
    pub(crate) fn drop_slot(&mut self, block: u32) {
        let entry = self.table.get_mut(block);
        if let Some(slot) = entry.slot() {
            entry.set_slot(None);
            if entry.origin == self.io.own_origin() {
                self.io.free_slot(slot);
            }
        }
    }

    /// Gives every block a slot that may be written; neighbours get neighbouring slots if possible.
    fn give_slots(&mut self, blocks: &[u32]) {
        let own = self.io.own_origin();
        for &block in blocks {
            let entry = self.table.get(block);
            let keeps = entry.slot().is_some_and(|slot| entry.origin == own && self.io.slots.may_write(slot));
            if !keeps {
                self.drop_slot(block);
            }
        }
        let mut index = 0;
        while index < blocks.len() {
            if self.table.get(blocks[index]).slot().is_some() {
                index += 1;
                continue;
            }
            let needing = blocks[index..]
                .iter()
                .enumerate()
                .take_while(|&(at, &block)| {
                    block == blocks[index] + at as u32 && self.table.get(block).slot().is_none()
                })
                .count();
            let Some((slot, got)) = self.io.slots.take(needing as u32) else {
                self.io.grow();
                continue;
            };
            for at in 0..got {
                let entry = self.table.get_mut(blocks[index + at as usize]);
                entry.set_slot(Some(slot + at));
                entry.origin = own;
            }
            index += got as usize;
        }
    }

    /// Begins to write blocks that have left the program.
    fn write(&mut self, blocks: &[u32]) {
        self.give_slots(blocks);
        let origin = self.io.own_origin();
        let mut rest = blocks;
        while let Some(&first) = rest.first() {
            let slot = self.table.get(first).slot().expect("given just now");
            let run = rest
                .iter()
                .enumerate()
                .take_while(|&(at, &block)| {
                    let next = slot + at as u32;
                    self.table.get(block).slot() == Some(next) && self.io.is_one(origin, slot, next)
                })
                .count();
            let places: Vec<u32> = rest[..run].iter().map(|&block| self.table.get(block).place).collect();
            let mut buffer = self.buffer(OpKind::Write, origin, run);
            let pieces = match &mut buffer {
                Some(buffer) => {
                    let bytes = buffer.bytes(run * self.block);
                    for (bytes, &place) in bytes.chunks_exact_mut(self.block).zip(&places) {
                        bytes.copy_from_slice(self.frames.pool.bytes(place));
                    }
                    vec![buffer.piece(run * self.block)]
                }
                None => self.frames.pool.pieces(places.into_iter()),
            };
            for &block in &rest[..run] {
                self.table.set_state(block, State::Writing);
            }
            Counters::add(&self.counters.page_out_bytes, (run * self.block) as u64);
            let blocks = rest[..run].to_vec();
            let write = Operation::new(OpKind::Write, blocks, pieces, slot, origin);
            self.io.begin(Operation { buffer, ..write });
            rest = &rest[run..];
        }
    }

    /// Handles blocks that have been written.
    pub(crate) fn paged_out(&mut self, operation: &Operation) {
        for &block in &operation.blocks {
            if self.table.get(block).has(WANTED) {
                self.take_back(block);
            } else {
                self.make_soft(block);
            }
        }
    }
}
