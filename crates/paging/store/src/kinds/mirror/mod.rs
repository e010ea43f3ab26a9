//! The same bytes in several stores (RAID-1): one may fail, or give wrong bytes.
//!
//! A write goes to all copies, and completes when all have completed it. A read goes to the copy
//! that is likely to answer first. If it fails, or its bytes are judged wrong, another copy is
//! read, and once those bytes are judged right they are written back.
//!
//! The mirror notes for each slot which copies are known to lack its bytes. A slot is *stale* in a
//! copy that a write did not reach, and is not read there until it has been written. It is
//! *suspect* in a copy that gave an error or wrong bytes, and is read there only if no other copy
//! has it. Both are written again from another copy: when they are read, or else in the background
//! ([`resync`](crate::kinds::mirror::resync)).

mod copies;
mod forks;
mod repair;
mod resync;
mod spare;
mod spread;

use crate::common::bits::Bits;
use crate::common::pieces::{KeptPieces, cut, each_block};
use crate::shelf::{
    Below, BelowMut, Ended, Error, Failure, Notes, Op, OpKind, Presence, Redundancy, Store, StoreRing, Why,
};
use copies::{Copies, Side};
use repair::{Repair, Saved};
use resync::Resync;
pub use spare::{Relief, Spare};
use std::collections::VecDeque;
use std::ops::Range;
use terapage_sys::memory;
use terapage_sys::ring::{Done, Piece};
use terapage_sys::thread::now_ns;
use twox_hash::XxHash3_64;

/// The most bytes that wait to be judged, or are being written back. Beyond that, reads use another
/// copy the next time, too.
const SAVED_MOST: usize = 8 << 20;

/// Several stores with the same bytes.
pub struct Mirror {
    copies: Copies,
    spares: Vec<Spare>,
    relief: Option<Relief>,
    /// It has one copy, but while that is emptied.
    is_alone: bool,
    /// The time from which on relief may be asked for.
    relief_from_ns: u64,
    block: usize,
    /// Bytes of a unit, of which each has a checksum: a slot, or what slots may be split into.
    unit: usize,
    /// The number of slots that each slot of a new store becomes.
    split_into: usize,
    slots: u32,
    /// Slots that were written, and were not given up since.
    used: Bits,
    /// The checksums of the units of those slots.
    sums: Vec<u64>,
    resync: Resync,
    /// Slots that were given up while they were written back: the copies give them up later.
    given_up: Vec<Range<u32>>,
    /// Slots that no copy has any more, which nobody has taken note of yet.
    untold: Bits,
    /// Room for a unit that lies in several pieces.
    whole: Vec<u8>,
    /// The caller's operations, by their numbers.
    operations: Notes<Operation>,
    /// Operations of the copies, by their numbers there.
    inner: Notes<Inner>,
    /// The source of each read, by its number, until it is judged.
    came: Vec<Came>,
    /// Completions of the copies that were not yet handled.
    ends: VecDeque<(usize, Ended)>,
    scratch: Vec<Ended>,
    /// Writes that wait until their slots have been written back.
    waiting: Vec<u32>,
    saved_bytes: usize,
    /// Forks whose children may still read the copies.
    forks: Vec<u32>,
    /// This is a fork's child, which does not write while the owner lives; or it has ended.
    inherited: bool,
    is_heir: bool,
    /// A copy has taken a write.
    is_kept: bool,
    /// When it was made, ns.
    begun_ns: u64,
}

/// An operation of the caller's.
struct Operation {
    pub kind: OpKind,
    pub slots: Range<u32>,
    urgent: bool,
    /// The caller's array.
    pieces: KeptPieces,
    /// For a read: the next slot; the copies that failed from there on; a part of the pieces, if no
    /// copy has all slots.
    at: u32,
    tried: u64,
    /// The copies that were wrong when these slots were read just before; `None` if they were not.
    wrong: Option<u64>,
    part: Vec<Piece>,
    /// For a write: the number of copies under way; the copies that have the bytes, or were tried.
    left: u32,
    wrote: u64,
    failure: Option<Failure>,
}

