//! Garbage collection, which frees space for programs.

use rand::Rng;
use terapage_event::Nanos;

use crate::buffer::Stage;
use crate::die::{Collection, Phase};
use crate::program::FREE_BLOCKS;
use crate::ssd::Ssd;

/// Pages of the collected block that are looked up in advance; a power of two.
const AHEAD_PAGES: u32 = 32;

impl Ssd {
    /// Returns whether a block of the die is being collected; a collection begins if there are few
    /// free blocks.
    pub(crate) fn collection_is_due(&mut self, die: u32) -> bool {
        if self.dies[die as usize].collection.is_some() {
            return true;
        }
        if self.blocks.free_count(die) >= FREE_BLOCKS {
            return false;
        }
        self.begin_collection(die)
    }

    /// Begins to collect a block if that would gain space.
    pub(crate) fn begin_collection(&mut self, die: u32) -> bool {
        // At most every second block: a little worn block may be full, and gain nothing.
        let gap = self.config.wear_gap.filter(|_| !self.dies[die as usize].levelled);
        let little_worn = gap.and_then(|gap| self.blocks.take_least_worn(die, gap));
        self.dies[die as usize].levelled = little_worn.is_some();
        let victim = little_worn.or_else(|| self.blocks.take_victim(die, self.config.gc));
        victim.is_some_and(|victim| self.collect_block(die, victim))
    }

    /// Begins to move the oldest full block of SLC elsewhere.
    pub(crate) fn begin_folding(&mut self, die: u32) -> bool {
        self.dies[die as usize].levelled = false;
        let victim = self.blocks.take_oldest_slc(die);
        victim.is_some_and(|victim| self.collect_block(die, victim))
    }

    fn collect_block(&mut self, die: u32, victim: u32) -> bool {
        let valid = self.blocks.valid(victim);
        self.dies[die as usize].collection =
            Some(Collection { victim, page: 0, slot: 0, units: 0, valid, moved: 0, host_slots: 0 });
        true
    }

    /// Whether the collection is behind: it has moved a smaller part of its block than the part
    /// that the host has used of the room that will be gained.
    pub(crate) fn collection_is_behind(&self, die: u32) -> bool {
        let Some(collection) = self.dies[die as usize].collection else { return false };
        let gain = u64::from(self.geometry.block_slots - collection.valid);
        u64::from(collection.host_slots) * u64::from(collection.valid) > u64::from(collection.moved) * gain
    }

    /// The next step of the collection: programs units that fill all planes, reads the next page,
    /// or erases.
    pub(crate) fn collect(&mut self, now: Nanos, die: u32) -> bool {
        let state = &self.dies[die as usize];
        let in_row = self.left_in_row(state.collected);
        if state.moving.len >= in_row {
            let Some(open) = state.collected.or_else(|| self.open(die, 1)) else { return false };
            let state = &mut self.dies[die as usize];
            state.collected = Some(open);
            let entries = self.buffer.take(&mut state.moving, in_row);
            self.program(now, die, open, entries, None);
            return true;
        }
        let Some(&Collection { victim, page, .. }) = state.collection.as_ref() else { return false };
        for page in page..self.geometry.pages_per_block() {
            let slot = self.geometry.slot_of_page(victim, page);
            if page & (AHEAD_PAGES - 1) == 0 {
                self.look_ahead_in_victim(victim, page);
            }
            let (planes, units) = self.valid_in_page(slot);
            if units > 0 {
                if let Some(collection) = &mut self.dies[die as usize].collection {
                    (collection.page, collection.slot, collection.units) = (page, slot, units);
                }
                self.counters.nand_gc_reads += u64::from(planes);
                if self.dies[die as usize].idle_collects {
                    self.counters.nand_idle_reads += u64::from(planes);
                }
                let sensing = self.transfer(now, die, planes, 0);
                self.occupy(now, die, Phase::GcSensing, sensing + self.read_ns(slot));
                return true;
            }
        }
        let erasing = self.transfer(now, die, self.geometry.planes, 0);
        let end = erasing + self.config.nand.erase_ns;
        let state = &mut self.dies[die as usize];
        (state.array, state.suspensions) = ((erasing, end), 0);
        self.occupy(now, die, Phase::Erasing, end);
        true
    }

