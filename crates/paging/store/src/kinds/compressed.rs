//! Blocks compressed on their way to another store, which moves and keeps fewer bytes.
//!
//! The other store has small slots, *units*. A block takes as many units as it fills, one after
//! another if there is room for that, otherwise anywhere: each unit knows the next unit of its
//! block. Blocks that are written together lie together, so that few operations suffice for them. A
//! block that would not shrink by a unit is stored as it is.
//!
//! Once slots are split, pages that are written are compressed each by itself. If a page is no
//! larger than a unit, several compressed pages that are written together share a unit, and no page
//! lies in two. So a page is read as from a store that does not compress. A block from before the
//! split stays whole, and each of its pages is a part of it, until the page is written again: for
//! that its slot is wanted back once the page is read, unless the whole block is read as fast.

use crate::EXTENT;
use crate::common::bits::Bits;
use crate::common::buffers::Buffers;
use crate::common::extents::room_for_numbers;
use crate::common::location::{Chains, Location, NOWHERE, PART};
use crate::common::packer::Packer;
use crate::common::pieces::{KeptPieces, copy, cut, each_block};
use crate::common::units::{NONE, Units};
use crate::shelf::{
    Below, BelowMut, Ended, Error, Failure, Notes, Op, OpKind, Spread, Store, StoreRing, Why,
};
use std::collections::VecDeque;
use std::ops::Range;
use terapage_config::Codec;
use terapage_sys::memory;
use terapage_sys::ring::{Done, Piece};

/// The most bytes of blocks on their way, in each direction; further operations wait.
const BUFFERS: usize = 2 * EXTENT;

/// Bytes that should lie together, if the store can grow instead.
const TOGETHER: usize = 128 << 10;

/// A store of compressed blocks.
pub struct Compressed<S> {
    inner: S,
    block: usize,
    unit: usize,
    packer: Packer,
    slots: Vec<Location>,
    units: Units,
    /// For each chain of units, by its first: the number of slots whose bytes are in it.
    users: Vec<u16>,
    /// The slots into which each slot was split; 1: slots are not split.
    parts_of_slot: usize,
    /// The inner store has all its room from the start. If it lasts only because blocks compress,
    /// it may not last for pages.
    fixed: bool,
    /// Compressed bytes, of reads and of writes.
    buffers: [Buffers; 2],
    /// Room for a block that lies in several pieces, for its compressed form, and for a block from
    /// before the split.
    whole: Vec<u8>,
    scattered: Vec<u8>,
    unsplit: Vec<u8>,
    operations: Notes<Operation>,
    /// Operations of the inner store, by their numbers there.
    parts: Notes<Part>,
    /// For each operation's number, the parts of its last read. Their numbers are not reused until
    /// the operation's number is.
    came: Vec<Vec<u32>>,
    /// Operations that have no buffers yet: reads, and writes.
    waiting: [VecDeque<u32>; 2],
    /// Completions of the inner store that were not yet handled.
    ends: VecDeque<Ended>,
    scratch: Vec<Ended>,
    /// Operations without parts under way.
    over: VecDeque<u32>,
    /// The inner store could not grow when last asked.
    full: bool,
    /// This is a fork's child: only the parent may write the units.
    inherited: bool,
}

/// An operation, until all its parts have ended.
struct Operation {
    kind: OpKind,
    slots: Range<u32>,
    urgent: bool,
    /// The caller's array.
    pieces: KeptPieces,
    /// Buffers that it has.
    buffers: Vec<Piece>,
    left: u32,
    failure: Option<Failure>,
}

/// A part of an operation: successive units.
struct Part {
    id: u32,
    units: Range<u32>,
    pieces: Vec<Piece>,
}

const READS: usize = 0;
const WRITES: usize = 1;

