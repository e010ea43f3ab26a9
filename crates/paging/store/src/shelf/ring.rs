//! A store's view of the pager's ring.

use std::os::fd::RawFd;
use terapage_sys::ring::{Address, Done, Message, Piece, Ring};

/// Bits of a tag that tell a store's inner stores apart, for each level.
const INNER_BITS: u32 = 6;

/// One store's view of the pager's ring: completions come back to this store's
/// [`event`](super::Store::event), with the store's own token as the tag.
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
