//! The flat mapping between units of the host and slots of the flash: 4 bytes for each unit and
//! each slot.

const NOWHERE: u32 = u32::MAX;
const BUFFERED: u32 = 1 << 31;

/// The place of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The unit was never written, or it was trimmed.
    Nowhere,
    /// In this slot of the flash.
    Slot(u32),
    /// In this entry of the controller's memory.
    Entry(u32),
}

/// The mapping in both directions. A slot has a unit if and only if the unit is in that slot.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    units: Vec<u32>,
    slots: Vec<u32>,
}

impl Map {
    pub(crate) fn new(units: u32, slots: u32) -> Map {
        Map { units: vec![NOWHERE; units as usize], slots: vec![NOWHERE; slots as usize] }
    }

    pub(crate) fn place(&self, unit: u32) -> Place {
        match self.units[unit as usize] {
            NOWHERE => Place::Nowhere,
            word if word & BUFFERED != 0 => Place::Entry(word & !BUFFERED),
            slot => Place::Slot(slot),
        }
    }

    /// The slot of a unit, if it has one; `None` also for a unit that does not exist. For early
    /// lookups.
    pub(crate) fn guess_slot(&self, unit: u32) -> Option<u32> {
        self.units.get(unit as usize).copied().filter(|&word| word & BUFFERED == 0)
    }

    pub(crate) fn unit_in(&self, slot: u32) -> Option<u32> {
        let unit = self.slots[slot as usize];
        (unit != NOWHERE).then_some(unit)
    }

    /// The units of `count` slots from `slot`.
    pub(crate) fn units_in(&self, slot: u32, count: u32) -> impl Iterator<Item = Option<u32>> {
        let (from, to) = (slot as usize, (slot + count) as usize);
        self.slots[from..to].iter().map(|&unit| (unit != NOWHERE).then_some(unit))
    }

    /// Loads the places of the units in the slots from `first` to before `end` into the processor's
    /// caches.
    pub(crate) fn look_up_units(&self, first: u32, end: u32) {
        let units = self.slots[first as usize..end as usize].iter();
        let place = |&unit: &u32| self.units.get(unit as usize).copied().unwrap_or(0);
        std::hint::black_box(units.map(place).fold(0, u32::wrapping_add));
    }

    pub(crate) fn put_in_slot(&mut self, unit: u32, slot: u32) {
        debug_assert_eq!(self.slots[slot as usize], NOWHERE);
        self.units[unit as usize] = slot;
        self.slots[slot as usize] = unit;
    }

    pub(crate) fn put_in_entry(&mut self, unit: u32, entry: u32) {
        self.units[unit as usize] = entry | BUFFERED;
    }

    pub(crate) fn put_nowhere(&mut self, unit: u32) {
        self.units[unit as usize] = NOWHERE;
    }

    pub(crate) fn empty_slot(&mut self, slot: u32) {
        self.slots[slot as usize] = NOWHERE;
    }

    /// Both arrays, for preconditioning, which fills them at once.
    pub(crate) fn arrays(&mut self) -> (&mut [u32], &mut [u32]) {
        (&mut self.units, &mut self.slots)
    }
}
