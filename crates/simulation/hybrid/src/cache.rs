//! A cache of storage-class memory or DRAM over a slower device.
//!
//! The contents of the cache are decided when a command arrives, in the order of commands; time
//! passes only then. So hits depend only on that order, not on speeds, and two SSDs below the same
//! cache see the same commands.
//!
//! Commands take effect in the order in which they reach the device below. Cache and flash
//! translation are one controller, so a later read of sectors whose write is still in flight
//! returns the written bytes.

mod below;
mod counters;
mod options;
mod runs;

use std::collections::{HashMap, VecDeque};

use slab::Slab;
use terapage_event::{Nanos, Queue};
use terapage_ssd::{Command, Device, Done, Operation};

pub use counters::CacheCounters;
pub use options::{CacheKind, CacheOptions};

use crate::directory::Directory;
use crate::error::Error;
use crate::memory::Memory;
use runs::{Run, append, cover, pieces};

/// The lane of events for completed accesses to the memory: one bank serves them in order.
const ACCESSES: usize = 0;

/// A device with a cache over it. It has the sectors of the device below.
pub struct Cache<D> {
    below: D,
    /// The time of the next event below.
    below_time: Option<Nanos>,
    options: CacheOptions,
    marks: Marks,
    /// The sectors of a line, as an exponent of two.
    shift: u32,
    directory: Directory,
    /// Lines that have left the directory, and whose bytes stay until they are written below.
    leaving: usize,
    memory: Memory,
    events: Queue<Event>,
    /// Commands that need more than one step.
    commands: Slab<Parts>,
    flights: Slab<Flight>,
    /// The fetch that brings sectors of a line. Only lines that are marked as fetching are looked
    /// up.
    fetches: HashMap<u32, usize>,
    waiting: VecDeque<Waiting>,
    /// Lines by the time at which they became dirty; for volatile caches.
    aging: VecDeque<(Nanos, u32)>,
    counters: CacheCounters,
    /// Scratch space: ends of commands below, runs to write, runs to fetch, flights to wait for.
    ended: Vec<Done>,
    runs: Vec<Run>,
    missing: Vec<Run>,
    awaited: Vec<usize>,
}

/// Sizes and marks in lines.
struct Marks {
    capacity: usize,
    /// If at most this many lines are free, lines are evicted until more are free, and at least
    /// `high`.
    low: usize,
    high: usize,
    /// Reads are copied while more than this many lines are free.
    copy_above: usize,
}

#[derive(Clone, Copy)]
enum Event {
    /// The command with this tag ends.
    Done(u64),
    /// A part of a command ends.
    Part(usize),
    /// A command below has completed; the time was known before.
    Below(u64),
    /// The line that has been dirty longest must be written.
    Flush,
}

/// A command that completes once all its parts have.
struct Parts {
    tag: u64,
    left: usize,
}

/// Commands to the device below.
enum Flight {
    /// A fetch: reads a run for a command; other commands may wait for it.
    Fetch { command: usize, run: Run, copy: bool, waiters: Vec<usize> },
    /// Writes dirty runs.
    Write { left: usize, lines: usize, dirty: u64 },
    /// Passes a trim on.
    Trim { tag: u64 },
}

/// A command that waits for room.
enum Waiting {
    Write { command: usize, sectors: u32 },
    Fetch { flight: usize },
}

impl<D: Device> Cache<D> {
    /// An empty cache over `below`.
    ///
    /// # Errors
    /// An option is impossible.
    pub fn new(below: D, options: &CacheOptions) -> Result<Self, Error> {
        options.check(below.sectors())?;
        let capacity = options.lines() as usize;
        let lines = |share: f64| (share * capacity as f64 + 1e-9).floor() as usize;
        let low = lines(options.low_water).min(capacity - 1);
        let marks = Marks {
            capacity,
            low,
            high: lines(options.high_water).clamp(low, capacity),
            copy_above: lines(options.copy_above),
        };
        let directory = Directory::new(&options.policy, capacity - low)
            .ok_or_else(|| Error::Policy(options.policy.clone()))?;
        Ok(Cache {
            below_time: below.next_time(),
            below,
            marks,
            shift: (options.line_bytes / 512).trailing_zeros(),
            directory,
            leaving: 0,
            memory: Memory::new(&options.memory)?,
            options: options.clone(),
            events: Queue::default(),
            commands: Slab::new(),
            flights: Slab::new(),
            fetches: HashMap::new(),
            waiting: VecDeque::new(),
            aging: VecDeque::new(),
            counters: CacheCounters::default(),
            ended: Vec::new(),
            runs: Vec::new(),
            missing: Vec::new(),
            awaited: Vec::new(),
        })
    }