/// Why blocks of `block` bytes cannot be kept compressed in units of `unit` bytes, if so.
fn too_small(block: usize, unit: usize) -> Option<String> {
    let (block_kib, unit_kib) = (block >> 10, unit >> 10);
    (block < 2 * unit).then(|| {
        format!(
            "cannot keep blocks of {block_kib} KiB compressed: its smallest unit is {unit_kib} KiB (write \
             --block {}K or more)",
            2 * unit_kib
        )
    })
}

impl<S: Store> Compressed<S> {
    /// Keeps slots of `block` bytes in `inner`, whose slots have `unit` bytes.
    ///
    /// # Errors
    /// A block has fewer than two units, or there is no memory.
    pub fn new(inner: S, block: usize, unit: usize, codec: Codec) -> Result<Self, Error> {
        let name = inner.name();
        let unfit = |why: String| Error::Unfit { name: name.clone(), why };
        if let Some(why) = too_small(block, unit) {
            return Err(unfit(why));
        }
        let packer = Packer::new(codec, block);
        let packer = packer.ok_or_else(|| unfit("cannot compress: there is no memory".to_owned()))?;
        let buffers = [Buffers::new(BUFFERS, unit, &name)?, Buffers::new(BUFFERS, unit, &name)?];
        let mut units = Units::new((EXTENT / unit) as u32);
        units.grown(inner.slots());
        Ok(Compressed {
            users: vec![0; inner.slots() as usize],
            parts_of_slot: 1,
            fixed: inner.slots() > 0,
            unsplit: Vec::new(),
            inner,
            block,
            unit,
            packer,
            slots: Vec::new(),
            units,
            buffers,
            whole: vec![0; block],
            scattered: vec![0; block],
            operations: Notes::default(),
            parts: Notes::default(),
            came: Vec::new(),
            waiting: Default::default(),
            ends: VecDeque::new(),
            scratch: Vec::new(),
            over: VecDeque::new(),
            full: false,
            inherited: false,
        })
    }

    /// Bytes of the inner store that blocks use.
    pub fn used_bytes(&self) -> u64 {
        u64::from(self.units.used()) * self.unit as u64
    }

