//! Programs: writing units from the buffer to the flash.

use terapage_event::Nanos;

use crate::buffer::{List, NONE};
use crate::die::{Open, Phase, Program};
use crate::map::Place;
use crate::ssd::Ssd;

/// If there are fewer free blocks than this, a block is collected. The last free block is not for
/// the host.
pub(crate) const FREE_BLOCKS: u32 = 2;

impl Ssd {
    /// Begins a program or an erase on an idle die, or a read of the garbage collection. Whether
    /// there was anything to do. The collection keeps pace with the host's programs, and goes ahead
    /// of them only if they wait for it.
    pub(crate) fn program_or_collect(&mut self, now: Nanos, die: u32) -> bool {
        let collecting = self.collection_is_due(die);
        if collecting && self.collection_is_behind(die) {
            return self.collect(now, die);
        }
        if !self.has_program(now) {
            return self.collect_in_idle_time(now, die);
        }
        self.program_host(now, die) || collecting && self.collect(now, die)
    }

    fn program_host(&mut self, now: Nanos, die: u32) -> bool {
        let part = self.next_part();
        let state = &mut self.dies[die as usize];
        let opened = state.slc.or_else(|| {
            let block = self.blocks.open_slc(die)?;
            Some(Open { block, used: 0 })
        });
        state.slc = opened;
        let opened = opened.or(*state.open_of(part));
        let in_row = self.left_in_row(opened);
        let waiting = self.waiting[part as usize].len;
        let whole = waiting - waiting % self.geometry.program_slots;
        // Less than a write unit waits: it is due, or this would not have been called.
        let count = if whole == 0 { waiting } else { whole.min(in_row) };
        let state = &self.dies[die as usize];
        if state.valid + state.moving.len + count > state.units_max {
            return false;
        }
        let Some(open) = opened.or_else(|| self.open(die, FREE_BLOCKS)) else { return false };
        let state = &mut self.dies[die as usize];
        if !self.geometry.is_slc(open.block) {
            *state.open_of(part) = Some(open);
        }
        state.idle_collects = false;
        let entries = self.buffer.take(&mut self.waiting[part as usize], count);
        let slots = self.program(now, die, open, entries, Some(part));
        // Writes to SLC take none of the room that a collection gives.
        let paced = !self.geometry.is_slc(open.block);
        if let Some(collection) = self.dies[die as usize].collection.as_mut().filter(|_| paced) {
            collection.host_slots += slots;
        }
        self.arm_flush(now);
        true
    }

    /// The part of the capacity whose data are programmed next: the parts that have a write unit
    /// take turns; else the one whose data have waited for longest.
    fn next_part(&mut self) -> u32 {
        let parts = self.waiting.len() as u32;
        if parts == 1 {
            return 0;
        }
        let ready = |part: &u32| self.waiting[*part as usize].len >= self.geometry.program_slots;
        let mut turns = (0..parts).map(|turn| (self.last_part + 1 + turn) % parts);
        let oldest = || (0..parts).min_by_key(|part| self.arrival(*part).unwrap_or(Nanos::MAX)).unwrap_or(0);
        self.last_part = turns.find(ready).unwrap_or_else(oldest);
        self.last_part
    }

    pub(crate) fn left_in_row(&self, open: Option<Open>) -> u32 {
        self.geometry.row_slots - open.map_or(0, |open| open.used % self.geometry.row_slots)
    }

    pub(crate) fn open(&mut self, die: u32, free: u32) -> Option<Open> {
        if self.blocks.free_count(die) < free {
            return None;
        }
        self.blocks.open(die).map(|block| Open { block, used: 0 })
    }

    /// Programs `entries`, of the host's data of a part or else of a collection, into the next
    /// slots of `open`. Returns how many slots that takes.
    pub(crate) fn program(
        &mut self,
        now: Nanos,
        die: u32,
        open: Open,
        entries: List,
        part: Option<u32>,
    ) -> u32 {
        let planes = entries.len.div_ceil(self.geometry.program_slots);
        let slots = planes * self.geometry.program_slots;
        let first_slot = self.geometry.first_slot(open.block) + open.used;
        let bytes = u64::from(slots) * u64::from(self.geometry.unit_bytes);
        let loaded = self.transfer(now, die, planes, bytes);
        let time = match self.config.nand.slc {
            Some(slc) if self.geometry.is_slc(open.block) => {
                slc.program_ns * Nanos::from(self.geometry.write_unit)
            }
            _ => self.by_page_type(&self.config.nand.program_ns, first_slot),
        };
        let state = &mut self.dies[die as usize];
        let (collected, part) = (part.is_none(), part.unwrap_or(0));
        state.program = Program { first_slot, slots, entries, collected, part };
        state.array = (loaded, loaded + time);
        state.suspensions = 0;
        self.occupy(now, die, Phase::Programming, loaded + time);
        slots
    }

    pub(crate) fn programmed(&mut self, now: Nanos, die: u32) {
        let Program { first_slot, slots, entries, collected, part } = self.dies[die as usize].program;
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
        let is_slc = self.geometry.is_slc(block);
        self.counters.slc_units += u64::from(if is_slc { entries.len } else { 0 });
        let end = self.geometry.slots_of(block);
        let state = &mut self.dies[die as usize];
        let open = match collected {
            true => &mut state.collected,
            false if is_slc => &mut state.slc,
            false => state.open_of(part),
        };
        if let Some(written) = open {
            written.used += slots;
            if written.used == end {
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
}
