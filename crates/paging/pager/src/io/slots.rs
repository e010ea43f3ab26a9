//! Which slots of the store are in use, and which of them a forked child may still read.

use std::ops::Range;

/// A bit for each slot.
#[derive(Clone, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn get(&self, slot: u32) -> bool {
        self.0.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }

    fn set(&mut self, slot: u32, on: bool) {
        let word = slot as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let bit = 1 << (slot % 64);
        if on { self.0[word] |= bit } else { self.0[word] &= !bit }
    }

    /// The slots whose bits are set, ascending.
    fn iter(&self) -> impl Iterator<Item = u32> {
        let set = |(index, &word): (usize, &u64)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(index as u32 * 64 + bit)
            })
        };
        self.0.iter().enumerate().flat_map(set)
    }

    fn join(&mut self, other: &Bits) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }
}

/// Slots that stay as they were at a fork, for the child.
struct Snapshot {
    id: u32,
    bits: Bits,
}

/// The slots of one store.
pub(crate) struct Slots {
    /// Slots in use by this process.
    owned: Bits,
    snapshots: Vec<Snapshot>,
    count: u32,
    total: u32,
    per_extent: u32,
    next: u32,
    snapshot_ids: u32,
}

impl Slots {
    pub fn new(per_extent: u32) -> Slots {
        Slots {
            owned: Bits::default(),
            snapshots: Vec::new(),
            count: 0,
            total: 0,
            per_extent,
            next: 0,
            snapshot_ids: 0,
        }
    }

    /// Each slot has become `more` slots. No child reads a slot.
    pub fn split(&mut self, more: u32) {
        assert!(self.snapshots.is_empty());
        let mut owned = Bits(Vec::with_capacity(self.owned.0.len() * more as usize));
        for slot in self.owned.iter().flat_map(|slot| slot * more..(slot + 1) * more) {
            owned.set(slot, true);
        }
        self.owned = owned;
        self.count *= more;
        self.total *= more;
        self.per_extent *= more;
        self.next *= more;
    }

