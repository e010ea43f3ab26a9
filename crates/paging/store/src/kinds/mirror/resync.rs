//! The resync of a mirror, in the background: what a copy lacks is read from another, compared with
//! the checksums of what was written, and written to it, until no copy lacks anything.
//!
//! In the child of a fork, what a copy lacks is only read there, and compared: its owner writes it.
//!
//! One step at a time is under way, and the steps have a bounded rate. A write of the program's to
//! slots of the step waits until the step is over.

use super::copies::Side;
use super::repair::Saved;
use super::{Inner, Mirror};
use crate::EXTENT;
use crate::common::pieces::KeptPieces;
use crate::shelf::{Failure, OpKind, StoreRing};
use std::ops::Range;
use terapage_sys::ring::Piece;
use terapage_sys::thread::now_ns;

/// Bytes of a step, at most.
const STEP: usize = 512 << 10;

/// Bytes in a second: while operations of the program are under way, and while none is. Chosen, not
/// measured.
const BUSY_RATE: u64 = 64 << 20;
const IDLE_RATE: u64 = 256 << 20;

/// Before the first step, and after a round in which nothing could be done.
const SOON_NS: u64 = 1_000_000;
const REST_NS: u64 = 1_000_000_000;

/// The token of its timeouts.
const TIMEOUT: u64 = 0;

/// Where it is.
#[derive(Default)]
pub(super) struct Resync {
    /// A timeout is under way.
    is_armed: bool,
    step: Option<Step>,
    /// Where the search for the next step begins.
    at: u32,
    /// Something was done since the search began with the first slot.
    has_gained: bool,
    /// Bytes that were written by now.
    pub bytes: u64,
}

/// Slots that are being read, or written.
struct Step {
    slots: Range<u32>,
    saved: Saved,
    pieces: Box<[Piece]>,
    /// Copies that were read, a bit for each.
    tried: u64,
    /// Writes under way.
    left: u32,
    begun_ns: u64,
}

impl Resync {
    /// The slots of the step that is under way.
    pub fn slots(&self) -> Option<&Range<u32>> {
        self.step.as_ref().map(|step| &step.slots)
    }
}

impl Resync {
    /// Each slot becomes `more` slots. No step is under way.
    pub fn split(&mut self, more: u32) {
        self.at *= more;
    }
}

/// Whether a copy lacks these slots and takes them now.
fn is_target(copy: &Side, slots: &Range<u32>, now_ns: u64) -> bool {
    copy.lacks(slots) && copy.takes_again(now_ns) && slots.end <= copy.store.slots()
}

impl Mirror {
    /// Arms the clock, if there is something to be done.
    pub(super) fn see_to_resync(&mut self, ring: &mut StoreRing<'_>) {
        let is_idle = !self.resync.is_armed && self.resync.step.is_none();
        // On the simulated machine a timeout ends at once: a copy that takes no writes would occupy
        // the pager's thread for ever. The tests of this crate check the resync by themselves.
        if is_idle && !cfg!(terapage_model) && self.is_behind() {
            self.arm_resync(ring, SOON_NS);
        }
    }

    /// Whether a copy lacks something, or is left out though it has used slots.
    fn is_behind(&self) -> bool {
        let has_used = self.used.count() > 0;
        let mut in_use = self.copies.0.iter().filter(|copy| copy.is_written());
        in_use.any(|copy| copy.behind() > 0 || copy.is_out() && has_used)
    }

    fn arm_resync(&mut self, ring: &mut StoreRing<'_>, ns: u64) {
        self.resync.is_armed = ring.timeout(ns, TIMEOUT).is_ok();
    }

    /// The time has come for the next step.
    pub(super) fn resync_on(&mut self, ring: &mut StoreRing<'_>) {
        self.resync.is_armed = false;
        if self.resync.step.is_some() {
            return;
        }
        if self.resync.at == 0 {
            self.begin_round();
        }
        if let Some(slots) = self.next_step() {
            self.resync.at = slots.end;
            return self.begin_step(ring, slots);
        }
        let has_gained = std::mem::take(&mut self.resync.has_gained);
        self.resync.at = 0;
        if self.is_behind() {
            self.arm_resync(ring, if has_gained { SOON_NS } else { REST_NS });
        }
    }

