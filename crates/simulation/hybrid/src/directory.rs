//! The directory: the lines in a cache, and the order in which they leave.
//!
//! It consists of two flat arrays: slots of 24 bytes, linked by number, and a table of 8-byte
//! entries that is three quarters full. So a cached line costs 35 bytes, whatever its size.

use terapage_policy::replacement::{self, Replacement};

use crate::table::{NONE, Table};

/// The line is in the cache (a slot can outlive it, see [`Order::Policy`]).
const PRESENT: u8 = 1;
/// Sectors of the line are being fetched from below.
const FETCHING: u8 = 2;

/// A line that is, or was, in the cache. Sectors are bits, the first one the lowest.
#[derive(Clone, Copy)]
struct Slot {
    line: u32,
    older: u32,
    newer: u32,
    valid: u32,
    dirty: u32,
    state: u8,
}

/// A line that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) line: u32,
    pub(crate) valid: u32,
    pub(crate) dirty: u32,
}

/// The order in which lines leave.
enum Order {
    /// Least recently used first: the slots themselves form the list. A slot is used again after
    /// its line has left.
    Lru { oldest: u32, newest: u32, free: u32 },
    /// A policy of the pager, whose block numbers are the slots. The policy may remember blocks
    /// that have left, so a line keeps its slot for ever, and memory grows with the number of lines
    /// that were ever in the cache.
    Policy(Box<dyn Replacement>),
}

/// The directory of the lines in a cache.
pub(crate) struct Directory {
    table: Table,
    slots: Vec<Slot>,
    order: Order,
    len: usize,
}

impl Directory {
    /// The greatest number of lines that [`foresee`](Self::foresee) examines. Chosen, not measured.
    pub(crate) const FORESEEN: usize = 16;

    /// A directory for up to `lines` lines that leave by `policy`; `None` if the policy is unknown.
    /// `lru` is implemented here and costs nothing beyond the links of the slots.
    pub(crate) fn new(policy: &str, lines: usize) -> Option<Self> {
        let order = match policy {
            "lru" => Order::Lru { oldest: NONE, newest: NONE, free: NONE },
            name => Order::Policy(replacement::by_name(name, lines)?),
        };
        Some(Directory {
            table: Table::with_capacity(lines),
            slots: Vec::with_capacity(lines),
            order,
            len: 0,
        })
    }