    /// Whether a child reads some of the slots.
    pub fn are_read(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// The store has `total` slots now.
    pub fn grown(&mut self, total: u32) {
        self.total = total;
    }

    /// Slots in use.
    pub fn count(&self) -> u32 {
        self.count
    }

    fn frozen(&self, slot: u32) -> bool {
        self.snapshots.iter().any(|snapshot| snapshot.bits.get(slot))
    }

    fn is_free(&self, slot: u32) -> bool {
        !self.owned.get(slot) && !self.frozen(slot)
    }

    /// Whether the owner may write to the slot: no child reads it.
    pub fn may_write(&self, slot: u32) -> bool {
        !self.frozen(slot)
    }

    /// Takes up to `wanted` slots that lie together within one extent: returns the first, and their
    /// number. `None` if the store is full.
    ///
    /// The search continues behind the slots taken last, so blocks that are written together lie
    /// together.
    pub fn take(&mut self, wanted: u32) -> Option<(u32, u32)> {
        let mut slot = if self.next < self.total { self.next } else { 0 };
        let mut looked = 0;
        while looked < self.total {
            if slot.is_multiple_of(64)
                && self.snapshots.is_empty()
                && self.owned.0.get(slot as usize / 64) == Some(&!0)
            {
                looked += 64;
                slot += 64;
            } else if self.is_free(slot) {
                let edge = ((slot / self.per_extent + 1) * self.per_extent).min(self.total);
                let end = (slot + 1..edge.min(slot + wanted)).find(|&slot| !self.is_free(slot));
                let end = end.unwrap_or(edge.min(slot + wanted));
                for slot in slot..end {
                    self.owned.set(slot, true);
                }
                self.count += end - slot;
                self.next = end;
                return Some((slot, end - slot));
            } else {
                looked += 1;
                slot += 1;
            }
            if slot >= self.total {
                slot = 0;
            }
        }
        None
    }

    /// Frees a slot that this process no longer needs. Returns whether it is not needed: no child
    /// reads it.
    pub fn free(&mut self, slot: u32) -> bool {
        assert!(self.owned.get(slot), "slot {slot} is freed, but not in use");
        self.owned.set(slot, false);
        self.count -= 1;
        !self.frozen(slot)
    }

    /// Checks that slots are in use, and that no child reads them: they are about to be written.
    ///
    /// # Panics
    /// They are not.
    pub fn assert_may_write(&self, slots: Range<u32>) {
        for slot in slots {
            assert!(self.owned.get(slot), "slot {slot} is written, but not in use");
            assert!(self.may_write(slot), "slot {slot} is written, but a child reads it");
        }
    }

    /// Checks that the number of slots in use equals the count.
    ///
    /// # Panics
    /// They are not.
    pub fn assert_counts(&self) {
        assert_eq!(self.owned.iter().count(), self.count as usize, "slots are miscounted");
        assert!(self.count <= self.total, "{} of {} slots are in use", self.count, self.total);
    }

    /// Before a fork: the slots in use stay as they are until [`thaw`](Self::thaw).
    pub fn freeze(&mut self) -> u32 {
        self.snapshot_ids += 1;
        self.snapshots.push(Snapshot { id: self.snapshot_ids, bits: self.owned.clone() });
        self.snapshot_ids
    }

    /// Slots that have come into use since the last [`freeze`](Self::freeze) stay as they are, for
    /// the same child.
    pub fn freeze_more(&mut self) {
        if let Some(last) = self.snapshots.last_mut() {
            last.bits.join(&self.owned);
        }
    }

    /// In the child of a fork, before anything else changes: calls `forget` with the slots that
    /// only other children read.
    pub fn of_other_children(&self, mut forget: impl FnMut(Range<u32>)) {
        let Some((own, others)) = self.snapshots.split_last() else { return };
        let mut all = Bits::default();
        others.iter().for_each(|other| all.join(&other.bits));
        all.iter().filter(|&slot| !own.bits.get(slot)).for_each(|slot| forget(slot..slot + 1));
    }

    /// The child and all its descendants have ended. `forget` is called with the slots that are no
    /// longer needed.
    pub fn thaw(&mut self, id: u32, mut forget: impl FnMut(Range<u32>)) {
        let Some(index) = self.snapshots.iter().position(|snapshot| snapshot.id == id) else { return };
        let gone = self.snapshots.remove(index);
        let mut run = 0..0;
        for slot in gone.bits.iter().filter(|&slot| self.is_free(slot)) {
            if slot != run.end {
                if !run.is_empty() {
                    forget(run.clone());
                }
                run.start = slot;
            }
            run.end = slot + 1;
        }
        if !run.is_empty() {
            forget(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn slots_come_together_and_stop_at_an_extents_edge() {
        let mut slots = Slots::new(4);
        slots.grown(10);
        assert_eq!(slots.take(3), Some((0, 3)));
        assert_eq!(slots.take(3), Some((3, 1)));
        assert_eq!(slots.take(9), Some((4, 4)));
        assert_eq!(slots.take(9), Some((8, 2)));
        assert_eq!(slots.take(1), None);
        slots.free(5);
        assert_eq!(slots.take(2), Some((5, 1)));
        assert_eq!(slots.count(), 10);
    }

    #[test]
    fn slots_that_are_split_are_in_use_as_before() {
        let mut slots = Slots::new(2);
        slots.grown(100);
        for _ in 0..40 {
            slots.take(2);
        }
        slots.free(3);
        slots.split(4);
        assert_eq!(slots.count(), 79 * 4);
        assert_eq!(slots.take(8), Some((320, 8)));
        let rest: Vec<_> = std::iter::from_fn(|| slots.take(8)).collect();
        assert_eq!(rest.len(), 10, "nine extents, and the slot that was freed");
        assert_eq!(rest.last(), Some(&(12, 4)));
    }

    #[test]
    fn slots_that_nobody_reads_any_more_are_forgotten() {
        let mut slots = Slots::new(64);
        slots.grown(128);
        slots.take(64);
        slots.take(64);
        let (one, two) = (slots.freeze(), slots.freeze());
        for slot in [3, 4, 60, 64, 65, 127] {
            assert!(!slots.free(slot), "a child reads it");
        }
        slots.thaw(one, |slots| panic!("{slots:?} are the second child's still"));
        let mut forgotten = Vec::new();
        slots.thaw(two, |slots| forgotten.push(slots));
        assert_eq!(forgotten, [3..5, 60..61, 64..66, 127..128]);
        assert!(slots.free(5));
    }

    #[test]
    fn a_child_forgets_what_only_others_read() {
        let mut slots = Slots::new(64);
        slots.grown(64);
        slots.take(6);
        slots.freeze();
        slots.free(2);
        slots.free(4);
        slots.take(1);
        slots.freeze();
        let mut forgotten = Vec::new();
        slots.of_other_children(|slots| forgotten.extend(slots));
        assert_eq!(forgotten, [2, 4]);
    }

    #[test]
    fn what_a_child_reads_is_not_given_out_again() {
        let mut slots = Slots::new(4);
        slots.grown(4);
        slots.take(2);
        let child = slots.freeze();
        assert!(!slots.may_write(0) && slots.may_write(2));
        slots.free(0);
        assert_eq!(slots.take(4), Some((2, 2)));
        assert_eq!(slots.take(1), None);
        slots.freeze_more();
        assert!(!slots.may_write(0) && !slots.may_write(3));
        let mut forgotten = Vec::new();
        slots.thaw(child, |slots| forgotten.push(slots));
        assert_eq!(forgotten, vec![0..1]);
        assert_eq!(slots.take(4), Some((0, 1)));
        assert!(slots.may_write(1));
    }
}
