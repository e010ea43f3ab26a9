//! Spares of a mirror: stores that keep nothing until one takes the place of a copy.
//!
//! It does so if a copy has not answered for a time, or is to be emptied. The resync fills it.
//! Until it has all, a copy that is there goes on as one; from then on it has no part in anything,
//! and gives up what it keeps.

use crate::kinds::mirror::Mirror;
use crate::parts::copies::Side;
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

impl Mirror {
    /// Has spares take the place of copies, and copies retire in whose place one has all.
    pub(crate) fn see_to_spares(&mut self, ring: &mut StoreRing<'_>) {
        if self.inherited {
            return;
        }
        self.retire(ring);
        let now_ns = now_ns();
        while let Some(spare) = self.spares.last() {
            let after_ns = spare.after.as_nanos() as u64;
            let is_old = |copy: &Side| copy.is_to_be_replaced(now_ns, after_ns);
            let Some(index) = self.copies.0.iter().position(is_old) else { return };
            let Some(spare) = self.spares.pop() else { return };
            self.replace(ring, index, spare.store);
        }
    }

    /// A spare takes the place of a copy.
    fn replace(&mut self, ring: &mut StoreRing<'_>, index: usize, store: Box<dyn Store>) {
        let (old, new) = (self.copies.0[index].store.name(), store.name());
        let mut side = Side::new(store);
        while side.store.slots() < self.slots {
            if let Err(error) = side.store.grow() {
                say(&format!("terapage: warning: store {new} cannot take the place of {old}: {error}\n"));
                return side.store.close();
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
        say(&format!("terapage: warning: store {new} takes the place of {old}\n"));
    }

    /// Copies in whose place another has all have no part in anything any more.
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
            copy.is_retired = true;
            (copy.stale, copy.suspect) = Default::default();
            if copy.under_way > 0 {
                continue;
            }
            copy.is_emptied = true;
            let slots = 0..copy.store.slots();
            copy.store.forget(slots);
            // What is to be asked for that is sent.
            self.with_copy(index, ring, |store, ring, ended| store.open(ring, ended));
        }
    }
}
