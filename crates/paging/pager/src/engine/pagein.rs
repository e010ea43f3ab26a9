//! Page-ins: first touches, minor faults, major faults, prefetch.

use super::Engine;
use super::ahead::Touch;
use super::files::UNKNOWN;
use super::table::{COMPANION, LEARNT, MARKER, SAMPLE, State, WANTED};
use crate::carry::{Arrival, LoadIn, Run};
use crate::io::bounce::Buffer;
use crate::io::transfers::Operation;
use crate::trace::Kind;
use terapage_policy::pace;
use terapage_policy::prefetch;
use terapage_stats::Counters;
use terapage_store::{Failure, OpKind, Why};

/// The most bytes of blocks that are installed ahead of a first touch. Chosen, not measured.
const FRESH_BYTES: usize = 2 << 20;

/// How long at least one thread has waited for a read: the kernel's pressure stall information
/// calls this "some".
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    /// The number of blocks for which threads wait.
    waits: usize,
    /// The time up to which the wait is counted, ns.
    since_ns: u64,
}

impl Stall {
    /// A thread begins to wait for a block for which none has waited.
    pub fn begin(&mut self, now_ns: u64) {
        if self.waits == 0 {
            self.since_ns = now_ns;
        }
        self.waits += 1;
    }

    /// The whole microseconds to count up to now, though the threads still wait.
    fn so_far(&mut self, now_ns: u64) -> u64 {
        let us = if self.waits > 0 { now_ns.saturating_sub(self.since_ns) / 1000 } else { 0 };
        self.since_ns += us * 1000;
        us
    }

    /// `blocks` blocks no longer have a waiting thread. Returns the nanoseconds to count.
    fn end(&mut self, blocks: usize, now_ns: u64) -> u64 {
        let counted = if self.waits > 0 { now_ns.saturating_sub(self.since_ns) } else { 0 };
        self.waits = self.waits.saturating_sub(blocks);
        self.since_ns = now_ns;
        counted
    }
}

impl Engine {
    /// A touch of a block that was never touched, or has become zero: installs zeros, and more of
    /// them if fresh memory is touched in order.
    pub(crate) fn first_touch(&mut self, block: u32) {
        self.follow.other(1);
        Counters::add(&self.counters.first_touches, 1);
        self.record(Kind::FirstTouch, [block]);
        let most = (FRESH_BYTES / self.block).max(1) as u32;
        let (wanted, down) = self.ahead.fresh_window(block, most);
        let most = wanted.min((self.frames.limit / 8).max(1) as u32);
        let region = self.table.block_range_of(block).unwrap_or(block..block + 1);
        let at = |index: u32| if down { block.checked_sub(index) } else { block.checked_add(index) };
        let run = (0..most)
            .map_while(at)
            .take_while(|&block| region.contains(&block) && self.table.state(block) == State::Zero);
        let run: Vec<u32> = run.collect();
        let room = self.frames.room(self.frames.spare).min(run.len());
        let count = if room > 0 && !self.frames.pool.has_zero() && !self.frames.maker.pays() {
            let first = if down { run[room - 1] } else { block };
            self.install_fresh(first, room as u32);
            room as u32
        } else {
            self.install_recycled(&run)
        };
        self.minor_wait_ends();
        let first = if down { block + 1 - count } else { block };
        self.record(Kind::FreshAhead, (first..first + count).filter(|&other| other != block));
        self.ahead.fresh_went(first, count);
    }

    /// Installs new frames directly in the program.
    fn install_fresh(&mut self, first: u32, count: u32) {
        let at = self.table.address(first);
        let done = self.mover.fresh(at, count as usize * self.block);
        self.or_stop(done);
        self.frames.count += count as usize;
        for block in first..first + count {
            self.table.set_state(block, State::Mapped);
            self.policy.insert(block);
        }
    }

    /// Installs used frames, made zero: for the first of `wanted`, and for as many more as there
    /// are free frames.
    fn install_recycled(&mut self, wanted: &[u32]) -> u32 {
        let mut places = Vec::with_capacity(wanted.len());
        while places.len() < wanted.len() {
            let Some(place) = self.zero_place(places.is_empty()) else { break };
            places.push(place);
        }
        // Places are neighbours, ascending, so the blocks must be ascending, too.
        let mut blocks = wanted[..places.len()].to_vec();
        blocks.sort_unstable();
        for (&block, &place) in blocks.iter().zip(&places) {
            self.table.get_mut(block).place = place;
        }
        self.install(&blocks);
        for &block in &blocks {
            self.policy.insert(block);
        }
        blocks.len() as u32
    }