/// An operation of a copy.
enum Inner {
    Read {
        id: u32,
        slots: Range<u32>,
        since_ns: u64,
    },
    Write {
        id: u32,
    },
    Repair(Repair),
    /// What the resync reads, and what it writes; what it reads where it was lost.
    Source,
    Target,
    Check,
}

/// The source of the bytes of a read.
#[derive(Default)]
struct Came {
    parts: Vec<(usize, Range<u32>)>,
    /// The bytes, if a copy needs them.
    saved: Option<Saved>,
    /// Its slots, if the bytes were judged wrong, and the copies that gave all of them and were
    /// wrong.
    wrong: Option<(Range<u32>, u64)>,
}

impl Mirror {
    /// Copies of slots of `block` bytes in each of `stores`, two or more.
    ///
    /// # Errors
    /// There are fewer than two stores, or too many.
    pub fn new(stores: Vec<Box<dyn Store>>, block: usize) -> Result<Mirror, Error> {
        Mirror::with_spares(stores, Vec::new(), block)
    }

    /// The same with spares, which count among the two.
    ///
    /// # Errors
    /// Fewer stores, or more than there may be.
    pub fn with_spares(
        stores: Vec<Box<dyn Store>>,
        spares: Vec<Spare>,
        block: usize,
    ) -> Result<Mirror, Error> {
        let all = stores.len() + spares.len();
        if stores.is_empty() || !(2..=StoreRing::INNER_MOST).contains(&all) {
            let why = format!("has {all} copies (2 to {} are possible)", StoreRing::INNER_MOST);
            return Err(Error::Unfit { name: "mirror".to_owned(), why });
        }
        Ok(Mirror::of(stores, spares, block))
    }

    /// A store that has one copy of each block. When that store is to be emptied, its bytes move to
    /// one that `relief` opens.
    pub fn alone(store: Box<dyn Store>, relief: Relief, block: usize) -> Mirror {
        Mirror { relief: Some(relief), is_alone: true, ..Mirror::of(vec![store], Vec::new(), block) }
    }

    fn of(stores: Vec<Box<dyn Store>>, spares: Vec<Spare>, block: usize) -> Mirror {
        let slots = stores.iter().map(|store| store.slots()).min().unwrap_or(0);
        Mirror {
            copies: Copies::new(stores),
            spares,
            relief: None,
            is_alone: false,
            relief_from_ns: 0,
            block,
            unit: block,
            split_into: 1,
            slots,
            used: Bits::default(),
            sums: vec![0; slots as usize],
            resync: Resync::default(),
            given_up: Vec::new(),
            untold: Bits::default(),
            whole: vec![0; block],
            operations: Notes::default(),
            inner: Notes::default(),
            came: Vec::new(),
            ends: VecDeque::new(),
            scratch: Vec::new(),
            waiting: Vec::new(),
            saved_bytes: 0,
            forks: Vec::new(),
            inherited: false,
            is_heir: false,
            is_kept: false,
            begun_ns: now_ns(),
        }
    }

    /// The same store, which is new, with slots that can be split into slots of `least` bytes.
    #[must_use]
    pub fn splitting_to(mut self, least: usize) -> Mirror {
        (self.unit, self.whole) = (least, vec![0; least]);
        self.sums = vec![0; self.slots as usize * self.units()];
        self
    }

    /// Units of a slot.
    fn units(&self) -> usize {
        self.block / self.unit
    }

    /// Whether these are the bytes that were written to a slot.
    fn is_right(&self, slot: u32, bytes: &[u8]) -> bool {
        let sums = &self.sums[slot as usize * self.units()..];
        bytes.chunks_exact(self.unit).zip(sums).all(|(unit, &sum)| XxHash3_64::oneshot(unit) == sum)
    }

