//! The states and decisions of the pager, modelled on `crates/paging/pager` (its folder `engine/`).

use super::{Forecast, Setup, Timing};
use crate::recording::{After, Merger, Recording, Step, What};
use std::collections::VecDeque;
use terapage_policy::pace::{self, Need};
use terapage_policy::prefetch::{self, Ahead, Prefetch};
use terapage_policy::replacement::{self, Replacement};
use terapage_policy::soft::{PER_MILLE, SoftFrames};
use terapage_policy::spinning::Spinning;

/// A process may have this much without a pager, or an eighth of the budget if that is more.
const UNPAGED_BYTES: usize = 16 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Zero,
    Here,
    Soft,
    /// In memory, but out of the program to detect a touch.
    Watched,
    Stored,
}

#[derive(Clone, Copy)]
struct Block {
    state: State,
    /// Its bytes are not in the store.
    dirty: bool,
    /// The store has bytes of the block.
    stored: bool,
    /// The first block of a run that is read ahead, kept out of the program.
    marker: bool,
    /// Told apart from older entries of the soft queue.
    stamp: u32,
    /// The time at which a read of the block completes.
    arrives: f64,
}

const FRESH: Block =
    Block { state: State::Zero, dirty: false, stored: false, marker: false, stamp: 0, arrives: 0.0 };

pub struct Pager<'a> {
    merger: Merger,
    merged: bool,
    block_bytes: u64,
    /// Blocks of a run.
    run: usize,
    frames: usize,
    soft_frames: SoftFrames,
    policy: Box<dyn Replacement>,
    prefetch: Box<dyn Prefetch>,
    timing: &'a Timing,
    demand_us: f64,
    read_us: f64,
    write_us: f64,
    blocks: Vec<Block>,
    /// Blocks in the program or being read.
    taken: usize,
    paging: bool,
    /// Soft blocks in the order in which they are reclaimed, each with the stamp for which the
    /// entry is valid.
    soft: VecDeque<(u32, u32)>,
    /// Blocks that are being written, with the times of completion; they are soft from then on.
    writing: VecDeque<(u32, u32, f64)>,
    /// How many there are of both.
    soft_len: usize,
    /// The time until which the pager's thread spins, and occupies a processor.
    awake: f64,
    luck: Spinning,
    /// The factor by which the program's own time grows meanwhile.
    crowded: f64,
    pub now: f64,
    /// The time at which the store has completed all its transfers.
    stream: f64,
    forecast: Forecast,
}

