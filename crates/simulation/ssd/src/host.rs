//! The work of commands: reads, writes into the buffer, trims.

use std::hint::black_box;

use terapage_event::Nanos;

use crate::buffer::{List, NONE, Stage};
use crate::device::Command;
use crate::die::{Read, Reader};
use crate::map::Place;
use crate::ssd::{Active, Event, SECTOR_BYTES, Ssd};

/// The number of commands that are looked up together.
const FORESEEN: usize = 16;

impl Ssd {
    pub(crate) fn begin_read(&mut self, now: Nanos, command: u32) {
        let (from, to) = self.active[command as usize].bytes;
        let unit_bytes = u64::from(self.geometry.unit_bytes);
        let mut at_once = 0;
        // The last read, and its page: neighbouring units of one page are one read.
        let mut last = (NONE, NONE);
        let mut die = NONE;
        for unit in from / unit_bytes..to.div_ceil(unit_bytes) {
            let start = unit * unit_bytes;
            let (low, high) = (from.max(start) - start, to.min(start + unit_bytes) - start);
            let slot = match self.map.place(unit as u32) {
                Place::Slot(slot) => slot,
                // A page that is still being filled counts as present.
                Place::Entry(_) => {
                    self.counters.buffer_hits += 1;
                    at_once += high - low;
                    continue;
                }
                Place::Nowhere => {
                    self.counters.unmapped_reads += 1;
                    at_once += high - low;
                    continue;
                }
            };
            let codeword = u64::from(self.config.codeword_bytes);
            let span = (high.next_multiple_of(codeword) - low / codeword * codeword) as u32;
            let page = slot / self.geometry.page_units;
            if last.0 == page {
                let read = &mut self.reads[last.1 as usize];
                read.channel_bytes = (read.channel_bytes + span).min(self.geometry.page_bytes);
                read.host_bytes += (high - low) as u32;
                continue;
            }
            let of = self.geometry.die_of(self.geometry.block_of(slot));
            if die != of {
                // All reads for the previous die are known now, so its planes can work together.
                self.wake(now, die);
                die = of;
            }
            self.active[command as usize].remaining += 1;
            let channel_bytes = span.min(self.geometry.page_bytes);
            let reader = Reader::Command(command);
            let read = Read { slot, channel_bytes, host_bytes: (high - low) as u32, reader, next: NONE };
            last = (page, self.enqueue_read(die, read));
        }
        if at_once > 0 {
            self.active[command as usize].delivered = self.entrance.deliver(now, at_once);
        }
        self.wake(now, die);
        self.piece_ended(now, command);
    }

    /// Loads the parts of the mapping that `commands` will need into the processor's caches: units,
    /// their slots, and their blocks with neighbours, each for all commands together.
    pub(crate) fn look_ahead(&self, commands: &[Command]) {
        let unit =
            |command: &Command| (command.sector * SECTOR_BYTES / u64::from(self.geometry.unit_bytes)) as u32;
        for some in commands.chunks(FORESEEN) {
            let mut slots = [None; FORESEEN];
            for (slot, command) in slots.iter_mut().zip(some) {
                *slot = self.map.guess_slot(unit(command));
            }
            let mut blocks = [None; FORESEEN];
            let mut sum = 0u32;
            for (block, slot) in blocks.iter_mut().zip(slots) {
                *block = slot.map(|slot| self.geometry.block_of(slot));
                sum = sum.wrapping_add(slot.map_or(0, |slot| self.map.unit_in(slot).unwrap_or(0)));
            }
            let neighbours = blocks.iter().flatten().map(|&block| self.blocks.look_up_neighbours(block));
            black_box(neighbours.fold(sum, u32::wrapping_add));
        }
    }

    pub(crate) fn begin_write(&mut self, now: Nanos, command: u32) {
        if !self.stalled.is_empty() || !self.continue_write(now, command) {
            self.stalled.push_back(command);
        }
        self.pump(now);
    }

    /// Lets writes continue that waited for room in the buffer.
    pub(crate) fn continue_stalled(&mut self, now: Nanos) {
        while let Some(&command) = self.stalled.front() {
            if self.buffer_room == 0 || !self.continue_write(now, command) {
                return;
            }
            self.stalled.pop_front();
        }
    }

    /// Puts units of a write into the buffer while there is room. Whether all are in.
    fn continue_write(&mut self, now: Nanos, command: u32) -> bool {
        let unit_bytes = u64::from(self.geometry.unit_bytes);
        loop {
            let &Active { bytes, unit, .. } = &self.active[command as usize];
            let start = u64::from(unit) * unit_bytes;
            if start >= bytes.1 {
                self.piece_ended(now, command);
                return true;
            }
            let whole = bytes.0 <= start && start + unit_bytes <= bytes.1;
            let Some(entry) = self.buffer_unit(now, unit, whole) else { return false };
            self.counters.host_units += 1;
            #[cfg(test)]
            self.ledger.written(&mut self.buffer, unit, entry);
            if !self.acknowledges_early() {
                self.buffer.wait(entry, command);
                self.active[command as usize].remaining += 1;
            }
            self.active[command as usize].unit += 1;
        }
    }

