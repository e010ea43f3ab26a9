//! The I/O of the pager's thread: its ring, its stores, and the transfers under way.
//!
//! All events for which the thread waits come through one ring. The upper byte of a tag, its
//! *topic*, says to which part an event belongs. [`Io::next_event`] returns the engine's events,
//! and passes the stores' events on to them.

pub(crate) mod bounce;
pub(crate) mod slots;
pub(crate) mod transfers;

use crate::error::Error;
use crate::options::Options;
use bounce::Bounce;
use slots::Slots;
use std::collections::VecDeque;
use terapage_policy::disk::Disk;
use terapage_store::{EXTENT, Ended, Error as StoreError, Op, OpKind, Redundancy, Store, StoreRing};
use terapage_sys::ring::{Done, IoEngine, Piece, Ring};
use terapage_sys::thread;
use transfers::{Operation, Transfers};

/// The topics of events: the upper byte of a tag. Below it is a number: a child's, a transfer's, or
/// a store's in the next byte, followed by the store's own token.
const FAULTS: u64 = 1 << TOPIC_SHIFT;
const REQUESTS: u64 = 2 << TOPIC_SHIFT;
const CHILDREN: u64 = 3 << TOPIC_SHIFT;
/// A pause before an operation is tried again has ended.
const PAUSES: u64 = 4 << TOPIC_SHIFT;
const STORES: u64 = 5 << TOPIC_SHIFT;
const TIMER: u64 = 6 << TOPIC_SHIFT;
/// The owner of an inherited store has ended.
const OWNERS: u64 = 7 << TOPIC_SHIFT;
const TOPIC_SHIFT: u32 = 56;
const NUMBER: u64 = (1 << TOPIC_SHIFT) - 1;
/// Bits of a store's own token.
const TOKEN_BITS: u32 = 48;

/// The most stores at once: those of forks and files together. An origin is a byte.
const ORIGINS: usize = 250;

/// An event for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The userfaultfd can be read.
    Faults,
    /// A request may have been posted.
    Requests,
    /// The timer's period has passed.
    Tick,
    /// Every process that came from a fork has ended.
    ChildEnded(u32),
    /// The owner of an inherited store has ended, or has executed another program.
    OwnerEnded(u8),
}

/// What is polled. Each poll continues until the kernel ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    Faults,
    Requests,
    Timer,
    /// A child of a fork, by its number.
    Child(u32),
    /// The owner of an inherited store.
    Owner(u8),
}

/// The ring, the stores, and the transfers between them and the program.
pub(crate) struct Io {
    block: usize,
    ring: Option<Ring>,
    /// Descriptors that are polled all the time, by topic.
    polled: [i32; 7],
    /// The stores by origin: those inherited at forks, mapped files, and this process's own store.
    stores: Vec<Box<dyn Store>>,
    own: u8,
    /// Inherited stores, each with the pipe whose other end only its owner has.
    owners: Vec<(u8, i32)>,
    /// The state of the inherited stores, unless it may have changed.
    others: Option<(Option<String>, Redundancy)>,
    /// Origins of files that are no longer mapped.
    free_origins: Vec<u8>,
    /// The slots of this process's own store.
    pub slots: Slots,
    pub transfers: Transfers,
    /// Operations that have ended and were not yet handled.
    pub finished: VecDeque<Ended>,
    /// Operations that ended during the call of a store; empty otherwise.
    ended: Vec<Ended>,
    pub bounce: Bounce,
    /// The costs of reads from this process's own store.
    pub disk: Disk,
}

/// Ends the process: the program cannot get its bytes.
pub(crate) fn stop(why: &str) -> ! {
    thread::stop(&format!("terapage: {why}; the program is stopped rather than given wrong bytes\n"))
}

/// The exit status of errors of Terapage itself.
const OWN_ERROR: i32 = 125;

