//! A store that fails by a seed: errors, short transfers, flipped bits, for tests.

use crate::common::random::Random;
use crate::shelf::{Below, BelowMut, Ended, Error, Failure, Notes, Op, OpKind, Store, StoreRing, Why};
use std::ops::Range;
use terapage_config::Faults;
use terapage_sys::memory;
use terapage_sys::ring::Done;

/// EIO.
const EIO: i32 = 5;

/// A store that fails now and then.
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
    random: Random,
    under_way: Notes<Note>,
}

/// An operation under way.
struct Note {
    bytes: usize,
    /// The memory that a read fills first: its address and length.
    read: Option<(usize, usize)>,
}

impl<S: Store> Faulty<S> {
    /// `inner`, with failures as in `faults`; the same `seed` gives the same failures.
    pub fn new(inner: S, faults: Faults, seed: u64) -> Self {
        Faulty { inner, faults, random: Random::new(seed), under_way: Notes::default() }
    }

    /// Corrupts completed operations of the inner store.
    fn spoil(&mut self, ended: &mut [Ended]) {
        for end in ended {
            let Some(note) = self.under_way.take(end.id) else { continue };
            if end.result.is_err() {
                continue;
            }
            if self.happens(self.faults.errors) {
                end.result = Err(Failure::lasting(Why::Errno(EIO)));
            } else if self.happens(self.faults.short) {
                let bytes = (self.random.next() % note.bytes as u64) as usize;
                end.result = Err(Failure::lasting(Why::Short(bytes)));
            } else if let Some((at, len)) = note.read
                && self.happens(self.faults.flips)
            {
                let bit = self.random.next() as usize % (len * 8);
                // SAFETY: the read has ended, and its memory has no other user until the caller
                // receives the completion.
                let read = unsafe { memory::bytes(at, len) };
                read[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    fn happens(&mut self, per_million: u32) -> bool {
        self.random.next() % 1_000_000 < u64::from(per_million)
    }
}

impl<S: Store> Store for Faulty<S> {
    fn name(&self) -> String {
        format!("faulty {}", self.inner.name())
    }

    crate::stands_on!(inner);

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        let first = op.pieces.first().filter(|_| op.kind == OpKind::Read);
        let read = first.map(|piece| (piece.at(), piece.len()));
        self.under_way.put(op.id, Note { bytes: op.bytes(), read });
        let before = ended.len();
        // SAFETY: the operation ends when the inner store's does: until then the caller keeps the
        // pieces and their memory.
        unsafe { self.inner.begin(ring, op, ended) };
        self.spoil(&mut ended[before..]);
    }

    // There is only one inner store, and this store has no operations in the ring, so tokens need
    // no prefix.
    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        let before = ended.len();
        self.inner.event(ring, done, ended);
        self.spoil(&mut ended[before..]);
    }

    fn judge(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        slots: Range<u32>,
        good: bool,
        ended: &mut Vec<Ended>,
    ) {
        let before = ended.len();
        self.inner.judge(ring, id, slots, good, ended);
        self.spoil(&mut ended[before..]);
    }

    fn inherit(&mut self) -> Result<(), Error> {
        self.under_way.clear();
        self.inner.inherit()
    }

    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        let before = ended.len();
        self.inner.open(ring, ended);
        self.spoil(&mut ended[before..]);
    }
}
