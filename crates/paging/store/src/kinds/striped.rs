//! Several stores as one: extents spread over them.

use crate::common::bits::Bits;
use crate::common::extents::{extents_of, extents_to_add, room_for_numbers, used_up};
use crate::{Below, BelowMut, EXTENT, Ended, Error, Op, Spread, Store, StoreRing};
use std::ops::Range;
use terapage_sys::ring::Done;
use terapage_sys::thread::{now_ns, say};

/// How extents spread over several stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Fills one, then the next.
    Simple,
    /// Take turns.
    RoundRobin,
}

/// One of them.
struct Part {
    store: Box<dyn Store>,
    /// The number of its extents that are in use here.
    used: u32,
}

/// Opens stores that join those of a [`Striped`]. It is called about once a second.
pub type Joins = Box<dyn FnMut() -> Vec<Box<dyn Store>> + Send>;

/// The time between two looks for stores that join, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// Several stores as one.
pub struct Striped {
    parts: Vec<Part>,
    /// For each extent, its part and its first slot there.
    extents: Vec<(u16, u32)>,
    placement: Placement,
    next: usize,
    per_extent: u32,
    block: usize,
    limit: Option<u64>,
    joins: Option<Joins>,
    /// The number of slots that each slot of a new store becomes.
    split_into: usize,
    /// The time of the next look for stores that join.
    look_ns: u64,
}

impl Striped {
    /// A store of slots of `block` bytes over `stores`, whose slots have the same size. With
    /// `limit` its bytes are reserved at once, and the store never takes more.
    ///
    /// # Errors
    /// There is no room for `limit`, or there are too many stores.
    pub fn new(
        stores: Vec<Box<dyn Store>>,
        placement: Placement,
        block: usize,
        limit: Option<u64>,
    ) -> Result<Striped, Error> {
        let per_extent = (EXTENT / block) as u32;
        let parts: Vec<_> = stores.into_iter().map(|store| Part { store, used: 0 }).collect();
        let mut striped = Striped {
            parts,
            extents: Vec::new(),
            placement,
            next: 0,
            per_extent,
            block,
            limit,
            joins: None,
            split_into: 1,
            look_ns: 0,
        };
        if striped.parts.is_empty() || striped.parts.len() > StoreRing::INNER_MOST {
            let why = format!("are {} (1 to {} are possible)", striped.parts.len(), StoreRing::INNER_MOST);
            return Err(Error::Unfit { name: "stores".to_owned(), why });
        }
        for _ in 0..limit.map_or(0, extents_of) {
            striped.add_extent()?;
        }
        Ok(striped)
    }

    /// The same store, which adds the stores that `joins` opens: new extents go there, too.
    #[must_use]
    pub fn joined_by(self, joins: Joins) -> Striped {
        Striped { joins: Some(joins), ..self }
    }

    /// Takes up stores that join.
    fn look(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        let Some(joins) = &mut self.joins else { return };
        let now_ns = now_ns();
        if now_ns < self.look_ns {
            return;
        }
        self.look_ns = now_ns + LOOK_NS;
        for mut store in joins() {
            let (index, more) = (self.parts.len(), self.split_into);
            if more > 1 && !store.may_split(more) {
                let name = store.name();
                say(&format!(
                    "terapage: warning: store {name} cannot have such small blocks: it is not used\n"
                ));
                continue;
            }
            if more > 1 {
                store.split(more);
            }
            if index == StoreRing::INNER_MOST {
                say(&format!("terapage: warning: store {} is one too many: it is not used\n", store.name()));
                continue;
            }
            self.parts.push(Part { store, used: 0 });
            self.parts[index].store.open(&mut ring.inner(index), ended);
        }
    }

    fn add_extent(&mut self) -> Result<(), Error> {
        room_for_numbers(self.extents.len(), self.block, || self.name())?;
        let mut full = None;
        // A store that does not answer gets no new extents if there is another.
        for turn in 0..2 * self.parts.len() {
            let index = self.next;
            if self.parts[index].store.presence().answers != (turn < self.parts.len()) {
                self.next = (index + 1) % self.parts.len();
                continue;
            }
            match self.parts[index].take(self.per_extent) {
                Ok(slot) => {
                    self.extents.push((index as u16, slot));
                    if self.placement == Placement::RoundRobin {
                        self.next = (index + 1) % self.parts.len();
                    }
                    return Ok(());
                }
                Err(Error::Full { why, .. }) => {
                    self.next = (index + 1) % self.parts.len();
                    full = Some(why);
                }
                Err(other) => return Err(other),
            }
        }
        Err(Error::Full { name: self.name(), why: full.unwrap_or_default() })
    }

