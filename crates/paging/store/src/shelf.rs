//! The interface of stores: the trait, the operations and their completions, and a store's view of
//! the ring.
//!
//! Stores stack: a store may contain others (a mirror, stripes, one that fails on purpose) and pass
//! operations on to them. All of them work in the pager's one thread and one ring.

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
        /// The call and its result.
        source: terapage_sys::Error,
    },
    /// There is no room.
    #[error("store {name} is full: {why}")]
    Full {
        /// The store's name.
        name: String,
        /// How full the store is, and what to do.
        why: String,
    },
    /// A copy of a mirror gets no answer for now: the caller asks the others, and then this one
    /// again.
    #[error("store {name} {why}")]
    Later {
        /// The store's name.
        name: String,
        /// What is wrong.
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

/// The direction of an operation.
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
    /// The caller's number for the operation, unique among the operations that are under way in
    /// this store. Numbers are small, so that notes by number can lie in a vector ([`Notes`]).
    pub id: u32,
    /// Read or write.
    pub kind: OpKind,
    /// The first slot.
    pub slot: u32,
    /// Memory, whole slots in all, at most [`EXTENT`](crate::EXTENT) bytes.
    pub pieces: &'a [Piece],
    /// Whether a thread of the program waits for it.
    pub urgent: bool,
}

impl Op<'_> {
    /// Bytes in its pieces.
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(Piece::len).sum()
    }
}

/// The completion of an operation: each operation has exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The operation's number, which is free from now on.
    pub id: u32,
    /// Its result. If the operation failed, the bytes, in memory or in the slots, are undefined.
    pub result: Result<(), Failure>,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether the failure may pass: a server does not answer, or a connection is lost. Then the
    /// caller tries again with pauses until a deadline. Otherwise it tries a few times at once.
    pub passing: bool,
    /// What went wrong.
    pub why: Why,
}

/// The reason of a failed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The operating system's error number.
    Errno(i32),
    /// Only this number of bytes was transferred.
    Short(usize),
    /// The bytes are not those that were written.
    Wrong,
    /// Another reason, as the end of a sentence.
    Text(String),
}

impl std::fmt::Display for Why {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Errno(number) => std::io::Error::from_raw_os_error(*number).fmt(out),
            Why::Short(bytes) => write!(out, "only {bytes} bytes were transferred"),
            Why::Wrong => write!(out, "the bytes are not those that were written"),
            Why::Text(text) => out.write_str(text),
        }
    }
}

impl Failure {
    /// A failure that waiting does not cure.
    pub fn lasting(why: Why) -> Failure {
        Failure { passing: false, why }
    }

    /// A failure that may pass.
    pub fn passing(why: Why) -> Failure {
        Failure { passing: true, why }
    }

    /// The operating system's error: it may pass if only memory or queues were short.
    fn by_errno(number: i32) -> Failure {
        use std::io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
        let kind = std::io::Error::from_raw_os_error(number).kind();
        Failure { passing: matches!(kind, Interrupted | OutOfMemory | WouldBlock), why: Why::Errno(number) }
    }
}

impl Ended {
    /// The completion of a successful operation.
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
            Err(_) => Ended::badly(id, Failure::by_errno(-result)),
        }
    }

    /// The operation `id` could not be begun.
    pub fn unbegun(id: u32, error: &terapage_sys::Error) -> Ended {
        Ended::badly(id, Failure::lasting(Why::Text(error.to_string())))
    }
}

/// How many copies the mirrors of a store have, and what these lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redundancy {
    /// Copies of all mirrors; 0: there is no mirror.
    pub copies: u32,
    /// Copies that are left out, or that do not answer.
    pub missing: u32,
    /// Slots that copies are to be written again.
    pub behind: u64,
    /// Bytes that were written to copies again in the background.
    pub resynced_bytes: u64,
}

impl std::ops::Add for Redundancy {
    type Output = Redundancy;

    fn add(self, other: Redundancy) -> Redundancy {
        Redundancy {
            copies: self.copies + other.copies,
            missing: self.missing + other.missing,
            behind: self.behind + other.behind,
            resynced_bytes: self.resynced_bytes + other.resynced_bytes,
        }
    }
}