    /// Lines in the cache.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the arrays, without those of a policy of the pager.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.slots.capacity() * size_of::<Slot>()
    }

    /// The slot of `line`, if it is in the cache.
    #[inline]
    pub(crate) fn find(&self, line: u32) -> Option<u32> {
        let slot = self.table.get(line);
        (slot != NONE && self.slots[slot as usize].state & PRESENT != 0).then_some(slot)
    }

    /// Loads the data for lookups of `lines` into the processor's caches. A lookup has three loads
    /// that depend on one another; here the loads of all lines are in flight together.
    pub(crate) fn foresee(&self, lines: &[u32]) {
        debug_assert!(lines.len() <= Self::FORESEEN);
        let mut slots = [NONE; Self::FORESEEN];
        for (slot, &line) in slots.iter_mut().zip(lines) {
            *slot = self.table.guess(line);
        }
        let mut links = [(NONE, NONE); Self::FORESEEN];
        for (link, &slot) in links.iter_mut().zip(&slots) {
            *link = self.slots.get(slot as usize).map_or((NONE, NONE), |slot| (slot.older, slot.newer));
        }
        let line = |slot: u32| self.slots.get(slot as usize).map_or(0, |slot| slot.line);
        let sum = links
            .iter()
            .fold(0, |sum: u32, &(older, newer)| sum.wrapping_add(line(older)).wrapping_add(line(newer)));
        std::hint::black_box(sum);
    }

    /// Notes that the line in `slot` was used.
    #[inline]
    pub(crate) fn touch(&mut self, slot: u32) {
        match &mut self.order {
            Order::Lru { newest, .. } if *newest == slot => {}
            Order::Lru { .. } => {
                self.unlink(slot);
                self.link_newest(slot);
            }
            Order::Policy(policy) => policy.touched(slot),
        }
    }

    /// Adds `line`, which is not in the cache, without valid sectors.
    pub(crate) fn insert(&mut self, line: u32) -> u32 {
        let new = Slot { line, older: NONE, newer: NONE, valid: 0, dirty: 0, state: PRESENT };
        let slot = self.slot_for(line, new);
        match &mut self.order {
            Order::Lru { .. } => self.link_newest(slot),
            Order::Policy(policy) => policy.insert(slot),
        }
        self.len += 1;
        slot
    }

    fn slot_for(&mut self, line: u32, new: Slot) -> u32 {
        let known = match &mut self.order {
            Order::Lru { free, .. } => {
                let slot = *free;
                if slot != NONE {
                    *free = self.slots[slot as usize].newer;
                    self.table.insert(line, slot);
                }
                slot
            }
            Order::Policy(_) => self.table.get(line),
        };
        if known != NONE {
            self.slots[known as usize] = new;
            return known;
        }
        let slot = self.slots.len() as u32;
        self.slots.push(new);
        self.table.insert(line, slot);
        slot
    }

    /// Removes the line that leaves next.
    pub(crate) fn pop(&mut self) -> Option<Left> {
        let slot = match &mut self.order {
            Order::Lru { oldest, .. } => Some(*oldest).filter(|&slot| slot != NONE)?,
            Order::Policy(policy) => {
                let slot = policy.victim()?;
                policy.gone(slot);
                slot
            }
        };
        Some(self.take(slot))
    }

    /// Removes the line in `slot`: its bytes are no longer needed.
    pub(crate) fn remove(&mut self, slot: u32) -> Left {
        if let Order::Policy(policy) = &mut self.order {
            policy.remove(slot);
        }
        self.take(slot)
    }

    fn take(&mut self, slot: u32) -> Left {
        let Slot { line, valid, dirty, .. } = self.slots[slot as usize];
        if matches!(self.order, Order::Lru { .. }) {
            self.unlink(slot);
            self.table.remove(line);
        }
        self.slots[slot as usize].state = 0;
        if let Order::Lru { free, .. } = &mut self.order {
            self.slots[slot as usize].newer = *free;
            *free = slot;
        }
        self.len -= 1;
        Left { line, valid, dirty }
    }

    #[inline]
    fn unlink(&mut self, slot: u32) {
        let Slot { older: before, newer: after, .. } = self.slots[slot as usize];
        let Order::Lru { oldest, newest, .. } = &mut self.order else { return };
        match before {
            NONE => *oldest = after,
            _ => self.slots[before as usize].newer = after,
        }
        match after {
            NONE => *newest = before,
            _ => self.slots[after as usize].older = before,
        }
    }

    #[inline]
    fn link_newest(&mut self, slot: u32) {
        let Order::Lru { oldest, newest, .. } = &mut self.order else { return };
        let before = std::mem::replace(newest, slot);
        match before {
            NONE => *oldest = slot,
            _ => self.slots[before as usize].newer = slot,
        }
        let entry = &mut self.slots[slot as usize];
        (entry.older, entry.newer) = (before, NONE);
    }

    /// The valid sectors of a line.
    #[inline]
    pub(crate) fn valid(&self, slot: u32) -> u32 {
        self.slots[slot as usize].valid
    }

    /// The dirty sectors of a line.
    #[inline]
    pub(crate) fn dirty(&self, slot: u32) -> u32 {
        self.slots[slot as usize].dirty
    }

    /// Whether sectors of a line are being fetched from below.
    #[inline]
    pub(crate) fn is_fetching(&self, slot: u32) -> bool {
        self.slots[slot as usize].state & FETCHING != 0
    }

    /// Sets whether [`is_fetching`](Self::is_fetching).
    pub(crate) fn set_fetching(&mut self, slot: u32, fetching: bool) {
        let state = &mut self.slots[slot as usize].state;
        *state = if fetching { *state | FETCHING } else { *state & !FETCHING };
    }

    /// Notes that more sectors are valid.
    #[inline]
    pub(crate) fn add_valid(&mut self, slot: u32, sectors: u32) {
        self.slots[slot as usize].valid |= sectors;
    }

    /// Notes that sectors were written: they are valid and dirty. It returns the number of sectors
    /// that were clean before.
    #[inline]
    pub(crate) fn add_dirty(&mut self, slot: u32, sectors: u32) -> u32 {
        let entry = &mut self.slots[slot as usize];
        let before = entry.dirty;
        entry.valid |= sectors;
        entry.dirty |= sectors;
        (entry.dirty & !before).count_ones()
    }

    /// Notes that all sectors of a line are clean.
    pub(crate) fn clean(&mut self, slot: u32) {
        self.slots[slot as usize].dirty = 0;
    }

    /// Notes that sectors are no longer valid or dirty. It returns the number of sectors that were
    /// dirty.
    pub(crate) fn forget(&mut self, slot: u32, sectors: u32) -> u32 {
        let entry = &mut self.slots[slot as usize];
        let dirty = (entry.dirty & sectors).count_ones();
        entry.valid &= !sectors;
        entry.dirty &= !sectors;
        dirty
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cached_line_costs_at_most_40_bytes() {
        let lines = 1_000_000;
        let mut directory = Directory::new("lru", lines).expect("lru");
        for line in 0..3_000_000_u32 {
            if directory.len() == lines {
                directory.pop();
            }
            directory.insert(line.wrapping_mul(7919));
        }
        assert_eq!(directory.len(), lines);
        let bytes = directory.bytes() as f64 / lines as f64;
        eprintln!("{bytes:.1} bytes a cached line ({} of them in the slot)", size_of::<Slot>());
        assert!(bytes <= 40.0, "{bytes} bytes a line");
    }

    proptest! {
        /// The LRU here and the pager's both behave exactly like a queue.
        #[test]
        fn behaves_as_a_queue(steps in prop::collection::vec((0_u8..10, 0_u32..30), 0..400)) {
            let mut own = Directory::new("lru", 10).expect("lru");
            let mut paged = Directory::new("lru", 10).expect("lru");
            paged.order = Order::Policy(replacement::by_name("lru", 10).expect("lru"));
            let mut model: VecDeque<u32> = VecDeque::new();
            for (step, line) in steps {
                let place = model.iter().position(|&other| other == line);
                for directory in [&mut own, &mut paged] {
                    prop_assert_eq!(directory.find(line).is_some(), place.is_some());
                    match (step, directory.find(line)) {
                        (0, _) => {
                            prop_assert_eq!(directory.pop().map(|left| left.line), model.front().copied());
                        }
                        (1, Some(slot)) => prop_assert_eq!(directory.remove(slot).line, line),
                        (1, None) => {}
                        (_, Some(slot)) => directory.touch(slot),
                        (_, None) => { directory.insert(line); }
                    }
                }
                match (step, place) {
                    (0, _) => { model.pop_front(); }
                    (1, place) => { place.and_then(|place| model.remove(place)); }
                    (_, place) => {
                        place.and_then(|place| model.remove(place));
                        model.push_back(line);
                    }
                }
                prop_assert_eq!(own.len(), model.len());
                prop_assert_eq!(paged.len(), model.len());
            }
        }
    }
}
