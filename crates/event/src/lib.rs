//! The event core of the simulators.
//!
//! Time is a whole number of nanoseconds. Events come out by time, and those of one time in the order in which they
//! were put in, so that the same input gives the same bytes on every machine. Once the queue has grown to the number of
//! events that are pending at once, it allocates no more.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A moment or a span of simulated time, in nanoseconds. 2^64 of them are 584 years.
pub type Nanos = u64;

/// One microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// Events that are still to come. `E` is what happens; it is best small and `Copy`.
#[derive(Clone, Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Pending<E>>,
    sequence: u64,
    now: Nanos,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Queue::with_capacity(0)
    }
}

impl<E> Queue<E> {
    /// A queue at time 0, with room for `capacity` events.
    pub fn with_capacity(capacity: usize) -> Self {
        Queue { heap: BinaryHeap::with_capacity(capacity), sequence: 0, now: 0 }
    }

    /// The time of the event that was taken last.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Lets `event` happen at `time`.
    ///
    /// # Panics
    ///
    /// If `time` has passed: a simulator that changes its past is wrong.
    pub fn at(&mut self, time: Nanos, event: E) {
        assert!(time >= self.now, "an event at {time} ns, and it is {} ns", self.now);
        self.sequence += 1;
        self.heap.push(Pending { time, sequence: self.sequence, event });
    }

    /// The time of the next event.
    pub fn next_time(&self) -> Option<Nanos> {
        self.heap.peek().map(|pending| pending.time)
    }

    /// Takes the next event; from now on it is its time.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        let Pending { time, event, .. } = self.heap.pop()?;
        self.now = time;
        Some((time, event))
    }

    /// Events that are still to come.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is still to come.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[derive(Clone, Copy, Debug)]
struct Pending<E> {
    time: Nanos,
    sequence: u64,
    event: E,
}

/// The heap's top is its greatest: the earliest event is.
impl<E> Ord for Pending<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}

impl<E> PartialOrd for Pending<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Pending<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Pending<E> {}

#[cfg(test)]
mod tests {
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
}
