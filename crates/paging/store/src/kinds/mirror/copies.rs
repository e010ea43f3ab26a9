//! The copies of a mirror: which of them have a slot, and which is likely to answer first.

use crate::common::bits::Bits;
use crate::shelf::{Failure, Redundancy, Store};
use std::ops::Range;
use terapage_sys::thread::now_ns;

/// The number of successive failures after which a copy is left out, until it accepts a write
/// again.
const FAILURES_MOST: u32 = 8;

/// The interval at which a write is tried in a copy that is left out, ns.
const PROBE_NS: u64 = 1_000_000_000;

/// One copy.
pub(super) struct Side {
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
    /// Another copy is on the same server: this one is none.
    pub is_double: bool,
    /// Since when it has not answered, as it was looked at; 0: it does.
    pub away_since_ns: u64,
    /// A spare takes its place: which copy that is.
    pub successor: Option<usize>,
    /// That one has all by now: this copy has no part in anything any more.
    pub is_retired: bool,
    /// It has given up what it keeps.
    pub is_emptied: bool,
    /// Forks whose children may still read it, as it has retired since.
    pub readers: Vec<u32>,
    /// Operations under way.
    pub under_way: u32,
}

/// All copies.
pub(super) struct Copies(pub Vec<Side>);

impl Side {
    /// A copy in a store, which learns that it is one.
    pub fn new(mut store: Box<dyn Store>) -> Side {
        store.is_copy();
        Side {
            store,
            stale: Bits::default(),
            suspect: Bits::default(),
            reading: 0,
            latency_ns: 0,
            failures: 0,
            probe_ns: 0,
            is_double: false,
            away_since_ns: 0,
            successor: None,
            is_retired: false,
            is_emptied: false,
            readers: Vec::new(),
            under_way: 0,
        }
    }

    /// Whether the copy is left out.
    pub fn is_out(&self) -> bool {
        self.failures >= FAILURES_MOST
    }

    /// Whether it is left out, or does not answer.
    pub fn is_missing(&self) -> bool {
        self.is_double || self.is_retired || self.is_out() || !self.store.presence().answers
    }

    /// Whether it may be written now what it lacks: it answers, and if it is left out, its time to
    /// be tried has come.
    pub fn takes_again(&self, now_ns: u64) -> bool {
        let is_due = !self.is_out() || now_ns >= self.probe_ns;
        is_due && !self.is_double && !self.is_retired && self.store.presence().answers
    }

    /// Whether writes are for it.
    pub fn is_written(&self) -> bool {
        !self.is_double && !self.is_retired
    }

    /// Whether a spare is to take its place: it is to be emptied, or has not answered for so long.
    pub fn is_to_be_replaced(&self, now_ns: u64, after_ns: u64) -> bool {
        let is_gone = self.away_since_ns > 0 && now_ns.saturating_sub(self.away_since_ns) >= after_ns;
        self.successor.is_none() && (is_gone || self.store.presence().drains)
    }

    /// Slots that it is to be written again.
    pub fn behind(&self) -> usize {
        self.stale.count() + self.suspect.count()
    }

    /// The first slot from `from` on that it is to be written again.
    pub fn next_behind(&self, from: u32) -> Option<u32> {
        let next = [self.stale.next(from), self.suspect.next(from)];
        next.into_iter().flatten().min()
    }

    /// Leaves the copy out from now on.
    pub fn lose(&mut self) {
        self.failures = FAILURES_MOST;
        self.probe_ns = now_ns() + PROBE_NS;
    }

    /// Whether the last write of all of these slots reached this copy.
    pub fn has(&self, slots: &Range<u32>) -> bool {
        !self.is_retired && slots.end <= self.store.slots() && !self.stale.has_any(slots.clone())
    }

    /// Whether some of these slots should be written to this copy again.
    pub fn needs(&self, slots: &Range<u32>) -> bool {
        self.lacks(slots) && !self.is_missing() && slots.end <= self.store.slots()
    }

    /// Whether it is to be written some of these slots again.
    pub fn lacks(&self, slots: &Range<u32>) -> bool {
        self.stale.has_any(slots.clone()) || self.suspect.has_any(slots.clone())
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
        Copies(stores.into_iter().map(Side::new).collect())
    }