    /// Calls the inner store, and notes the operations that the call completed. There is only one
    /// inner store, and this store has no operations in the ring, so tokens need no prefix.
    fn call(
        &mut self,
        ring: &mut StoreRing<'_>,
        call: impl FnOnce(&mut S, &mut StoreRing<'_>, &mut Vec<Ended>),
    ) {
        call(&mut self.inner, ring, &mut self.scratch);
        self.ends.extend(self.scratch.drain(..));
    }

    fn grow_inner(&mut self) -> Result<(), Error> {
        let grown = self.inner.grow();
        self.full = grown.is_err();
        self.units.grown(self.inner.slots());
        self.users.resize(self.inner.slots() as usize, 0);
        grown
    }

    /// The number of buffer units that an operation needs: for a write a full block for each block,
    /// because it is unknown how far it compresses.
    fn buffers_of(&self, kind: usize, slots: &Range<u32>) -> usize {
        if kind == WRITES {
            return slots.len() * self.block / self.unit;
        }
        let (mut chains, mut units) = (Chains::default(), 0);
        for &location in &self.slots[slots.start as usize..slots.end as usize] {
            if !location.is_plain(self.block) && chains.place(location, units) == units {
                units += self.units_of(location.end()) as usize;
            }
        }
        units
    }

    /// Whether pages are not larger than units, so that pages share units.
    fn shares(&self) -> bool {
        self.block == self.unit
    }

    /// Begins the waiting operations for which there are buffers.
    fn begin_waiting(&mut self, ring: &mut StoreRing<'_>) {
        for kind in [READS, WRITES] {
            while let Some(&id) = self.waiting[kind].front() {
                let slots = self.operations.get_mut(id).expect("an operation that waits").slots.clone();
                let wanted = self.buffers_of(kind, &slots);
                let Some(buffers) = self.buffers[kind].take(wanted) else { break };
                let operation = self.operations.get_mut(id).expect("looked at just now");
                operation.buffers = buffers;
                self.waiting[kind].pop_front();
                match kind {
                    READS => self.begin_read(ring, id),
                    _ => self.begin_write(ring, id),
                }
            }
        }
    }

    fn begin_read(&mut self, ring: &mut StoreRing<'_>, id: u32) {
        let operation = self.operations.get_mut(id).expect("an operation that begins");
        let (slots, mut buffered) = (operation.slots.clone(), 0);
        let caller = operation.pieces;
        let (mut runs, mut memory): (Vec<Range<u32>>, Vec<Piece>) = (Vec::new(), Vec::new());
        let mut chains = Chains::default();
        for (index, slot) in slots.clone().enumerate() {
            let location = self.slots[slot as usize];
            if location.first == NONE {
                let why = Why::Text("nothing was written there".to_owned());
                operation.failure = Some(Failure::lasting(why));
                return self.part_ended(id, Ok(()));
            }
            if location.is_plain(self.block) {
                self.units.chain(location.first, &mut runs);
                memory.extend(cut(caller.get(), index * self.block, self.block));
            } else if chains.place(location, buffered) == buffered {
                let bytes = self.units.chain(location.first, &mut runs) as usize * self.unit;
                memory.extend(cut(&operation.buffers, buffered, bytes));
                buffered += bytes;
            }
        }
        let mut last = std::mem::take(&mut self.came[id as usize]);
        self.begin_parts(ring, id, &runs, &memory, &mut last);
        last.into_iter().for_each(|number| drop(self.parts.take(number)));
    }

    fn begin_write(&mut self, ring: &mut StoreRing<'_>, id: u32) {
        let operation = self.operations.get_mut(id).expect("an operation that begins");
        let slots = operation.slots.clone();
        let caller = operation.pieces;
        let buffers = std::mem::take(&mut operation.buffers);
        // SAFETY: the caller keeps the memory valid and unchanged; the buffers belong to this
        // operation.
        let (memory, places) = unsafe { self.pack_all(caller.get(), &buffers) };
        self.operations.get_mut(id).expect("looked at above").buffers = buffers;
        slots.clone().for_each(|slot| self.drop_slot(slot));
        let wanted = places.iter().filter(|place| place.0 == 0).map(|place| self.units_of(place.1)).sum();
        let mut runs = Vec::new();
        if let Err(why) = self.take(wanted, &mut runs) {
            runs.into_iter().for_each(|run| self.units.free(run));
            self.operations.get_mut(id).expect("looked at above").failure =
                Some(Failure::lasting(Why::Text(why)));
            return self.part_ended(id, Ok(()));
        }
        let (mut units, mut shared) = (runs.iter().cloned().flatten(), NONE);
        for (slot, (from, len)) in slots.zip(places) {
            let first = match from {
                0 => self.units.join(units.by_ref().take(self.units_of(len) as usize)),
                _ => shared,
            };
            let location = Location { first, from, len };
            self.slots[slot as usize] = location;
            self.users[first as usize] += 1;
            if !location.is_plain(self.block) {
                shared = first;
            }
        }
        self.begin_parts(ring, id, &runs, &memory, &mut Vec::new());
    }

    fn units_of(&self, len: u32) -> u32 {
        len.div_ceil(self.unit as u32)
    }

    /// Compresses the blocks in the pieces into buffers. Returns the memory to be written, in whole
    /// units, and for each block its place: where it begins in its chain, and its length. A block
    /// that does not begin its chain is in that of the last compressed block.
    ///
    /// # Safety
    /// The memory of both is valid, nobody writes to `pieces`, and nobody uses `buffers`.
    unsafe fn pack_all(&mut self, pieces: &[Piece], buffers: &[Piece]) -> (Vec<Piece>, Vec<(u32, u32)>) {
        let (block, unit, shares) = (self.block, self.unit, self.shares());
        // A page that has no neighbour to share with gains nothing.
        let alone = shares && pieces.iter().map(Piece::len).sum::<usize>() == block;
        let most = if shares { unit / 2 } else { block - unit };
        let (mut memory, mut places) = (Vec::new(), Vec::new());
        // The end of the buffers in use, and the bytes that are used of a unit that is shared.
        let (packer, mut end, mut used) = (&mut self.packer, 0, 0);
        let pack = |bytes: &mut [u8]| {
            let Some(packed) = (if alone { None } else { packer.pack(bytes, most) }) else {
                memory.extend(cut(pieces, places.len() * block, block));
                places.push((0, block as u32));
                return;
            };
            let joins = shares && used > 0 && used + packed.len() <= unit;
            if !joins {
                let taken = packed.len().next_multiple_of(unit);
                memory.extend(cut(buffers, end, taken));
                (end, used) = (end + taken, 0);
            }
            let at = if shares { end - unit + used } else { end - packed.len().next_multiple_of(unit) };
            let to = cut(buffers, at, packed.len());
            // SAFETY: the packed bytes belong to the packer; the buffers have no other user.
            unsafe { copy(&[Piece::new(packed.as_ptr() as usize, packed.len())], &to) };
            places.push((used as u32, packed.len() as u32));
            if shares {
                used += packed.len();
            }
        };
        // SAFETY: the pieces are valid, and nobody writes to them.
        unsafe { each_block::<false>(pieces, &mut self.whole, pack) };
        (memory, places)
    }

    /// Takes this number of units: together, if that costs at most a part of the store.
    fn take(&mut self, wanted: u32, runs: &mut Vec<Range<u32>>) -> Result<(), String> {
        let together = (TOGETHER / self.unit).max(1) as u32;
        let mut left = wanted;
        while left > 0 {
            let many = |units: &mut Units| units.take(left, left.min(together));
            let mut run = many(&mut self.units);
            let is_tight = !self.full && self.units.free_count() <= self.units.used() / 4;
            if run.is_none() && is_tight && self.grow_inner().is_ok() {
                run = many(&mut self.units);
            }
            let run = match run.or_else(|| self.units.take(left, 1)) {
                Some(run) => run,
                None => {
                    self.grow_inner().map_err(|error| error.to_string())?;
                    self.units.take(left, 1).ok_or("the store grows and has no room")?
                }
            };
            left -= run.end - run.start;
            match runs.last_mut() {
                Some(last) if last.end == run.start && !self.is_edge(run.start) => last.end = run.end,
                _ => runs.push(run),
            }
        }
        Ok(())
    }

    fn is_edge(&self, unit: u32) -> bool {
        (unit as usize * self.unit).is_multiple_of(EXTENT)
    }

    /// Begins an operation of the inner store for each run; runs that also occur in `last` keep
    /// their numbers.
    fn begin_parts(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        runs: &[Range<u32>],
        memory: &[Piece],
        last: &mut Vec<u32>,
    ) {
        let operation = self.operations.get_mut(id).expect("an operation that begins");
        let (kind, urgent) = (operation.kind, operation.urgent);
        operation.left += runs.len() as u32;
        let mut from = 0;
        for units in runs {
            let len = units.len() * self.unit;
            let pieces = cut(memory, from, len);
            from += len;
            let part = Part { id, units: units.clone(), pieces };
            let same = |&number: &u32| self.parts.get_mut(number).is_some_and(|old| old.units == *units);
            let number = match last.iter().position(same) {
                Some(at) => {
                    let number = last.swap_remove(at);
                    self.parts.take(number);
                    self.parts.put(number, part);
                    number
                }
                None => self.parts.add(part),
            };
            if kind == OpKind::Read {
                self.came[id as usize].push(number);
            }
            let pieces = &self.parts.get_mut(number).expect("noted just now").pieces;
            // SAFETY: the note of the part has the array until the part has ended.
            let pieces = unsafe { KeptPieces::new(pieces) };
            self.call(ring, |inner, ring, ended| {
                let op = Op { id: number, kind, slot: units.start, pieces: pieces.get(), urgent };
                // SAFETY: the array is kept, and the memory is the caller's, or the buffers of this
                // operation, until all its parts have ended.
                unsafe { inner.begin(ring, op, ended) };
            });
        }
        self.part_ended(id, Ok(()));
    }

    /// A part of an operation has ended, or its beginning is over, which counts as a part.
    fn part_ended(&mut self, id: u32, result: Result<(), Failure>) {
        let operation = self.operations.get_mut(id).expect("an operation under way");
        operation.left -= 1;
        if let Err(failure) = result {
            operation.failure.get_or_insert(failure);
        }
        if operation.left == 0 {
            self.over.push_back(id);
        }
    }

    /// Handles all completions, and those that result from them.
    fn settle(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        loop {
            self.begin_waiting(ring);
            while let Some(end) = self.ends.pop_front() {
                let part = self.parts.get_mut(end.id).expect("a part under way");
                let id = part.id;
                // A read's number stays until the operation's is used again.
                part.pieces = Vec::new();
                if self.operations.get_mut(id).is_some_and(|operation| operation.kind == OpKind::Write) {
                    self.parts.take(end.id);
                }
                self.part_ended(id, end.result);
            }
            let Some(id) = self.over.pop_front() else { return };
            self.end(ring, id, ended);
        }
    }

    /// Ends an operation without parts under way.
    fn end(&mut self, ring: &mut StoreRing<'_>, id: u32, ended: &mut Vec<Ended>) {
        let mut operation = self.operations.take(id).expect("an operation that is over");
        let buffers = std::mem::take(&mut operation.buffers);
        let has_failed = operation.failure.is_some();
        let pieces = operation.pieces;
        // SAFETY: everything was read, and until the caller receives the completion the memory has
        // no other user.
        let unpack =
            |store: &mut Self| unsafe { store.unpack_all(pieces.get(), &buffers, operation.slots.start) };
        let is_read = operation.kind == OpKind::Read;
        if is_read && !has_failed && !unpack(self) {
            // If the inner store has the bytes twice, its other copy is read next.
            self.judge_units(ring, id, false);
            operation.failure = Some(Failure::lasting(Why::Wrong));
        } else if !is_read && has_failed {
            operation.slots.clone().for_each(|slot| self.drop_slot(slot));
        }
        self.buffers[operation.kind as usize].give_back(buffers);
        ended.push(Ended { id, result: operation.failure.map_or(Ok(()), Err) });
    }

    /// Unpacks blocks that were read into buffers; returns whether all were right.
    ///
    /// # Safety
    /// The memory of both is valid, and has no other user.
    unsafe fn unpack_all(&mut self, pieces: &[Piece], buffers: &[Piece], first: u32) -> bool {
        let (block, unit, parts) = (self.block, self.unit, self.parts_of_slot);
        let (packer, scattered, unsplit) = (&mut self.packer, &mut self.scattered, &mut self.unsplit);
        let (mut slots, mut end, mut good) = ((first as usize..).zip(&self.slots[first as usize..]), 0, true);
        let (mut chains, mut opened) = (Chains::default(), None);
        let unpack = |bytes: &mut [u8]| {
            let Some((slot, &location)) = slots.next() else { return };
            let (len, is_part) = (location.len as usize, location.is_part());
            if location.is_plain(block) {
                return;
            }
            let chain = chains.place(location, end);
            if chain == end {
                end += (location.end() as usize).next_multiple_of(unit);
            }
            if is_part && opened == Some(location.first) {
                return bytes.copy_from_slice(&unsplit[slot % parts * block..][..block]);
            }
            let from = cut(buffers, chain + location.end() as usize - len, len);
            let packed = match from[..] {
                // SAFETY: the buffers are valid, and nobody else uses them.
                [piece] => unsafe { memory::bytes(piece.at(), len) },
                _ => {
                    let to = Piece::new(scattered.as_mut_ptr() as usize, len);
                    // SAFETY: the buffers are valid, and nobody writes to them; the room belongs to
                    // this store.
                    unsafe { copy(&from, &[to]) };
                    &mut scattered[..len]
                }
            };
            if !is_part {
                good &= packer.unpack(packed, bytes);
            } else if packer.unpack(packed, unsplit) {
                opened = Some(location.first);
                bytes.copy_from_slice(&unsplit[slot % parts * block..][..block]);
            } else {
                (opened, good) = (None, false);
            }
        };
        // SAFETY: the pieces are valid, and nobody else uses them.
        unsafe { each_block::<true>(pieces, &mut self.whole, unpack) };
        good
    }

    /// Tells the inner store whether the bytes that it returned for an operation were right.
    fn judge_units(&mut self, ring: &mut StoreRing<'_>, id: u32, good: bool) {
        for index in 0..self.came[id as usize].len() {
            let number = self.came[id as usize][index];
            let Some(units) = self.parts.get_mut(number).map(|part| part.units.clone()) else { continue };
            self.call(ring, |inner, ring, ended| inner.judge(ring, number, units, good, ended));
        }
    }

    /// All slots are empty.
    fn drop_slot(&mut self, slot: u32) {
        let location = std::mem::replace(&mut self.slots[slot as usize], NOWHERE);
        if let Some(users) = self.users.get_mut(location.first as usize) {
            *users -= 1;
            if *users > 0 {
                return;
            }
        }
        let mut runs = Vec::new();
        self.units.chain(location.first, &mut runs);
        for run in runs {
            self.units.free(run.clone());
            self.inner.forget(run);
        }
    }
}

impl<S: Store> Store for Compressed<S> {
    fn name(&self) -> String {
        format!("compressed {}", self.inner.name())
    }

    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// There is room for an extent of blocks that do not compress. The compressed size of blocks
    /// becomes known when they are written.
    fn grow(&mut self) -> Result<(), Error> {
        room_for_numbers(self.slots.len() * self.block / EXTENT, self.block, || self.name())?;
        if (self.units.free_count() as usize) < EXTENT / self.unit {
            self.grow_inner()?;
        }
        self.slots.resize(self.slots.len() + EXTENT / self.block, NOWHERE);
        Ok(())
    }

