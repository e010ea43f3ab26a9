//! What a mirror passes on to its copies, slot by slot: verdicts, slots that are given up, and what
//! copies have lost; and splitting.

use super::copies::Side;
use super::{Inner, Mirror};
use crate::common::bits::Bits;
use crate::shelf::{Ended, Spread, Store, StoreRing};
use std::ops::Range;

impl Mirror {
    /// Whether each slot can be split now: what is written back in the background has slots, too.
    pub(super) fn can_split(&self, more: usize) -> bool {
        let is_own = |inner: &Inner| !matches!(inner, Inner::Read { .. } | Inner::Write { .. });
        let is_idle = self.resync.slots().is_none() && !self.inner.iter().any(is_own);
        let copies = self.copies.0.iter().map(|copy| &copy.store);
        let mut all = copies.chain(self.spares.iter().map(|spare| &spare.store));
        is_idle && self.units().is_multiple_of(more) && all.all(|store| store.may_split(more))
    }

    /// The units, and their checksums, stay as they are.
    pub(super) fn split_slots(&mut self, more: usize) {
        let numbers = more as u32;
        for copy in &mut self.copies.0 {
            copy.store.split(more);
            copy.stale.split(numbers);
            copy.suspect.split(numbers);
        }
        self.spares.iter_mut().for_each(|spare| spare.store.split(more));
        self.used.split(numbers);
        self.untold.split(numbers);
        self.resync.split(numbers);
        // The reads that they belong to were judged.
        self.came.clear();
        self.saved_bytes = 0;
        self.slots *= numbers;
        self.block /= more;
        self.split_into *= more;
    }
}

/// A slot lies in each copy, under its own number.
impl Spread for Mirror {
    fn part(&self, index: usize) -> Option<&dyn Store> {
        self.copies.0.get(index).map(|copy| &*copy.store as &dyn Store)
    }

    fn part_mut(&mut self, index: usize) -> Option<&mut dyn Store> {
        self.copies.0.get_mut(index).map(|copy| &mut *copy.store as &mut dyn Store)
    }

    fn judge_parts(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        slots: Range<u32>,
        good: bool,
        ended: &mut Vec<Ended>,
    ) {
        let came = &mut self.came[id as usize];
        if good {
            came.wrong = None;
            // What a copy has just given is right there, and is not written back to it.
            for (index, slots) in &came.parts {
                self.copies.0[*index].suspect.remove(slots.clone());
            }
            if let Some(saved) = came.saved.take() {
                self.saved_bytes -= saved.bytes().len();
                self.repair(ring, &slots, saved);
                self.settle(ring, ended);
            }
            return;
        }
        let (_, copies) = came.wrong.get_or_insert((slots.clone(), 0));
        // If several copies gave parts, it is unknown which was wrong: one copy gives all of it
        // next.
        if let [(index, _)] = came.parts[..] {
            *copies |= 1 << index;
            self.note_suspect(index, &slots);
            self.see_to_resync(ring);
        }
    }

    fn forget_parts(&mut self, slots: Range<u32>) {
        self.used.remove(slots.clone());
        self.untold.remove(slots.clone());
        for copy in &mut self.copies.0 {
            copy.stale.remove(slots.clone());
            copy.suspect.remove(slots.clone());
        }
        self.tell_given_up(slots);
    }

    fn part_wants_back(&self, slot: u32) -> bool {
        let wants = |copy: &Side| copy.has(&(slot..slot + 1)) && copy.store.wants_back(slot);
        self.copies.0.iter().any(wants)
    }

    fn whereabouts_of_part(&self, slot: u32) -> Option<String> {
        let place = |copy: &Side| copy.store.whereabouts(slot);
        let places: Vec<String> = self.copies.0.iter().filter_map(place).collect();
        (!places.is_empty()).then(|| places.join(" and "))
    }

    fn take_lost_of_parts(&mut self, tell: &mut dyn FnMut(Range<u32>)) {
        self.hear();
        let mut from = 0;
        while let Some(slot) = self.untold.next(from) {
            tell(slot..slot + 1);
            from = slot + 1;
        }
        self.untold = Bits::default();
    }
}
