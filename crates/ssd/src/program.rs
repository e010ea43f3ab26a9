//! Programs, and the collection of blocks that makes room for them.

use terapage_event::Nanos;

use crate::buffer::{List, NONE, Stage};
use crate::die::{Collection, Open, Phase, Program};
use crate::map::Place;
use crate::ssd::Ssd;

/// Fewer free blocks than this, and one is collected. The last one is not the host's.
const FREE_BLOCKS: u32 = 2;

impl Ssd {
    /// Begins a program or an erase on an idle die, or a read of the garbage collection. Says whether there was something
    /// to do. The collection keeps step with the host's programs, and goes ahead only when they wait for it.
    pub(crate) fn program_or_collect(&mut self, now: Nanos, die: u32) -> bool {
        let collecting = self.collection_is_due(die);
        if collecting && self.collection_is_behind(die) {
            return self.collect(now, die);
        }
        if !self.has_program(now) {
            return false;
        }
        self.program_host(now, die) || collecting && self.collect(now, die)
    }

    /// Whether a block of the die is being collected; begins with one when blocks get few.
    fn collection_is_due(&mut self, die: u32) -> bool {
        if self.dies[die as usize].collection.is_some() {
            return true;
        }
        if self.blocks.free_count(die) >= FREE_BLOCKS {
            return false;
        }
        let Some(victim) = self.blocks.take_victim(die, self.config.gc) else { return false };
        let valid = self.blocks.valid(victim);
        self.dies[die as usize].collection =
            Some(Collection { victim, page: 0, units: 0, valid, moved: 0, host_slots: 0 });
        true
    }

    /// Whether the collection has moved a smaller part of its block than the host has used of the room that it will give.
    fn collection_is_behind(&self, die: u32) -> bool {
        let Some(collection) = self.dies[die as usize].collection else { return false };
        let gain = u64::from(self.geometry.block_slots - collection.valid);
        u64::from(collection.host_slots) * u64::from(collection.valid) > u64::from(collection.moved) * gain
    }

    fn program_host(&mut self, now: Nanos, die: u32) -> bool {
        let state = &self.dies[die as usize];
        let in_row = self.left_in_row(state.host);
        let whole = self.waiting.len - self.waiting.len % self.geometry.program_slots;
        // Less than a write unit: it is due, or this would not have been called.
        let count = if whole == 0 { self.waiting.len } else { whole.min(in_row) };
        if state.valid + state.moving.len + count > self.geometry.die_units_max {
            return false;
        }
        let Some(open) = state.host.or_else(|| self.open(die, FREE_BLOCKS)) else { return false };
        let state = &mut self.dies[die as usize];
        state.host = Some(open);
        let entries = self.buffer.take(&mut self.waiting, count);
        let slots = self.program(now, die, open, entries, false);
        if let Some(collection) = &mut self.dies[die as usize].collection {
            collection.host_slots += slots;
        }
        self.arm_flush(now);
        true
    }

    fn left_in_row(&self, open: Option<Open>) -> u32 {
        self.geometry.row_slots - open.map_or(0, |open| open.used % self.geometry.row_slots)
    }

    fn open(&mut self, die: u32, free: u32) -> Option<Open> {
        if self.blocks.free_count(die) < free {
            return None;
        }
        self.blocks.open(die).map(|block| Open { block, used: 0 })
    }

    /// Programs `entries` into the next slots of `open`; gives how many slots that takes.
    fn program(&mut self, now: Nanos, die: u32, open: Open, entries: List, collected: bool) -> u32 {
        let planes = entries.len.div_ceil(self.geometry.program_slots);
        let slots = planes * self.geometry.program_slots;
        let first_slot = self.geometry.first_slot(open.block) + open.used;
        let bytes = u64::from(slots) * u64::from(self.geometry.unit_bytes);
        let loaded = self.transfer(now, die, planes, bytes);
        let times = &self.config.nand.program_ns;
        let time = times[self.geometry.page_of(first_slot) as usize % times.len()];
        let state = &mut self.dies[die as usize];
        state.program = Program { first_slot, slots, entries, collected };
        state.array = (loaded, loaded + time);
        state.suspensions = 0;
        self.occupy(now, die, Phase::Programming, loaded + time);
        slots
    }

    pub(crate) fn programmed(&mut self, now: Nanos, die: u32) {
        let Program { first_slot, slots, entries, collected } = self.dies[die as usize].program;
        let block = self.geometry.block_of(first_slot);
        let (mut entry, mut slot) = (entries.head, first_slot);
        while entry != NONE {
            let unit = self.buffer.entry(entry).unit;
            if self.map.place(unit) == Place::Entry(entry) {
                self.map.put_in_slot(unit, slot);
                self.blocks.gain(block);
                self.dies[die as usize].valid += 1;
                #[cfg(test)]
                self.ledger.programmed(slot, self.buffer.entry(entry).version);
            }
            let next = self.buffer.entry(entry).next;
            self.drop_entry(now, entry);
            (entry, slot) = (next, slot + 1);
        }
        self.count_program(slots, entries.len, collected);
        let state = &mut self.dies[die as usize];
        let open = if collected { &mut state.collected } else { &mut state.host };
        if let Some(written) = open {
            written.used += slots;
            if written.used == self.geometry.block_slots {
                *open = None;
                self.blocks.close(block);
            }
        }
    }

