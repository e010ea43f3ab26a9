//! Blocks encrypted before they reach a store (AES-256-GCM), with a key that only this process has.
//!
//! A slot is sealed in units: as a whole, or, if slots may be split later, in the slots that they
//! may be split into. Each seal has a different nonce, its number; the unit's place is
//! authenticated with it. Nonce and tag, the unit's *seal*, stay in memory, 24 bytes a unit. So a
//! slot has the length of its block, and neither older bytes of a slot nor those of another slot
//! decrypt.

use crate::common::buffers::Buffers;
use crate::common::pieces::{KeptPieces, copy, each_block};
use crate::shelf::{Below, BelowMut, Ended, Error, Failure, Notes, Op, OpKind, Store, StoreRing, Why};
use crate::{EXTENT, common::secret::Secret};
use std::collections::VecDeque;
use std::ops::Range;
use terapage_sys::ring::{Done, Piece};

/// The most bytes of ciphertext on their way to the store; further writes wait.
const BUFFERS: usize = 2 * EXTENT;

/// A store that gets only ciphertext.
pub struct Encrypted<S> {
    inner: S,
    block: usize,
    /// Bytes of a unit.
    unit: usize,
    secret: Secret,
    /// The number of seals so far: each number has been a nonce.
    sealed: u64,
    /// For each unit.
    seals: Vec<Seal>,
    buffers: Buffers,
    /// Room for a unit that lies in several pieces.
    whole: Vec<u8>,
    under_way: Notes<Note>,
    /// Writes for which there is no buffer yet.
    waiting: VecDeque<Waiting>,
    /// Completions of the inner store that were not yet handled.
    ends: VecDeque<Ended>,
    scratch: Vec<Ended>,
    /// This is a fork's child: a write would use a nonce that the parent uses as well.
    inherited: bool,
}

/// The data that decrypt a unit. No write has the nonce 0, which marks an empty unit.
#[derive(Clone, Copy, Default)]
struct Seal {
    nonce: u64,
    tag: [u8; 16],
}

/// An operation under way in the inner store.
enum Note {
    /// The caller's array, and the first slot.
    Read(KeptPieces, u32),
    /// Buffers that it has.
    Write(Vec<Piece>),
}

/// A write that has not begun.
struct Waiting {
    id: u32,
    slot: u32,
    /// The caller's array.
    pieces: KeptPieces,
    urgent: bool,
}

impl<S: Store> Encrypted<S> {
    /// Keeps slots of `block` bytes in `inner`, by a new key.
    ///
    /// # Errors
    /// There is no memory, or no random number.
    pub fn new(inner: S, block: usize) -> Result<Self, Error> {
        let name = inner.name();
        let seals = vec![Seal::default(); inner.slots() as usize];
        Ok(Encrypted {
            secret: Secret::new(&name)?,
            buffers: Buffers::new(BUFFERS, block, &name)?,
            inner,
            block,
            unit: block,
            sealed: 0,
            seals,
            whole: vec![0; block],
            under_way: Notes::default(),
            waiting: VecDeque::new(),
            ends: VecDeque::new(),
            scratch: Vec::new(),
            inherited: false,
        })
    }

    /// The same store, which is new, with slots that can be split into slots of `least` bytes.
    #[must_use]
    pub fn splitting_to(self, least: usize) -> Self {
        let seals = vec![Seal::default(); self.inner.slots() as usize * (self.block / least)];
        Encrypted { unit: least, seals, whole: vec![0; least], ..self }
    }

    /// Units of a slot.
    fn units(&self) -> usize {
        self.block / self.unit
    }