    /// The device below.
    pub fn below(&self) -> &D {
        &self.below
    }

    /// The counters.
    pub fn counters(&self) -> CacheCounters {
        CacheCounters { lines: self.directory.len() as u64, ..self.counters }
    }

    /// Bytes of the directory.
    pub fn directory_bytes(&self) -> usize {
        self.directory.bytes()
    }

    /// Free lines, as counted by the cache: lines that are leaving do not count as occupied.
    pub fn free_lines(&self) -> usize {
        self.marks.capacity - self.directory.len()
    }

    /// The place of the bytes of `sector`: `Some(true)` if they are here and newer than below,
    /// `Some(false)` if they are here and below, `None` if they are only below.
    pub fn dirty(&self, sector: u64) -> Option<bool> {
        let slot = self.directory.find((sector >> self.shift) as u32)?;
        let bit = 1 << (sector & ((1 << self.shift) - 1));
        (self.directory.valid(slot) & bit != 0).then(|| self.directory.dirty(slot) & bit != 0)
    }

    /// Whether bytes that are read now are copied into the cache.
    fn copies(&self) -> bool {
        match self.options.kind {
            CacheKind::NvWb | CacheKind::Dram => true,
            CacheKind::WriteOnly => false,
            CacheKind::Space => self.free_lines() > self.marks.copy_above,
        }
    }

    /// Whether there are more lines, in the cache or leaving it, than there is room for.
    fn is_over_full(&self) -> bool {
        self.directory.len() + self.leaving > self.marks.capacity
    }

    fn write(&mut self, now: Nanos, command: Command) {
        let (mut inserted, mut lines, mut hits) = (false, 0, 0);
        for (line, sectors) in pieces(command.sector, command.sectors, self.shift) {
            lines += 1;
            let slot = match self.directory.find(line) {
                Some(slot) => {
                    hits += 1;
                    self.directory.touch(slot);
                    slot
                }
                None => {
                    inserted = true;
                    self.make_room(now);
                    self.directory.insert(line)
                }
            };
            if self.options.kind == CacheKind::Dram && self.directory.dirty(slot) == 0 {
                self.age(now, line);
            }
            self.counters.unsafe_sectors += u64::from(self.directory.add_dirty(slot, sectors));
        }
        let counters = &mut self.counters;
        counters.unsafe_sectors_max = counters.unsafe_sectors_max.max(counters.unsafe_sectors);
        counters.writes += 1;
        counters.write_hits += u64::from(hits == lines);
        counters.write_lines += lines;
        counters.write_line_hits += hits;
        counters.host_written_sectors += u64::from(command.sectors);
        if inserted && self.is_over_full() {
            self.counters.waited += 1;
            let parts = self.commands.insert(Parts { tag: command.tag, left: 1 });
            self.waiting.push_back(Waiting::Write { command: parts, sectors: command.sectors });
        } else {
            self.events.in_order(
                ACCESSES,
                self.memory.access(now, command.sectors),
                Event::Done(command.tag),
            );
        }
    }

    fn read(&mut self, now: Nanos, command: Command) {
        let copy = self.copies();
        let (mut lines, mut hits, mut here, mut inserted) = (0, 0, 0, false);
        self.missing.clear();
        self.awaited.clear();
        for (line, wanted) in pieces(command.sector, command.sectors, self.shift) {
            lines += 1;
            let mut slot = self.directory.find(line);
            match slot {
                Some(slot) => self.directory.touch(slot),
                None if copy => {
                    inserted = true;
                    self.make_room(now);
                    slot = Some(self.directory.insert(line));
                }
                None => {}
            }
            let valid = slot.map_or(0, |slot| self.directory.valid(slot));
            here += (wanted & valid).count_ones();
            if wanted & !valid == 0 {
                hits += 1;
                self.await_fetch(line, slot);
                continue;
            }
            let whole = if self.options.whole_lines && copy { self.line_mask(line) } else { wanted };
            let fetched = cover(whole & !valid);
            append(&mut self.missing, u64::from(line) << self.shift, fetched, 0);
            if let (true, Some(slot)) = (copy, slot) {
                self.directory.add_valid(slot, fetched);
            }
        }
        let counters = &mut self.counters;
        counters.reads += 1;
        counters.read_hits += u64::from(hits == lines);
        counters.read_lines += lines;
        counters.read_line_hits += hits;
        counters.host_read_sectors += u64::from(command.sectors);
        self.begin_read(now, command.tag, here, copy, inserted);
    }

    /// A read that hits sectors that are still being fetched waits for them.
    fn await_fetch(&mut self, line: u32, slot: Option<u32>) {
        if slot.is_some_and(|slot| self.directory.is_fetching(slot))
            && let Some(&flight) = self.fetches.get(&line)
            && self.awaited.last() != Some(&flight)
        {
            self.awaited.push(flight);
        }
    }

