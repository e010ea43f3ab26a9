//! The copies of a mirror: which of them have a slot, and which is likely to answer first.

use crate::parts::bits::Bits;
use crate::shelf::{Failure, Store};
use std::ops::Range;
use terapage_sys::thread::now_ns;

/// The number of successive failures after which a copy is left out, until it accepts a write
/// again.
const FAILURES_MOST: u32 = 8;

/// The interval at which a write is tried in a copy that is left out, ns.
const PROBE_NS: u64 = 1_000_000_000;

/// One copy.
pub(crate) struct Side {
    pub store: Box<dyn Store>,
    /// Slots that a write did not reach: they are not read from this copy.
    pub stale: Bits,
    /// Slots that gave an error or wrong bytes: they are read from this copy only if no other has
    /// them.
    pub suspect: Bits,
    /// Reads under way.
    pub reading: u64,
    /// The smoothed time of a read, ns; 0 before the first read.
    latency_ns: u64,
    /// Failures in a row.
    failures: u32,
    /// The time when the next write is tried while the copy is left out.
    probe_ns: u64,
}

/// All copies.
pub(crate) struct Copies(pub Vec<Side>);

impl Side {
    /// Whether the copy is left out.
    pub fn is_out(&self) -> bool {
        self.failures >= FAILURES_MOST
    }

    /// Leaves the copy out from now on.
    pub fn lose(&mut self) {
        self.failures = FAILURES_MOST;
        self.probe_ns = now_ns() + PROBE_NS;
    }

    /// Whether the last write of all of these slots reached this copy.
    pub fn has(&self, slots: &Range<u32>) -> bool {
        slots.end <= self.store.slots() && !self.stale.has_any(slots.clone())
    }

    /// Whether some of these slots should be written to this copy again.
    pub fn needs(&self, slots: &Range<u32>) -> bool {
        let behind = self.stale.has_any(slots.clone()) || self.suspect.has_any(slots.clone());
        behind && !self.is_out() && slots.end <= self.store.slots()
    }

    /// An operation has ended.
    pub fn ended(&mut self, result: &Result<(), Failure>) {
        match result {
            Ok(()) => self.failures = 0,
            Err(_) if self.failures + 1 >= FAILURES_MOST => self.lose(),
            Err(_) => self.failures += 1,
        }
    }
}

impl Copies {
    pub fn new(stores: Vec<Box<dyn Store>>) -> Copies {
        let side = |store| Side {
            store,
            stale: Bits::default(),
            suspect: Bits::default(),
            reading: 0,
            latency_ns: 0,
            failures: 0,
            probe_ns: 0,
        };
        Copies(stores.into_iter().map(side).collect())
    }

    /// The copy from which to read the first of some slots, and how many of them to read there.
    /// Copies whose bits are set in `tried` are excluded. `one`: from one copy, if any has all
    /// slots.
    pub fn pick(&self, slots: &Range<u32>, tried: u64, one: bool) -> Option<(usize, u32)> {
        let first = slots.start..slots.start + 1;
        let cost = |&index: &usize| {
            let copy = &self.0[index];
            let busy_ns = copy.latency_ns.saturating_mul(copy.reading + 1);
            (copy.suspect.has(first.start), copy.is_out(), busy_ns)
        };
        let best_of = |wanted: &Range<u32>| {
            let fits = |&index: &usize| tried >> index & 1 == 0 && self.0[index].has(wanted);
            (0..self.0.len()).filter(fits).min_by_key(cost)
        };
        if one && let Some(index) = best_of(slots) {
            return Some((index, slots.end - slots.start));
        }
        let index = best_of(&first)?;
        let copy = &self.0[index];
        if copy.has(slots) && !copy.suspect.has_any(slots.clone()) {
            return Some((index, slots.end - slots.start));
        }
        let suspect = copy.suspect.has(first.start);
        let goes_on = |&slot: &u32| copy.has(&(slot..slot + 1)) && copy.suspect.has(slot) == suspect;
        Some((index, slots.clone().take_while(goes_on).count() as u32))
    }

    /// A read took `took_ns`. The other copies' times age, so that they are tried again some time.
    pub fn read_ended(&mut self, index: usize, took_ns: u64) {
        for (other, copy) in self.0.iter_mut().enumerate() {
            if other != index {
                copy.latency_ns -= copy.latency_ns / 1024;
            } else {
                copy.reading -= 1;
                copy.latency_ns = match copy.latency_ns {
                    0 => took_ns,
                    before => before - before / 8 + took_ns / 8,
                };
            }
        }
    }

    /// Bit mask of the copies to which slots are written, without those in `tried`: copies that
    /// work or are due for a retry. If there is none, all copies.
    pub fn to_write(&self, slots: &Range<u32>, tried: u64) -> u64 {
        let now_ns = now_ns();
        let (mut all, mut due) = (0, 0);
        for (index, copy) in self.0.iter().enumerate() {
            if tried >> index & 1 == 0 && slots.end <= copy.store.slots() {
                all |= 1 << index;
                due |= u64::from(!copy.is_out() || now_ns >= copy.probe_ns) << index;
            }
        }
        if due == 0 { all } else { due }
    }

    /// What is wrong, if anything.
    pub fn condition(&self) -> Option<String> {
        let (all, out) = (self.0.len(), self.0.iter().filter(|copy| copy.is_out()).count());
        let behind: usize = self.0.iter().map(|copy| copy.stale.count() + copy.suspect.count()).sum();
        let mut words: Vec<String> = self.0.iter().filter_map(|copy| copy.store.condition()).collect();
        if out > 0 || behind > 0 {
            let missing = if behind > 0 { format!(", {behind} slots behind") } else { String::new() };
            words.insert(0, format!("mirror: {} of {all} copies{missing}", all - out));
        }
        (!words.is_empty()).then(|| words.join("; "))
    }
}