    /// A touch of a block that still has its frame.
    pub(crate) fn minor_fault(&mut self, block: u32, at: usize) {
        self.record(Kind::MinorFault, [block]);
        if self.table.get(block).has(COMPANION) {
            return self.used_companion(block, at);
        }
        self.frames.target.touched();
        self.install(&[block]);
        self.minor_wait_ends();
        self.rescued_in_trial(block, at);
        self.note_minor_fault(block);
        self.policy.rescue(block);
        self.put_back_neighbours(block);
    }

    /// Puts back the neighbours of a block that should not leave either, without waiting for their
    /// faults.
    fn put_back_neighbours(&mut self, block: u32) {
        let region = self.table.block_range_of(block).unwrap_or(block..block);
        let neighbours = self.policy.neighbours(block);
        let neighbours = neighbours.start.max(region.start)..neighbours.end.min(region.end);
        let soft: Vec<u32> = neighbours.filter(|&other| self.is_leaving(other)).collect();
        self.record(Kind::PutBack, soft.iter().copied());
        self.install(&soft);
        for &other in &soft {
            self.policy.back(other);
        }
    }

    /// Counts a minor fault, for the process and for the region. A block that goes in and out
    /// without end gets grace.
    pub(crate) fn note_minor_fault(&mut self, block: u32) {
        Counters::add(&self.counters.minor_faults, 1);
        Counters::add(&self.table.usage.of(block).minor_faults, 1);
        if self.grace.goes_round(block) {
            self.give_grace(block);
        }
    }

    /// A touch of a block that was taken out only so that its touch is seen.
    pub(crate) fn watched_fault(&mut self, block: u32) {
        let entry = self.table.get(block);
        let (marker, sample, learnt) = (entry.has(MARKER), entry.has(SAMPLE), entry.has(LEARNT));
        self.install(&[block]);
        self.minor_wait_ends();
        if learnt {
            self.used_learnt(block);
        }
        if sample {
            self.sampled(block, true);
        }
        if marker {
            self.used_marker(block);
            self.prefetch_after(block, Touch::Here);
        } else if !sample && !learnt {
            self.record(Kind::MinorFault, [block]);
            self.note_minor_fault(block);
            self.policy.seen(block);
        }
    }

    /// A touch of a block whose bytes only the store has.
    pub(crate) fn major_fault(&mut self, block: u32, at: usize) {
        let since_ns = self.now();
        Counters::add(&self.counters.major_faults, 1);
        Counters::add(&self.table.usage.of(block).major_faults, 1);
        self.record(Kind::MajorFault, [block]);
        let place = self.place();
        // Waiting for a place cannot have changed this block: only faults and requests change it.
        self.table.get_mut(block).flags |= WANTED;
        self.demands += 1;
        self.stall.begin(since_ns);
        self.begin_trial(block, at);
        self.demand(block, place, self.waits.began_ns().max(1));
        let touch = if self.hurry(block) { Touch::Here } else { Touch::Missing };
        self.prefetch_after(block, touch);
        self.learn_miss(block, at);
    }

    /// Begins to read a block for which a thread waits.
    fn demand(&mut self, block: u32, place: u32, since_ns: u64) {
        self.trials.splitting.come(1);
        Counters::add(&self.counters.demand_blocks, 1);
        let (blocks, places) = self.with_companions(block, place);
        self.read(&blocks, &places, since_ns);
    }

    /// A thread waits for a block that was read: if the block had been left out of the program,
    /// that is counted. Returns whether the block is the first of a run.
    fn used_left_out(&mut self, block: u32) -> bool {
        let entry = self.table.get(block);
        let (marker, sample, learnt) = (entry.has(MARKER), entry.has(SAMPLE), entry.has(LEARNT));
        let companion = entry.has(COMPANION);
        if sample {
            self.sampled(block, true);
        }
        if learnt {
            self.used_learnt(block);
        }
        if marker {
            self.used_marker(block);
        }
        if companion {
            self.count_used_companion();
        }
        marker || learnt
    }

    /// The program has reached the first block of a prefetched run.
    fn used_marker(&mut self, block: u32) {
        self.record(Kind::PrefetchMarker, [block]);
        self.ahead.policy.outcome(1, 0);
        self.policy.streamed();
        Counters::add(&self.counters.prefetch_used_runs, 1);
    }