/// Whether what keeps a store's bytes answers, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence<'a> {
    /// It answers, as far as is known.
    pub answers: bool,
    /// Since when it has not, by the monotonic clock; 0: it does, or it is not known.
    pub since_ns: u64,
    /// It is to be emptied (`terapage far drain`).
    pub drains: bool,
    /// Other processes may read it.
    pub is_held: bool,
    /// What no other server has; empty: it is not known, or there is no server.
    pub server: &'a str,
}

impl Default for Presence<'_> {
    fn default() -> Self {
        Presence { answers: true, since_ns: 0, drains: false, is_held: true, server: "" }
    }
}

/// A place for blocks, in slots of one size.
///
/// All calls come from the pager's thread. None of them waits, except that [`grow`](Self::grow) and
/// [`close`](Self::close) may wait for a moment.
pub trait Store: Send {
    /// Its name in messages.
    fn name(&self) -> String;

    /// The number of slots that can be written now.
    fn slots(&self) -> u32;

    /// Makes room for more slots, in a step of the store's choice.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room.
    fn grow(&mut self) -> Result<(), Error>;

    /// Whether `slot`, the first of an extent, lies right after the previous slot, so that one
    /// operation may include both.
    fn joins(&self, _slot: u32) -> bool {
        false
    }

    /// Whether many pieces cost as much as one: true of a socket, not of a device.
    fn takes_pieces(&self) -> bool {
        false
    }

    /// Whether [`split`](Self::split) can divide each slot into `more` slots.
    fn may_split(&self, _more: usize) -> bool {
        false
    }

    /// Divides each slot into `more` slots: slot 3 becomes the slots from 3 * `more` on. No
    /// operation is under way, and [`may_split`](Self::may_split) has returned true.
    fn split(&mut self, _more: usize) {
        unreachable!("a store that cannot split its slots says so");
    }