    fn below(&self) -> Below<'_> {
        Below::Spread(self)
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Spread(self)
    }

    /// The units of a block that is not compressed become those of its pages.
    fn may_split(&self, more: usize) -> bool {
        let (extents, page) = (self.slots.len() * self.block / EXTENT, self.block / more);
        let has_numbers = room_for_numbers(extents, page, || self.name()).is_ok();
        !self.fixed && self.parts_of_slot == 1 && page.is_multiple_of(self.unit) && has_numbers
    }

    fn split(&mut self, more: usize) {
        let whole = self.block;
        self.block /= more;
        let (units, users) = (&mut self.units, &mut self.users);
        let per_page = (self.block / self.unit) as u32;
        let mut slots = Vec::with_capacity(self.slots.len() * more);
        for location in std::mem::take(&mut self.slots) {
            if location.first == NONE {
                slots.extend(std::iter::repeat_n(NOWHERE, more));
            } else if location.len as usize == whole {
                let mut first = location.first;
                for _ in 0..more {
                    users[first as usize] = 1;
                    slots.push(Location { first, from: 0, len: self.block as u32 });
                    first = units.cut(first, per_page);
                }
            } else {
                users[location.first as usize] = more as u16;
                slots.extend(std::iter::repeat_n(Location { from: PART, ..location }, more));
            }
        }
        self.slots = slots;
        self.parts_of_slot = more;
        self.unsplit = std::mem::replace(&mut self.whole, vec![0; self.block]);
        // The reads that they belong to were judged.
        (self.came, self.parts) = Default::default();
    }