    /// The part that has a slot, and the slot's number there.
    fn locate(&self, slot: u32) -> (usize, u32) {
        let (part, first) = self.extents[(slot / self.per_extent) as usize];
        (usize::from(part), first + slot % self.per_extent)
    }

    /// Calls `act` for each run of slots in one extent: with its part, the part's number, and the
    /// slots there.
    fn each(&mut self, slots: Range<u32>, mut act: impl FnMut(&mut dyn Store, usize, Range<u32>)) {
        let mut slot = slots.start;
        while slot < slots.end {
            let end = (slot / self.per_extent + 1) * self.per_extent;
            let (part, first) = self.locate(slot);
            let count = end.min(slots.end) - slot;
            act(&mut *self.parts[part].store, part, first..first + count);
            slot += count;
        }
    }
}

impl Part {
    /// Adds an extent to this store, and returns its first slot.
    fn take(&mut self, per_extent: u32) -> Result<u32, Error> {
        let slot = self.used * per_extent;
        if self.store.slots() < slot + per_extent {
            self.store.grow()?;
        }
        self.used += 1;
        Ok(slot)
    }
}

impl Store for Striped {
    fn name(&self) -> String {
        let names: Vec<_> = self.parts.iter().map(|part| part.store.name()).collect();
        names.join(", ")
    }

    fn slots(&self) -> u32 {
        self.extents.len() as u32 * self.per_extent
    }

    fn grow(&mut self) -> Result<(), Error> {
        if let Some(limit) = self.limit {
            return Err(used_up(self.name(), limit));
        }
        let more = extents_to_add(self.extents.len());
        self.add_extent()?;
        for _ in 1..more {
            if self.add_extent().is_err() {
                break;
            }
        }
        Ok(())
    }

    fn below(&self) -> Below<'_> {
        Below::Spread(self)
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Spread(self)
    }

    fn joins(&self, slot: u32) -> bool {
        if slot == 0 || slot >= self.slots() {
            return false;
        }
        let ((before, last), (part, first)) = (self.locate(slot - 1), self.locate(slot));
        before == part && first == last + 1 && self.parts[part].store.joins(first)
    }

    fn may_split(&self, more: usize) -> bool {
        let has_numbers = room_for_numbers(self.extents.len(), self.block / more, || self.name()).is_ok();
        has_numbers && self.parts.iter().all(|part| part.store.may_split(more))
    }

    fn split(&mut self, more: usize) {
        self.parts.iter_mut().for_each(|part| part.store.split(more));
        let numbers = more as u32;
        self.extents.iter_mut().for_each(|(_, first)| *first *= numbers);
        self.per_extent *= numbers;
        self.block /= more;
        self.split_into *= more;
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        let (part, slot) = self.locate(op.slot);
        // Slots that join also do so in their part.
        // SAFETY: the operation ends when the part's does: until then the caller keeps the pieces
        // and their memory.
        unsafe { self.parts[part].store.begin(&mut ring.inner(part), Op { slot, ..op }, ended) }
    }

    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        let (part, done) = ring.inner_of(done).expect("only parts have something in the ring");
        self.parts[part].store.event(&mut ring.inner(part), done, ended);
        self.look(ring, ended);
    }

    fn inherit(&mut self) -> Result<(), Error> {
        self.joins = None;
        self.parts.iter_mut().try_for_each(|part| part.store.inherit())
    }
}

/// A slot lies in its extent's part.
impl Spread for Striped {
    fn part(&self, index: usize) -> Option<&dyn Store> {
        self.parts.get(index).map(|part| &*part.store as &dyn Store)
    }

    fn part_mut(&mut self, index: usize) -> Option<&mut dyn Store> {
        self.parts.get_mut(index).map(|part| &mut *part.store as &mut dyn Store)
    }

    fn judge_parts(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        slots: Range<u32>,
        good: bool,
        ended: &mut Vec<Ended>,
    ) {
        self.each(slots, |store, part, slots| store.judge(&mut ring.inner(part), id, slots, good, ended));
    }

    fn forget_parts(&mut self, slots: Range<u32>) {
        self.each(slots, |store, _, slots| store.forget(slots));
    }

    fn part_wants_back(&self, slot: u32) -> bool {
        let (part, slot) = self.locate(slot);
        self.parts[part].store.wants_back(slot)
    }

    fn whereabouts_of_part(&self, slot: u32) -> Option<String> {
        let (part, slot) = self.locate(slot);
        let part = &self.parts[part].store;
        Some(
            part.whereabouts(slot).map_or_else(|| part.name(), |place| format!("{place} of {}", part.name())),
        )
    }