    /// Loads the data for the next pages of a victim into the processor's caches together: page by
    /// page, the processor would wait for each unit.
    fn look_ahead_in_victim(&self, block: u32, page: u32) {
        let geometry = &self.geometry;
        let slots = AHEAD_PAGES * geometry.page_units * geometry.planes;
        // In the order of slots, page by page of all planes; nearly so if write units have several
        // pages.
        let first = page * geometry.page_units * geometry.planes;
        let end = (first + slots).min(geometry.block_slots);
        let block = geometry.first_slot(block);
        self.map.look_up_units(block + first, block + end);
    }

    /// The planes in which the page with the first slot `first` has valid units, and the number of
    /// these units.
    fn valid_in_page(&self, first: u32) -> (u32, u32) {
        let geometry = &self.geometry;
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
        let Some(Collection { units, .. }) = &self.dies[die as usize].collection else { return };
        let bytes = u64::from(*units) * u64::from(self.geometry.unit_bytes);
        let end = self.transfer(now, die, 0, bytes);
        self.occupy(now, die, Phase::GcSending, end);
    }

    /// Moves the units of a read page that are still valid into the controller's memory, to be
    /// programmed elsewhere.
    pub(crate) fn gc_sent(&mut self, now: Nanos, die: u32) {
        let state = &mut self.dies[die as usize];
        let Some(collection) = &mut state.collection else { return };
        let geometry = &self.geometry;
        let mut moved = 0;
        for plane in 0..geometry.planes {
            let first = collection.slot + plane * geometry.program_slots;
            for slot in first..first + geometry.page_units {
                let Some(unit) = self.map.unit_in(slot) else { continue };
                let entry = self.buffer.insert(unit, Stage::Moving { die }, now);
                #[cfg(test)]
                self.ledger.moved(&mut self.buffer, slot, entry);
                self.map.empty_slot(slot);
                self.map.put_in_entry(unit, entry);
                self.buffer.push(&mut state.moving, entry);
                moved += 1;
            }
        }
        if geometry.is_slc(collection.victim) {
            self.counters.folded_units += u64::from(moved);
        }
        self.blocks.lose_of_victim(collection.victim, moved);
        state.valid -= moved;
        collection.moved += moved;
        collection.page += 1;
    }

    pub(crate) fn erased(&mut self, die: u32) {
        let planes = u64::from(self.geometry.planes);
        let Some(collection) = self.dies[die as usize].collection.take() else { return };
        self.counters.nand_erases += planes;
        if self.dies[die as usize].levelled {
            self.counters.levelling_erases += planes;
        }
        if self.config.erase_failures > 0.0 && self.random.random_bool(self.config.erase_failures) {
            self.counters.failed_erases += planes;
            if !self.geometry.is_slc(collection.victim) && self.can_do_without_a_block(die) {
                self.dies[die as usize].units_max -= self.geometry.block_slots;
                return self.blocks.retire(collection.victim);
            }
        }
        self.blocks.erased(collection.victim);
    }

    /// Whether a die would still work without the block that was just erased: with a free block in
    /// reserve, at most the allowed units, and room for its share of the capacity.
    fn can_do_without_a_block(&self, die: u32) -> bool {
        let state = &self.dies[die as usize];
        let Some(units_max) = state.units_max.checked_sub(self.geometry.block_slots) else { return false };
        let room = self.geometry.die_units_min.max(state.valid + state.moving.len + self.programming(die));
        self.blocks.free_count(die) > 0 && units_max >= room
    }

    /// Units that a die is programming, or has stopped programming for reads.
    fn programming(&self, die: u32) -> u32 {
        let state = &self.dies[die as usize];
        let suspended = state.suspended.is_some_and(|suspended| suspended.phase == Phase::Programming);
        if suspended || state.phase == Phase::Programming { state.program.entries.len } else { 0 }
    }
}
