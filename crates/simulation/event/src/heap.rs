//! A heap of events in which each node has four children. It is half as deep as a binary heap, and
//! the children of a node are adjacent.

use crate::Pending;

const CHILDREN: usize = 4;

/// The first event is on top. Taking it leaves a gap, which is mostly filled by the next event that
/// is added; that saves a pass through the heap.
#[derive(Clone, Debug)]
pub(crate) struct Heap<E> {
    events: Vec<Pending<E>>,
    /// Whether the top was taken.
    gap: bool,
}

impl<E: Copy> Heap<E> {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Heap { events: Vec::with_capacity(capacity), gap: false }
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.events.capacity()
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len() - usize::from(self.gap)
    }

    #[inline]
    pub(crate) fn push(&mut self, pending: Pending<E>) {
        if self.gap {
            self.gap = false;
            self.sink(pending);
        } else {
            self.events.push(pending);
            self.rise(pending);
        }
    }

    /// The first event: the top, or, if the top was taken, the first of its children.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Pending<E>> {
        if !self.gap {
            return self.events.first();
        }
        let end = self.events.len().min(CHILDREN + 1);
        self.events[1..end].iter().reduce(|one, other| if other.key() < one.key() { other } else { one })
    }

    pub(crate) fn pop(&mut self) -> Option<Pending<E>> {
        if self.gap {
            self.gap = false;
            let last = self.events.pop()?;
            if !self.events.is_empty() {
                self.sink(last);
            }
        }
        let first = *self.events.first()?;
        self.gap = true;
        Some(first)
    }

    /// Moves `pending` from the end up to its place. It was added last, so only its time matters.
    fn rise(&mut self, pending: Pending<E>) {
        let mut at = self.events.len() - 1;
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.events[parent].time <= pending.time {
                break;
            }
            self.events[at] = self.events[parent];
            at = parent;
        }
        self.events[at] = pending;
    }

    /// Moves `pending` from the top down to its place.
    fn sink(&mut self, pending: Pending<E>) {
        let (key, len) = (pending.key(), self.events.len());
        let mut at = 0;
        loop {
            let begin = at * CHILDREN + 1;
            let Some(children) = self.events.get(begin..len.min(begin + CHILDREN)) else { break };
            let mut least = (key, at);
            for (child, event) in (begin..).zip(children) {
                let other = (event.key(), child);
                least = if other.0 < least.0 { other } else { least };
            }
            if least.1 == at {
                break;
            }
            self.events[at] = self.events[least.1];
            at = least.1;
        }
        self.events[at] = pending;
    }
}
