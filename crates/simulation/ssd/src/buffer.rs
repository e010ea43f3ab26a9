//! The controller's memory: units that the host has written and units that the garbage collection
//! moves, until they are programmed.

use slab::Slab;
use terapage_event::Nanos;

pub(crate) const NONE: u32 = u32::MAX;

/// The stage of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The entry waits for the rest of its bytes, which are read from the flash.
    Filling,
    /// The entry waits in the list of the host's entries.
    Waiting,
    /// The entry waits in the list of a die's garbage collection.
    Moving {
        /// The die.
        die: u32,
    },
    /// The entry is being programmed, or waits to be removed. A newer entry, or a trim, can take
    /// the unit from it.
    Leaving,
}

/// One unit in the controller's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub unit: u32,
    pub stage: Stage,
    pub next: u32,
    pub previous: u32,
    /// The time at which the entry arrived.
    pub arrived: Nanos,
    /// The first of the commands that end when the entry is programmed.
    pub waiters: u32,
    /// The write of the host that the entry has.
    #[cfg(test)]
    pub version: u64,
}

/// A list of entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub head: u32,
    pub tail: u32,
    pub len: u32,
}

impl Default for List {
    fn default() -> List {
        List { head: NONE, tail: NONE, len: 0 }
    }
}

/// A command that waits for an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub command: u32,
    pub next: u32,
}

/// All entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    entries: Slab<Entry>,
    waiters: Slab<Waiter>,
}

impl Buffer {
    pub(crate) fn insert(&mut self, unit: u32, stage: Stage, arrived: Nanos) -> u32 {
        self.entries.insert(Entry {
            unit,
            stage,
            next: NONE,
            previous: NONE,
            arrived,
            waiters: NONE,
            #[cfg(test)]
            version: 0,
        }) as u32
    }

    pub(crate) fn entry(&self, entry: u32) -> &Entry {
        &self.entries[entry as usize]
    }

    pub(crate) fn entry_mut(&mut self, entry: u32) -> &mut Entry {
        &mut self.entries[entry as usize]
    }

    pub(crate) fn remove(&mut self, entry: u32) -> Entry {
        self.entries.remove(entry as usize)
    }

    pub(crate) fn push(&mut self, list: &mut List, entry: u32) {
        let at = &mut self.entries[entry as usize];
        (at.previous, at.next) = (list.tail, NONE);
        if list.tail == NONE {
            list.head = entry;
        } else {
            self.entries[list.tail as usize].next = entry;
        }
        list.tail = entry;
        list.len += 1;
    }

    pub(crate) fn unlink(&mut self, list: &mut List, entry: u32) {
        let Entry { next, previous, .. } = self.entries[entry as usize];
        match previous {
            NONE => list.head = next,
            previous => self.entries[previous as usize].next = next,
        }
        match next {
            NONE => list.tail = previous,
            next => self.entries[next as usize].previous = previous,
        }
        list.len -= 1;
    }

    /// Splits the first `count` entries off `list`; they are [`Stage::Leaving`] from then on.
    pub(crate) fn take(&mut self, list: &mut List, count: u32) -> List {
        debug_assert!(count > 0 && count <= list.len);
        let mut taken = List { head: list.head, tail: list.head, len: count };
        for at in 0..count {
            if at > 0 {
                taken.tail = self.entries[taken.tail as usize].next;
            }
            self.entries[taken.tail as usize].stage = Stage::Leaving;
        }
        list.head = std::mem::replace(&mut self.entries[taken.tail as usize].next, NONE);
        list.len -= count;
        match list.head {
            NONE => list.tail = NONE,
            head => self.entries[head as usize].previous = NONE,
        }
        taken
    }

    /// Lets `command` complete only after `entry` is programmed.
    pub(crate) fn wait(&mut self, entry: u32, command: u32) {
        let next = self.entries[entry as usize].waiters;
        self.entries[entry as usize].waiters = self.waiters.insert(Waiter { command, next }) as u32;
    }

    pub(crate) fn take_waiter(&mut self, waiter: u32) -> Waiter {
        self.waiters.remove(waiter as usize)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