impl Io {
    /// The I/O, with the process's own store.
    pub fn new(options: &Options, store: Box<dyn Store>) -> Io {
        let block = options.block;
        let mut slots = Slots::new((EXTENT / block) as u32);
        // A store of a given size has all its slots from the start, and never grows.
        slots.grown(store.slots());
        Io {
            block,
            ring: None,
            polled: [-1; 7],
            stores: vec![store],
            own: 0,
            owners: Vec::new(),
            others: None,
            free_origins: Vec::new(),
            slots,
            transfers: Transfers::default(),
            finished: VecDeque::new(),
            ended: Vec::new(),
            bounce: Bounce::new(options),
            disk: Disk::default(),
        }
    }

    /// Makes the ring, with this many entries, when the thread begins. It may begin `threads`.
    /// Returns the engine that reads and writes.
    pub fn begin_ring(&mut self, wish: Option<IoEngine>, entries: u32, threads: bool) -> IoEngine {
        let ring = Ring::with(wish, entries, threads).unwrap_or_else(|error| stop(&error.to_string()));
        self.ring.insert(ring).engine()
    }

    /// Opens the stores, once there is a ring.
    pub fn open_stores(&mut self) {
        for origin in 0..self.stores.len() {
            self.with_store(origin as u8, |store, ring, ended| store.open(ring, ended));
        }
    }

    /// Closes all stores at an orderly end of the process: its own store frees what it keeps
    /// elsewhere, and inherited stores are released.
    pub fn close_stores(&mut self) {
        self.stores.iter_mut().for_each(|store| store.close());
    }

    /// Ends the process because its store is full. That is no defect, and is not to look like a
    /// crash; stores free what they keep elsewhere, as at any orderly end.
    pub fn end_as_full(&mut self, why: &str) -> ! {
        thread::say(&format!("terapage: {why}; the program has no room for its data and is ended\n"));
        self.close_stores();
        thread::end("", OWN_ERROR)
    }

    /// Tells all stores that the process is about to execute another program, or stays. Returns
    /// whether all have noted it.
    pub fn leaving(&mut self, leaves: bool) -> bool {
        let mut all = true;
        for origin in 0..self.stores.len() {
            self.with_store(origin as u8, |store, ring, _| all &= store.leaving(ring, leaves));
        }
        self.hand_over();
        all
    }

