//! A ring of words between two threads: one puts words in, one takes them out, and neither takes a
//! lock.
//!
//! Each side keeps its own position and reads the other's only if necessary. Words become visible
//! together, when the position is published; room is freed in the same way.

use crate::sync::{AtomicU64, AtomicUsize};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The ring, of `LEN` words.
pub(crate) struct Words<const LEN: usize> {
    words: Box<[AtomicU64]>,
    /// Words that were ever put in.
    head: AtomicUsize,
    /// Words that were ever taken out.
    tail: AtomicUsize,
}

impl<const LEN: usize> Words<LEN> {
    pub fn new() -> Self {
        Words {
            words: (0..LEN).map(|_| AtomicU64::new(0)).collect(),
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
        }
    }

    /// The published number of words ever put in: words before this position can be taken.
    pub fn head(&self) -> usize {
        self.head.load(Acquire)
    }
}

/// The position of the thread that puts in.
#[derive(Default)]
pub(crate) struct Put {
    head: usize,
    tail_seen: usize,
}

impl Put {
    /// Words that were ever put in.
    pub fn head(&self) -> usize {
        self.head
    }

    /// Whether there is room for `words` words.
    pub fn has_room<const LEN: usize>(&mut self, ring: &Words<LEN>, words: usize) -> bool {
        if self.head + words - self.tail_seen <= LEN {
            return true;
        }
        self.tail_seen = ring.tail.load(Acquire);
        self.head + words - self.tail_seen <= LEN
    }

    /// Puts a word in; there must be room. It is visible from the next [`publish`](Self::publish)
    /// on.
    pub fn put<const LEN: usize>(&mut self, ring: &Words<LEN>, word: u64) {
        ring.words[self.head % LEN].store(word, Relaxed);
        self.head += 1;
    }

    /// Lets the other thread take the words that were put in.
    pub fn publish<const LEN: usize>(&self, ring: &Words<LEN>) {
        ring.head.store(self.head, Release);
    }
}

/// The position of the thread that takes words out.
#[derive(Default)]
pub(crate) struct Take {
    tail: usize,
}

impl Take {
    /// Words that were ever taken out.
    pub fn tail(&self) -> usize {
        self.tail
    }

    /// Takes a word out, which must lie before the [`head`](Words::head). Its place stays in use
    /// until [`give_back`](Self::give_back).
    pub fn take<const LEN: usize>(&mut self, ring: &Words<LEN>) -> u64 {
        let word = ring.words[self.tail % LEN].load(Relaxed);
        self.tail += 1;
        word
    }

    /// Frees the places of the words that were taken out.
    pub fn give_back<const LEN: usize>(&self, ring: &Words<LEN>) {
        ring.tail.store(self.tail, Release);
    }
}
