//! Companions: neighbours that are read together with a block for which a thread waits
//! (`terapage_policy::companions`). They become soft, and go into the program once they are
//! touched.

use super::Engine;
use super::ahead::Touch;
use super::table::{COMPANION, State, WANTED};
use terapage_stats::Counters;

impl Engine {
    /// The stored blocks to read in one operation with `block`, for which a thread waits, and a
    /// place for each of them. `place` is the place of `block`.
    pub(crate) fn with_companions(&mut self, block: u32, place: u32) -> (Vec<u32>, Vec<u32>) {
        let (mut blocks, mut places) = (vec![block], vec![place]);
        let Some(range) = self.companions_of(block) else { return (blocks, places) };
        for other in (range.start..block).rev().chain(block + 1..range.end) {
            let Some(place) = self.place_at_once() else { break };
            self.table.get_mut(other).flags |= COMPANION;
            let at = if other < block { 0 } else { blocks.len() };
            blocks.insert(at, other);
            places.insert(at, place);
        }
        Counters::add(&self.counters.companions, blocks.len() as u64 - 1);
        (blocks, places)
    }

    /// The blocks around `block` that one operation can read with it, if any should be. While a
    /// trace is recorded, blocks have no companions.
    fn companions_of(&mut self, block: u32) -> Option<std::ops::Range<u32>> {
        let entry = self.table.get(block);
        let (slot, origin) = (entry.slot()?, entry.origin);
        let may = origin == self.io.own_origin() && self.forks_ahead == 0 && self.recorder.is_none();
        if !may || self.ahead.is_random(block) {
            return None;
        }
        let together = self.companions.together(&self.io.disk, self.block);
        if together < 2 || self.io.wants_back(slot) {
            return None;
        }
        let region = self.table.block_range_of(block)?;
        let group = block / together * together;
        let slot_of = |other: u32| (slot + other).checked_sub(block);
        let fits = |other: &u32| {
            let entry = self.table.get(*other);
            entry.state == State::Stored && entry.origin == origin && entry.slot() == slot_of(*other)
        };
        // One operation reads them all.
        let joins = |other: &u32| {
            slot_of(*other).is_some_and(|first| {
                self.io.is_one(origin, first, first + 1) && self.io.is_one(origin, first, slot)
            })
        };
        let before = (group.max(region.start)..block).rev().take_while(|other| fits(other) && joins(other));
        let first = before.last().unwrap_or(block);
        let first_slot = slot_of(first)?;
        let after = block + 1..(group + together).min(region.end);
        let after = after.take_while(|other| {
            fits(other) && self.io.is_one(origin, first_slot, first_slot + (other - first))
        });
        let range = first..after.last().unwrap_or(block) + 1;
        (range.len() > 1).then_some(range)
    }

    /// A block has come in. Returns whether it is a companion that no thread waits for.
    pub(crate) fn companion_came(&mut self, block: u32) -> bool {
        let entry = self.table.get(block);
        let is_companion = entry.has(COMPANION) && !entry.has(WANTED);
        if is_companion {
            self.make_soft(block);
        }
        is_companion
    }

    /// A thread has touched a companion that has come in. From now on the companion is a block like
    /// others.
    pub(crate) fn used_companion(&mut self, block: u32, at: usize) {
        self.count_used_companion();
        self.install(&[block]);
        self.minor_wait_ends();
        Counters::add(&self.counters.minor_faults, 1);
        Counters::add(&self.table.usage.of(block).minor_faults, 1);
        self.policy.insert(block);
        // Without the companion, the thread would have waited for a read.
        self.prefetch_after(block, Touch::Missing);
        self.learn_miss(block, at);
    }

    pub(crate) fn count_used_companion(&mut self) {
        self.companions.touched();
        Counters::add(&self.counters.companions_used, 1);
    }

    /// Whether a block is on its way out of memory because the policy has chosen it.
    pub(crate) fn is_leaving(&self, block: u32) -> bool {
        let entry = self.table.get(block);
        entry.state == State::Soft && !entry.has(COMPANION)
    }
}