    /// A sample of the blocks read ahead was touched, or was paged out untouched.
    pub(crate) fn sampled(&mut self, block: u32, used: bool) {
        let before = self.ahead.policy.is_stopped();
        let blocks = self.ahead.sampled(block, used);
        let counters = self.counters;
        let counter = if used { &counters.prefetch_used_blocks } else { &counters.prefetch_wasted_blocks };
        Counters::add(counter, blocks);
        let stops = self.ahead.policy.is_stopped() && !before;
        Counters::add(&counters.prefetch_stops, u64::from(stops));
    }

    /// Prefetches what the policy asks for after a touch.
    pub(crate) fn prefetch_after(&mut self, block: u32, touch: Touch) {
        if self.ahead.is_random(block) {
            return;
        }
        match touch {
            Touch::Here => {}
            Touch::Late => self.ahead.policy.late(),
            Touch::Missing => self.ahead.policy.missing(),
        }
        if let Some(ahead) = self.ahead.policy.touched(block) {
            self.read_ahead(ahead);
            if let Some(ahead) = self.ahead.policy.more() {
                self.read_ahead(ahead);
            }
        }
    }

    /// Prefetches blocks, in the program's direction, within the range of addresses.
    fn read_ahead(&mut self, ahead: prefetch::Ahead) {
        let wanted = |index: u32| ahead.first.checked_add_signed(ahead.step.checked_mul(index as i32)?);
        let Some(region) = self.table.block_range_of(ahead.first) else { return };
        let inside = |block: &u32| region.contains(block);
        let mut blocks: Vec<u32> = (0..ahead.count).map_while(wanted).take_while(inside).collect();
        blocks.truncate(self.longest_run());
        let postponed = self.ahead.postponed_blocks();
        if self.has_room_for(blocks.len()) || postponed + blocks.len() > self.most_read() {
            self.read_run(&blocks);
        } else {
            // Reading a part now would be a small read, with one fault after another for the rest.
            self.ahead.postponed.push_back(blocks);
        }
    }

    /// The most blocks that may be prefetched at the same time.
    fn most_read(&self) -> usize {
        pace::most_read(self.frames.limit)
    }

    /// Whether `blocks` blocks can be prefetched without waiting for frames or a bounce buffer.
    fn has_room_for(&self, blocks: usize) -> bool {
        // A run may be longer than the limit, which may have shrunk.
        let fits = self.table.count(State::Reading) == 0
            || self.table.count(State::Reading) + blocks <= self.most_read();
        fits && blocks <= self.ready() && !self.io.bounce.is_waited_for(OpKind::Read, blocks)
    }

    /// Reads the postponed runs for which there are frames now.
    pub(crate) fn read_postponed(&mut self) {
        while let Some(run) = self.ahead.postponed.front() {
            if !self.has_room_for(run.len()) {
                return;
            }
            let run = self.ahead.postponed.pop_front().expect("it is there");
            self.read_run(&run);
        }
    }

    /// Reads as much as possible of a postponed run now, if the program has reached a block of one.
    /// Returns whether it has.
    fn hurry(&mut self, block: u32) -> bool {
        let Some(run) = self.ahead.take_behind(block) else { return false };
        let left = self.read_run(&run);
        if !left.is_empty() {
            // The rest is read once there are frames for all of it: otherwise each of its blocks
            // would need a separate fault.
            self.ahead.postponed.push_front(left);
        }
        true
    }

    /// Begins to read the stored blocks of a run, in the program's direction, as many as there are
    /// frames for. Returns the others.
    fn read_run(&mut self, run: &[u32]) -> Vec<u32> {
        let stored = |block: &u32| self.table.state(*block) == State::Stored;
        let mut blocks: Vec<u32> = run.iter().copied().filter(stored).collect();
        let mut places = Vec::with_capacity(blocks.len());
        while places.len() < blocks.len()
            && self.table.count(State::Reading) + places.len() < self.most_read()
        {
            let Some(place) = self.place_at_once() else { break };
            places.push(place);
        }
        let left = blocks.split_off(places.len());
        // The first block in the stream's direction stays out of the program, so that its touch is
        // seen.
        let Some(&marker) = blocks.first() else { return left };
        self.table.get_mut(marker).flags |= MARKER;
        if let Some(sample) = self.ahead.sample(&blocks) {
            self.table.get_mut(sample).flags |= SAMPLE;
        }
        Counters::add(&self.counters.prefetched_blocks, blocks.len() as u64);
        self.trials.splitting.come(blocks.len());
        self.follow.other(blocks.len());
        if !blocks.is_sorted() {
            blocks.reverse();
        }
        self.read(&blocks, &places, 0);
        left
    }