    /// Calls a copy, and notes the completions that the call returned.
    fn with_copy(
        &mut self,
        index: usize,
        ring: &mut StoreRing<'_>,
        call: impl FnOnce(&mut dyn Store, &mut StoreRing<'_>, &mut Vec<Ended>),
    ) {
        call(&mut *self.copies.0[index].store, &mut ring.inner(index), &mut self.scratch);
        self.ends.extend(self.scratch.drain(..).map(|end| (index, end)));
    }

    /// Hears which copies are there, and what they have lost.
    fn hear(&mut self) {
        let (used, mut lost) = (&self.used, Vec::new());
        for Side { store, stale, suspect, is_retired, .. } in &mut self.copies.0 {
            store.take_lost(&mut |slots| {
                for slot in slots.filter(|&slot| used.has(slot) && !*is_retired) {
                    stale.insert(slot..slot + 1);
                    suspect.remove(slot..slot + 1);
                    lost.push(slot);
                }
            });
        }
        for slot in lost {
            let slots = slot..slot + 1;
            if !self.copies.0.iter().any(|copy| copy.has(&slots)) {
                self.untold.insert(slots);
            }
        }
        self.copies.look();
    }

    /// Notes that slots did not reach a copy, as far as they are still in use.
    fn note_stale(&mut self, index: usize, slots: &Range<u32>) {
        if self.copies.0[index].is_retired {
            return;
        }
        for slot in slots.clone().filter(|&slot| self.used.has(slot)) {
            self.copies.0[index].stale.insert(slot..slot + 1);
        }
    }

    /// Notes that a copy was wrong about slots, as far as they are still in use.
    fn note_suspect(&mut self, index: usize, slots: &Range<u32>) {
        if self.copies.0[index].is_retired {
            return;
        }
        for slot in slots.clone().filter(|&slot| self.used.has(slot)) {
            self.copies.0[index].suspect.insert(slot..slot + 1);
        }
    }

    /// Begins an operation of a copy.
    ///
    /// # Safety
    /// The pieces' memory stays valid until the operation has ended. Until then nobody else touches
    /// the memory of a read, and nobody else writes that of a write.
    unsafe fn begin_in(
        &mut self,
        index: usize,
        ring: &mut StoreRing<'_>,
        inner: Inner,
        (kind, slot, urgent): (OpKind, u32, bool),
        pieces: KeptPieces,
    ) {
        let id = self.inner.add(inner);
        self.copies.0[index].under_way += 1;
        self.with_copy(index, ring, |store, ring, ended| {
            let op = Op { id, kind, slot, pieces: pieces.get(), urgent };
            // SAFETY: the array is kept, and the caller keeps the memory for this operation.
            unsafe { store.begin(ring, op, ended) }
        });
    }

    /// Handles all completions, and those that result from them.
    fn settle(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        self.hear();
        self.see_to_spares(ring);
        while let Some((index, end)) = self.ends.pop_front() {
            self.copies.0[index].under_way -= 1;
            let inner = self.inner.take(end.id).expect("an operation of a copy under way");
            // What is not there yet is no failure of the copy's.
            if end.result.is_ok() || !matches!(inner, Inner::Check) {
                self.copies.0[index].ended(&end.result);
            }
            match inner {
                Inner::Read { id, slots, since_ns } => {
                    let took_ns = end.result.is_ok().then(|| now_ns() - since_ns);
                    self.copies.read_ended(index, took_ns);
                    self.read_part(ring, id, index, slots, end.result, ended);
                }
                Inner::Write { id } => self.wrote(ring, id, index, end.result, ended),
                Inner::Repair(repair) => self.repaired(ring, index, &repair, end.result.is_ok(), ended),
                Inner::Source => self.source_read(ring, index, &end.result, ended),
                Inner::Target => self.target_written(ring, index, &end.result, ended),
                Inner::Check => self.target_checked(ring, index, &end.result, ended),
            }
        }
        self.see_to_resync(ring);
    }

    /// Reads the next slots of a read from one copy; completes the read if no slots, or no copies,
    /// remain.
    fn read_next(&mut self, ring: &mut StoreRing<'_>, id: u32, ended: &mut Vec<Ended>) {
        let operation = self.operations.get_mut(id).expect("a read under way");
        let (rest, tried) = (operation.at..operation.slots.end, operation.tried);
        let wrong = operation.wrong;
        if rest.is_empty() {
            return self.read_all(id, ended);
        }
        let Some((index, count)) = self.copies.pick(&rest, tried, wrong.is_some()) else {
            let operation = self.operations.take(id).expect("a read under way");
            // The others failed, so one that was wrong is tried again next time: perhaps only the
            // read was wrong.
            self.came[id as usize].wrong = None;
            // Either all copies were wrong, or none has the bytes.
            let none = || Why::Text("no copy has it any more: the servers lost it".to_owned());
            let why = if wrong.is_some() { Why::Wrong } else { none() };
            let failure = operation.failure.unwrap_or(Failure::lasting(why));
            return ended.push(Ended::badly(id, failure));
        };
        let operation = self.operations.get_mut(id).expect("a read under way");
        let slots = rest.start..rest.start + count;
        let pieces = if slots == operation.slots {
            operation.pieces
        } else {
            let from = (slots.start - operation.slots.start) as usize * self.block;
            operation.part = cut(operation.pieces.get(), from, count as usize * self.block);
            // SAFETY: the operation has this array until this read, a part of it, has ended.
            unsafe { KeptPieces::new(&operation.part) }
        };
        let what = (OpKind::Read, slots.start, operation.urgent);
        self.copies.0[index].reading += 1;
        let read = Inner::Read { id, slots, since_ns: now_ns() };
        // SAFETY: the caller keeps the memory until its operation ends, which this read is a part
        // of.
        unsafe { self.begin_in(index, ring, read, what, pieces) };
    }

    /// A copy has completed a read, or a part of it.
    fn read_part(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        index: usize,
        slots: Range<u32>,
        result: Result<(), Failure>,
        ended: &mut Vec<Ended>,
    ) {
        let operation = self.operations.get_mut(id).expect("a read under way");
        match result {
            Ok(()) => {
                (operation.at, operation.tried) = (slots.end, operation.wrong.unwrap_or(0));
                self.came[id as usize].parts.push((index, slots));
            }
            Err(failure) => {
                operation.tried |= 1 << index;
                let lasts = !failure.passing;
                worse(&mut operation.failure, failure);
                if lasts {
                    self.note_suspect(index, &slots);
                }
            }
        }
        self.read_next(ring, id, ended);
    }

    /// A read has all its bytes. If a copy needs them, they are kept until they are judged.
    fn read_all(&mut self, id: u32, ended: &mut Vec<Ended>) {
        let operation = self.operations.take(id).expect("a read under way");
        let slots = &operation.slots;
        let bytes = slots.len() * self.block;
        let needed = self.copies.0.iter().any(|copy| copy.needs(slots));
        if needed && self.may_write() && self.saved_bytes + bytes <= SAVED_MOST {
            let mut saved = Saved::with_room_for(bytes);
            for piece in operation.pieces.get() {
                // SAFETY: the read has ended, and its memory has no user until the caller receives
                // the completion.
                saved.push(unsafe { memory::bytes(piece.at(), piece.len()) });
            }
            self.saved_bytes += bytes;
            self.came[id as usize].saved = Some(saved);
        }
        ended.push(Ended::well(id));
    }

    /// Forgets the notes about the last read of this number. If these slots are read once more, the
    /// copies that were wrong are kept and returned.
    fn forget_last(&mut self, id: u32, slots: &Range<u32>) -> Option<u64> {
        let index = id as usize;
        if index >= self.came.len() {
            self.came.resize_with(index + 1, Came::default);
        }
        let came = &mut self.came[index];
        came.parts.clear();
        self.saved_bytes -= came.saved.take().map_or(0, |saved| saved.bytes().len());
        came.wrong = came.wrong.take().filter(|(last, _)| last == slots);
        let in_use = self.copies.0.iter().enumerate().filter(|(_, copy)| !copy.is_retired);
        let all = in_use.fold(0, |all, (index, _)| all | 1 << index);
        // If all were wrong, each may be tried again.
        came.wrong.as_ref().map(|&(_, copies)| if copies & all == all { 0 } else { copies })
    }

    /// Begins a write in the copies that must have it; for copies that are left out it is noted as
    /// missing, unless there are no others. Completes the write if no copy remains.
    fn write(&mut self, ring: &mut StoreRing<'_>, id: u32, ended: &mut Vec<Ended>) {
        let operation = self.operations.get_mut(id).expect("a write under way");
        let (slots, tried, pieces) = (operation.slots.clone(), operation.wrote, operation.pieces);
        let what = (OpKind::Write, slots.start, operation.urgent);
        let chosen = self.copies.to_write(&slots, tried);
        if chosen == 0 {
            let operation = self.operations.take(id).expect("a write under way");
            let failure = operation.failure.unwrap_or(Failure::lasting(Why::Text("no copy".to_owned())));
            return ended.push(Ended::badly(id, failure));
        }
        operation.left = chosen.count_ones();
        operation.wrote |= chosen;
        for index in 0..self.copies.0.len() {
            if chosen >> index & 1 != 0 {
                // SAFETY: the caller keeps the memory until its operation ends, which is when the
                // writes of all copies have.
                unsafe { self.begin_in(index, ring, Inner::Write { id }, what, pieces) };
            } else if tried >> index & 1 == 0 {
                self.note_stale(index, &slots);
            }
        }
    }

    /// A copy has completed its part of a write.
    fn wrote(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        index: usize,
        result: Result<(), Failure>,
        ended: &mut Vec<Ended>,
    ) {
        let operation = self.operations.get_mut(id).expect("a write under way");
        let (slots, copy) = (operation.slots.clone(), &mut self.copies.0[index]);
        copy.suspect.remove(slots.clone());
        match result {
            Ok(()) => {
                copy.stale.remove(slots.clone());
                self.is_kept = true;
            }
            Err(failure) => {
                copy.stale.insert(slots.clone());
                worse(&mut operation.failure, failure);
            }
        }
        operation.left -= 1;
        if operation.left > 0 {
            return;
        }
        let tried = operation.wrote;
        let has_it = |(index, copy): (usize, &Side)| tried >> index & 1 != 0 && copy.has(&slots);
        if self.copies.0.iter().enumerate().any(has_it) {
            self.operations.take(id);
            return ended.push(Ended::well(id));
        }
        // No copy has the bytes: copies that are left out may accept them.
        self.write(ring, id, ended);
    }

    /// Notes what is about to be written.
    fn note_write(&mut self, slots: &Range<u32>, pieces: &[Piece]) {
        self.used.insert(slots.clone());
        self.untold.remove(slots.clone());
        let units = slots.start as usize * self.units()..slots.end as usize * self.units();
        if self.sums.len() < units.end {
            self.sums.resize(units.end, 0);
        }
        let mut sums = self.sums[units].iter_mut();
        let note = |bytes: &mut [u8]| {
            sums.next().into_iter().for_each(|sum| *sum = XxHash3_64::oneshot(bytes));
        };
        // SAFETY: the caller keeps the memory valid, and as it is, until the operation has ended.
        unsafe { each_block::<false>(pieces, &mut self.whole, note) };
    }
}

/// Keeps, of two failures, the one that may pass.
fn worse(kept: &mut Option<Failure>, failure: Failure) {
    if !kept.as_ref().is_some_and(|kept| kept.passing) {
        *kept = Some(failure);
    }
}

impl Store for Mirror {
    fn name(&self) -> String {
        let in_use = self.copies.0.iter().filter(|copy| !copy.is_retired);
        let names = in_use.map(|copy| copy.store.name()).collect::<Vec<_>>().join(" and ");
        if self.is_alone { names } else { format!("mirror of {names}") }
    }

