//! The event core of the simulators.
//!
//! Time is a whole number of nanoseconds. Events are returned in order of time; events with the
//! same time in the order in which they were added. So the same input gives the same bytes on every
//! machine. Once the queue has grown to the number of events that are pending at once, it allocates
//! no further memory.
#![forbid(unsafe_code)]

mod heap;

use std::collections::VecDeque;

use heap::Heap;

/// A moment or a span of simulated time, in nanoseconds. 2^64 of them are 584 years.
pub type Nanos = u64;

/// One microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// Lanes of a queue, see [`Queue::in_order`].
pub const LANES: usize = 2;

/// A queue of future events. `E` is the event itself; it should be small.
#[derive(Clone, Debug)]
pub struct Queue<E> {
    heap: Heap<E>,
    lanes: [VecDeque<Pending<E>>; LANES],
    sequence: u64,
    now: Nanos,
}

impl<E: Copy> Default for Queue<E> {
    fn default() -> Self {
        Queue::with_capacity(0)
    }
}

impl<E: Copy> Queue<E> {
    /// A queue at time 0, with room for `capacity` events.
    pub fn with_capacity(capacity: usize) -> Self {
        Queue {
            heap: Heap::with_capacity(capacity),
            lanes: std::array::from_fn(|_| VecDeque::new()),
            sequence: 0,
            now: 0,
        }
    }

    /// The present time: that of the last event that was taken.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Lets `event` happen at `time`.
    ///
    /// # Panics
    ///
    /// If `time` has passed: a simulator must not change its past.
    #[inline]
    pub fn at(&mut self, time: Nanos, event: E) {
        let pending = self.pending(time, event);
        self.heap.push(pending);
    }

    /// Like [`at`](Self::at), for events whose times seldom decrease, for example because each
    /// takes equally long. Events of one `lane` wait in a row, which is cheaper than the heap. An
    /// event whose time decreases waits in the heap. The order in which events are returned does
    /// not depend on where they wait.
    ///
    /// # Panics
    ///
    /// As for [`at`](Self::at), or if `lane` is not below [`LANES`].
    #[inline]
    pub fn in_order(&mut self, lane: usize, time: Nanos, event: E) {
        let pending = self.pending(time, event);
        match self.lanes[lane].back() {
            Some(last) if last.time > time => self.heap.push(pending),
            _ => self.lanes[lane].push_back(pending),
        }
    }

    fn pending(&mut self, time: Nanos, event: E) -> Pending<E> {
        assert!(time >= self.now, "an event at {time} ns, and it is {} ns", self.now);
        self.sequence += 1;
        Pending { time, sequence: self.sequence, event }
    }

    /// The time of the next event.
    #[inline]
    pub fn next_time(&self) -> Option<Nanos> {
        let first = self.lanes.iter().filter_map(VecDeque::front).map(|pending| pending.time).min();
        match (self.heap.first(), first) {
            (Some(pending), Some(time)) => Some(time.min(pending.time)),
            (pending, time) => pending.map(|pending| pending.time).or(time),
        }
    }

    /// Takes the next event. Its time becomes the present time.
    #[inline]
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        let mut first = self.heap.first().map(Pending::key);
        let mut from = None;
        for (lane, waiting) in self.lanes.iter().enumerate() {
            if let Some(key) = waiting.front().map(Pending::key)
                && first.is_none_or(|first| key < first)
            {
                (first, from) = (Some(key), Some(lane));
            }
        }
        let Pending { time, event, .. } = match from {
            Some(lane) => self.lanes[lane].pop_front()?,
            None => self.heap.pop()?,
        };
        self.now = time;
        Some((time, event))
    }

    /// The number of future events.
    pub fn len(&self) -> usize {
        self.heap.len() + self.lanes.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Whether there are no future events.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Pending<E> {
    time: Nanos,
    sequence: u64,
    event: E,
}

impl<E> Pending<E> {
    /// The event with the smaller key comes first.
    fn key(&self) -> u128 {
        u128::from(self.time) << 64 | u128::from(self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_they_were_put_in() {
        let mut queue = Queue::default();
        for (time, event) in [(5, 'd'), (1, 'a'), (5, 'e'), (1, 'b'), (2, 'c')] {
            queue.at(time, event);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcde");
        assert_eq!(queue.now(), 5);
    }

    #[test]
    #[should_panic(expected = "an event at 3 ns, and it is 4 ns")]
    fn the_past_cannot_be_changed() {
        let mut queue = Queue::default();
        queue.at(4, ());
        queue.pop();
        queue.at(3, ());
    }

    #[test]
    fn a_queue_that_has_grown_allocates_no_more() {
        let mut queue = Queue::with_capacity(16);
        let room = queue.heap.capacity();
        for time in 0..10_000 {
            queue.at(time + 10, time);
            if queue.len() > 8 {
                queue.pop();
            }
        }
        assert_eq!(queue.heap.capacity(), room);
    }

    proptest! {
        /// In whatever order events are added, they are returned sorted.
        #[test]
        fn events_come_as_out_of_a_sorted_list(steps in prop::collection::vec((0..6u8, 0..20u64), 0..400)) {
            let mut queue = Queue::default();
            let mut model: Vec<(Nanos, usize)> = Vec::new();
            for (number, (step, span)) in steps.into_iter().enumerate() {
                if step < 2 {
                    model.sort_unstable();
                    let first = (!model.is_empty()).then(|| model.remove(0));
                    prop_assert_eq!(queue.pop(), first);
                } else {
                    let time = queue.now() + span;
                    match step {
                        2 | 3 => queue.at(time, number),
                        lane => queue.in_order(usize::from(lane) - 4, time, number),
                    }
                    model.push((time, number));
                }
                prop_assert_eq!(queue.next_time(), model.iter().map(|event| event.0).min());
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}
