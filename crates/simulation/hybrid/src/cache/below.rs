//! The commands of a cache to the device below.

use terapage_event::Nanos;
use terapage_ssd::{Command, Device, Done, Operation};

use super::{ACCESSES, Cache, Event, Flight, Run, Waiting, append};
use crate::directory::Left;

impl<D: Device> Cache<D> {
    /// If the free lines are at or below the low-water mark, evicts lines until the high-water mark
    /// is reached.
    pub(super) fn make_room(&mut self, now: Nanos) {
        if self.free_lines() > self.marks.low {
            return;
        }
        while self.free_lines() <= self.marks.low || self.free_lines() < self.marks.high {
            let Some(left) = self.directory.pop() else { return };
            self.counters.evicted += 1;
            match left.dirty {
                0 => self.counters.dropped += 1,
                _ => self.write_back(now, left, 1),
            }
        }
    }

    /// Writes the dirty sectors in the unit of `line` below. The neighbours stay, and become clean.
    /// `lines` is 1 if the line has left the directory, so that its room is free at the end of the
    /// write, and 0 if it stays.
    fn write_back(&mut self, now: Nanos, line: Left, lines: usize) {
        self.collect(line);
        let (mut sectors, mut dirty) = (0, 0);
        for run in &self.runs {
            sectors += run.sectors;
            dirty += run.dirty;
        }
        self.counters.below_written_sectors += u64::from(sectors);
        self.counters.below_writes += self.runs.len() as u64;
        self.counters.padded_sectors += u64::from(sectors - dirty);
        // The memory is read during the write below.
        self.memory.access(now, sectors);
        self.leaving += lines;
        let flight = Flight::Write { left: self.runs.len(), lines, dirty: u64::from(dirty) };
        let tag = self.flights.insert(flight) as u64;
        for at in 0..self.runs.len() {
            let Run { sector, sectors, .. } = self.runs[at];
            self.submit_below(now, Command { tag, operation: Operation::Write, sector, sectors });
        }
    }

    /// Collects in `runs` the sectors to be written with `line`.
    fn collect(&mut self, line: Left) {
        self.runs.clear();
        let unit_lines = self.options.evict_bytes / self.options.line_bytes;
        let first = line.line - line.line % unit_lines;
        for other in first..first.saturating_add(unit_lines) {
            let (valid, dirty) = if other == line.line {
                (line.valid, line.dirty)
            } else if let Some(slot) = self.directory.find(other) {
                let dirty = self.directory.dirty(slot);
                self.counters.cleaned += u64::from(dirty != 0);
                self.directory.clean(slot);
                (self.directory.valid(slot), dirty)
            } else {
                continue;
            };
            let written = if self.options.pad { valid } else { dirty };
            append(&mut self.runs, u64::from(other) << self.shift, written, dirty);
        }
        self.runs.retain(|run| run.dirty > 0);
    }

    /// Makes the fetch that will bring `run` for `command`.
    pub(super) fn fetch(&mut self, command: usize, run: Run, copy: bool) -> usize {
        let flight = self.flights.insert(Flight::Fetch { command, run, copy, waiters: Vec::new() });
        if copy {
            for line in run.sector >> self.shift..=(run.end() - 1) >> self.shift {
                if let Some(slot) = self.directory.find(line as u32) {
                    self.directory.set_fetching(slot, true);
                    self.fetches.insert(line as u32, flight);
                }
            }
        }
        flight
    }

    pub(super) fn begin_fetch(&mut self, now: Nanos, flight: usize) {
        let Flight::Fetch { run, .. } = &self.flights[flight] else { return };
        self.counters.below_reads += 1;
        self.counters.below_read_sectors += u64::from(run.sectors);
        let (sector, sectors) = (run.sector, run.sectors);
        let command = Command { tag: flight as u64, operation: Operation::Read, sector, sectors };
        self.submit_below(now, command);
    }

    pub(super) fn submit_below(&mut self, now: Nanos, command: Command) {
        self.below.submit(now, command, &mut self.ended);
        self.below_time = self.below.next_time();
    }

    /// Handles the commands that have ended below.
    #[inline]
    pub(super) fn settle(&mut self, now: Nanos, done: &mut Vec<Done>) {
        let mut at = 0;
        while let Some(&end) = self.ended.get(at) {
            at += 1;
            if end.time > now {
                self.events.at(end.time, Event::Below(end.tag));
            } else {
                self.landed(now, end.tag as usize, done);
            }
        }
        self.ended.clear();
    }

    fn landed(&mut self, now: Nanos, flight: usize, done: &mut Vec<Done>) {
        match &mut self.flights[flight] {
            Flight::Write { left, .. } if *left > 1 => *left -= 1,
            Flight::Write { lines, dirty, .. } => {
                self.leaving -= *lines;
                self.counters.unsafe_sectors -= *dirty;
                self.flights.remove(flight);
                self.admit(now);
            }
            Flight::Trim { tag } => {
                done.push(Done { tag: *tag, time: now });
                self.flights.remove(flight);
            }
            Flight::Fetch { .. } => self.fetched(now, flight, done),
        }
    }

    fn fetched(&mut self, now: Nanos, flight: usize, done: &mut Vec<Done>) {
        let Flight::Fetch { command, run, copy, waiters } = self.flights.remove(flight) else { return };
        if copy {
            self.memory.access(now, run.sectors);
            for line in run.sector >> self.shift..=(run.end() - 1) >> self.shift {
                let line = line as u32;
                if self.fetches.get(&line) == Some(&flight) {
                    self.fetches.remove(&line);
                    if let Some(slot) = self.directory.find(line) {
                        self.directory.set_fetching(slot, false);
                    }
                }
            }
        }
        self.part(now, command, done);
        for waiter in waiters {
            self.part(now, waiter, done);
        }
    }

    /// Lets commands continue that waited for room, while there is any.
    fn admit(&mut self, now: Nanos) {
        while !self.is_over_full() {
            match self.waiting.pop_front() {
                Some(Waiting::Write { command, sectors }) => {
                    self.events.in_order(ACCESSES, self.memory.access(now, sectors), Event::Part(command));
                }
                Some(Waiting::Fetch { flight }) => self.begin_fetch(now, flight),
                None => return,
            }
        }
    }

    /// Remembers that `line` has become dirty.
    pub(super) fn age(&mut self, now: Nanos, line: u32) {
        if self.aging.is_empty() {
            self.events.at(now + self.options.flush_after_ns, Event::Flush);
        }
        self.aging.push_back((now, line));
    }

    /// Writes lines below that have been dirty for long enough.
    pub(super) fn flush(&mut self, now: Nanos) {
        while let Some(&(since, line)) = self.aging.front() {
            let due = since + self.options.flush_after_ns;
            if due > now {
                self.events.at(due, Event::Flush);
                return;
            }
            self.aging.pop_front();
            let Some(slot) = self.directory.find(line) else { continue };
            let (valid, dirty) = (self.directory.valid(slot), self.directory.dirty(slot));
            if dirty != 0 {
                self.directory.clean(slot);
                self.counters.cleaned += 1;
                self.write_back(now, Left { line, valid, dirty }, 0);
            }
        }
    }
}