    fn take_lost_of_parts(&mut self, tell: &mut dyn FnMut(Range<u32>)) {
        let per_extent = self.per_extent;
        for (index, part) in self.parts.iter_mut().enumerate() {
            let mut lost = Bits::default();
            part.store.take_lost(&mut |slots| lost.insert(slots));
            let here = (0..).zip(&self.extents).filter(|&(_, &(part, _))| usize::from(part) == index);
            for (extent, &(_, first)) in here {
                let is_lost = |&at: &u32| lost.has(first + at);
                (0..per_extent).filter(is_lost).for_each(|at| {
                    let slot = extent * per_extent + at;
                    tell(slot..slot + 1);
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Rig;
    use crate::{FileStore, OpKind, Ram};

    const BLOCK: usize = 1 << 20;

    #[test]
    fn extents_of_two_stores_do_not_lie_together() {
        let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let files = places.iter().map(|place| FileStore::open(place.path(), BLOCK, None).unwrap());
        let files = files.map(|file| Box::new(file) as Box<dyn Store>).collect();
        let store = Striped::new(files, Placement::RoundRobin, BLOCK, Some(4 * EXTENT as u64)).unwrap();
        let edges: Vec<_> = (0..8).step_by(2).map(|slot| store.joins(slot)).collect();
        assert_eq!(edges, [false; 4]);
    }

    #[test]
    fn stores_that_join_get_new_extents() {
        let more: Vec<Box<dyn Store>> = vec![Box::new(Ram::new(BLOCK, 8 * EXTENT))];
        let mut more = Some(more);
        let first: Vec<Box<dyn Store>> = vec![Box::new(Ram::new(BLOCK, 2 * EXTENT))];
        let store = Striped::new(first, Placement::RoundRobin, BLOCK, None).unwrap();
        let store = store.joined_by(Box::new(move || more.take().unwrap_or_default()));
        let Some(mut rig) = Rig::new(store, BLOCK) else { return };
        while rig.store.grow().is_ok() {}
        assert_eq!(rig.store.slots(), 4);
        rig.in_ring(|store, ring| store.look(ring, &mut Vec::new()));
        while rig.store.grow().is_ok() {}
        assert_eq!(rig.store.slots(), 20);
        for slot in 0..20 {
            rig.memory().fill(slot as u8 + 1);
            rig.operate(OpKind::Write, slot, BLOCK).unwrap();
        }
        for slot in 0..20 {
            rig.operate(OpKind::Read, slot, BLOCK).unwrap();
            assert!(rig.memory().iter().all(|&byte| byte == slot as u8 + 1), "slot {slot}");
        }
    }

    #[test]
    fn a_store_that_joins_after_a_split_has_slots_of_the_same_size() {
        let mut more: Option<Vec<Box<dyn Store>>> = Some(vec![Box::new(Ram::new(BLOCK, 8 * EXTENT))]);
        let first: Vec<Box<dyn Store>> = vec![Box::new(Ram::new(BLOCK, 2 * EXTENT))];
        let store = Striped::new(first, Placement::RoundRobin, BLOCK, None).unwrap();
        let store = store.joined_by(Box::new(move || more.take().unwrap_or_default()));
        let Some(mut rig) = Rig::new(store, BLOCK / 4) else { return };
        rig.store.split(4);
        rig.in_ring(|store, ring| store.look(ring, &mut Vec::new()));
        while rig.store.grow().is_ok() {}
        assert_eq!(rig.store.slots(), 80);
        for slot in 0..80 {
            rig.memory().fill(slot as u8 + 1);
            rig.operate(OpKind::Write, slot, BLOCK / 4).unwrap();
        }
        for slot in 0..80 {
            rig.operate(OpKind::Read, slot, BLOCK / 4).unwrap();
            assert!(rig.memory().iter().all(|&byte| byte == slot as u8 + 1), "slot {slot}");
        }
    }

    #[test]
    fn what_is_spread_over_stores_of_different_sizes_comes_back() {
        for placement in [Placement::Simple, Placement::RoundRobin] {
            let sizes = [1, 3, 2].map(|extents| extents * EXTENT);
            let parts = sizes.map(|size| Box::new(Ram::new(BLOCK, size)) as Box<dyn Store>);
            let mut store = Striped::new(parts.into(), placement, BLOCK, None).unwrap();
            while store.grow().is_ok() {}
            assert_eq!(store.slots(), 12);
            assert!(store.grow().unwrap_err().to_string().contains("full"), "{placement:?}");
            let Some(mut rig) = Rig::new(store, BLOCK) else { return };
            for slot in 0..12 {
                rig.memory().fill(slot as u8 + 1);
                rig.operate(OpKind::Write, slot, BLOCK).unwrap();
            }
            for slot in 0..12 {
                rig.operate(OpKind::Read, slot, BLOCK).unwrap();
                assert!(rig.memory().iter().all(|&byte| byte == slot as u8 + 1), "slot {slot}");
            }
        }
    }
}