    /// Begins an operation: at most [`EXTENT`](crate::EXTENT) bytes, across the boundary of an
    /// extent only if the extent [joins](Self::joins). It completes once, through an [`Ended`] with
    /// its number, pushed into `ended` at once, or by a later call of any method that has `ended`.
    /// A slot may be in one write, or in any number of reads, at a time.
    ///
    /// # Safety
    /// The array of pieces and their memory stay valid until the operation has ended. Until then
    /// the memory of a read has no other user, and no other code writes to the memory of a write.
    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>);

    /// An operation that this store began in the ring has ended: a read, a send, a timeout.
    /// `done.tag` is the token that the store gave it.
    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>);

    /// The bytes of a read of these slots were compared with their hashes: `good` says whether they
    /// are those that were written. Every checked read is judged once, after it has completed
    /// successfully and before its number is reused; a read that was not good is begun again. A
    /// store that has the bytes twice then reads its other copy, and may write back bytes that were
    /// found good.
    fn judge(
        &mut self,
        _ring: &mut StoreRing<'_>,
        _id: u32,
        _slots: Range<u32>,
        _good: bool,
        _ended: &mut Vec<Ended>,
    ) {
    }

    /// The contents of these slots are no longer needed. They may be written again.
    fn forget(&mut self, _slots: Range<u32>) {}

    /// Before a fork, whose number is `fork`: its child will read the slots in their present state,
    /// and needs them until [`unshare`](Self::unshare). The pager's thread stands still, and
    /// another thread calls this function, which may wait.
    ///
    /// # Errors
    /// The child could not rely on the slots: there is no fork.
    fn share(&mut self, _fork: u32) -> Result<(), Error> {
        Ok(())
    }

    /// That child, and all its descendants, have ended, or have executed other programs.
    fn unshare(&mut self, _fork: u32) {}

    /// The process is about to execute another program (`leaves`), and its remote blocks will no
    /// longer be needed; or it stays after all, and needs them. Returns whether the servers have
    /// noted that it leaves, or need not: until then it is called again, for a moment.
    fn leaving(&mut self, _ring: &mut StoreRing<'_>, _leaves: bool) -> bool {
        true
    }

    /// In the child of a fork, before any other call: the child only reads this store from now on.
    /// Resources that cannot be shared (sockets) are dropped; the slots stay readable in their
    /// present state. No operation of the caller is under way; completions of the store's own
    /// operations never reach the child. There is a new ring, so [`open`](Self::open) is called
    /// again.
    ///
    /// # Errors
    /// The child cannot read the store.
    fn inherit(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// In the child of a fork: the process that has made this store has ended, and writes nothing
    /// any more. What a server has lost this process may write again.
    fn adopt(&mut self) {}

    /// The pager's thread begins, and the ring is there: connections are opened.
    fn open(&mut self, _ring: &mut StoreRing<'_>, _ended: &mut Vec<Ended>) {}

    /// The process ends in good order: remote blocks are freed. Reads and writes have ended. This
    /// call may be missing, because the process may be killed.
    fn close(&mut self) {}

    /// Words for `terapage stat` while something is wrong: "1 of 2 copies is lost".
    fn condition(&self) -> Option<String> {
        None
    }

    /// The copies of the mirrors in it.
    fn redundancy(&self) -> Redundancy {
        Redundancy::default()
    }

    /// Whether a block that the program touches should give up its slot and be written again when
    /// it leaves: the room of the slot is scarce, or a faster store has room.
    fn wants_back(&self, _slot: u32) -> bool {
        false
    }

    /// Where a slot lies, in words for a message: the key of a server. `None`: the name says it.
    fn whereabouts(&self, _slot: u32) -> Option<String> {
        None
    }

    /// It is a copy of a mirror from now on: its bytes can be had elsewhere, so an operation that
    /// gets no answer fails soon, and passes, and it sees to its connections even if it is idle.
    fn is_copy(&mut self) {}

    /// Whether what keeps its bytes answers.
    fn presence(&self) -> Presence<'_> {
        Presence::default()
    }

    /// Tells slots whose bytes it is known to have lost, each once.
    fn take_lost(&mut self, _tell: &mut dyn FnMut(Range<u32>)) {}
}

/// In an `impl` of [`Store`]: passes the named methods on to the store in the field `inner`.
macro_rules! pass_on {
    ($($method:ident)+) => { $($crate::shelf::pass_on!(@ $method);)+ };
    (@ adopt) => {
        fn adopt(&mut self) {
            self.inner.adopt()
        }
    };
    (@ close) => {
        fn close(&mut self) {
            self.inner.close()
        }
    };
    (@ condition) => {
        fn condition(&self) -> Option<String> {
            self.inner.condition()
        }
    };
    (@ forget) => {
        fn forget(&mut self, slots: std::ops::Range<u32>) {
            self.inner.forget(slots)
        }
    };
    (@ grow) => {
        fn grow(&mut self) -> Result<(), $crate::shelf::Error> {
            self.inner.grow()
        }
    };
    (@ is_copy) => {
        fn is_copy(&mut self) {
            self.inner.is_copy()
        }
    };
    (@ joins) => {
        fn joins(&self, slot: u32) -> bool {
            self.inner.joins(slot)
        }
    };
    (@ leaving) => {
        fn leaving(&mut self, ring: &mut $crate::shelf::StoreRing<'_>, leaves: bool) -> bool {
            self.inner.leaving(ring, leaves)
        }
    };
    (@ may_split) => {
        fn may_split(&self, more: usize) -> bool {
            self.inner.may_split(more)
        }
    };
    (@ presence) => {
        fn presence(&self) -> $crate::shelf::Presence<'_> {
            self.inner.presence()
        }
    };
    (@ redundancy) => {
        fn redundancy(&self) -> $crate::shelf::Redundancy {
            self.inner.redundancy()
        }
    };
    (@ share) => {
        fn share(&mut self, fork: u32) -> Result<(), $crate::shelf::Error> {
            self.inner.share(fork)
        }
    };
    (@ slots) => {
        fn slots(&self) -> u32 {
            self.inner.slots()
        }
    };
    (@ split) => {
        fn split(&mut self, more: usize) {
            self.inner.split(more)
        }
    };
    (@ take_lost) => {
        fn take_lost(&mut self, tell: &mut dyn FnMut(std::ops::Range<u32>)) {
            self.inner.take_lost(tell);
        }
    };
    (@ takes_pieces) => {
        fn takes_pieces(&self) -> bool {
            self.inner.takes_pieces()
        }
    };
    (@ unshare) => {
        fn unshare(&mut self, fork: u32) {
            self.inner.unshare(fork)
        }
    };
    (@ whereabouts) => {
        fn whereabouts(&self, slot: u32) -> Option<String> {
            self.inner.whereabouts(slot)
        }
    };
}
pub(crate) use pass_on;

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
        // SAFETY: the store in the box asks for what this function asks for, in these words.
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

    fn adopt(&mut self) {
        (**self).adopt();
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

    fn redundancy(&self) -> Redundancy {
        (**self).redundancy()
    }

    fn wants_back(&self, slot: u32) -> bool {
        (**self).wants_back(slot)
    }

    fn whereabouts(&self, slot: u32) -> Option<String> {
        (**self).whereabouts(slot)
    }

    fn is_copy(&mut self) {
        (**self).is_copy();
    }

    fn presence(&self) -> Presence<'_> {
        (**self).presence()
    }

    fn take_lost(&mut self, tell: &mut dyn FnMut(Range<u32>)) {
        (**self).take_lost(tell);
    }
}