    /// Begins to read blocks, ascending, into places, with one operation for each run of
    /// neighbouring slots.
    pub(crate) fn read(&mut self, blocks: &[u32], places: &[u32], since_ns: u64) {
        let mut index = 0;
        while index < blocks.len() {
            let entry = self.table.get(blocks[index]);
            let (slot, origin) = (entry.slot().expect("a stored block has a slot"), entry.origin);
            let run = (index..blocks.len())
                .take_while(|&at| {
                    let entry = self.table.get(blocks[at]);
                    let next = slot + (at - index) as u32;
                    entry.slot() == Some(next) && entry.origin == origin && self.io.is_one(origin, slot, next)
                })
                .count();
            let range = index..index + run;
            let buffer = self.buffer(OpKind::Read, origin, run);
            let pieces = match &buffer {
                Some(buffer) => vec![buffer.piece(run * self.block)],
                None => self.frames.pool.pieces(places[range.clone()].iter().copied()),
            };
            for (&block, &place) in blocks[range.clone()].iter().zip(&places[range.clone()]) {
                self.table.get_mut(block).place = place;
                self.table.set_state(block, State::Reading);
                Counters::add(&self.table.usage.of(block).page_in_bytes, self.block as u64);
            }
            Counters::add(&self.counters.page_in_bytes, (run * self.block) as u64);
            let blocks = blocks[range].to_vec();
            let read = Operation::new(OpKind::Read, blocks, pieces, slot, origin);
            self.io.begin(Operation { since_ns, buffer, ..read });
            index += run;
        }
    }

    /// Checks blocks that have been read, and puts them into the program.
    pub(crate) fn arrived(&mut self, number: usize, mut operation: Operation) {
        let of_a_file = self.is_file(operation.origin);
        let arrival = |&block: &u32| {
            let entry = self.table.get(block);
            let unknown = of_a_file && entry.hash == UNKNOWN;
            let expected = if unknown { None } else { Some(entry.hash) };
            let place = self.frames.pool.address(entry.place);
            Arrival { place, expected, half: entry.half, hash: 0 }
        };
        let blocks = operation.blocks.iter().map(arrival).collect();
        let is_left_out = |&block: &u32| {
            let entry = self.table.get(block);
            entry.has(MARKER | SAMPLE | LEARNT | COMPANION) && !entry.has(WANTED)
        };
        let (left_out, wanted): (Vec<u32>, Vec<u32>) =
            operation.blocks.iter().partition(|block| is_left_out(block));
        let mut runs = self.plan(&wanted);
        self.plan_trial(&operation.blocks, &mut runs);
        let buffer = operation.buffer.as_ref().map(Buffer::at);
        // Nobody changes the file, and pages come in as copies in any case.
        let sealed = of_a_file && self.is_sealed(operation.blocks[0]);
        if let (true, Some(buffer)) = (sealed, buffer) {
            let start = self.table.address(operation.blocks[0]);
            for run in runs.iter_mut().filter(|run| run.len == run.blocks * self.block) {
                run.buffer = Some(buffer + (run.program - start));
            }
        }
        let mut load = LoadIn {
            buffer,
            blocks,
            checks: !sealed && (of_a_file || self.options.verify),
            verify: !sealed && self.options.verify,
            runs,
            good: false,
        };
        operation.left_out = left_out;
        let carried = load.carry(&mut self.mover, self.block);
        self.or_stop(carried);
        self.checked(number, operation, &load);
    }

    /// Whether a block belongs to a file that the program only reads.
    pub(crate) fn is_sealed(&self, block: u32) -> bool {
        self.mover.events.is_sealed(self.table.address(block), 1)
    }

