//! What a store is: the trait, the operations and their ends, and the ring as a store sees it.
//!
//! Stores stack: a store may hold others (a mirror, stripes, one that fails on purpose) and pass
//! operations on to them. All of them work in the one thread, and the one ring, of the pager.

use std::ops::Range;
use std::os::fd::RawFd;
use terapage_sys::ring::{Address, Done, Message, Piece, Ring};

/// Why a store cannot be had or cannot grow.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("store {name}: {source}")]
    System {
        /// The store's name.
        name: String,
        /// The call and its answer.
        source: terapage_sys::Error,
    },
    /// There is no room.
    #[error("store {name} is full: {why}")]
    Full {
        /// The store's name.
        name: String,
        /// How full, and what to do.
        why: String,
    },
    /// The path or address cannot be a store.
    #[error("store {name} {why}")]
    Unfit {
        /// The path or address.
        name: String,
        /// What is wrong and what to do.
        why: String,
    },
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Bytes from the store into the pieces.
    Read,
    /// Bytes of the pieces into the store.
    Write,
}

/// One operation: whole slots from `slot` on.
#[derive(Clone, Copy)]
pub struct Op<'a> {
    /// The caller's number for it, unique among the operations that are under way in this store.
    /// Numbers are small, so that notes by number may lie in a vector ([`Notes`]).
    pub id: u32,
    /// Read or write.
    pub kind: OpKind,
    /// The first slot.
    pub slot: u32,
    /// Memory, whole slots in all, no more than [`EXTENT`](crate::EXTENT) bytes.
    pub pieces: &'a [Piece],
    /// A thread of the program waits for it.
    pub urgent: bool,
}

impl Op<'_> {
    /// Bytes in its pieces.
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(Piece::len).sum()
    }
}

/// The end of an operation: each has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The operation's number, which is free from now on.
    pub id: u32,
    /// What came of it. Where it failed the bytes, in memory or in the slots, may be anything.
    pub result: Result<(), Failure>,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// It may pass: a server that does not answer, a connection that is gone. The caller tries
    /// again with pauses until a deadline. Otherwise it tries a few times at once.
    pub passing: bool,
    /// What went wrong.
    pub why: Why,
}

/// What went wrong with an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The operating system's error number.
    Errno(i32),
    /// Only so many bytes were transferred.
    Short(usize),
    /// The bytes are not those that were written.
    Wrong,
    /// Anything else, as the end of a sentence.
    Text(String),
}

impl std::fmt::Display for Why {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Errno(number) => std::io::Error::from_raw_os_error(*number).fmt(out),
            Why::Short(bytes) => write!(out, "only {bytes} bytes went"),
            Why::Wrong => write!(out, "the bytes are not those that were written"),
            Why::Text(text) => out.write_str(text),
        }
    }
}

impl Failure {
    /// One that does not pass by waiting.
    pub fn lasting(why: Why) -> Failure {
        Failure { passing: false, why }
    }

    /// One that may pass.
    pub fn passing(why: Why) -> Failure {
        Failure { passing: true, why }
    }
}

impl Ended {
    /// An operation that did all that it should.
    pub fn well(id: u32) -> Ended {
        Ended { id, result: Ok(()) }
    }

    /// An operation that failed.
    pub fn badly(id: u32, failure: Failure) -> Ended {
        Ended { id, result: Err(failure) }
    }

    /// The operation `id`, of `wanted` bytes, that ended in the ring with `result`.
    pub fn by_result(id: u32, result: i32, wanted: usize) -> Ended {
        match usize::try_from(result) {
            Ok(bytes) if bytes == wanted => Ended::well(id),
            Ok(bytes) => Ended::badly(id, Failure::lasting(Why::Short(bytes))),
            Err(_) => Ended::badly(id, Failure::lasting(Why::Errno(-result))),
        }
    }

    /// The operation `id` could not be begun.
    pub fn unbegun(id: u32, error: &terapage_sys::Error) -> Ended {
        Ended::badly(id, Failure::lasting(Why::Text(error.to_string())))
    }
}

/// A place for blocks, in slots of one size.
///
/// All calls come from the pager's thread. None of them waits, but [`grow`](Self::grow) and
/// [`close`](Self::close) may for a moment.
pub trait Store: Send {
    /// What people call it.
    fn name(&self) -> String;

    /// Slots that can be written now.
    fn slots(&self) -> u32;