    fn slots(&self) -> u32 {
        self.slots
    }

    /// All copies grow. A copy that fails for any reason but lack of space gets none of the new
    /// slots.
    fn grow(&mut self) -> Result<(), Error> {
        let (mut most, mut failed) = (u32::MAX, None);
        for copy in self.copies.0.iter_mut().filter(|copy| !copy.is_retired) {
            let grown = if copy.store.slots() > self.slots { Ok(()) } else { copy.store.grow() };
            match grown {
                Ok(()) => most = most.min(copy.store.slots()),
                Err(error) if matches!(error, Error::Full { .. }) && !copy.is_out() => return Err(error),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if most == u32::MAX => Err(error),
            _ => {
                self.slots = most;
                self.sums.resize(most as usize * self.units(), 0);
                Ok(())
            }
        }
    }

    fn below(&self) -> Below<'_> {
        Below::Spread(self)
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Spread(self)
    }

    fn joins(&self, slot: u32) -> bool {
        self.copies.0.iter().all(|copy| copy.store.joins(slot))
    }

    fn may_split(&self, more: usize) -> bool {
        self.can_split(more)
    }

    fn split(&mut self, more: usize) {
        self.split_slots(more);
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        let slots = op.slot..op.slot + (op.bytes() / self.block) as u32;
        let wrong = self.forget_last(op.id, &slots).filter(|_| op.kind == OpKind::Read);
        if op.kind == OpKind::Write {
            self.note_write(&slots, op.pieces);
        }
        let operation = Operation {
            kind: op.kind,
            slots: slots.clone(),
            urgent: op.urgent,
            // SAFETY: the caller keeps the array until the operation has ended, and with that its
            // note is gone.
            pieces: unsafe { KeptPieces::new(op.pieces) },
            at: op.slot,
            tried: wrong.unwrap_or(0),
            wrong,
            part: Vec::new(),
            left: 0,
            wrote: 0,
            failure: None,
        };
        self.operations.put(op.id, operation);
        match op.kind {
            OpKind::Read => self.read_next(ring, op.id, ended),
            OpKind::Write if self.is_written_back(&slots) => self.waiting.push(op.id),
            OpKind::Write => self.write(ring, op.id, ended),
        }
        self.settle(ring, ended);
    }

    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        match ring.inner_of(done) {
            Some((index, done)) => {
                self.with_copy(index, ring, |store, ring, ended| store.event(ring, done, ended));
            }
            None => self.resync_on(ring),
        }
        self.settle(ring, ended);
    }