    /// The copy from which to read the first of some slots, and how many of them to read there.
    /// Copies whose bits are set in `tried` are excluded. `one`: from one copy, if any has all
    /// slots.
    pub fn pick(&self, slots: &Range<u32>, tried: u64, one: bool) -> Option<(usize, u32)> {
        let first = slots.start..slots.start + 1;
        let cost = |&index: &usize| {
            let copy = &self.0[index];
            let busy_ns = copy.latency_ns.saturating_mul(copy.reading + 1);
            (copy.suspect.has(first.start), copy.is_missing(), busy_ns)
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

    /// A read took so long, ns, if it went well. The others are tried again some time: what is said
    /// of them ages.
    pub fn read_ended(&mut self, index: usize, took_ns: Option<u64>) {
        self.0[index].reading -= 1;
        let Some(took_ns) = took_ns else { return };
        for (other, copy) in self.0.iter_mut().enumerate() {
            if other != index {
                copy.latency_ns -= copy.latency_ns / 1024;
            } else {
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
            if tried >> index & 1 == 0 && copy.is_written() && slots.end <= copy.store.slots() {
                all |= 1 << index;
                due |= u64::from(!copy.is_out() || now_ns >= copy.probe_ns) << index;
            }
        }
        if due == 0 { all } else { due }
    }

    /// Looks at who is there. One that comes back is tried at once. Of two copies on one server one
    /// is none, which was not to be known while that server was away.
    pub fn look(&mut self) {
        for copy in &mut self.0 {
            match (copy.store.presence().answers, copy.away_since_ns) {
                (true, 1..) => (copy.away_since_ns, copy.probe_ns) = (0, 0),
                // It may have been known before.
                (false, 0) => {
                    let since_ns = copy.store.presence().since_ns;
                    copy.away_since_ns = if since_ns == 0 { now_ns() } else { since_ns };
                }
                _ => {}
            }
        }
        for index in 1..self.0.len() {
            let (before, rest) = self.0.split_at_mut(index);
            let server = rest[0].store.presence().server;
            let is_same = |copy: &Side| !copy.is_double && copy.store.presence().server == server;
            rest[0].is_double = !server.is_empty() && before.iter().any(is_same);
        }
    }

    /// What they are, and what they lack.
    pub fn redundancy(&self) -> Redundancy {
        let of_copy = |copy: &Side| Redundancy {
            copies: 1,
            missing: u32::from(copy.is_missing()),
            behind: copy.behind() as u64,
            resynced_bytes: 0,
        };
        let all = self.0.iter().filter(|copy| !copy.is_retired);
        all.map(of_copy).fold(Redundancy::default(), std::ops::Add::add)
    }

    /// What is wrong, if anything; for copies of a mirror, or of a store that is `alone`, in this
    /// process or inherited.
    pub fn condition(&self, alone: bool, inherited: bool) -> Option<String> {
        let Redundancy { copies, missing, behind, .. } = self.redundancy();
        let in_use = self.0.iter().filter(|copy| !copy.is_retired);
        let mut words: Vec<String> = in_use.filter_map(|copy| copy.store.condition()).collect();
        if let Some(double) = self.0.iter().find(|copy| copy.is_double) {
            words.push(format!("{} is the server of another copy", double.store.name()));
        }
        let waits = |copy: &&Side| copy.store.presence().drains && copy.successor.is_none();
        if let Some(full) = self.0.iter().find(waits) {
            let why = match (alone, inherited) {
                (true, true) => "but this forked process reads its parent's blocks there until it ends",
                (true, false) => "and there is no other server",
                (false, _) => "and there is no spare",
            };
            words.push(format!("{} is to be emptied, {why}", full.store.name()));
        }
        if alone && behind > 0 && copies > 1 {
            words.push(format!("{behind} slots are on their way to another server"));
        } else if alone && behind > 0 {
            words.push(format!("{behind} slots are lost"));
        } else if !alone && (missing > 0 || behind > 0) {
            let lacks = if behind > 0 { format!(", {behind} slots behind") } else { String::new() };
            words.insert(0, format!("mirror: {} of {copies} copies{lacks}", copies - missing));
        }
        (!words.is_empty()).then(|| words.join("; "))
    }
}