impl<'a> Pager<'a> {
    pub fn new(recording: &Recording, setup: &Setup, timing: &'a Timing) -> Pager<'a> {
        let merger = recording.merger(setup.shift);
        let block_bytes = recording.block_bytes << setup.shift;
        let frames = setup.frames.max(1);
        let run = pace::RUN_BYTES / block_bytes as usize;
        let prefetched = pace::prefetched_run(run, frames);
        let ahead = pace::ahead_blocks(pace::AHEAD_BYTES, block_bytes as usize, frames);
        let (read_bytes_s, write_bytes_s) = timing.costs.rates(&timing.device);
        Pager {
            blocks: vec![FRESH; merger.count()],
            merger,
            merged: setup.shift > 0,
            block_bytes,
            run,
            frames,
            soft_frames: SoftFrames::new(frames, block_bytes as usize, PER_MILLE),
            policy: replacement::by_name(&setup.policy, frames).expect("a known policy"),
            prefetch: prefetch::by_name(&setup.prefetch, frames, prefetched, ahead).expect("a known policy"),
            timing,
            demand_us: timing.costs.demand_us(&timing.device, &timing.measured),
            read_us: block_bytes as f64 / read_bytes_s * 1e6,
            write_us: block_bytes as f64 / write_bytes_s * 1e6,
            taken: 0,
            paging: false,
            soft: VecDeque::new(),
            writing: VecDeque::new(),
            soft_len: 0,
            awake: 0.0,
            luck: Spinning::default(),
            crowded: timing.parallelism.max(1.0) / timing.overlap(),
            now: 0.0,
            stream: 0.0,
            forecast: Forecast::default(),
        }
    }

    pub fn end(mut self, native_us: f64, compute: &[f32]) -> Forecast {
        let computed: f64 = compute.iter().map(|us| f64::from(*us)).sum();
        self.forecast.total_us = (self.now + native_us - computed).max(0.0);
        self.forecast
    }

    /// The program computes for this native time.
    pub fn compute(&mut self, us: f64) {
        let awake = (self.awake - self.now).max(0.0);
        let crowded = us * self.crowded;
        self.now += if crowded <= awake { crowded } else { awake + us - awake / self.crowded };
    }

    /// A thread waits for the pager, which may have to wake up first; the other threads continue.
    fn wait(&mut self, us: f64) -> f64 {
        let woken_us = if self.now > self.awake { self.timing.costs.wake_us } else { 0.0 };
        let us = (us + woken_us) / self.timing.overlap();
        self.look(self.now);
        self.now += us;
        self.awake = self.now + if self.luck.tries() { pace::SPIN_US as f64 } else { 0.0 };
        us
    }

    /// Work arrives at the time `at`.
    fn look(&mut self, at: f64) {
        if self.luck.tries() {
            self.luck.looked(at <= self.awake);
        }
        self.luck.sleeps();
    }

    pub fn step(&mut self, step: &Step) {
        let block = self.merger.of(step.block);
        match step.what {
            What::Discard(count) => return self.discard(step.block, count),
            What::Ahead | What::Present if self.blocks[block as usize].state != State::Zero => {}
            What::Present => self.enter(block),
            _ => self.touch(block, step.what == What::Ahead),
        }
        let entry = &mut self.blocks[block as usize];
        match step.after {
            After::Dirty => entry.dirty = true,
            After::Zero if !self.merged => (entry.dirty, entry.stored) = (false, false),
            // The block is never taken out again, and a new block is not in the store.
            After::Unknown if !entry.stored => entry.dirty = true,
            _ => {}
        }
        self.balance();
    }

    /// The block is in the program from now on.
    fn enter(&mut self, block: u32) {
        self.blocks[block as usize].state = State::Here;
        self.blocks[block as usize].marker = false;
        self.taken += 1;
        self.policy.insert(block);
    }

    fn touch(&mut self, block: u32, ahead: bool) {
        let entry = self.blocks[block as usize];
        match entry.state {
            State::Here if entry.arrives > self.now => {
                let waited = self.wait(entry.arrives - self.now);
                self.forecast.stream_us += waited;
                self.blocks[block as usize].arrives = 0.0;
                self.prefetch_after(block);
            }
            State::Here => {}
            State::Soft => self.minor_fault(block),
            State::Watched => self.watched_fault(block),
            State::Stored => self.major_fault(block),
            State::Zero => self.first_touch(block, ahead),
        }
    }

    /// A touch of a block that still has its frame.
    fn minor_fault(&mut self, block: u32) {
        let waited = self.wait(self.timing.costs.minor_us);
        self.forecast.minor_us += waited;
        self.soft_frames.touched();
        self.soft_len -= 1;
        self.taken += 1;
        self.blocks[block as usize].state = State::Here;
        self.forecast.minor_faults += 1;
        self.policy.rescue(block);
        self.put_back_neighbours(block);
    }

    /// Puts back the neighbours of a block, which should stay as well.
    fn put_back_neighbours(&mut self, block: u32) {
        let neighbours = self.policy.neighbours(block);
        for other in neighbours.start..neighbours.end.min(self.blocks.len() as u32) {
            let entry = &mut self.blocks[other as usize];
            if entry.state == State::Soft {
                entry.state = State::Here;
                self.soft_len -= 1;
                self.taken += 1;
                self.policy.back(other);
            }
        }
    }

    /// A touch of a block that was taken out to detect touches.
    fn watched_fault(&mut self, block: u32) {
        // A block that was read ahead may not have arrived yet.
        let late = (self.blocks[block as usize].arrives - self.now).max(0.0);
        if late > 0.0 {
            let waited = self.wait(late);
            self.forecast.stream_us += waited;
        }
        let waited = self.wait(self.timing.costs.minor_us);
        self.forecast.minor_us += waited;
        let entry = &mut self.blocks[block as usize];
        (entry.state, entry.arrives) = (State::Here, 0.0);
        if std::mem::replace(&mut entry.marker, false) {
            self.forecast.markers += 1;
            self.prefetch.outcome(1, 0);
            self.policy.streamed();
            if late > 0.0 {
                self.prefetch.late();
            }
            self.prefetch_after(block);
        } else {
            self.forecast.minor_faults += 1;
            self.policy.seen(block);
        }
    }

    /// A touch of a block that is only in the store.
    fn major_fault(&mut self, block: u32) {
        self.find_frame();
        self.forecast.demand += 1;
        // The device's time is used, whoever waits.
        self.stream = self.stream.max(self.now) + self.read_us;
        let waited = self.wait(self.demand_us);
        self.forecast.demand_us += waited;
        self.enter(block);
        self.blocks[block as usize].arrives = 0.0;
        self.prefetch.missing();
        self.prefetch_after(block);
    }

    /// A touch of a block that is all zero.
    fn first_touch(&mut self, block: u32, ahead: bool) {
        self.forecast.first_touches += 1;
        if !self.paging {
            // Until this much memory is in use the program runs without a pager.
            let small = UNPAGED_BYTES / self.block_bytes as usize;
            self.paging = self.taken >= (self.frames / 8).max(small.min(self.frames / 2));
            return self.enter(block);
        }
        let fresh = self.taken + self.soft_len < self.frames;
        self.find_frame();
        let costs = &self.timing.costs;
        let each = if fresh { costs.fresh_us } else { costs.recycled_us };
        let fault = if ahead { 0.0 } else { costs.first_us };
        let waited = self.wait(each + fault);
        self.forecast.first_us += waited;
        self.enter(block);
    }

    /// A frame for a block that a thread waits for.
    fn find_frame(&mut self) {
        while self.taken + self.soft_len >= self.frames {
            self.written();
            if self.reclaim() {
                continue;
            }
            if let Some(&(_, _, ready)) = self.writing.front() {
                let waited = self.wait((ready - self.now).max(0.0));
                self.forecast.write_us += waited;
                // If other threads work, less than that time has passed.
                self.now = self.now.max(ready);
            } else if self.page_out(pace::at_once(self.frames)) == 0 {
                return;
            }
        }
    }

    /// Blocks that have reached the store become soft.
    fn written(&mut self) {
        while let Some(&(block, stamp, ready)) = self.writing.front() {
            if ready > self.now {
                return;
            }
            self.writing.pop_front();
            self.soft.push_back((block, stamp));
        }
    }

    /// Takes the frame of the block that has been soft longest. It returns whether there was one.
    fn reclaim(&mut self) -> bool {
        while let Some((block, stamp)) = self.soft.pop_front() {
            let entry = &mut self.blocks[block as usize];
            if entry.state != State::Soft || entry.stamp != stamp {
                continue;
            }
            entry.state = if entry.stored { State::Stored } else { State::Zero };
            entry.arrives = 0.0;
            self.soft_len -= 1;
            self.soft_frames.gone();
            self.policy.gone(block);
            return true;
        }
        false
    }

    /// Pages out ahead of need.
    fn balance(&mut self) {
        loop {
            self.written();
            let need = Need {
                target: self.soft_frames.now(),
                extra: 0,
                ready: self.frames.saturating_sub(self.taken + self.writing.len()),
                on_their_way: self.writing.len(),
                run: self.run,
            };
            if !need.is_short() || self.page_out(need.next(false)) == 0 {
                return;
            }
        }
    }

    fn page_out(&mut self, count: usize) -> usize {
        let mut victims: Vec<u32> = std::iter::from_fn(|| self.policy.victim()).take(count).collect();
        victims.sort_unstable();
        for &block in &victims {
            self.taken -= 1;
            let entry = &mut self.blocks[block as usize];
            if std::mem::replace(&mut entry.marker, false) {
                self.prefetch.outcome(0, 1);
                self.policy.unused(block);
            }
            if std::mem::replace(&mut entry.dirty, false) {
                entry.stored = true;
                self.stream = self.stream.max(self.now) + self.write_us;
                self.forecast.written += 1;
                let stamp = self.soften(block);
                self.writing.push_back((block, stamp, self.stream));
            } else {
                let stamp = self.soften(block);
                self.soft.push_back((block, stamp));
            }
        }
        self.watch();
        victims.len()
    }

    /// Takes blocks out of the program whose touches the policy wants to observe.
    fn watch(&mut self) {
        for _ in 0..pace::WATCH_BATCH {
            let Some(block) = self.policy.watch() else { return };
            let entry = &mut self.blocks[block as usize];
            if entry.state == State::Here && entry.arrives <= self.now {
                entry.state = State::Watched;
            }
        }
    }

    /// Takes a block out of the program while it keeps its frame. It returns the stamp of the
    /// block's entry in a queue.
    fn soften(&mut self, block: u32) -> u32 {
        let entry = &mut self.blocks[block as usize];
        entry.state = State::Soft;
        entry.stamp = entry.stamp.wrapping_add(1);
        self.soft_len += 1;
        entry.stamp
    }

    fn prefetch_after(&mut self, block: u32) {
        if let Some(ahead) = self.prefetch.touched(block) {
            self.read_ahead(ahead);
            if let Some(ahead) = self.prefetch.more() {
                self.read_ahead(ahead);
            }
        }
    }

    /// Reads ahead for the prefetch policy, as far as frames are available without waiting.
    fn read_ahead(&mut self, ahead: Ahead) {
        let wanted = |index: u32| ahead.first.checked_add_signed(ahead.step.checked_mul(index as i32)?);
        let mut blocks = Vec::with_capacity(ahead.count as usize);
        self.written();
        for block in (0..ahead.count).map_while(wanted) {
            let Some(entry) = self.blocks.get(block as usize) else { break };
            if entry.state != State::Stored {
                continue;
            }
            if self.taken + self.soft_len >= self.frames && !self.reclaim() {
                break;
            }
            // The state changes at once, so that the next block finds another frame.
            self.blocks[block as usize].state = State::Here;
            self.taken += 1;
            blocks.push(block);
        }
        let Some(&marker) = blocks.first() else { return };
        self.stream = self.stream.max(self.now) + self.read_us * blocks.len() as f64;
        let alone = self.timing.device.latency_us(self.block_bytes * blocks.len() as u64);
        let arrives = self.stream.max(self.now + alone);
        self.forecast.prefetched += blocks.len() as u64;
        for &block in &blocks {
            self.blocks[block as usize].arrives = arrives;
            self.policy.insert(block);
        }
        let marker = &mut self.blocks[marker as usize];
        (marker.state, marker.marker) = (State::Watched, true);
    }

    /// The program discards blocks.
    fn discard(&mut self, block: u32, count: u32) {
        for block in self.merger.within(block, count) {
            let Some(entry) = self.blocks.get_mut(block as usize) else { return };
            match entry.state {
                State::Here | State::Watched => self.taken -= 1,
                State::Soft => self.soft_len -= 1,
                State::Zero | State::Stored => {}
            }
            self.policy.remove(block);
            *entry = Block { stamp: entry.stamp.wrapping_add(1), ..FRESH };
        }
    }
}
