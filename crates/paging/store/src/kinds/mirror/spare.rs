//! Spares of a mirror: stores that keep nothing until one takes the place of a copy. A mirror has
//! some from the beginning, or gets each one when it needs it ([`Relief`]).
//!
//! It does so if a copy has not answered for a time, or is to be emptied; or at once, if nothing is
//! kept yet, and no copy answers: so a program begins as long as any server is there. The resync
//! fills it, in a fork's child that of the parent.
//! Until it has all, a copy that is there goes on as one; from then on it has no part in anything,
//! and gives up what it keeps, once no child of an earlier fork can read it.

use super::Mirror;
use super::copies::Side;
use crate::shelf::{Store, StoreRing};
use std::time::Duration;
use terapage_sys::thread::{now_ns, say};

/// A store that keeps nothing yet.
pub struct Spare {
    /// The store.
    pub store: Box<dyn Store>,
    /// It takes the place of a copy that has not answered for so long.
    pub after: Duration,
}

/// Opens a store for what a copy keeps that is to be emptied; `None` if there is no other now.
pub type Relief = Box<dyn FnMut() -> Option<Box<dyn Store>> + Send>;

/// The time between two stores that could not take the place of a copy, ns.
const PAUSE_NS: u64 = 10_000_000_000;

/// How long a copy does not answer that may answer again in a moment, ns.
const QUICK_NS: u64 = 500_000_000;

impl Mirror {
    /// Replaces copies by spares, and retires a copy once its spare is complete.
    pub(super) fn see_to_spares(&mut self, ring: &mut StoreRing<'_>) {
        self.retire(ring);
        let now_ns = now_ns();
        loop {
            // Only a copy that is to be emptied gets relief: a copy that is gone has the only
            // bytes.
            let after_ns = self.spares.last().map_or(u64::MAX, |spare| spare.after.as_nanos() as u64);
            let after_ns = if self.is_forsaken(now_ns) { QUICK_NS } else { after_ns };
            let is_old = |copy: &Side| copy.is_to_be_replaced(now_ns, after_ns);
            let Some(index) = self.copies.0.iter().position(is_old) else { return };
            let spare = self.spares.pop().map(|spare| spare.store);
            let Some(spare) = spare.or_else(|| self.relieve(now_ns)) else { return };
            if !self.replace(ring, index, spare) {
                self.relief_from_ns = now_ns + PAUSE_NS;
            }
        }
    }

    /// Whether nothing is kept, and no copy answers that could keep something.
    fn is_forsaken(&self, now_ns: u64) -> bool {
        let is_gone = |copy: &Side| copy.is_to_be_replaced(now_ns, QUICK_NS) || copy.successor.is_some();
        !self.is_kept && !self.spares.is_empty() && self.copies.0.iter().all(is_gone)
    }

    /// Another store for the bytes of a copy.
    fn relieve(&mut self, now_ns: u64) -> Option<Box<dyn Store>> {
        let has_room = self.copies.0.len() < StoreRing::INNER_MOST && now_ns >= self.relief_from_ns;
        let mut store = self.relief.as_mut().filter(|_| has_room)?()?;
        if self.split_into > 1 {
            store.may_split(self.split_into).then(|| store.split(self.split_into))?;
        }
        Some(store)
    }

    /// A spare takes the place of a copy, if it has room. Returns whether it does.
    fn replace(&mut self, ring: &mut StoreRing<'_>, index: usize, store: Box<dyn Store>) -> bool {
        let (old, new) = (self.copies.0[index].store.name(), store.name());
        let mut side = Side::new(store);
        while side.store.slots() < self.slots {
            if let Err(error) = side.store.grow() {
                say(&format!("terapage: warning: store {new} cannot take the place of {old}: {error}\n"));
                side.store.close();
                return false;
            }
        }
        let mut from = 0;
        while let Some(slot) = self.used.next(from) {
            side.stale.insert(slot..slot + 1);
            from = slot + 1;
        }
        let successor = self.copies.0.len();
        self.copies.0.push(side);
        self.copies.0[index].successor = Some(successor);
        self.with_copy(successor, ring, |store, ring, ended| store.open(ring, ended));
        // The parent of a child has said it.
        let since_ns = self.copies.0[index].away_since_ns;
        if !self.inherited && (since_ns == 0 || since_ns >= self.begun_ns) {
            say(&format!("terapage: warning: store {new} takes the place of {old}\n"));
        }
        true
    }

    /// Retires copies whose replacement is complete.
    fn retire(&mut self, ring: &mut StoreRing<'_>) {
        for index in 0..self.copies.0.len() {
            let copy = &self.copies.0[index];
            let has_all = |&next: &usize| {
                let next = &self.copies.0[next];
                next.behind() == 0 && !next.is_missing()
            };
            if copy.is_emptied || !copy.is_retired && !copy.successor.as_ref().is_some_and(has_all) {
                continue;
            }
            let copy = &mut self.copies.0[index];
            if !copy.is_retired {
                (copy.is_retired, copy.readers) = (true, self.forks.clone());
            }
            (copy.stale, copy.suspect) = Default::default();
            // In a child, this takes back the child's own claim.
            let is_read = !self.inherited && !copy.readers.is_empty() && copy.store.presence().is_held;
            if copy.under_way > 0 || is_read {
                continue;
            }
            copy.is_emptied = true;
            let slots = 0..copy.store.slots();
            copy.store.forget(slots);
            // Sends the requests that follow from this.
            self.with_copy(index, ring, |store, ring, ended| store.open(ring, ended));
        }
    }
}