    /// Creates an entry for `unit` in the buffer, if there is room. If only a part is written (not
    /// `whole`) and the rest is in the flash, the rest is read first.
    fn buffer_unit(&mut self, now: Nanos, unit: u32, whole: bool) -> Option<u32> {
        let place = self.map.place(unit);
        if let Place::Entry(entry) = place
            && matches!(self.buffer.entry(entry).stage, Stage::Waiting | Stage::Filling)
        {
            return Some(entry);
        }
        if self.buffer_room == 0 {
            return None;
        }
        self.buffer_room -= 1;
        let fill = match place {
            Place::Slot(slot) if !whole => Some(slot),
            _ => None,
        };
        self.forget(now, unit);
        let stage = if fill.is_some() { Stage::Filling } else { Stage::Waiting };
        let entry = self.buffer.insert(unit, stage, now);
        self.map.put_in_entry(unit, entry);
        match fill {
            Some(slot) => {
                let die = self.geometry.die_of(self.geometry.block_of(slot));
                let channel_bytes = self.geometry.unit_bytes;
                let reader = Reader::Entry(entry);
                self.enqueue_read(die, Read { slot, channel_bytes, host_bytes: 0, reader, next: NONE });
                self.wake(now, die);
            }
            None => self.wait(unit, entry),
        }
        Some(entry)
    }

    /// The entry of a unit can be programmed.
    fn wait(&mut self, unit: u32, entry: u32) {
        let part = self.part_of(unit);
        self.buffer.push(&mut self.waiting[part], entry);
    }

    /// The part of the capacity in which a unit lies.
    fn part_of(&self, unit: u32) -> usize {
        if self.parts.is_empty() { 0 } else { self.parts.partition_point(|first| *first <= unit) }
    }

    /// The rest of a partly written unit has been read.
    pub(crate) fn filled(&mut self, now: Nanos, entry: u32) {
        if self.buffer.entry(entry).stage == Stage::Leaving {
            self.drop_entry(now, entry);
            self.buffer_room += 1;
            self.continue_stalled(now);
        } else {
            let filled = self.buffer.entry_mut(entry);
            (filled.stage, filled.arrived) = (Stage::Waiting, now);
            let unit = filled.unit;
            self.wait(unit, entry);
        }
        self.pump(now);
    }

    pub(crate) fn trim(&mut self, now: Nanos, command: u32) {
        let (from, to) = self.active[command as usize].bytes;
        let unit_bytes = u64::from(self.geometry.unit_bytes);
        // Units that are trimmed only in part stay.
        for unit in from.div_ceil(unit_bytes)..to / unit_bytes {
            self.forget(now, unit as u32);
            self.map.put_nowhere(unit as u32);
            #[cfg(test)]
            self.ledger.trimmed(unit as u32);
        }
        self.continue_stalled(now);
        self.pump(now);
        self.piece_ended(now, command);
    }

    /// Invalidates the present place of `unit`; the caller maps it again.
    fn forget(&mut self, now: Nanos, unit: u32) {
        match self.map.place(unit) {
            Place::Nowhere => {}
            Place::Slot(slot) => self.lose_slot(slot),
            Place::Entry(entry) => match self.buffer.entry(entry).stage {
                Stage::Waiting => {
                    let part = self.part_of(unit);
                    self.buffer.unlink(&mut self.waiting[part], entry);
                    self.drop_entry(now, entry);
                    self.buffer_room += 1;
                }
                Stage::Moving { die } => {
                    self.buffer.unlink(&mut self.dies[die as usize].moving, entry);
                    self.drop_entry(now, entry);
                }
                Stage::Filling => self.buffer.entry_mut(entry).stage = Stage::Leaving,
                Stage::Leaving => {}
            },
        }
    }

    pub(crate) fn lose_slot(&mut self, slot: u32) {
        let block = self.geometry.block_of(slot);
        self.map.empty_slot(slot);
        self.blocks.lose(block);
        self.dies[self.geometry.die_of(block) as usize].valid -= 1;
    }

    /// Removes an entry that is in no list, and lets commands continue that waited for it.
    pub(crate) fn drop_entry(&mut self, now: Nanos, entry: u32) {
        let mut next = self.buffer.remove(entry).waiters;
        while next != NONE {
            let waiter = self.buffer.take_waiter(next);
            self.piece_ended(now, waiter.command);
            next = waiter.next;
        }
    }

    pub(crate) fn flush(&mut self, now: Nanos) {
        self.flush_armed = false;
        self.pump(now);
    }

    /// Whether the first waiting unit has waited so long that it must be programmed with padding.
    pub(crate) fn flush_is_due(&self, now: Nanos) -> bool {
        self.flush_at().is_some_and(|time| time <= now)
    }

    fn flush_at(&self) -> Option<Nanos> {
        let after = self.config.flush_after_ns?;
        let first = (0..self.waiting.len() as u32).filter_map(|part| self.arrival(part)).min()?;
        Some(first.saturating_add(after))
    }

    /// When the first waiting entry of a part came.
    pub(crate) fn arrival(&self, part: u32) -> Option<Nanos> {
        let List { head, len, .. } = self.waiting[part as usize];
        (len > 0).then(|| self.buffer.entry(head).arrived)
    }

    pub(crate) fn arm_flush(&mut self, now: Nanos) {
        if let Some(time) = self.flush_at()
            && time > now
            && !self.flush_armed
        {
            self.flush_armed = true;
            self.events.at(time, Event::Flush);
        }
    }
}