    /// Copies that could not grow with the others try again, and those that are left out, and lack
    /// nothing, are tried with a slot.
    fn begin_round(&mut self) {
        let now_ns = now_ns();
        for index in 0..self.copies.0.len() {
            let copy = &mut self.copies.0[index];
            while copy.takes_again(now_ns) && copy.store.slots() < self.slots && copy.store.grow().is_ok() {}
            if copy.is_out()
                && copy.behind() == 0
                && let Some(slot) = self.used.next(0)
            {
                self.note_suspect(index, &(slot..slot + 1));
            }
        }
    }

    /// The next slots that a copy lacks which takes them now: of one extent, and alike.
    fn next_step(&self) -> Option<Range<u32>> {
        let now_ns = now_ns();
        let mut from = self.resync.at;
        loop {
            let able = self.copies.0.iter().filter(|copy| copy.takes_again(now_ns));
            let first = able.filter_map(|copy| Some((copy.next_behind(from)?, copy)));
            let (first, copy) = first.min_by_key(|&(slot, _)| slot)?;
            from = first + 1;
            if first >= copy.store.slots() || self.is_busy(&(first..first + 1)) {
                continue;
            }
            // One that is left out is tried with little.
            let most = if copy.is_out() { 1 } else { (STEP / self.block).max(1) as u32 };
            let per_extent = (EXTENT / self.block) as u32;
            let edge = ((first / per_extent + 1) * per_extent).min(copy.store.slots());
            let state = |slot: u32| {
                self.copies.0.iter().map(move |copy| (copy.stale.has(slot), copy.suspect.has(slot)))
            };
            let is_alike = |&slot: &u32| state(slot).eq(state(first)) && !self.is_busy(&(slot..slot + 1));
            let count = (first..edge.min(first + most)).take_while(is_alike).count() as u32;
            return Some(first..first + count);
        }
    }

    fn begin_step(&mut self, ring: &mut StoreRing<'_>, slots: Range<u32>) {
        let saved = Saved::zeros(slots.len() * self.block);
        let pieces = [Piece::new(saved.bytes().as_ptr() as usize, saved.bytes().len())].into();
        let step = Step { slots, saved, pieces, tried: 0, left: 0, begun_ns: now_ns() };
        self.resync.step = Some(step);
        if self.inherited { self.check_target(ring) } else { self.read_source(ring) }
    }

    /// Reads the slots of the step where they were lost: the owner may have written them again.
    fn check_target(&mut self, ring: &mut StoreRing<'_>) {
        let Some(step) = &self.resync.step else { return };
        let now_ns = now_ns();
        let mut copies = self.copies.0.iter();
        let Some(index) = copies.position(|copy| is_target(copy, &step.slots, now_ns)) else {
            return self.end_step(ring);
        };
        self.read_step(index, ring, Inner::Check);
    }

    /// Reads the slots of the step from a copy.
    fn read_step(&mut self, index: usize, ring: &mut StoreRing<'_>, what: Inner) {
        let Some(step) = &self.resync.step else { return };
        let slot = step.slots.start;
        // SAFETY: the step has the array until its operations have ended.
        let array = unsafe { KeptPieces::new(&step.pieces) };
        // SAFETY: the step has the memory, which nobody else uses, until its operations have ended.
        unsafe { self.begin_in(index, ring, what, (OpKind::Read, slot, false), array) };
    }

    /// A copy has given what it lacked, or has not.
    pub(super) fn target_checked(
        &mut self,
        ring: &mut StoreRing<'_>,
        index: usize,
        result: &Result<(), Failure>,
        ended: &mut Vec<crate::Ended>,
    ) {
        let Some(step) = &self.resync.step else { return };
        let slots = step.slots.clone();
        let blocks = step.saved.bytes().chunks_exact(self.block);
        if result.is_ok() && slots.clone().zip(blocks).all(|(slot, bytes)| self.is_right(slot, bytes)) {
            let copy = &mut self.copies.0[index];
            copy.stale.remove(slots.clone());
            copy.suspect.remove(slots);
            self.resync.has_gained = true;
            self.end_step(ring);
        } else if self.is_heir {
            self.read_source(ring);
        } else {
            // The owner has not come so far.
            self.resync.step = None;
            self.arm_resync(ring, REST_NS);
        }
        self.let_go_on(ring, ended);
    }

