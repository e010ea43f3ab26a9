//! Scheduling: what a die does next, and how long that takes.
//!
//! The end of a transfer over a channel is known when it is requested, so it needs an event only if
//! the die waits for it.

use terapage_event::Nanos;

use crate::buffer::NONE;
use crate::die::{Phase, Read, Reader, Suspended};
use crate::ssd::{Event, Ssd};

/// The number of waiting reads that are searched for one that another plane can do at the same
/// time.
const PARTNERS_WITHIN: usize = 16;
/// A program or an erase is suspended at most this many times.
const SUSPENSIONS_MAX: u32 = 8;

impl Ssd {
    pub(crate) fn enqueue_read(&mut self, die: u32, read: Read) -> u32 {
        let at = self.reads.insert(read) as u32;
        let waiting = &mut self.dies[die as usize].waiting;
        match std::mem::replace(&mut waiting.tail, at) {
            NONE => waiting.head = at,
            tail => self.reads[tail as usize].next = at,
        }
        at
    }

    /// A read waits for the die ([`NONE`]: nothing to do).
    pub(crate) fn wake(&mut self, now: Nanos, die: u32) {
        if die == NONE {
            return;
        }
        self.dies[die as usize].idle_collects = false;
        match self.dies[die as usize].phase {
            Phase::Idle => self.next_operation(now, die),
            Phase::Programming if self.config.suspend => {
                self.suspend(now, die, self.config.nand.program_suspend_ns);
            }
            Phase::Erasing if self.config.suspend => {
                self.suspend(now, die, self.config.nand.erase_suspend_ns);
            }
            _ => {}
        }
    }

    /// Lets idle dies program units that wait in the buffer, in turn.
    pub(crate) fn pump(&mut self, now: Nanos) {
        let mut tried = 0;
        while self.idle_dies > 0 && tried < self.geometry.dies && self.has_program(now) {
            let die = self.next_die;
            self.next_die = if die + 1 == self.geometry.dies { 0 } else { die + 1 };
            tried += 1;
            let state = &self.dies[die as usize];
            let free = state.phase == Phase::Idle && state.suspended.is_none();
            if free && self.program_or_collect(now, die) {
                tried = 0;
            }
        }
        self.arm_flush(now);
    }

    pub(crate) fn has_program(&self, now: Nanos) -> bool {
        let whole = self.geometry.program_slots;
        self.waiting.iter().any(|part| part.len >= whole) || self.flush_is_due(now)
    }

    /// Gives an idle die its next work. Reads come first, then suspended operations, then programs
    /// and erases. After `read_burst` reads in a row, the others come first once.
    pub(crate) fn next_operation(&mut self, now: Nanos, die: u32) {
        let state = &mut self.dies[die as usize];
        let reads = state.waiting.head != NONE;
        if reads && state.reads_in_a_row < self.config.read_burst {
            return self.sense(now, die);
        }
        state.reads_in_a_row = 0;
        if state.suspended.is_some() {
            self.resume(now, die);
        } else if !self.program_or_collect(now, die) && reads {
            self.sense(now, die);
        }
    }

    pub(crate) fn die_event(&mut self, now: Nanos, die: u32, generation: u16) {
        if self.dies[die as usize].generation != generation {
            return;
        }
        match self.dies[die as usize].phase {
            Phase::Idle => {}
            Phase::Sensing => self.send(now, die),
            Phase::Sending => self.sent(now, die),
            Phase::GcSensing => self.gc_send(now, die),
            Phase::GcSending => {
                self.rest(now, die);
                self.gc_sent(now, die);
                self.next_operation(now, die);
            }
            Phase::Programming => {
                self.rest(now, die);
                self.programmed(now, die);
                self.continue_stalled(now);
                self.go_on(now, die);
            }
            Phase::Erasing => {
                self.rest(now, die);
                self.erased(die);
                self.next_operation(now, die);
            }
            Phase::Suspending => {
                self.rest(now, die);
                self.next_operation(now, die);
            }
        }
    }

    /// The die begins `phase`, which ends, or turns into another phase, at `end`.
    pub(crate) fn occupy(&mut self, now: Nanos, die: u32, phase: Phase, end: Nanos) {
        let state = &mut self.dies[die as usize];
        if state.phase == Phase::Idle {
            state.busy_since = now;
            self.idle_dies -= 1;
        }
        state.phase = phase;
        let generation = state.generation;
        self.events.at(end, Event::Die { die: die as u16, generation });
    }

    /// The die has finished its phase.
    fn rest(&mut self, now: Nanos, die: u32) {
        let state = &mut self.dies[die as usize];
        state.phase = Phase::Idle;
        state.busy_ns += now - state.busy_since;
        self.idle_dies += 1;
        if self.rests {
            self.watch_idle(now, die);
        }
    }

    /// The completion may already have given work to this die or another one.
    fn go_on(&mut self, now: Nanos, die: u32) {
        if self.dies[die as usize].phase == Phase::Idle {
            self.next_operation(now, die);
        }
        self.pump(now);
    }

