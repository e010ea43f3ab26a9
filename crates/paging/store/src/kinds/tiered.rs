//! Stores in order, the fastest first: a block is written to the first that accepts it.
//!
//! A block keeps its place while it is only read. If it is written again, it goes to the first
//! store that accepts it then. So used blocks come back to the fast stores without an extra
//! transfer. If a store has one of an extent's slots, the whole extent has a place in it, so that
//! neighbours stay neighbours.

use crate::EXTENT;
use crate::common::bits::Bits;
use crate::common::extents::room_for_numbers;
use crate::common::pieces::{KeptPieces, cut};
use crate::shelf::{
    Below, BelowMut, Ended, Error, Failure, Notes, Op, OpKind, Presence, Spread, Store, StoreRing, Why,
};
use std::collections::VecDeque;
use std::ops::Range;
use terapage_sys::ring::{Done, Piece};

/// One of the stores.
pub struct Tier {
    /// The store.
    pub store: Box<dyn Store>,
    /// Whether it accepts some blocks and not others, so that each needs a separate write.
    pub choosy: bool,
}

/// One store, with the places of its extents.
struct Level {
    store: Box<dyn Store>,
    choosy: bool,
    /// For each extent, its number here, or none; and the number of its slots that are here.
    extents: Vec<(u32, u32)>,
    /// The free extents here, and the number of all.
    free: Vec<u32>,
    used: u32,
}

/// No level has the slot, or there is no extent.
const NOWHERE: u8 = u8::MAX;
const NO_EXTENT: u32 = u32::MAX;

/// Stores in order.
pub struct Tiered {
    levels: Vec<Level>,
    block: usize,
    per_extent: u32,
    /// For each slot, its level.
    has: Vec<u8>,
    /// Slots whose blocks a choosy level with room did not accept.
    refused: Bits,
    operations: Notes<Operation>,
    /// Operations of the levels, by their numbers there.
    parts: Notes<Part>,
    /// The sources of each read, by its number.
    came: Vec<Vec<Came>>,
    /// Completions of the levels that were not yet handled.
    ends: VecDeque<(usize, Ended)>,
    scratch: Vec<Ended>,
}

/// An operation of the caller, until all its parts have ended.
struct Operation {
    left: u32,
    failure: Option<Failure>,
}

/// A part of an operation, in one level.
struct Part {
    id: u32,
    kind: OpKind,
    slots: Range<u32>,
    level: usize,
    urgent: bool,
    /// The caller's array, and the byte of it at which the part begins.
    all: KeptPieces,
    from: usize,
    /// The part's pieces, if these are not all pieces.
    own: Vec<Piece>,
    /// A completed read that only keeps its number.
    ended: bool,
}

/// A completed read, which may be judged: the number of its part in its level, and the slots there.
/// The number is not reused until the operation's number is.
struct Came {
    number: u32,
    level: usize,
    here: Range<u32>,
}

impl Level {
    /// The place of a slot here: its extent gets a place if it had none.
    ///
    /// # Errors
    /// There is no room for another extent.
    fn place(&mut self, slot: u32, per_extent: u32) -> Result<u32, Error> {
        let extent = (slot / per_extent) as usize;
        if self.extents[extent].0 == NO_EXTENT {
            let number = match self.free.pop() {
                Some(number) => number,
                None => {
                    if self.store.slots() < (self.used + 1) * per_extent {
                        self.store.grow()?;
                    }
                    self.used += 1;
                    self.used - 1
                }
            };
            self.extents[extent] = (number, 0);
        }
        Ok(self.extents[extent].0 * per_extent + slot % per_extent)
    }

    /// Whether this is memory with room. Memory answers alike for all its slots.
    fn is_roomy(&self) -> bool {
        self.choosy && !self.store.wants_back(0)
    }

    /// A slot is here from now on.
    fn take(&mut self, slot: u32, per_extent: u32) {
        self.extents[(slot / per_extent) as usize].1 += 1;
    }

    /// A slot is no longer here.
    fn drop_slot(&mut self, slot: u32, per_extent: u32) {
        let (number, count) = &mut self.extents[(slot / per_extent) as usize];
        let here = *number * per_extent + slot % per_extent;
        *count -= 1;
        self.store.forget(here..here + 1);
    }