    /// Reads the slots of the step from the next copy that may have them, those first that gave no
    /// error.
    fn read_source(&mut self, ring: &mut StoreRing<'_>) {
        let Some(step) = &mut self.resync.step else { return };
        let fits = |&index: &usize| step.tried >> index & 1 == 0 && self.copies.0[index].has(&step.slots);
        let cost = |&index: &usize| {
            let copy = &self.copies.0[index];
            (copy.suspect.has_any(step.slots.clone()), copy.is_missing())
        };
        let Some(index) = (0..self.copies.0.len()).filter(fits).min_by_key(cost) else {
            return self.end_step(ring);
        };
        step.tried |= 1 << index;
        self.read_step(index, ring, Inner::Source);
    }

    /// The read of the step from a copy has completed.
    pub(super) fn source_read(
        &mut self,
        ring: &mut StoreRing<'_>,
        index: usize,
        result: &Result<(), Failure>,
        ended: &mut Vec<crate::Ended>,
    ) {
        let Some(step) = &self.resync.step else { return };
        let slots = step.slots.clone();
        let is_wrong = |&(slot, bytes): &(u32, &[u8])| !self.is_right(slot, bytes);
        let bad: Vec<u32> = match result {
            Ok(()) => {
                let blocks = step.saved.bytes().chunks_exact(self.block);
                slots.clone().zip(blocks).filter(is_wrong).map(|(slot, _)| slot).collect()
            }
            Err(failure) if failure.passing => Vec::new(),
            Err(_) => slots.clone().collect(),
        };
        bad.iter().for_each(|&slot| self.note_suspect(index, &(slot..slot + 1)));
        if result.is_err() || !bad.is_empty() {
            self.read_source(ring);
        } else {
            self.copies.0[index].suspect.remove(slots);
            self.write_targets(ring);
        }
        self.let_go_on(ring, ended);
    }

    /// Writes the bytes, which are right, to the copies that lack them.
    fn write_targets(&mut self, ring: &mut StoreRing<'_>) {
        let Some(step) = &mut self.resync.step else { return };
        let now_ns = now_ns();
        let slots = step.slots.clone();
        // SAFETY: the step has the array until its operations have ended.
        let array = unsafe { KeptPieces::new(&step.pieces) };
        let lacks = |&index: &usize| is_target(&self.copies.0[index], &slots, now_ns);
        let targets: Vec<usize> = (0..self.copies.0.len()).filter(lacks).collect();
        step.left = targets.len() as u32;
        if targets.is_empty() {
            // The suspect copy was the source, and it was right.
            self.resync.has_gained = true;
            return self.end_step(ring);
        }
        for index in targets {
            // Until it has been written nobody reads it there.
            self.note_stale(index, &slots);
            // SAFETY: the step has the memory, and leaves it as it is, until its operations have
            // ended.
            unsafe { self.begin_in(index, ring, Inner::Target, (OpKind::Write, slots.start, false), array) };
        }
    }

    /// A copy has taken the bytes of the step, or has not.
    pub(super) fn target_written(
        &mut self,
        ring: &mut StoreRing<'_>,
        index: usize,
        result: &Result<(), Failure>,
        ended: &mut Vec<crate::Ended>,
    ) {
        let Some(step) = &mut self.resync.step else { return };
        step.left -= 1;
        let (slots, is_over) = (step.slots.clone(), step.left == 0);
        self.copies.0[index].suspect.remove(slots.clone());
        if result.is_ok() {
            self.resync.has_gained = true;
            self.resync.bytes += (slots.len() * self.block) as u64;
            self.copies.0[index].stale.remove(slots);
        }
        if is_over {
            self.end_step(ring);
            self.let_go_on(ring, ended);
        }
    }

    /// The step is over. The next one begins when its bytes have had their time.
    fn end_step(&mut self, ring: &mut StoreRing<'_>) {
        let Some(step) = self.resync.step.take() else { return };
        let rate = if self.is_at_work() { BUSY_RATE } else { IDLE_RATE };
        let due_ns = step.saved.bytes().len() as u64 * 1_000_000_000 / rate;
        let took_ns = now_ns().saturating_sub(step.begun_ns);
        self.arm_resync(ring, due_ns.saturating_sub(took_ns).max(SOON_NS));
    }
}