    /// Keeps the channel of `die` busy for commands to `planes` planes and `bytes` of data. Returns
    /// the end.
    pub(crate) fn transfer(&mut self, now: Nanos, die: u32, planes: u32, bytes: u64) -> Nanos {
        let command = self.config.nand.command_ns * u64::from(planes);
        let data = self.bus_times.of(bytes);
        self.channels[self.geometry.channel_of(die) as usize].reserve(now, command, data)
    }

    pub(crate) fn read_ns(&self, slot: u32) -> Nanos {
        match self.config.nand.slc {
            Some(slc) if self.geometry.is_slc(self.geometry.block_of(slot)) => slc.read_ns,
            _ => self.by_page_type(&self.config.nand.read_ns, slot),
        }
    }

    /// The entry of `times` for the type of the page with `slot`.
    pub(crate) fn by_page_type(&self, times: &[Nanos], slot: u32) -> Nanos {
        if times.len() == 1 { times[0] } else { times[self.geometry.page_of(slot) as usize % times.len()] }
    }

    /// Begins the first waiting read, and with it reads of the same page in other planes.
    fn sense(&mut self, now: Nanos, die: u32) {
        let state = &mut self.dies[die as usize];
        let first = state.waiting.head;
        let slot = self.reads[first as usize].slot;
        state.waiting.head = std::mem::replace(&mut self.reads[first as usize].next, NONE);
        if state.waiting.head == NONE {
            state.waiting.tail = NONE;
        }
        (state.current.head, state.current.tail) = (first, first);
        state.reads_in_a_row += 1;
        let planes = 1 + if self.geometry.planes > 1 { self.take_partners(die, slot) } else { 0 };
        let sensing = self.transfer(now, die, planes, 0);
        self.occupy(now, die, Phase::Sensing, sensing + self.read_ns(slot));
    }

    /// Moves waiting reads that other planes can do together with the read of `slot` to the reads
    /// that are executed now.
    fn take_partners(&mut self, die: u32, slot: u32) -> u32 {
        let geometry = self.geometry;
        let row = slot / geometry.row_slots;
        let page_in_plane = slot % geometry.program_slots / geometry.page_units;
        let plane = |slot: u32| slot % geometry.row_slots / geometry.program_slots;
        let mut planes = 1u32 << plane(slot);
        let state = &mut self.dies[die as usize];
        let (mut previous, mut at) = (NONE, state.waiting.head);
        for _ in 0..PARTNERS_WITHIN {
            if at == NONE {
                break;
            }
            let Read { slot, next, .. } = self.reads[at as usize];
            let fits = slot / geometry.row_slots == row
                && slot % geometry.program_slots / geometry.page_units == page_in_plane
                && planes & 1 << plane(slot) == 0;
            if !fits {
                (previous, at) = (at, next);
                continue;
            }
            planes |= 1 << plane(slot);
            match previous {
                NONE => state.waiting.head = next,
                previous => self.reads[previous as usize].next = next,
            }
            if next == NONE {
                state.waiting.tail = previous;
            }
            self.reads[at as usize].next = NONE;
            self.reads[state.current.tail as usize].next = at;
            state.current.tail = at;
            at = next;
        }
        planes.count_ones() - 1
    }

    /// Sends the first page in the registers over the channel.
    fn send(&mut self, now: Nanos, die: u32) {
        let read = self.dies[die as usize].current.head;
        let end = self.transfer(now, die, 0, u64::from(self.reads[read as usize].channel_bytes));
        self.occupy(now, die, Phase::Sending, end);
    }

    fn sent(&mut self, now: Nanos, die: u32) {
        let at = self.dies[die as usize].current.head;
        let read = self.reads.remove(at as usize);
        self.dies[die as usize].current.head = read.next;
        if read.next != NONE {
            self.send(now, die);
        } else {
            self.rest(now, die);
        }
        match read.reader {
            Reader::Command(command) => {
                self.counters.nand_host_reads += 1;
                let delivered = self.entrance.deliver(now, u64::from(read.host_bytes));
                self.active[command as usize].delivered = delivered;
                self.piece_ended(now, command);
            }
            Reader::Entry(entry) => {
                self.counters.nand_fill_reads += 1;
                self.filled(now, entry);
            }
        }
        if self.dies[die as usize].phase == Phase::Idle {
            self.next_operation(now, die);
        }
    }

    fn suspend(&mut self, now: Nanos, die: u32, latency_ns: Nanos) {
        let state = &mut self.dies[die as usize];
        let from = now.max(state.array.0);
        if state.suspensions == SUSPENSIONS_MAX || state.array.1 <= from + latency_ns {
            return;
        }
        state.suspensions += 1;
        state.suspended = Some(Suspended { phase: state.phase, remaining_ns: state.array.1 - from });
        state.generation = state.generation.wrapping_add(1);
        self.counters.suspensions += 1;
        self.occupy(now, die, Phase::Suspending, from + latency_ns);
    }

    fn resume(&mut self, now: Nanos, die: u32) {
        if let Some(Suspended { phase, remaining_ns }) = self.dies[die as usize].suspended.take() {
            self.dies[die as usize].array = (now, now + remaining_ns);
            self.occupy(now, die, phase, now + remaining_ns);
        }
    }
}