    /// Gives up an extent that no longer has slots here, if no operation on it is under way.
    fn release(&mut self, extent: u32) {
        let (number, count) = &mut self.extents[extent as usize];
        if *number != NO_EXTENT && *count == 0 {
            self.free.push(*number);
            *number = NO_EXTENT;
        }
    }
}

impl Tiered {
    /// Slots of `block` bytes in these stores, of which the first is filled first.
    ///
    /// # Errors
    /// There are fewer than two stores, or too many.
    pub fn new(tiers: Vec<Tier>, block: usize) -> Result<Tiered, Error> {
        if tiers.len() < 2 || tiers.len() > StoreRing::INNER_MOST {
            let why = format!("has {} stores (2 to {} are possible)", tiers.len(), StoreRing::INNER_MOST);
            return Err(Error::Unfit { name: "tier".to_owned(), why });
        }
        let levels = tiers.into_iter().map(|tier| Level {
            store: tier.store,
            choosy: tier.choosy,
            extents: Vec::new(),
            free: Vec::new(),
            used: 0,
        });
        Ok(Tiered {
            levels: levels.collect(),
            block,
            per_extent: (EXTENT / block) as u32,
            has: Vec::new(),
            refused: Bits::default(),
            operations: Notes::default(),
            parts: Notes::default(),
            came: Vec::new(),
            ends: VecDeque::new(),
            scratch: Vec::new(),
        })
    }

    /// The uncompressed bytes in each level.
    pub fn level_bytes(&self) -> Vec<u64> {
        let slots = |level: &Level| level.extents.iter().map(|&(_, count)| u64::from(count)).sum::<u64>();
        self.levels.iter().map(|level| slots(level) * self.block as u64).collect()
    }