    /// Makes room for more slots, in a step of the store's choice.
    ///
    /// # Errors
    /// [`Error::Full`] where there is none.
    fn grow(&mut self) -> Result<(), Error>;

    /// Whether `slot`, the first of an extent, lies right behind the slot before it, so that one
    /// operation may have both.
    fn joins(&self, _slot: u32) -> bool {
        false
    }

    /// Whether many pieces cost it no more than one: it is a socket, not a device.
    fn takes_pieces(&self) -> bool {
        false
    }

    /// Whether each slot could become `more` slots, its parts, by [`split`](Self::split).
    fn may_split(&self, _more: usize) -> bool {
        false
    }

    /// Each slot becomes `more` slots, its parts: slot 3 becomes the slots from 3 * `more` on. No
    /// operation is under way, and [`may_split`](Self::may_split) has said yes.
    fn split(&mut self, _more: usize) {
        unreachable!("a store that cannot split its slots says so");
    }

    /// Begins an operation: no more than [`EXTENT`](crate::EXTENT) bytes, across the edge of an
    /// extent only where it [joins](Self::joins). It ends once, through an [`Ended`] with its
    /// number: pushed into `ended` at once, or by a later call of any method that has `ended`. A
    /// slot is in one write, or in any number of reads, at a time.
    ///
    /// # Safety
    /// The array of pieces and their memory stay valid until the operation has ended. Until then
    /// nobody else touches the memory of a read, and nobody else writes that of a write.
    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>);

    /// Something of this store's own has ended in the ring: a read, a send, a timeout. `done.tag`
    /// is the token that the store gave it.
    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>);

    /// The bytes of a read, of these slots, were compared with their hashes: `good`, or not those
    /// that were written. Every read that is checked is judged once after it has ended well, before
    /// its number is used again; one that was not good is begun again. A store that has the bytes
    /// twice reads the others then, and may write back what was found good.
    fn judge(
        &mut self,
        _ring: &mut StoreRing<'_>,
        _id: u32,
        _slots: Range<u32>,
        _good: bool,
        _ended: &mut Vec<Ended>,
    ) {
    }

    /// These slots hold nothing any more. They may be written again.
    fn forget(&mut self, _slots: Range<u32>) {}

    /// Before a fork, whose number is `fork`: its child will read the slots as they are now, and is
    /// in need of them until [`unshare`](Self::unshare). The pager's thread stands still, and
    /// another calls; it may wait.
    ///
    /// # Errors
    /// The child could not rely on the slots: there is no fork.
    fn share(&mut self, _fork: u32) -> Result<(), Error> {
        Ok(())
    }

    /// That child, and all that came of it, are gone, or have executed other programs.
    fn unshare(&mut self, _fork: u32) {}

    /// The process is about to execute another program (`leaves`), and nobody will be in need of
    /// what lies elsewhere; or it stays after all, and is. Whether it has been noted there that it
    /// leaves, or need not be: until then it is asked again, for a moment.
    fn leaving(&mut self, _ring: &mut StoreRing<'_>, _leaves: bool) -> bool {
        true
    }

    /// In the child of a fork, which only reads this store from now on, before anything else. What
    /// cannot be shared (sockets) is dropped; the slots as they were stay readable. No operation
    /// of the caller's is under way; of the store's own the child never hears. There is a new ring,
    /// with which [`open`](Self::open) is called once more.
    ///
    /// # Errors
    /// The child cannot read it.
    fn inherit(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The pager's thread begins, and the ring is there: connections are opened.
    fn open(&mut self, _ring: &mut StoreRing<'_>, _ended: &mut Vec<Ended>) {}

    /// The process ends in good order: what lies elsewhere is given back. Nothing is read or
    /// written any more. It may not be called, as the process may be killed.
    fn close(&mut self) {}

    /// Words for `terapage stat` while something is not as it should be: "1 of 2 copies is lost".
    fn condition(&self) -> Option<String> {
        None
    }
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn name(&self) -> String {
        (**self).name()
    }

    fn slots(&self) -> u32 {
        (**self).slots()
    }

    fn grow(&mut self) -> Result<(), Error> {
        (**self).grow()
    }

    fn joins(&self, slot: u32) -> bool {
        (**self).joins(slot)
    }

    fn takes_pieces(&self) -> bool {
        (**self).takes_pieces()
    }

    fn may_split(&self, more: usize) -> bool {
        (**self).may_split(more)
    }

    fn split(&mut self, more: usize) {
        (**self).split(more);
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        // SAFETY: the caller's promise is the one that the store in the box asks for.
        unsafe { (**self).begin(ring, op, ended) }
    }

    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        (**self).event(ring, done, ended);
    }

    fn judge(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        slots: Range<u32>,
        good: bool,
        ended: &mut Vec<Ended>,
    ) {
        (**self).judge(ring, id, slots, good, ended);
    }

    fn forget(&mut self, slots: Range<u32>) {
        (**self).forget(slots);
    }

    fn share(&mut self, fork: u32) -> Result<(), Error> {
        (**self).share(fork)
    }

    fn unshare(&mut self, fork: u32) {
        (**self).unshare(fork);
    }

    fn leaving(&mut self, ring: &mut StoreRing<'_>, leaves: bool) -> bool {
        (**self).leaving(ring, leaves)
    }

    fn inherit(&mut self) -> Result<(), Error> {
        (**self).inherit()
    }

    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        (**self).open(ring, ended);
    }

    fn close(&mut self) {
        (**self).close();
    }

    fn condition(&self) -> Option<String> {
        (**self).condition()
    }
}

