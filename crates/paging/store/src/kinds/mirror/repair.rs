//! Bytes that were judged right, written back to the copies of a mirror that need them.

use super::{Inner, Mirror, Operation};
use crate::common::pieces::KeptPieces;
use crate::shelf::{Ended, OpKind, StoreRing};
use std::ops::Range;
use std::sync::Arc;
use terapage_sys::ring::Piece;

/// The size of a page: memory for direct I/O begins at such a boundary.
const PAGE: usize = 4096;

/// Bytes that are written back to a copy.
pub(super) struct Repair {
    pub slots: Range<u32>,
    _bytes: Arc<Saved>,
    _pieces: Box<[Piece]>,
}

/// Bytes that begin at a page boundary, as direct I/O requires.
pub(super) struct Saved {
    memory: Vec<u8>,
    from: usize,
}

impl Saved {
    pub fn with_room_for(bytes: usize) -> Saved {
        let mut memory: Vec<u8> = Vec::with_capacity(bytes + PAGE);
        let from = memory.as_ptr().align_offset(PAGE);
        memory.resize(from, 0);
        Saved { memory, from }
    }

    /// This number of zeros.
    pub fn zeros(bytes: usize) -> Saved {
        let mut saved = Saved::with_room_for(bytes);
        saved.memory.resize(saved.from + bytes, 0);
        saved
    }

    /// Adds bytes, for which there is room.
    pub fn push(&mut self, bytes: &[u8]) {
        assert!(self.memory.len() + bytes.len() <= self.memory.capacity());
        self.memory.extend_from_slice(bytes);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.from..]
    }
}

impl Mirror {
    /// Writes bytes that were judged right back to the copies that need them.
    pub(super) fn repair(&mut self, ring: &mut StoreRing<'_>, slots: &Range<u32>, saved: Saved) {
        let saved = Arc::new(saved);
        for index in 0..self.copies.0.len() {
            if !self.copies.0[index].needs(slots) || self.is_written_back(slots) {
                continue;
            }
            let bytes = saved.bytes();
            self.saved_bytes += bytes.len();
            let pieces: Box<[Piece]> = [Piece::new(bytes.as_ptr() as usize, bytes.len())].into();
            // SAFETY: the note of this repair has the array until the repair has ended.
            let array = unsafe { KeptPieces::new(&pieces) };
            let repair = Repair { slots: slots.clone(), _bytes: saved.clone(), _pieces: pieces };
            let repair = Inner::Repair(repair);
            // SAFETY: the bytes stay in place and unchanged in the note of this repair, which lasts
            // until its completion.
            unsafe { self.begin_in(index, ring, repair, (OpKind::Write, slots.start, false), array) };
        }
    }

    /// Whether one of these slots is being written back, or read for that.
    pub(super) fn is_written_back(&self, slots: &Range<u32>) -> bool {
        let touches = |other: &Range<u32>| other.start < slots.end && slots.start < other.end;
        self.resync.slots().is_some_and(touches)
            || self.inner.iter().any(|inner| match inner {
                Inner::Repair(repair) => touches(&repair.slots),
                _ => false,
            })
    }

    /// Whether an operation of the caller's is under way.
    pub(super) fn is_at_work(&self) -> bool {
        self.operations.iter().next().is_some()
    }

    /// Whether a slot of these is being written by the caller, or written back.
    pub(super) fn is_busy(&self, slots: &Range<u32>) -> bool {
        let touches = |other: &Range<u32>| other.start < slots.end && slots.start < other.end;
        let is_written = |one: &Operation| one.kind == OpKind::Write && touches(&one.slots);
        self.operations.iter().any(is_written) || self.is_written_back(slots)
    }

    /// A copy has been written back.
    pub(super) fn repaired(
        &mut self,
        ring: &mut StoreRing<'_>,
        index: usize,
        repair: &Repair,
        well: bool,
        ended: &mut Vec<Ended>,
    ) {
        self.saved_bytes -= repair.slots.len() * self.block;
        let copy = &mut self.copies.0[index];
        copy.suspect.remove(repair.slots.clone());
        if well {
            copy.stale.remove(repair.slots.clone());
        } else {
            self.note_stale(index, &repair.slots);
        }
        self.let_go_on(ring, ended);
    }

    /// Something was written back, or not: what has waited for that goes on.
    pub(super) fn let_go_on(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        for slots in std::mem::take(&mut self.given_up) {
            self.tell_given_up(slots);
        }
        for id in std::mem::take(&mut self.waiting) {
            let slots = self.operations.get_mut(id).map(|write| write.slots.clone());
            match slots {
                Some(slots) if self.is_written_back(&slots) => self.waiting.push(id),
                _ => self.write(ring, id, ended),
            }
        }
    }

    /// Has the copies give up slots that are no longer in use; later, if they are being written
    /// back, so that nothing is written to what a copy has given up. One that is in use again
    /// stays.
    pub(super) fn tell_given_up(&mut self, slots: Range<u32>) {
        if self.is_written_back(&slots) {
            return self.given_up.push(slots);
        }
        let mut from = slots.start;
        while from < slots.end {
            let end = (from..slots.end).find(|&slot| self.used.has(slot)).unwrap_or(slots.end);
            for copy in self.copies.0.iter_mut().filter(|copy| !copy.is_retired) {
                let here = from..end.min(copy.store.slots());
                if !here.is_empty() {
                    copy.store.forget(here);
                }
            }
            from = end + 1;
        }
    }
}