    /// The ring of the thread.
    pub fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("the thread runs")
    }

    /// Submits the pushed operations, and waits until `wanted` operations have ended.
    pub fn enter(&mut self, wanted: u32) {
        self.ring().enter(wanted).unwrap_or_else(|error| stop(&error.to_string()));
    }

    /// Submits the pushed operations, if there are any.
    pub fn hand_over(&mut self) {
        if self.ring().has_unsubmitted() {
            self.enter(0);
        }
    }

    /// Polls a descriptor from now on.
    pub fn poll(&mut self, what: Poll, fd: i32) {
        let tag = match what {
            Poll::Faults => FAULTS,
            Poll::Requests => REQUESTS,
            Poll::Timer => TIMER,
            Poll::Child(id) => CHILDREN | u64::from(id),
            Poll::Owner(origin) => OWNERS | u64::from(origin),
        };
        let again = !matches!(what, Poll::Child(_) | Poll::Owner(_));
        if again {
            self.polled[(tag >> TOPIC_SHIFT) as usize] = fd;
        }
        self.ring().poll(fd, again, tag).unwrap_or_else(|error| stop(&error.to_string()));
    }

    /// The next event that does not belong to a store.
    pub fn next_event(&mut self) -> Option<Event> {
        while let Some(done) = self.ring().done() {
            let (topic, number) = (done.tag & !NUMBER, done.tag & NUMBER);
            let event = match topic {
                STORES => {
                    let done = Done { tag: number & ((1 << TOKEN_BITS) - 1), ..done };
                    let origin = (number >> TOKEN_BITS) as u8;
                    self.with_store(origin, |store, ring, ended| store.event(ring, done, ended));
                    continue;
                }
                PAUSES => {
                    let operation = self.transfers.take(number as usize);
                    self.begin_again(number as usize, operation);
                    continue;
                }
                CHILDREN if done.is_hang_up() => return Some(Event::ChildEnded(number as u32)),
                // If this counted as the child's end, the parent would overwrite slots that the
                // child still reads.
                CHILDREN => stop(
                    "a forked child cannot be seen to end: the thread that forked does not have the pager's descriptors (a direct unshare or clone without CLONE_FILES)",
                ),
                OWNERS if done.result >= 0 => return Some(Event::OwnerEnded(number as u8)),
                // It cannot be seen: it counts as alive.
                OWNERS => continue,
                FAULTS => (Event::Faults, Poll::Faults),
                REQUESTS => (Event::Requests, Poll::Requests),
                TIMER => (Event::Tick, Poll::Timer),
                _ => unreachable!("an end of nobody's: {done:?}"),
            };
            if !done.more {
                self.poll(event.1, self.polled[(topic >> TOPIC_SHIFT) as usize]);
            }
            return Some(event.0);
        }
        None
    }

    /// Calls a store with its view of the ring, and notes the operations that ended during the
    /// call.
    pub fn with_store(
        &mut self,
        origin: u8,
        call: impl FnOnce(&mut dyn Store, &mut StoreRing<'_>, &mut Vec<Ended>),
    ) {
        if origin != self.own {
            self.others = None;
        }
        let ring = self.ring.as_mut().expect("the thread runs");
        let prefix = STORES | u64::from(origin) << TOKEN_BITS;
        let mut ring = StoreRing::new(ring, prefix, TOKEN_BITS);
        call(&mut *self.stores[usize::from(origin)], &mut ring, &mut self.ended);
        self.note_ends();
        self.finished.extend(self.ended.drain(..));
    }

    /// Notes the reads of the process's own store that have just ended.
    fn note_ends(&mut self) {
        for end in &self.ended {
            let operation = self.transfers.get(end.id as usize);
            let read =
                operation.filter(|operation| operation.kind == OpKind::Read && operation.origin == self.own);
            if let Some(read) = read {
                self.disk.ended(read.blocks.len() * self.block, thread::now_ns());
            }
        }
    }

    /// Begins an operation.
    pub fn begin(&mut self, operation: Operation) {
        let number = self.transfers.add(operation);
        self.begin_noted(number);
    }

    /// Begins an operation again, under its number.
    pub fn begin_again(&mut self, number: usize, operation: Operation) {
        self.transfers.put(number, operation);
        self.begin_noted(number);
    }

    /// Begins an operation again after a pause.
    pub fn begin_later(&mut self, number: usize, operation: Operation, pause_ns: u64) {
        self.transfers.put(number, operation);
        let begun = self.ring().timeout(pause_ns, PAUSES | number as u64);
        begun.unwrap_or_else(|error| stop(&error.to_string()));
    }

    fn begin_noted(&mut self, number: usize) {
        let operation = self.transfers.get(number).expect("noted just now");
        let (kind, slot, origin) = (operation.kind, operation.slot, operation.origin);
        let urgent = operation.since_ns > 0;
        if kind == OpKind::Read && origin == self.own {
            self.disk.begins(thread::now_ns());
        }
        if kind == OpKind::Write {
            assert_eq!(origin, self.own, "another process's store, or a mapped file, is written");
            self.slots.assert_may_write(operation.slots());
        }
        // The array is allocated separately from the transfer and does not move.
        let pieces: *const [Piece] = &*operation.pieces;
        self.with_store(origin, |store, ring, ended| {
            // SAFETY: the transfer keeps the array of pieces until its completion has been handled.
            // Until then, the states of its blocks (Reading, Writing) keep all other code away from
            // their places.
            unsafe {
                store.begin(ring, Op { id: number as u32, kind, slot, pieces: &*pieces, urgent }, ended);
            }
        });
    }

    /// Tells a store whether bytes that it read have the right hashes.
    pub fn judge(&mut self, number: usize, operation: &Operation, good: bool) {
        let (id, slots) = (number as u32, operation.slots());
        self.with_store(operation.origin, |store, ring, ended| store.judge(ring, id, slots, good, ended));
    }

    /// Returns the buffer of an operation, if it has one.
    pub fn put_buffer(&mut self, operation: &mut Operation) {
        if let Some(buffer) = operation.buffer.take() {
            self.bounce.put(operation.kind, buffer);
        }
    }

    /// The completed operation to handle next: first those for which a thread waits.
    pub fn next_end(&mut self) -> Option<Ended> {
        let waited_for = |end: &Ended| {
            let operation = self.transfers.get(end.id as usize);
            operation.is_some_and(|operation| operation.since_ns > 0)
        };
        let index = self.finished.iter().position(waited_for).unwrap_or(0);
        self.finished.remove(index)
    }

    /// Whether an operation on the slots from `first` up to `next` may include `next`, too.
    pub fn is_one(&self, origin: u8, first: u32, next: u32) -> bool {
        let per_extent = (EXTENT / self.block) as u32;
        let edge = next.is_multiple_of(per_extent);
        next - first < per_extent && (next == first || !edge || self.stores[usize::from(origin)].joins(next))
    }

    /// Whether a store handles many pieces as well as one.
    pub fn takes_pieces(&self, origin: u8) -> bool {
        self.stores[usize::from(origin)].takes_pieces()
    }

    /// The name of a store.
    pub fn name(&self, origin: u8) -> String {
        self.stores[usize::from(origin)].name()
    }

    /// The number of this process's own store.
    pub fn own_origin(&self) -> u8 {
        self.own
    }

    /// What is wrong with the process's own store, or one that it has inherited, in words; and what
    /// the copies of their mirrors lack. Copies are those of one store.
    pub fn state(&mut self) -> (Option<String>, Redundancy) {
        let own = usize::from(self.own);
        let others = || self.stores.iter().enumerate().filter(|(origin, _)| *origin != own);
        let (condition, behind) = self.others.get_or_insert_with(|| {
            let most = |all: Redundancy, one: Redundancy| {
                let (copies, missing) = (all.copies.max(one.copies), all.missing.max(one.missing));
                Redundancy { copies, missing, ..all + one }
            };
            let behind = others().map(|(_, store)| store.redundancy()).fold(Redundancy::default(), most);
            (others().find_map(|(_, store)| store.condition()), behind)
        });
        let store = &self.stores[own];
        let all = store.redundancy();
        let (copies, missing) = (all.copies.max(behind.copies), all.missing.max(behind.missing));
        (store.condition().or_else(|| condition.clone()), Redundancy { copies, missing, ..all + *behind })
    }

    /// Where a slot of a store lies, in words.
    pub fn whereabouts(&self, origin: u8, slot: u32) -> Option<String> {
        self.stores[usize::from(origin)].whereabouts(slot)
    }

    /// Whether a slot of this process's own store should be given up once its block is touched.
    pub fn wants_back(&self, slot: u32) -> bool {
        self.stores[usize::from(self.own)].wants_back(slot)
    }

    /// Frees a slot of this process's own store.
    pub fn free_slot(&mut self, slot: u32) {
        if self.slots.free(slot) {
            self.stores[usize::from(self.own)].forget(slot..slot + 1);
        }
    }

    /// Ends the snapshot of a child that has ended.
    pub fn thaw(&mut self, id: u32) {
        let store = &mut self.stores[usize::from(self.own)];
        self.slots.thaw(id, |slots| store.forget(slots));
    }

    /// Marks all slots in use as read by the child `id` before its fork, while the thread is
    /// parked.
    ///
    /// # Errors
    /// A store cannot promise that.
    pub fn share(&mut self, id: u32) -> Result<(), Error> {
        Ok(self.stores.iter_mut().try_for_each(|store| store.share(id))?)
    }

    /// Child `id` and all its forked descendants have ended.
    pub fn unshare(&mut self, id: u32) {
        self.stores.iter_mut().for_each(|store| store.unshare(id));
    }

    /// Makes more slots in this process's own store.
    pub fn grow(&mut self) {
        let store = &mut self.stores[usize::from(self.own)];
        match store.grow() {
            Ok(()) => {}
            Err(full @ StoreError::Full { .. }) => self.end_as_full(&full.to_string()),
            Err(error) => stop(&error.to_string()),
        }
        self.slots.grown(store.slots());
    }

    /// Makes slots in this process's own store until there are `blocks` in all.
    ///
    /// # Errors
    /// The store has no room for them; it keeps those that it has made.
    pub fn reserve(&mut self, blocks: usize) -> Result<(), Error> {
        let store = &mut self.stores[usize::from(self.own)];
        while (store.slots() as usize) < blocks {
            store.grow()?;
            self.slots.grown(store.slots());
        }
        Ok(())
    }

    /// Whether all stores can split their slots.
    pub fn may_split(&self, more: usize) -> bool {
        self.stores.iter().all(|store| store.may_split(more))
    }

    /// Divides each block, and each slot, into `more` of them. No transfer is under way, no child
    /// reads the slots, and all stores can split.
    pub fn split(&mut self, more: usize) {
        self.stores.iter_mut().for_each(|store| store.split(more));
        self.block /= more;
        self.slots.split(more as u32);
        self.bounce.split(more);
    }

    /// Adds a store that is only read. Returns its origin.
    ///
    /// # Errors
    /// All numbers of stores are in use.
    pub fn add_store(&mut self, store: Box<dyn Store>) -> Result<u8, Error> {
        match self.free_origins.pop() {
            Some(origin) => {
                self.stores[usize::from(origin)] = store;
                Ok(origin)
            }
            None if self.stores.len() >= ORIGINS => Err(Error::TooManyFiles),
            None => {
                self.stores.push(store);
                Ok(self.stores.len() as u8 - 1)
            }
        }
    }

    /// Removes a store that was [added](Self::add_store) and is no longer read; `gone` takes its
    /// place.
    pub fn remove_store(&mut self, origin: u8, gone: Box<dyn Store>) {
        assert!(!self.free_origins.contains(&origin), "store {origin} is removed twice");
        self.stores[usize::from(origin)] = gone;
        self.free_origins.push(origin);
    }

    /// In the child of a fork: inherits the stores, which are only read from now on.
    ///
    /// # Errors
    /// The child cannot read one of them.
    pub fn inherit(&mut self) -> Result<(), Error> {
        self.ring = None;
        self.stores.iter_mut().try_for_each(|store| store.inherit())?;
        // The parent may write those again though this child lives.
        let store = &mut self.stores[usize::from(self.own)];
        self.slots.of_other_children(|slots| store.forget(slots));
        Ok(())
    }

    /// Looks from now on whether the owners of inherited stores live. On the simulated machine they
    /// do.
    pub fn poll_owners(&mut self) {
        for (origin, fd) in self.owners.clone().into_iter().filter(|_| !cfg!(terapage_model)) {
            self.poll(Poll::Owner(origin), fd);
        }
    }

    /// The owner of an inherited store has ended.
    pub fn adopt(&mut self, origin: u8) {
        self.others = None;
        self.stores[usize::from(origin)].adopt();
    }

    /// In the child of a fork: adds its own store. `parent` is the end of the pipe to the parent.
    ///
    /// # Errors
    /// All numbers of stores are in use.
    pub fn begin_child(&mut self, store: Box<dyn Store>, parent: i32) -> Result<(), Error> {
        self.owners.push((self.own, parent));
        self.others = None;
        self.slots = Slots::new((EXTENT / self.block) as u32);
        self.slots.grown(store.slots());
        // The number of a file that is no longer mapped is reused, if there is one.
        if let Some(origin) = self.free_origins.pop() {
            self.own = origin;
            self.stores[usize::from(origin)] = store;
        } else if self.stores.len() < usize::from(u8::MAX) {
            self.own = self.stores.len() as u8;
            self.stores.push(store);
        } else {
            return Err(Error::TooManyForks);
        }
        Ok(())
    }

    /// Whether this process is the child of a fork.
    pub fn is_child(&self) -> bool {
        self.own != 0
    }
}