/// Bits of a tag that tell a store's inner stores apart, for each level.
const INNER_BITS: u32 = 6;

/// The pager's ring, as one store has it: what ends there comes back to this store's
/// [`event`](Store::event), with the store's own token as its tag.
pub struct StoreRing<'a> {
    ring: &'a mut Ring,
    /// What the tags of this store begin with.
    prefix: u64,
    /// Lower bits of a tag that are the store's.
    bits: u32,
}

impl<'a> StoreRing<'a> {
    /// Inner stores that a store may have at most.
    pub const INNER_MOST: usize = (1 << INNER_BITS) - 1;

    /// The part of `ring` whose tags are `prefix` and, below it, `bits` bits of the store's own.
    pub fn new(ring: &'a mut Ring, prefix: u64, bits: u32) -> StoreRing<'a> {
        StoreRing { ring, prefix, bits }
    }

    /// Bits that a token of this store may have: 48 for one that the pager holds itself, six fewer
    /// for each store around it, and, of a store that has inner ones, six fewer.
    pub fn token_bits(&self) -> u32 {
        self.bits
    }

    /// The ring for the inner store number `index`. What ends there comes back to this store's
    /// `event`, which finds out by [`inner_of`](Self::inner_of) whose it is.
    pub fn inner(&mut self, index: usize) -> StoreRing<'_> {
        assert!(index < Self::INNER_MOST && self.bits > INNER_BITS, "stores that are stacked too high");
        let bits = self.bits - INNER_BITS;
        let prefix = self.prefix | (index as u64 + 1) << bits;
        StoreRing { ring: self.ring, prefix, bits }
    }

    /// Which inner store something that ended is of, and how that store is told; `None`: it is of
    /// this store itself.
    pub fn inner_of(&self, done: Done) -> Option<(usize, Done)> {
        let bits = self.bits - INNER_BITS;
        let index = (done.tag >> bits).checked_sub(1)?;
        Some((index as usize, Done { tag: done.tag & ((1 << bits) - 1), ..done }))
    }

    /// What `token` is in the ring.
    pub fn tag(&self, token: u64) -> u64 {
        debug_assert!(token < 1 << self.bits, "a token of {token:#x} in {} bits", self.bits);
        self.prefix | token
    }

    /// The ring itself, for an operation that is not here; its tag must be [`tag`](Self::tag)'s.
    pub fn ring(&mut self) -> &mut Ring {
        self.ring
    }

