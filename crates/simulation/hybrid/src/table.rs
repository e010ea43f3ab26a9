//! An open-addressing table from line numbers to slots, with entries of 8 bytes.

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// Entries are probed one after another from the home of their line. A removal moves later entries
/// back, so no tombstones are needed. An entry has the line in the upper half and the slot plus one
/// in the lower half; 0 is empty.
pub(crate) struct Table {
    entries: Vec<u64>,
    len: usize,
}

impl Table {
    /// A table for `lines` entries at a load of three quarters. Its memory is touched only as it is
    /// used.
    pub(crate) fn with_capacity(lines: usize) -> Self {
        let entries = (lines + lines / 3 + 8).min(u32::MAX as usize);
        Table { entries: vec![0; entries], len: 0 }
    }

    /// Bytes of the array.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len() * size_of::<u64>()
    }

    /// The home of `line`, where the search begins: its hash, scaled to the array.
    fn home(&self, line: u32) -> usize {
        let hash = u64::from(line).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((hash * self.entries.len() as u64) >> 32) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    /// The place of `line`, or the empty place where it would be.
    fn place(&self, line: u32) -> usize {
        let mut at = self.home(line);
        while self.entries[at] != 0 && (self.entries[at] >> 32) as u32 != line {
            at = self.next(at);
        }
        at
    }

    /// The slot of `line`, or [`NONE`].
    #[inline]
    pub(crate) fn get(&self, line: u32) -> u32 {
        (self.entries[self.place(line)] as u32).wrapping_sub(1)
    }

    /// The slot at the home of `line`, mostly that of the line. For early lookups: it may belong to
    /// another line, or be [`NONE`].
    pub(crate) fn guess(&self, line: u32) -> u32 {
        (self.entries[self.home(line)] as u32).wrapping_sub(1)
    }

    /// Adds `line`, which is not in the table, with `slot`.
    pub(crate) fn insert(&mut self, line: u32, slot: u32) {
        if (self.len + 1) * 16 > self.entries.len() * 13 {
            self.grow();
        }
        let at = self.place(line);
        debug_assert_eq!(self.entries[at], 0, "line {line} twice");
        self.entries[at] = u64::from(line) << 32 | u64::from(slot + 1);
        self.len += 1;
    }

    fn grow(&mut self) {
        let larger = vec![0; self.entries.len() * 2];
        for entry in std::mem::replace(&mut self.entries, larger) {
            if entry != 0 {
                let at = self.place((entry >> 32) as u32);
                self.entries[at] = entry;
            }
        }
    }

    /// Removes `line`, if it is in the table.
    pub(crate) fn remove(&mut self, line: u32) {
        let mut hole = self.place(line);
        if self.entries[hole] == 0 {
            return;
        }
        self.len -= 1;
        let mut at = hole;
        loop {
            at = self.next(at);
            let entry = self.entries[at];
            if entry == 0 {
                break;
            }
            // An entry may move into the hole unless its home lies behind the hole, counted around
            // the array.
            let home = self.home((entry >> 32) as u32);
            let stays = if hole < at { hole < home && home <= at } else { hole < home || home <= at };
            if !stays {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_map(
            steps in prop::collection::vec((any::<bool>(), 0_u32..60), 0..600),
            spread in prop_oneof![Just(1_u32), Just(0x0100_0001)],
        ) {
            let mut table = Table::with_capacity(4);
            let mut model = HashMap::new();
            for (slot, (insert, line)) in (0..).zip(steps) {
                let line = line * spread;
                if insert && !model.contains_key(&line) {
                    table.insert(line, slot);
                    model.insert(line, slot);
                } else {
                    table.remove(line);
                    model.remove(&line);
                }
                for line in (0..60).map(|line| line * spread) {
                    prop_assert_eq!(table.get(line), model.get(&line).copied().unwrap_or(NONE));
                }
            }
        }
    }
}