    // The places of blocks are independent of their slots.
    fn joins(&self, slot: u32) -> bool {
        slot > 0 && slot < self.slots()
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        if op.kind == OpKind::Write && self.inherited {
            let why = Why::Text("what is there is the parent's".to_owned());
            return ended.push(Ended::badly(op.id, Failure::lasting(why)));
        }
        let slots = op.slot..op.slot + (op.bytes() / self.block) as u32;
        let (id, kind, urgent) = (op.id, op.kind, op.urgent);
        // SAFETY: the caller keeps the array until the operation has ended, and with that its note
        // is gone.
        let pieces = unsafe { KeptPieces::new(op.pieces) };
        // The count is one more than the number of parts, until all have begun.
        let operation =
            Operation { kind, slots, urgent, pieces, buffers: Vec::new(), left: 1, failure: None };
        self.operations.put(id, operation);
        if id as usize >= self.came.len() {
            self.came.resize_with(id as usize + 1, Vec::new);
        }
        let queue = &mut self.waiting[kind as usize];
        if urgent {
            queue.push_front(id)
        } else {
            queue.push_back(id)
        }
        self.settle(ring, ended);
    }

    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        self.call(ring, |inner, ring, ended| inner.event(ring, done, ended));
        self.settle(ring, ended);
    }

    // The part has no operations of others in the ring, so that its tokens need no prefix.
    fn leaving(&mut self, ring: &mut StoreRing<'_>, leaves: bool) -> bool {
        self.inner.leaving(ring, leaves)
    }

    fn inherit(&mut self) -> Result<(), Error> {
        self.inherited = true;
        self.operations.clear();
        self.parts.clear();
        self.came.clear();
        self.waiting.iter_mut().for_each(VecDeque::clear);
        self.ends.clear();
        self.over.clear();
        self.buffers.iter_mut().for_each(Buffers::clear);
        self.inner.inherit()
    }

    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        self.call(ring, |inner, ring, ended| inner.open(ring, ended));
        self.settle(ring, ended);
    }
}

