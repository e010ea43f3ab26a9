//! A slower store: completions are delayed. For tests.
//!
//! Delays are random times from a seed, so completions come in another order than their operations,
//! as in a network. Or the store completes a limited number of operations each second, as a cloud
//! volume does: reads and writes together, in order.

use crate::common::random::Random;
use crate::shelf::{Below, BelowMut, Ended, Error, Notes, Op, Store, StoreRing};
use std::ops::Range;
use terapage_sys::ring::Done;
use terapage_sys::thread::now_ns;

/// A longer operation of a limited store counts as several, of this many bytes each.
const COUNTED_BYTES: usize = 256 << 10;

/// A store whose operations complete late.
pub struct Delayed<S> {
    inner: S,
    /// The range of the delay, ns.
    delays_ns: Range<u64>,
    random: Random,
    limit: Option<Limit>,
    /// Delayed completions, by the tokens of their timeouts.
    delayed: Notes<Ended>,
    scratch: Vec<Ended>,
}

/// A limit of operations each second.
struct Limit {
    /// The time of each operation, ns.
    each_ns: u64,
    /// When the operations that have begun are complete, ns.
    free_ns: u64,
    /// When each operation under way is complete, ns.
    due_ns: Notes<u64>,
}

impl Limit {
    fn new(operations: u32) -> Limit {
        let each_ns = 1_000_000_000 / u64::from(operations.max(1));
        Limit { each_ns, free_ns: 0, due_ns: Notes::default() }
    }

    /// An operation of `bytes` bytes begins.
    fn begin(&mut self, id: u32, bytes: usize, now_ns: u64) {
        let count = bytes.div_ceil(COUNTED_BYTES).max(1) as u64;
        self.free_ns = self.free_ns.max(now_ns) + count * self.each_ns;
        self.due_ns.put(id, self.free_ns);
    }

    /// How long the completion of an operation is delayed, ns.
    fn left_ns(&mut self, id: u32, now_ns: u64) -> u64 {
        self.due_ns.take(id).map_or(0, |due_ns| due_ns.saturating_sub(now_ns))
    }
}

impl<S: Store> Delayed<S> {
    /// `inner`, each operation of which takes longer by `delays_ns`; the same `seed` gives the same
    /// times.
    pub fn new(inner: S, delays_ns: Range<u64>, seed: u64) -> Self {
        Delayed {
            inner,
            delays_ns,
            random: Random::new(seed),
            limit: None,
            delayed: Notes::default(),
            scratch: Vec::new(),
        }
    }

    /// `inner`, with at most this many operations each second.
    pub fn limited(inner: S, operations: u32) -> Self {
        Delayed { limit: Some(Limit::new(operations)), ..Delayed::new(inner, 0..0, 0) }
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
            let random_ns = self.delays_ns.start + self.random.next() % spread_ns;
            let left_ns = self.limit.as_mut().map_or(0, |limit| limit.left_ns(end.id, now_ns()));
            let delay_ns = random_ns.max(left_ns);
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
        if let Some(limit) = &mut self.limit {
            limit.begin(op.id, op.bytes(), now_ns());
        }
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
        self.limit.iter_mut().for_each(|limit| limit.due_ns.clear());
        self.inner.inherit()
    }

    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        self.with_inner(ring, ended, |inner, ring, ended| inner.open(ring, ended));
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNTED_BYTES, Limit};

    #[test]
    fn operations_of_a_limited_store_share_the_second() {
        let mut limit = Limit::new(500);
        let ms = 1_000_000;
        for (id, bytes) in [(0, 4096), (1, COUNTED_BYTES), (2, COUNTED_BYTES + 1), (3, 4096)] {
            limit.begin(id, bytes, 100 * ms);
        }
        // Ten operations could have passed since then, but nothing is saved up.
        limit.begin(4, 4096, 130 * ms);
        let left: Vec<u64> = (0..5).map(|id| limit.left_ns(id, 101 * ms) / ms).collect();
        assert_eq!(left, [1, 3, 7, 9, 31]);
        assert_eq!(limit.left_ns(0, 0), 0, "it has ended");
    }
}
