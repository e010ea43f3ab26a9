//! Bytes out of the program, ahead of need.

use crate::crew::Look;
use crate::engine::{Engine, Purpose, Transfer};
use crate::mover::Taken;
use crate::recorder::Kind;
use crate::table::{MARKER, State, WANTED};
use terapage_stats::Counters;
use terapage_store::EXTENT;

/// Bytes of frames that are kept ready at least, if that is no more than a tenth of the budget: what is read ahead of a stream.
const READY_BYTES: usize = 16 << 20;

/// Bytes that may be on their way to the store at once.
const WRITING_BYTES: usize = 32 << 20;

/// Blocks that one page-out takes while a thread waits for a read and nothing is being written: as many as fit into its wait. Where
/// blocks are written, large writes matter more.
const WAITED_FOR: usize = 16;

/// Blocks that are taken out to be watched after one page-out, at most.
const WATCH_BATCH: usize = 4;

impl Engine {
    /// Frames that are to be ready: soft, free, not yet made, or on their way out.
    fn target(&self) -> usize {
        let share = self.limit * self.options.soft_per_mille / 1000;
        let stream = (READY_BYTES / self.block).min(self.limit / 10);
        share.max(stream).max(1)
    }

    /// Blocks that one page-out takes at most.
    fn batch(&self) -> usize {
        (EXTENT / self.block).min(self.target().div_ceil(2)).max(1)
    }

    /// Frames that can be had at once.
    pub(crate) fn ready(&self) -> usize {
        self.pool.free_len() + (self.limit - self.frames) + self.soft_len
    }

    fn missing(&self) -> usize {
        let wanted = self.postponed.front().map_or(0, Vec::len);
        (self.target() + wanted).saturating_sub(self.ready() + self.writing)
    }

    /// Whether blocks should be paged out now.
    pub(crate) fn is_short(&self) -> bool {
        let missing = self.missing();
        missing >= self.batch().min(self.target() / 4).max(1)
            && self.writing * self.block < WRITING_BYTES
            && !self.waits_for_buffer(Purpose::PageOut, missing)
    }

    /// Pages out so far ahead of need that frames can be had at once.
    pub(crate) fn balance(&mut self) {
        while self.is_short() {
            let most = if self.demands > 0 && self.writing == 0 { WAITED_FOR } else { usize::MAX };
            if self.page_out(self.missing().min(self.batch()).min(most)) == 0 {
                return;
            }
            self.enter(0);
            if self.reading > 0 || !self.queue.is_empty() {
                // A thread may be waiting: look, and come back.
                return;
            }
        }
    }

    /// Takes up to `count` victims out of the program; begins to write those that are dirty.
    /// How many went.
    pub(crate) fn page_out(&mut self, count: usize) -> usize {
        // 1. The policy chooses.
        let mut victims: Vec<u32> = std::iter::from_fn(|| self.policy.victim()).take(count).collect();
        victims.sort_unstable();
        let out = self.page_out_these(&victims);
        self.watch();
        out
    }

    /// Takes out of the program what the policy wants to see touched.
    fn watch(&mut self) {
        let mut out = Vec::new();
        for _ in 0..WATCH_BATCH {
            let Some(block) = self.policy.watch() else { return };
            if self.table.state(block) != State::Mapped {
                continue;
            }
            for busy in self.take_out(&[block], &mut out) {
                self.policy.seen(busy);
            }
            for block in out.drain(..) {
                self.table.set_state(block, State::Watched);
            }
        }
    }