/// Bits of a tag that tell a store's inner stores apart, for each level.
const INNER_BITS: u32 = 6;

/// One store's view of the pager's ring: completions come back to this store's
/// [`event`](Store::event), with the store's own token as the tag.
pub struct StoreRing<'a> {
    ring: &'a mut Ring,
    /// The prefix of this store's tags.
    prefix: u64,
    /// The number of lower bits of a tag that belong to the store.
    bits: u32,
}

/// Methods for those operations of the ring that use the caller's memory, with a token of the
/// store's.
macro_rules! with_a_token {
    ($($(#[$docs:meta])* fn $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        $(#[$docs])*
        ///
        /// # Errors
        /// The kernel does not accept the operation.
        pub unsafe fn $name(
            &mut self,
            $($argument: $type,)*
            token: u64,
        ) -> terapage_sys::Result<()> {
            let tag = self.tag(token);
            // SAFETY: the completion comes to a store once it was taken from the ring, so the
            // memory stays valid as long as the ring demands.
            unsafe { self.ring.$name($($argument,)* tag) }
        }
    )*};
}

impl<'a> StoreRing<'a> {
    /// Inner stores that a store may have at most.
    pub const INNER_MOST: usize = (1 << INNER_BITS) - 1;

    /// The part of `ring` whose tags are `prefix` and, below it, `bits` bits that the store
    /// chooses.
    pub fn new(ring: &'a mut Ring, prefix: u64, bits: u32) -> StoreRing<'a> {
        StoreRing { ring, prefix, bits }
    }

    /// The number of bits of this store's tokens: 48 for a store of the pager itself, six fewer for
    /// each store around it, and six fewer if it has inner stores.
    pub fn token_bits(&self) -> u32 {
        self.bits
    }

    /// The ring for the inner store number `index`. Completions come back to this store's `event`,
    /// where [`inner_of`](Self::inner_of) says to which store they belong.
    pub fn inner(&mut self, index: usize) -> StoreRing<'_> {
        assert!(index < Self::INNER_MOST && self.bits > INNER_BITS, "stores that are stacked too high");
        let bits = self.bits - INNER_BITS;
        let prefix = self.prefix | (index as u64 + 1) << bits;
        StoreRing { ring: self.ring, prefix, bits }
    }

    /// The inner store to which a completion belongs, and the completion in that store's form;
    /// `None` if it belongs to this store itself.
    pub fn inner_of(&self, done: Done) -> Option<(usize, Done)> {
        let bits = self.bits - INNER_BITS;
        let index = (done.tag >> bits).checked_sub(1)?;
        Some((index as usize, Done { tag: done.tag & ((1 << bits) - 1), ..done }))
    }

    /// The tag of `token` in the ring.
    pub fn tag(&self, token: u64) -> u64 {
        debug_assert!(token < 1 << self.bits, "a token of {token:#x} in {} bits", self.bits);
        self.prefix | token
    }

    /// The ring itself, for an operation without a function here; its tag must come from
    /// [`tag`](Self::tag).
    pub fn ring(&mut self) -> &mut Ring {
        self.ring
    }

    with_a_token! {
        /// Reads into `pieces` from `offset` of `fd`.
        ///
        /// # Safety
        /// The array of pieces and their memory stay valid, and the memory has no other user, until
        /// the completion has come.
        fn read(fd: RawFd, pieces: &[Piece], offset: u64);

        /// Writes `pieces` at `offset` of `fd`.
        ///
        /// # Safety
        /// As for [`read`](Self::read), except that others may read the memory.
        fn write(fd: RawFd, pieces: &[Piece], offset: u64);

        /// Sends a piece to a socket: as much as it takes at once, or, if `whole`, all of it.
        ///
        /// # Safety
        /// The piece's memory stays valid and unchanged until the completion has come.
        fn send(fd: RawFd, piece: Piece, whole: bool);

        /// Receives into a piece from a socket: the bytes that have arrived, or, if `whole`, as
        /// much as fits.
        ///
        /// # Safety
        /// The piece's memory stays valid, and has no other user, until the completion has come.
        fn recv(fd: RawFd, piece: Piece, whole: bool);

        /// Sends a message of several pieces to a socket, all of it if `whole`.
        ///
        /// # Safety
        /// The message, its array of pieces and their memory stay valid and unchanged until the
        /// completion has come.
        fn send_message(fd: RawFd, message: &Message, whole: bool);

        /// Receives into several pieces from a socket, as much as fits if `whole`.
        ///
        /// # Safety
        /// The message, its array of pieces and their memory stay valid, and have no other user,
        /// until the completion has come.
        fn recv_message(fd: RawFd, message: &mut Message, whole: bool);

        /// Connects a socket.
        ///
        /// # Safety
        /// The address stays valid until the completion has come.
        fn connect(fd: RawFd, address: &Address);
    }

    /// Reports when `fd` becomes readable or hangs up: once, or each time with `again`.
    ///
    /// # Errors
    /// The kernel does not accept the operation.
    pub fn poll(&mut self, fd: RawFd, again: bool, token: u64) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        self.ring.poll(fd, again, tag)
    }

    /// Ends, with an error that says so, after `ns` nanoseconds.
    ///
    /// # Errors
    /// The kernel does not accept the operation.
    pub fn timeout(&mut self, ns: u64, token: u64) -> terapage_sys::Result<()> {
        let tag = self.tag(token);
        self.ring.timeout(ns, tag)
    }

    /// Cancels the operation with the token `of`, if it is still under way. Both operations
    /// complete, each with its own [`Done`].
    ///
    /// # Errors
    /// The kernel does not accept the operation.
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

    /// Takes the note for the operation, which has ended.
    pub fn take(&mut self, id: u32) -> Option<T> {
        self.0.get_mut(id as usize)?.take()
    }

    /// The note for the operation.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.0.get_mut(id as usize)?.as_mut()
    }

    /// Notes `what` under a free number.
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

    /// All notes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    /// Forgets all: in the child of a fork.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_of_memory_may_pass_and_an_error_of_the_device_does_not() {
        let passes = |number: i32| Ended::by_result(1, -number, 4096).result.unwrap_err().passing;
        let [eagain, enomem, eio, enospc] = [11, 12, 5, 28];
        assert!(passes(eagain) && passes(enomem));
        assert!(!passes(eio) && !passes(enospc));
        let short = Ended::by_result(1, 4095, 4096).result.unwrap_err();
        assert_eq!(short, Failure::lasting(Why::Short(4095)));
    }
}