    /// Calls a level's store, and notes the completions that the call returned.
    fn with_level(
        &mut self,
        level: usize,
        ring: &mut StoreRing<'_>,
        call: impl FnOnce(&mut dyn Store, &mut StoreRing<'_>, &mut Vec<Ended>),
    ) {
        call(&mut *self.levels[level].store, &mut ring.inner(level), &mut self.scratch);
        self.ends.extend(self.scratch.drain(..).map(|end| (level, end)));
    }

    /// The slots from the first on that are in one level and one extent.
    fn together(&self, slots: &Range<u32>) -> Range<u32> {
        let level = self.has[slots.start as usize];
        let edge = (slots.start / self.per_extent + 1) * self.per_extent;
        let most = slots.start..slots.end.min(edge);
        let end = most.clone().find(|&slot| self.has[slot as usize] != level).unwrap_or(most.end);
        slots.start..end
    }

    /// Begins a write of some slots of one extent in the first level with room, from the part's
    /// level on.
    fn write(&mut self, ring: &mut StoreRing<'_>, mut part: Part) {
        let mut failed = String::new();
        while part.level < self.levels.len() {
            match self.levels[part.level].place(part.slots.start, self.per_extent) {
                Ok(_) if self.levels[part.level].choosy && part.slots.len() > 1 => {
                    return self.write_each(ring, &part);
                }
                Ok(here) => {
                    let number = self.parts.add(part);
                    return self.begin_part(ring, number, here);
                }
                Err(error) => failed = error.to_string(),
            }
            part.level += 1;
        }
        self.part_ended(part.id, Err(Failure::lasting(Why::Text(failed))));
        self.release(part.slots.start / self.per_extent);
    }

    /// Writes each slot by itself.
    fn write_each(&mut self, ring: &mut StoreRing<'_>, part: &Part) {
        let operation = self.operations.get_mut(part.id).expect("an operation under way");
        operation.left += part.slots.len() as u32 - 1;
        for (index, slot) in part.slots.clone().enumerate() {
            let (slots, from) = (slot..slot + 1, part.from + index * self.block);
            self.write(ring, Part { slots, from, own: Vec::new(), ended: false, ..*part });
        }
    }

    /// Begins a part of an operation, whose first slot is `here` in its level.
    fn begin_part(&mut self, ring: &mut StoreRing<'_>, number: u32, here: u32) {
        let part = self.parts.get_mut(number).expect("noted just now");
        let (level, kind, urgent, len) = (part.level, part.kind, part.urgent, part.slots.len() * self.block);
        let pieces = if part.all.get().iter().map(Piece::len).sum::<usize>() == len {
            part.all
        } else {
            part.own = cut(part.all.get(), part.from, len);
            // SAFETY: the note of the part has this array until the part has ended.
            unsafe { KeptPieces::new(&part.own) }
        };
        self.with_level(level, ring, |store, ring, ended| {
            let op = Op { id: number, kind, slot: here, pieces: pieces.get(), urgent };
            // SAFETY: the array is kept, and the caller keeps the memory until all parts of its
            // operation have ended.
            unsafe { store.begin(ring, op, ended) }
        });
    }

    /// Handles all completions, and those that result from them.
    fn settle(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        while let Some((_, end)) = self.ends.pop_front() {
            let part = self.parts.get_mut(end.id).expect("a part under way");
            let id = part.id;
            if part.kind == OpKind::Read {
                // Its number stays until the operation's number is reused.
                (part.own, part.ended) = (Vec::new(), true);
                self.part_ended(id, end.result);
                self.end(id, ended);
                continue;
            }
            let mut part = self.parts.take(end.id).expect("looked at just now");
            match end.result {
                Ok(()) => {
                    self.wrote(&part);
                    self.part_ended(id, Ok(()));
                }
                // If one store fails, the next one is tried.
                Err(_) if part.level + 1 < self.levels.len() => {
                    self.join_failed(&mut part);
                    if self.levels[part.level].is_roomy() {
                        self.refused.insert(part.slots.clone());
                    }
                    part.level += 1;
                    self.write(ring, part);
                }
                failed => {
                    self.part_ended(id, failed);
                    self.release(part.slots.start / self.per_extent);
                }
            }
            self.end(id, ended);
        }
    }

    /// The slots after a part that failed in the same level join it, in one operation.
    fn join_failed(&mut self, part: &mut Part) {
        while let Some((_, next)) = self.ends.front() {
            let is_next = |other: &mut Part| {
                let edge = part.slots.end.is_multiple_of(self.per_extent);
                let same = other.id == part.id && other.level == part.level && other.kind == part.kind;
                same && other.slots.start == part.slots.end && !edge
            };
            if next.result.is_ok() || !self.parts.get_mut(next.id).is_some_and(is_next) {
                return;
            }
            let other = self.parts.take(next.id).expect("looked at just now");
            part.slots.end = other.slots.end;
            self.ends.pop_front();
            self.part_ended(part.id, Ok(()));
        }
    }

    /// A part of an operation has ended.
    fn part_ended(&mut self, id: u32, result: Result<(), Failure>) {
        let operation = self.operations.get_mut(id).expect("an operation under way");
        operation.left -= 1;
        if let Err(failure) = result {
            operation.failure.get_or_insert(failure);
        }
    }

    /// Completes an operation that no longer has parts.
    fn end(&mut self, id: u32, ended: &mut Vec<Ended>) {
        if self.operations.get_mut(id).is_some_and(|operation| operation.left == 0) {
            let operation = self.operations.take(id).expect("looked at just now");
            ended.push(Ended { id, result: operation.failure.map_or(Ok(()), Err) });
        }
    }

    /// A part was written: its level has its slots, and no other level does.
    fn wrote(&mut self, part: &Part) {
        for slot in part.slots.clone() {
            let level = std::mem::replace(&mut self.has[slot as usize], part.level as u8);
            if usize::from(level) == part.level {
                continue;
            }
            self.levels[part.level].take(slot, self.per_extent);
            if level != NOWHERE {
                self.levels[usize::from(level)].drop_slot(slot, self.per_extent);
            }
        }
        self.release(part.slots.start / self.per_extent);
    }

    /// Gives up the places of an extent in levels without its slots, unless an operation there is
    /// under way.
    fn release(&mut self, extent: u32) {
        let per_extent = self.per_extent;
        if !self.parts.iter().any(|part| !part.ended && part.slots.start / per_extent == extent) {
            self.levels.iter_mut().for_each(|level| level.release(extent));
        }
    }

    /// Begins a read of slots that are in one level and one extent. A repeated read keeps its
    /// number.
    fn read(&mut self, ring: &mut StoreRing<'_>, mut part: Part, last: &mut Vec<Came>) {
        let level = self.has[part.slots.start as usize];
        if level == NOWHERE {
            let why = Why::Text("nothing was written there".to_owned());
            return self.part_ended(part.id, Err(Failure::lasting(why)));
        }
        part.level = usize::from(level);
        let place = self.levels[part.level].place(part.slots.start, self.per_extent);
        let start = place.expect("an extent that has a place");
        let (id, level, here) = (part.id, part.level, start..start + part.slots.len() as u32);
        let again = last.iter().position(|came| came.level == level && came.here == here);
        let number = match again.map(|index| last.swap_remove(index).number) {
            Some(number) => {
                self.parts.take(number);
                self.parts.put(number, part);
                number
            }
            None => self.parts.add(part),
        };
        self.came[id as usize].push(Came { number, level, here });
        self.begin_part(ring, number, start);
    }

    /// The notes about the last read of this number.
    fn take_came(&mut self, id: u32) -> Vec<Came> {
        let index = id as usize;
        if index >= self.came.len() {
            self.came.resize_with(index + 1, Vec::new);
        }
        std::mem::take(&mut self.came[index])
    }
}

impl Store for Tiered {
    fn name(&self) -> String {
        let names: Vec<_> = self.levels.iter().map(|level| level.store.name()).collect();
        names.join(", then ")
    }