    /// Takes blocks, mapped or watched, and ascending, that the policy has let go out of the program. How many went.
    pub(crate) fn page_out_these(&mut self, victims: &[u32]) -> usize {
        // 2. Out of the program, neighbours together.
        let mut out = Vec::with_capacity(victims.len());
        let mut rest = victims;
        while let Some(&first) = rest.first() {
            if self.table.state(first) == State::Watched {
                self.unwatch(first);
                out.push(first);
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
            for busy in self.take_out(&rest[..run], &mut out) {
                self.policy.rescue(busy);
            }
            rest = &rest[run..];
        }
        // 3. What the store has already, or is zero, needs no write.
        let mut dirty = Vec::with_capacity(out.len());
        for (&block, look) in out.iter().zip(self.look(&out)) {
            if self.is_clean(block, look) {
                self.make_soft(block);
            } else {
                dirty.push(block);
            }
        }
        // 4. The rest is written, neighbours together.
        self.write(&dirty);
        out.len()
    }

    /// A watched block, in the pool, was not touched.
    fn unwatch(&mut self, block: u32) {
        let entry = self.table.get_mut(block);
        let marker = entry.has(MARKER);
        entry.flags = 0;
        if marker {
            self.prefetch.outcome(0, 1);
            Counters::add(&self.counters.prefetch_wasted_blocks, 1);
        }
    }

    /// Takes neighbouring blocks out of the program into places, as neighbours where it can. Gives those that
    /// something else holds.
    fn take_out(&mut self, blocks: &[u32], out: &mut Vec<u32>) -> Vec<u32> {
        let mut busy = Vec::new();
        let mut rest = blocks;
        while !rest.is_empty() {
            let places = self.pool.take_hollow(rest.len());
            let (run, others) = rest.split_at(places.len());
            self.take_run(run, places.start, out, &mut busy);
            rest = others;
        }
        busy
    }

    fn take_run(&mut self, blocks: &[u32], place: u32, out: &mut Vec<u32>, busy: &mut Vec<u32>) {
        let (to, from) = (self.pool.address(place), self.table.address(blocks[0]));
        let taken = self.mover.take(to, from, blocks.len() * self.block);
        match self.or_stop(taken) {
            Taken::All => {
                for (at, &block) in blocks.iter().enumerate() {
                    let entry = self.table.get_mut(block);
                    entry.place = place + at as u32;
                    entry.flags = 0;
                    out.push(block);
                }
                self.mapped -= blocks.len();
            }
            Taken::Busy if blocks.len() == 1 => {
                self.pool.put_hollow(place);
                busy.push(blocks[0]);
            }
            Taken::Busy => {
                for (at, block) in blocks.iter().enumerate() {
                    self.take_run(std::slice::from_ref(block), place + at as u32, out, busy);
                }
            }
        }
    }

    /// Whether a block just taken out needs no write. Its hash, if it does, is noted.
    fn is_clean(&mut self, block: u32, look: Look) -> bool {
        let entry = self.table.get(block);
        let (slot, old, hash) = (entry.slot(), entry.hash, self.hash_of(look));
        if look.zero && slot.is_some() && self.is_file(entry.origin) && hash == old {
            // A hole in a mapped file, which must not come to be filled.
            Counters::add(&self.counters.clean_page_outs, 1);
            self.record(Kind::PageOutClean, [block]);
            return true;
        }
        if look.zero {
            self.drop_slot(block);
            Counters::add(&self.counters.zero_page_outs, 1);
            self.record(Kind::PageOutZero, [block]);
            return true;
        }
        if slot.is_some() && hash == old {
            Counters::add(&self.counters.clean_page_outs, 1);
            self.record(Kind::PageOutClean, [block]);
            return true;
        }
        self.table.get_mut(block).hash = hash;
        Counters::add(&self.counters.dirty_page_outs, 1);
        self.record(Kind::PageOutDirty, [block]);
        false
    }

    /// The store's bytes of a block are needed no more.
    pub(crate) fn drop_slot(&mut self, block: u32) {
        let own = self.own_origin();
        let entry = self.table.get_mut(block);
        if let Some(slot) = entry.slot() {
            entry.set_slot(None);
            if entry.origin == own {
                self.slots.free(slot);
            }
        }
    }

    /// The number of this process's own store.
    pub(crate) fn own_origin(&self) -> u8 {
        self.own
    }

    /// Gives every block a slot that may be written, neighbours for neighbours where it can.
    fn give_slots(&mut self, blocks: &[u32]) {
        let own = self.own_origin();
        for &block in blocks {
            let entry = self.table.get(block);
            let keeps = entry.slot().is_some_and(|slot| entry.origin == own && self.slots.may_write(slot));
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
            let Some((slot, got)) = self.slots.take(needing as u32) else {
                self.grow();
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

    fn grow(&mut self) {
        let own = usize::from(self.own_origin());
        if let Err(error) = self.stores[own].grow() {
            self.stop(&error.to_string());
        }
        let slots = self.stores[own].slots();
        self.slots.grown(slots);
    }

    /// Begins to write blocks that have left the program.
    fn write(&mut self, blocks: &[u32]) {
        self.give_slots(blocks);
        let per_extent = (EXTENT / self.block) as u32;
        let origin = self.own_origin();
        let mut rest = blocks;
        while let Some(&first) = rest.first() {
            let slot = self.table.get(first).slot().expect("given just now");
            let run = rest
                .iter()
                .enumerate()
                .take_while(|&(at, &block)| {
                    let next = slot + at as u32;
                    self.table.get(block).slot() == Some(next) && next / per_extent == slot / per_extent
                })
                .count();
            let places: Vec<u32> = rest[..run].iter().map(|&block| self.table.get(block).place).collect();
            let mut buffer = self.buffer(Purpose::PageOut, run);
            let pieces = match &mut buffer {
                Some(buffer) => {
                    let bytes = buffer.bytes(run * self.block);
                    for (bytes, &place) in bytes.chunks_exact_mut(self.block).zip(&places) {
                        bytes.copy_from_slice(self.pool.bytes(place));
                    }
                    vec![buffer.piece(run * self.block)]
                }
                None => self.pool.pieces(places.into_iter()),
            };
            for &block in &rest[..run] {
                self.table.set_state(block, State::Writing);
            }
            self.writing += run;
            Counters::add(&self.counters.page_out_bytes, (run * self.block) as u64);
            let blocks = rest[..run].to_vec();
            let transfer = Transfer {
                purpose: Purpose::PageOut,
                blocks,
                pieces,
                slot,
                origin,
                since_ns: 0,
                tries: 0,
                buffer,
            };
            self.begin(transfer, None);
            rest = &rest[run..];
        }
    }

    /// Blocks have been written.
    pub(crate) fn paged_out(&mut self, transfer: Transfer) {
        self.writing -= transfer.blocks.len();
        for &block in &transfer.blocks {
            if self.table.get(block).has(WANTED) {
                self.record(Kind::SoftFault, [block]);
                self.install(&[block]);
                self.policy.rescue(block);
                self.count_soft_fault(block);
            } else {
                self.make_soft(block);
            }
        }
    }
}