/// A slot lies in a chain of units.
impl<S: Store> Spread for Compressed<S> {
    fn part(&self, index: usize) -> Option<&dyn Store> {
        (index == 0).then_some(&self.inner as &dyn Store)
    }

    fn part_mut(&mut self, index: usize) -> Option<&mut dyn Store> {
        (index == 0).then_some(&mut self.inner as &mut dyn Store)
    }

    fn judge_parts(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        _slots: Range<u32>,
        good: bool,
        ended: &mut Vec<Ended>,
    ) {
        self.judge_units(ring, id, good);
        self.settle(ring, ended);
    }

    fn forget_parts(&mut self, slots: Range<u32>) {
        slots.for_each(|slot| self.drop_slot(slot));
    }

    fn part_wants_back(&self, slot: u32) -> bool {
        let location = self.slots[slot as usize];
        let many = location.is_part() && self.units_of(location.len) as usize * self.unit > self.block;
        location.first != NONE && (many || self.inner.wants_back(location.first))
    }

    fn whereabouts_of_part(&self, slot: u32) -> Option<String> {
        let first = self.slots.get(slot as usize)?.first;
        if first == NONE { None } else { self.inner.whereabouts(first) }
    }

    fn take_lost_of_parts(&mut self, tell: &mut dyn FnMut(Range<u32>)) {
        let mut lost = Bits::default();
        self.inner.take_lost(&mut |units| lost.insert(units));
        let mut runs = Vec::new();
        for (slot, location) in (0..).zip(&self.slots) {
            runs.clear();
            if lost.count() > 0 && location.first != NONE {
                self.units.chain(location.first, &mut runs);
                if runs.iter().any(|run| lost.has_any(run.clone())) {
                    tell(slot..slot + 1);
                }
            }
        }
    }
}