    fn slots(&self) -> u32 {
        self.has.len() as u32
    }

    /// Which store provides the room becomes known when a block is written.
    fn grow(&mut self) -> Result<(), Error> {
        room_for_numbers(self.has.len() / self.per_extent as usize, self.block, || self.name())?;
        self.has.resize(self.has.len() + self.per_extent as usize, NOWHERE);
        self.levels.iter_mut().for_each(|level| level.extents.push((NO_EXTENT, 0)));
        Ok(())
    }

    fn below(&self) -> Below<'_> {
        Below::Spread(self)
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Spread(self)
    }

    fn may_split(&self, more: usize) -> bool {
        let extents = self.has.len() / self.per_extent as usize;
        let has_numbers = room_for_numbers(extents, self.block / more, || self.name()).is_ok();
        has_numbers && self.levels.iter().all(|level| level.store.may_split(more))
    }

    fn split(&mut self, more: usize) {
        let numbers = more as u32;
        for level in &mut self.levels {
            level.store.split(more);
            level.extents.iter_mut().for_each(|(_, count)| *count *= numbers);
        }
        self.has = self.has.iter().flat_map(|&level| std::iter::repeat_n(level, more)).collect();
        self.refused.split(numbers);
        // The reads that they belong to were judged.
        (self.came, self.parts) = Default::default();
        self.per_extent *= numbers;
        self.block /= more;
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        let (id, kind, urgent) = (op.id, op.kind, op.urgent);
        let slots = op.slot..op.slot + (op.bytes() / self.block) as u32;
        // SAFETY: the caller keeps the array until the operation has ended, which is when all its
        // parts have: a note that lasts longer only has the number of a read.
        let all = unsafe { KeptPieces::new(op.pieces) };
        let mut last = self.take_came(id);
        if kind == OpKind::Write {
            self.refused.remove(slots.clone());
        }
        // The count is one more than the number of parts, until all have begun.
        self.operations.put(id, Operation { left: 1, failure: None });
        let mut rest = slots.clone();
        while !rest.is_empty() {
            let edge = (rest.start / self.per_extent + 1) * self.per_extent;
            let run = match kind {
                OpKind::Read => self.together(&rest),
                OpKind::Write => rest.start..rest.end.min(edge),
            };
            rest.start = run.end;
            let from = (run.start - slots.start) as usize * self.block;
            let own = Vec::new();
            let part = Part { id, kind, slots: run, level: 0, urgent, all, from, own, ended: false };
            self.operations.get_mut(id).expect("noted above").left += 1;
            match kind {
                OpKind::Read => self.read(ring, part, &mut last),
                OpKind::Write => self.write(ring, part),
            }
        }
        last.into_iter().for_each(|came| drop(self.parts.take(came.number)));
        self.part_ended(id, Ok(()));
        self.end(id, ended);
        self.settle(ring, ended);
    }

    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        let (level, done) = ring.inner_of(done).expect("only levels have something in the ring");
        self.with_level(level, ring, |store, ring, ended| store.event(ring, done, ended));
        self.settle(ring, ended);
    }

    fn inherit(&mut self) -> Result<(), Error> {
        self.operations.clear();
        self.parts.clear();
        self.came.clear();
        self.ends.clear();
        self.levels.iter_mut().try_for_each(|level| level.store.inherit())
    }

    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        for level in 0..self.levels.len() {
            self.with_level(level, ring, |store, ring, ended| store.open(ring, ended));
        }
        self.settle(ring, ended);
    }

    fn presence(&self) -> Presence<'_> {
        let all = || self.levels.iter().map(|level| level.store.presence());
        let (answers, drains) = (all().all(|level| level.answers), all().any(|level| level.drains));
        let since_ns = all().map(|level| level.since_ns).max().unwrap_or(0);
        let server = all().next_back().map_or("", |last| last.server);
        Presence { answers, drains, since_ns, server, ..Presence::default() }
    }
}