    fn count_program(&mut self, slots: u32, units: u32, collected: bool) {
        let counters = &mut self.counters;
        let pages = u64::from(slots / self.geometry.page_units);
        counters.nand_programs += pages;
        counters.padded_units += u64::from(slots - units);
        if collected {
            counters.nand_gc_programs += pages;
            counters.gc_moved_units += u64::from(units);
        } else {
            counters.host_units_programmed += u64::from(units);
            self.buffer_room += units;
            self.blocks.age(u64::from(units));
        }
    }

    /// The next step of the collection: programs what fills all planes, or reads the next page, or erases.
    fn collect(&mut self, now: Nanos, die: u32) -> bool {
        let state = &self.dies[die as usize];
        let in_row = self.left_in_row(state.collected);
        if state.moving.len >= in_row {
            let Some(open) = state.collected.or_else(|| self.open(die, 1)) else { return false };
            self.dies[die as usize].collected = Some(open);
            let mut moving = self.dies[die as usize].moving;
            let entries = self.buffer.take(&mut moving, in_row);
            self.dies[die as usize].moving = moving;
            self.program(now, die, open, entries, true);
            return true;
        }
        let Some(mut collection) = state.collection else { return false };
        while collection.page < self.geometry.pages_per_block() {
            let (planes, units) = self.valid_in_page(collection.victim, collection.page);
            if units > 0 {
                collection.units = units;
                self.dies[die as usize].collection = Some(collection);
                self.counters.nand_gc_reads += u64::from(planes);
                let sensing = self.transfer(now, die, planes, 0);
                let slot = self.geometry.slot_of_page(collection.victim, collection.page);
                self.occupy(now, die, Phase::GcSensing, sensing + self.read_ns(slot));
                return true;
            }
            collection.page += 1;
        }
        let erasing = self.transfer(now, die, self.geometry.planes, 0);
        let end = erasing + self.config.nand.erase_ns;
        let state = &mut self.dies[die as usize];
        (state.array, state.suspensions) = ((erasing, end), 0);
        self.occupy(now, die, Phase::Erasing, end);
        true
    }

    /// Planes in which a page of a block has valid units, and how many units these are.
    fn valid_in_page(&self, block: u32, page: u32) -> (u32, u32) {
        let geometry = &self.geometry;
        let first = geometry.slot_of_page(block, page);
        let (mut planes, mut units) = (0, 0);
        for plane in 0..geometry.planes {
            let slot = first + plane * geometry.program_slots;
            let valid = self.map.units_in(slot, geometry.page_units).flatten().count() as u32;
            planes += u32::from(valid > 0);
            units += valid;
        }
        (planes, units)
    }

    pub(crate) fn gc_send(&mut self, now: Nanos, die: u32) {
        let Some(collection) = self.dies[die as usize].collection else { return };
        let bytes = u64::from(collection.units) * u64::from(self.geometry.unit_bytes);
        let end = self.transfer(now, die, 0, bytes);
        self.occupy(now, die, Phase::GcSending, end);
    }

    /// What is still valid of the page that was read is in the controller's memory now, to be programmed elsewhere.
    pub(crate) fn gc_sent(&mut self, now: Nanos, die: u32) {
        let Some(mut collection) = self.dies[die as usize].collection else { return };
        let geometry = self.geometry;
        let first = geometry.slot_of_page(collection.victim, collection.page);
        for plane in 0..geometry.planes {
            for slot in first + plane * geometry.program_slots
                ..first + plane * geometry.program_slots + geometry.page_units
            {
                let Some(unit) = self.map.unit_in(slot) else { continue };
                let entry = self.buffer.insert(unit, Stage::Moving { die }, now);
                #[cfg(test)]
                self.ledger.moved(&mut self.buffer, slot, entry);
                self.lose_slot(slot);
                self.map.put_in_entry(unit, entry);
                let moving = &mut self.dies[die as usize].moving;
                self.buffer.push(moving, entry);
                collection.moved += 1;
            }
        }
        collection.page += 1;
        self.dies[die as usize].collection = Some(collection);
    }

    pub(crate) fn erased(&mut self, die: u32) {
        if let Some(collection) = self.dies[die as usize].collection.take() {
            self.blocks.erased(collection.victim);
            self.counters.nand_erases += u64::from(self.geometry.planes);
        }
    }
}