    /// Reads into `pieces` from `offset` of `fd`.
    ///
    /// # Errors
    /// The kernel does not take it.
    ///
    /// # Safety
    /// The pieces' array and their memory stay valid, and nobody else touches the memory, until the
    /// end of the operation has come.
    pub unsafe fn read(
        &mut self,
        fd: RawFd,
        pieces: &[Piece],
        offset: u64,
        token: u64,
    ) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        // SAFETY: the caller's promise is the ring's.
        unsafe { self.ring.read(fd, pieces, offset, tag) }
    }

    /// Writes `pieces` at `offset` of `fd`.
    ///
    /// # Errors
    /// The kernel does not take it.
    ///
    /// # Safety
    /// As for [`read`](Self::read), but that others may read the memory.
    pub unsafe fn write(
        &mut self,
        fd: RawFd,
        pieces: &[Piece],
        offset: u64,
        token: u64,
    ) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        // SAFETY: the caller's promise is the ring's.
        unsafe { self.ring.write(fd, pieces, offset, tag) }
    }

    /// Sends a piece to a socket: as much as it takes at once, or, `whole`, all of it.
    ///
    /// # Errors
    /// The kernel does not take it.
    ///
    /// # Safety
    /// The piece's memory stays valid, and nobody writes to it, until the end has come.
    pub unsafe fn send(
        &mut self,
        fd: RawFd,
        piece: Piece,
        whole: bool,
        token: u64,
    ) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        // SAFETY: the caller's promise is the ring's.
        unsafe { self.ring.send(fd, piece, whole, tag) }
    }

    /// Receives into a piece from a socket: what has come, or, `whole`, as much as fits.
    ///
    /// # Errors
    /// The kernel does not take it.
    ///
    /// # Safety
    /// The piece's memory stays valid, and nobody else touches it, until the end has come.
    pub unsafe fn recv(
        &mut self,
        fd: RawFd,
        piece: Piece,
        whole: bool,
        token: u64,
    ) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        // SAFETY: the caller's promise is the ring's.
        unsafe { self.ring.recv(fd, piece, whole, tag) }
    }

    /// Sends a message of several pieces to a socket, all of it if `whole`.
    ///
    /// # Errors
    /// The kernel does not take it.
    ///
    /// # Safety
    /// The message, its pieces' array and their memory stay valid, and nobody writes to them, until
    /// the end has come.
    pub unsafe fn send_message(
        &mut self,
        fd: RawFd,
        message: &Message,
        whole: bool,
        token: u64,
    ) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        // SAFETY: the caller's promise is the ring's.
        unsafe { self.ring.send_message(fd, message, whole, tag) }
    }

    /// Receives into several pieces from a socket, as much as fits if `whole`.
    ///
    /// # Errors
    /// The kernel does not take it.
    ///
    /// # Safety
    /// The message, its pieces' array and their memory stay valid, and nobody else touches them,
    /// until the end has come.
    pub unsafe fn recv_message(
        &mut self,
        fd: RawFd,
        message: &mut Message,
        whole: bool,
        token: u64,
    ) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        // SAFETY: the caller's promise is the ring's.
        unsafe { self.ring.recv_message(fd, message, whole, tag) }
    }

    /// Connects a socket.
    ///
    /// # Errors
    /// The kernel does not take it.
    ///
    /// # Safety
    /// The address stays valid until the end has come.
    pub unsafe fn connect(&mut self, fd: RawFd, address: &Address, token: u64) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        // SAFETY: the caller's promise is the ring's.
        unsafe { self.ring.connect(fd, address, tag) }
    }

    /// Tells when `fd` becomes readable or hangs up: once, or, `again`, each time.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn poll(&mut self, fd: RawFd, again: bool, token: u64) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        self.ring.poll(fd, again, tag)
    }

    /// Ends, with an error that says so, after `ns` nanoseconds.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn timeout(&mut self, ns: u64, token: u64) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        self.ring.timeout(ns, tag)
    }

    /// Cancels what was begun with the token `of`, if it is under way still. Both end, each with a
    /// [`Done`] of its own.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn cancel(&mut self, of: u64, token: u64) -> terapage_sys::Result<()> {
        let (of, tag) = (self.tag(of), self.tag(token));
        self.ring.cancel(of, tag)
    }
}

/// A store's notes on its operations, by their numbers: a place for each number that was ever used.
pub struct Notes<T>(Vec<Option<T>>);

impl<T> Default for Notes<T> {
    fn default() -> Self {
        Notes(Vec::new())
    }
}

impl<T> Notes<T> {
    /// Notes `what` for the operation.
    pub fn put(&mut self, id: u32, what: T) {
        let index = id as usize;
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        debug_assert!(self.0[index].is_none(), "operation {id} is under way already");
        self.0[index] = Some(what);
    }

    /// What was noted for the operation, which has ended.
    pub fn take(&mut self, id: u32) -> Option<T> {
        self.0.get_mut(id as usize)?.take()
    }

    /// What is noted for the operation.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.0.get_mut(id as usize)?.as_mut()
    }

    /// Notes `what` under a number that is free.
    pub fn add(&mut self, what: T) -> u32 {
        match self.0.iter().position(Option::is_none) {
            Some(index) => {
                self.0[index] = Some(what);
                index as u32
            }
            None => {
                self.0.push(Some(what));
                self.0.len() as u32 - 1
            }
        }
    }

    /// All that is noted.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    /// Forgets all: in the child of a fork.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