/// A slot lies in its level.
impl Spread for Tiered {
    fn part(&self, index: usize) -> Option<&dyn Store> {
        self.levels.get(index).map(|level| &*level.store as &dyn Store)
    }

    fn part_mut(&mut self, index: usize) -> Option<&mut dyn Store> {
        self.levels.get_mut(index).map(|level| &mut *level.store as &mut dyn Store)
    }

    fn judge_parts(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        _slots: Range<u32>,
        good: bool,
        ended: &mut Vec<Ended>,
    ) {
        let came = std::mem::take(&mut self.came[id as usize]);
        for Came { number, level, here } in &came {
            let (number, here) = (*number, here.clone());
            self.with_level(*level, ring, |store, ring, ended| store.judge(ring, number, here, good, ended));
        }
        self.came[id as usize] = came;
        self.settle(ring, ended);
    }

    fn forget_parts(&mut self, slots: Range<u32>) {
        self.refused.remove(slots.clone());
        for slot in slots.clone() {
            let level = std::mem::replace(&mut self.has[slot as usize], NOWHERE);
            if level != NOWHERE {
                self.levels[usize::from(level)].drop_slot(slot, self.per_extent);
            }
        }
        for extent in slots.start / self.per_extent..slots.end.div_ceil(self.per_extent) {
            self.release(extent);
        }
    }

    fn part_wants_back(&self, slot: u32) -> bool {
        let level = self.has[slot as usize];
        if level == NOWHERE {
            return false;
        }
        let (faster, rest) = self.levels.split_at(usize::from(level));
        let here =
            rest[0].extents[(slot / self.per_extent) as usize].0 * self.per_extent + slot % self.per_extent;
        rest[0].store.wants_back(here) || !self.refused.has(slot) && faster.iter().any(Level::is_roomy)
    }

    fn whereabouts_of_part(&self, slot: u32) -> Option<String> {
        let level = self.levels.get(usize::from(*self.has.get(slot as usize)?))?;
        let (number, _) = level.extents[(slot / self.per_extent) as usize];
        level.store.whereabouts(number * self.per_extent + slot % self.per_extent)
    }

    fn take_lost_of_parts(&mut self, tell: &mut dyn FnMut(Range<u32>)) {
        let (per_extent, mut lost) = (self.per_extent, Vec::new());
        for (index, level) in self.levels.iter_mut().enumerate() {
            level.store.take_lost(&mut |slots| lost.extend(slots));
            if lost.is_empty() {
                continue;
            }
            let mut extent_of = vec![None; level.used as usize];
            for (extent, &(number, _)) in level.extents.iter().enumerate() {
                extent_of.get_mut(number as usize).into_iter().for_each(|of| *of = Some(extent as u32));
            }
            for here in lost.drain(..) {
                let Some(&Some(extent)) = extent_of.get((here / per_extent) as usize) else { continue };
                let slot = extent * per_extent + here % per_extent;
                if usize::from(self.has[slot as usize]) == index {
                    tell(slot..slot + 1);
                }
            }
        }
    }
}
