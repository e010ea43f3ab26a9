//! A slower store: each completion is delayed, by random times from a seed. For tests.
//!
//! Completions come in another order than their operations, as in a network.

use crate::common::random::Random;
use crate::shelf::{Below, BelowMut, Ended, Error, Notes, Op, Store, StoreRing};
use std::ops::Range;
use terapage_sys::ring::Done;

/// A store whose operations complete late.
pub struct Delayed<S> {
    inner: S,
    /// The range of the delay, ns.
    delays_ns: Range<u64>,
    random: Random,
    /// Delayed completions, by the tokens of their timeouts.
    delayed: Notes<Ended>,
    scratch: Vec<Ended>,
}

impl<S: Store> Delayed<S> {
    /// `inner`, each operation of which takes longer by `delays_ns`; the same `seed` gives the same
    /// times.
    pub fn new(inner: S, delays_ns: Range<u64>, seed: u64) -> Self {
        Delayed {
            inner,
            delays_ns,
            random: Random::new(seed),
            delayed: Notes::default(),
            scratch: Vec::new(),
        }
    }

    /// Calls the inner store and delays the completions that the call returned.
    fn with_inner(
        &mut self,
        ring: &mut StoreRing<'_>,
        ended: &mut Vec<Ended>,
        call: impl FnOnce(&mut S, &mut StoreRing<'_>, &mut Vec<Ended>),
    ) {
        call(&mut self.inner, &mut ring.inner(0), &mut self.scratch);
        for end in self.scratch.drain(..) {
            let spread_ns = (self.delays_ns.end - self.delays_ns.start).max(1);
            let delay_ns = self.delays_ns.start + self.random.next() % spread_ns;
            let token = self.delayed.add(end);
            if ring.timeout(delay_ns, u64::from(token)).is_err() {
                ended.extend(self.delayed.take(token));
            }
        }
    }
}

impl<S: Store> Store for Delayed<S> {
    fn name(&self) -> String {
        format!("delayed {}", self.inner.name())
    }

    crate::stands_on!(inner);

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        // SAFETY: the caller keeps the pieces until it receives the completion, which is later than
        // the inner store's.
        self.with_inner(ring, ended, |inner, ring, ended| unsafe { inner.begin(ring, op, ended) });
    }

    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        match ring.inner_of(done) {
            Some((_, done)) => self.with_inner(ring, ended, |inner, ring, ended| {
                inner.event(ring, done, ended);
            }),
            None => ended.push(self.delayed.take(done.tag as u32).expect("an end that is delayed")),
        }
    }

    fn judge(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        slots: Range<u32>,
        good: bool,
        ended: &mut Vec<Ended>,
    ) {
        self.with_inner(ring, ended, |inner, ring, ended| inner.judge(ring, id, slots, good, ended));
    }

    fn leaving(&mut self, ring: &mut StoreRing<'_>, leaves: bool) -> bool {
        self.inner.leaving(&mut ring.inner(0), leaves)
    }

    fn inherit(&mut self) -> Result<(), Error> {
        self.delayed.clear();
        self.inner.inherit()
    }

    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        self.with_inner(ring, ended, |inner, ring, ended| inner.open(ring, ended));
    }
}