    /// Gives up a failed read of blocks that were not all touched. Blocks for which a thread waits
    /// are read again, one by one. The others are read when they are touched, so the failure shows
    /// only then. Perhaps no thread ever touches them: they may belong to another mapped file,
    /// which a forked child does not use and its parent writes.
    pub(crate) fn forgo(&mut self, mut operation: Operation) {
        self.io.put_buffer(&mut operation);
        // For a demanded read, the first wanted block takes over the wait.
        let mut since_ns = operation.since_ns;
        for &block in &operation.blocks {
            let entry = self.table.get_mut(block);
            let (place, marker, wanted) = (entry.place, entry.has(MARKER), entry.has(WANTED));
            entry.flags = if wanted { WANTED } else { 0 };
            self.table.set_state(block, State::Stored);
            if marker {
                self.ahead.policy.outcome(0, 1);
                Counters::add(&self.counters.prefetch_wasted_runs, 1);
            }
            if wanted {
                self.read(&[block], &[place], std::mem::take(&mut since_ns));
            } else {
                self.frames.pool.put_free(place);
            }
        }
    }

    /// Handles blocks that were read and checked; correct blocks are in the program.
    fn checked(&mut self, number: usize, mut operation: Operation, load: &LoadIn) {
        if load.verify {
            self.io.judge(number, &operation, load.good);
        }
        if !load.good {
            self.unplan(&load.runs);
            self.try_again(number, operation, &Failure::lasting(Why::Wrong));
            return;
        }
        self.io.put_buffer(&mut operation);
        for (&block, arrival) in operation.blocks.iter().zip(&load.blocks) {
            if arrival.expected.is_none() || arrival.half && load.checks {
                let entry = self.table.get_mut(block);
                (entry.hash, entry.half) = (arrival.hash, false);
            }
        }
        self.paged_in(&operation, &load.runs);
        self.see_to_trials(&operation.blocks);
    }

    /// Gives up the slot of a block that has come in for a thread, if the store wants it back.
    fn give_back_slot(&mut self, block: u32) {
        let entry = self.table.get(block);
        let own = entry.has(WANTED) && entry.origin == self.io.own_origin();
        if own && entry.slot().is_some_and(|slot| self.io.wants_back(slot)) {
            self.drop_slot(block);
        }
    }

    /// Counts the time in which threads waited, now that these blocks have arrived.
    fn count_stall(&mut self, blocks: &[u32]) {
        let waited_for = blocks.iter().filter(|&&block| self.table.get(block).has(WANTED)).count();
        if waited_for > 0 {
            let stalled_ns = self.stall.end(waited_for, self.now());
            Counters::add(&self.counters.stalled_us, stalled_ns / 1000);
        }
    }

    /// Counts the time in which threads have waited by now: who looks on sees that they do.
    pub(crate) fn count_stall_so_far(&mut self) {
        if self.stall.waits > 0 {
            let stalled_us = self.stall.so_far(self.now());
            Counters::add(&self.counters.stalled_us, stalled_us);
        }
    }

    fn paged_in(&mut self, operation: &Operation, runs: &[Run]) {
        self.count_stall(&operation.blocks);
        for &block in &operation.left_out {
            if self.companion_came(block) {
                continue;
            }
            self.policy.insert(block);
            let entry = self.table.get(block);
            if entry.has(WANTED) {
                // The program has reached the block since.
                self.used_left_out(block);
                self.install(&[block]);
            } else {
                let marker = entry.has(MARKER | LEARNT);
                self.table.set_state(block, State::Watched);
                self.record(Kind::Prefetched, (!marker).then_some(block));
            }
        }
        let is_in = |block: &u32| !operation.left_out.contains(block);
        let blocks: Vec<u32> = operation.blocks.iter().copied().filter(is_in).collect();
        for &block in &blocks {
            self.policy.insert(block);
            self.give_back_slot(block);
            if self.used_left_out(block) {
                continue;
            }
            if operation.since_ns == 0 || !self.table.get(block).has(WANTED) {
                self.record(Kind::Prefetched, [block]);
            }
        }
        self.installed(&blocks, runs);
        self.late_waits_end(&operation.blocks, true);
        if self.table.count(State::Reading) == 0 {
            self.stall = Stall::default();
        }
        if operation.since_ns > 0 {
            self.demands -= 1;
            let now_ns = self.now();
            self.counters.major_latency.add(now_ns.saturating_sub(operation.since_ns));
            self.major_wait_ends(operation.since_ns, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stall;

    #[test]
    fn waits_that_overlap_count_once() {
        let mut stall = Stall::default();
        stall.begin(100);
        stall.begin(150);
        assert_eq!(stall.end(1, 200), 100);
        stall.begin(220);
        assert_eq!(stall.end(2, 300), 100);
        assert_eq!(stall.end(1, 400), 0, "nobody waited");
        stall.begin(500);
        assert_eq!(stall.end(1, 510), 10);
    }
}