    /// Calls the inner store, and handles the completions that the call returned.
    fn with_inner(
        &mut self,
        ring: &mut StoreRing<'_>,
        ended: &mut Vec<Ended>,
        call: impl FnOnce(&mut S, &mut StoreRing<'_>, &mut Vec<Ended>),
    ) {
        self.call(ring, call);
        self.settle(ring, ended);
    }

    /// Calls the inner store, and notes the completions that the call returned. There is only one
    /// inner store, and this store has no operations in the ring, so tokens need no prefix.
    fn call(
        &mut self,
        ring: &mut StoreRing<'_>,
        call: impl FnOnce(&mut S, &mut StoreRing<'_>, &mut Vec<Ended>),
    ) {
        call(&mut self.inner, ring, &mut self.scratch);
        self.ends.extend(self.scratch.drain(..));
    }

    /// Handles all completions, and those that result from them.
    fn settle(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        loop {
            self.write_waiting(ring);
            let Some(mut end) = self.ends.pop_front() else { return };
            match self.under_way.take(end.id).expect("an operation under way") {
                Note::Write(pieces) => self.buffers.give_back(pieces),
                Note::Read(pieces, slot) if end.result.is_ok() => {
                    // SAFETY: the read has ended, and until the caller receives the completion its
                    // memory has no other user.
                    let (slots, good) = unsafe { self.open_all(pieces.get(), slot) };
                    // If the inner store has the bytes twice, its other copy is read next.
                    let id = end.id;
                    self.call(ring, |inner, ring, ended| inner.judge(ring, id, slots, good, ended));
                    if !good {
                        end.result = Err(Failure::lasting(Why::Wrong));
                    }
                }
                Note::Read(..) => {}
            }
            ended.push(end);
        }
    }

    /// Decrypts the bytes in the pieces, from `slot` on. Returns the slots, and whether all were
    /// right.
    ///
    /// # Safety
    /// The pieces' memory is valid, and has no other user.
    unsafe fn open_all(&mut self, pieces: &[Piece], slot: u32) -> (Range<u32>, bool) {
        let units = self.units();
        let (mut at, mut good) = (slot as usize * units, true);
        let (secret, seals) = (&self.secret, &self.seals);
        let open = |bytes: &mut [u8]| {
            let seal = seals.get(at).filter(|seal| seal.nonce > 0);
            good &= seal.is_some_and(|seal| secret.open(seal.nonce, at as u64, &seal.tag, bytes));
            at += 1;
        };
        // SAFETY: the memory is valid, and nobody else uses it.
        unsafe { each_block::<true>(pieces, &mut self.whole, open) };
        (slot..(at / units) as u32, good)
    }

    /// Begins the waiting writes in the inner store for which there are buffers.
    fn write_waiting(&mut self, ring: &mut StoreRing<'_>) {
        while let Some(next) = self.waiting.front() {
            let from = next.pieces;
            let bytes: usize = from.get().iter().map(Piece::len).sum();
            let Some(pieces) = self.buffers.take(bytes / self.block) else { return };
            let Some(Waiting { id, slot, urgent, .. }) = self.waiting.pop_front() else { return };
            // SAFETY: the caller keeps the memory valid and unchanged until the operation has
            // ended; the buffers belong to this operation.
            unsafe { self.seal_all(from.get(), &pieces, slot) };
            // SAFETY: the note has the array until the write has ended.
            let array = unsafe { KeptPieces::new(&pieces) };
            self.under_way.put(id, Note::Write(pieces));
            self.call(ring, |inner, ring, ended| {
                let op = Op { id, kind: OpKind::Write, slot, pieces: array.get(), urgent };
                // SAFETY: the note has the array, and the buffers for this write alone, until the
                // write has ended.
                unsafe { inner.begin(ring, op, ended) };
            });
        }
    }

    /// Encrypts the bytes in `from` into the buffers `to`, for the slots from `slot` on.
    ///
    /// # Safety
    /// The memory of both is valid, no code writes to `from`, and no code uses `to`.
    unsafe fn seal_all(&mut self, from: &[Piece], to: &[Piece], slot: u32) {
        // SAFETY: both are valid, nobody writes to `from`, and nobody else uses `to`.
        unsafe { copy(from, to) };
        let mut at = slot as usize * self.units();
        let (secret, seals, sealed) = (&self.secret, &mut self.seals, &mut self.sealed);
        let seal = |bytes: &mut [u8]| {
            *sealed += 1;
            seals[at] = Seal { nonce: *sealed, tag: secret.seal(*sealed, at as u64, bytes) };
            at += 1;
        };
        // SAFETY: `to` is valid, and nobody else uses it.
        unsafe { each_block::<true>(to, &mut self.whole, seal) };
    }
}

impl<S: Store> Store for Encrypted<S> {
    fn name(&self) -> String {
        format!("encrypted {}", self.inner.name())
    }

    fn slots(&self) -> u32 {
        (self.seals.len() / self.units()) as u32
    }

    fn grow(&mut self) -> Result<(), Error> {
        self.inner.grow()?;
        self.seals.resize(self.inner.slots() as usize * self.units(), Seal::default());
        Ok(())
    }

    fn below(&self) -> Below<'_> {
        Below::Same(&self.inner)
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Same(&mut self.inner)
    }

    fn may_split(&self, more: usize) -> bool {
        self.units().is_multiple_of(more) && self.inner.may_split(more)
    }

    // The units, and their places, stay as they are.
    fn split(&mut self, more: usize) {
        self.block /= more;
        self.buffers.split(more);
        self.inner.split(more);
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        // SAFETY: the caller keeps the array until the operation has ended, and with that its note
        // is gone.
        let pieces = unsafe { KeptPieces::new(op.pieces) };
        match op.kind {
            OpKind::Read => {
                self.under_way.put(op.id, Note::Read(pieces, op.slot));
                // SAFETY: the read ends when the inner store's does: until then the caller keeps
                // the pieces and their memory.
                self.with_inner(ring, ended, |inner, ring, ended| unsafe { inner.begin(ring, op, ended) });
            }
            OpKind::Write if self.inherited => {
                let why = Why::Text("the key is the parent's".to_owned());
                ended.push(Ended::badly(op.id, Failure::lasting(why)));
            }
            OpKind::Write => {
                self.waiting.push_back(Waiting { id: op.id, slot: op.slot, pieces, urgent: op.urgent });
                self.settle(ring, ended);
            }
        }
    }

    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        self.with_inner(ring, ended, |inner, ring, ended| inner.event(ring, done, ended));
    }

    // The tags have already told the inner store.
    fn judge(&mut self, _: &mut StoreRing<'_>, _: u32, _: Range<u32>, _: bool, _: &mut Vec<Ended>) {}

    fn forget(&mut self, slots: Range<u32>) {
        let units = self.units();
        self.seals[slots.start as usize * units..slots.end as usize * units].fill(Seal::default());
        self.inner.forget(slots);
    }

    fn inherit(&mut self) -> Result<(), Error> {
        self.inherited = true;
        self.under_way.clear();
        self.waiting.clear();
        self.ends.clear();
        self.buffers.clear();
        self.secret.inherit();
        self.inner.inherit()
    }

    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        self.with_inner(ring, ended, |inner, ring, ended| inner.open(ring, ended));
    }
}