    fn share(&mut self, fork: u32) -> Result<(), Error> {
        self.share_copies(fork)
    }

    fn unshare(&mut self, fork: u32) {
        self.forks.retain(|&other| other != fork);
        self.copies.0.iter_mut().for_each(|copy| copy.readers.retain(|&other| other != fork));
        self.copies.0.iter_mut().for_each(|copy| copy.store.unshare(fork));
    }

    fn inherit(&mut self) -> Result<(), Error> {
        self.inherit_copies()
    }

    fn adopt(&mut self) {
        self.adopt_copies();
    }

    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        for index in 0..self.copies.0.len() {
            self.with_copy(index, ring, |store, ring, ended| store.open(ring, ended));
        }
        self.settle(ring, ended);
    }

    fn close(&mut self) {
        self.copies.0.iter_mut().for_each(|copy| copy.store.close());
        self.spares.iter_mut().for_each(|spare| spare.store.close());
    }

    fn condition(&self) -> Option<String> {
        self.copies.condition(self.is_alone, self.inherited)
    }

    /// A store that is alone has no copies to count: what it is behind is on its way.
    fn redundancy(&self) -> Redundancy {
        let all = Redundancy { resynced_bytes: self.resync.bytes, ..self.copies.redundancy() };
        if self.is_alone { Redundancy { copies: 0, missing: 0, ..all } } else { all }
    }

    fn presence(&self) -> Presence<'_> {
        let answers = self.copies.0.iter().any(|copy| !copy.is_missing());
        Presence { answers, ..Presence::default() }
    }
}