    /// Begins the parts of a read: `here` sectors from the cache, the missing ones from below, and
    /// waits for fetches.
    fn begin_read(&mut self, now: Nanos, tag: u64, here: u32, copy: bool, inserted: bool) {
        if self.missing.is_empty() && self.awaited.is_empty() {
            self.events.in_order(ACCESSES, self.memory.access(now, here), Event::Done(tag));
            return;
        }
        let left = self.missing.len() + self.awaited.len() + usize::from(here > 0);
        let command = self.commands.insert(Parts { tag, left });
        if here > 0 {
            self.events.in_order(ACCESSES, self.memory.access(now, here), Event::Part(command));
        }
        for &flight in &self.awaited {
            if let Flight::Fetch { waiters, .. } = &mut self.flights[flight] {
                waiters.push(command);
            }
        }
        let waits = inserted && self.is_over_full();
        self.counters.waited += u64::from(waits);
        for at in 0..self.missing.len() {
            let flight = self.fetch(command, self.missing[at], copy);
            match waits {
                true => self.waiting.push_back(Waiting::Fetch { flight }),
                false => self.begin_fetch(now, flight),
            }
        }
    }

    /// The sectors of `line` that exist.
    fn line_mask(&self, line: u32) -> u32 {
        let first = u64::from(line) << self.shift;
        let count = (self.below.sectors() - first).min(1 << self.shift);
        u32::MAX >> (32 - count as u32)
    }

    fn trim(&mut self, now: Nanos, command: Command) {
        for (line, sectors) in pieces(command.sector, command.sectors, self.shift) {
            if let Some(slot) = self.directory.find(line) {
                self.counters.unsafe_sectors -= u64::from(self.directory.forget(slot, sectors));
                if self.directory.valid(slot) == 0 {
                    self.directory.remove(slot);
                }
            }
        }
        let tag = self.flights.insert(Flight::Trim { tag: command.tag }) as u64;
        self.submit_below(now, Command { tag, ..command });
    }

    fn part(&mut self, now: Nanos, command: usize, done: &mut Vec<Done>) {
        let parts = &mut self.commands[command];
        parts.left -= 1;
        if parts.left == 0 {
            let Parts { tag, .. } = self.commands.remove(command);
            done.push(Done { tag, time: now });
        }
    }

    /// The cache's own next event.
    fn own_step(&mut self, done: &mut Vec<Done>) {
        let Some((now, event)) = self.events.pop() else { return };
        match event {
            Event::Done(tag) => done.push(Done { tag, time: now }),
            Event::Part(command) => self.part(now, command, done),
            Event::Below(tag) => self.ended.push(Done { tag, time: now }),
            Event::Flush => self.flush(now),
        }
        self.settle(now, done);
    }
}

impl<D: Device> Device for Cache<D> {
    fn sectors(&self) -> u64 {
        self.below.sectors()
    }

    fn submit(&mut self, now: Nanos, command: Command, done: &mut Vec<Done>) {
        let end = command.sector + u64::from(command.sectors);
        assert!(end <= self.sectors() && command.sectors > 0, "{command:?} is beyond the device");
        match command.operation {
            Operation::Write => self.write(now, command),
            Operation::Read => self.read(now, command),
            Operation::Trim => self.trim(now, command),
        }
        self.settle(now, done);
    }

    fn foresee(&self, commands: &[Command]) {
        let mut lines = [0; Directory::FORESEEN];
        let mut count = 0;
        for command in commands {
            // The first and the last line of a command: most commands have no others, and many have
            // only one.
            let end = command.sector + u64::from(command.sectors.max(1)) - 1;
            let (first, last) = ((command.sector >> self.shift) as u32, (end >> self.shift) as u32);
            if count + 2 > lines.len() {
                self.directory.foresee(&lines[..count]);
                count = 0;
            }
            lines[count] = first;
            count += 1;
            if last != first {
                lines[count] = last;
                count += 1;
            }
        }
        self.directory.foresee(&lines[..count]);
    }

    fn next_time(&self) -> Option<Nanos> {
        match (self.events.next_time(), self.below_time) {
            (Some(own), Some(below)) => Some(own.min(below)),
            (own, below) => own.or(below),
        }
    }

    fn step(&mut self, done: &mut Vec<Done>) {
        let below = self.below_time;
        if self.events.next_time().is_some_and(|own| below.is_none_or(|below| own <= below)) {
            return self.own_step(done);
        }
        if let Some(now) = below {
            self.below.step(&mut self.ended);
            self.below_time = self.below.next_time();
            self.settle(now, done);
        }
    }
}
