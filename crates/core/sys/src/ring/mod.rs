//! Reads, writes and waits of the pager's thread, all in one place: the ring.
//!
//! A ring belongs to the thread that made it. Its preferred engine is io_uring. If io_uring is
//! forbidden (as in most containers), another engine is used: libaio, or threads that read and
//! write, together with epoll for everything else.

mod aio;
mod polled;
mod uring;
mod workers;

use crate::{Error, Result, check};
use polled::Polled;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use uring::Uring;

/// A piece of memory, in the form of readv and writev.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Piece(libc::iovec);

// SAFETY: a piece is an address and a length; the code that uses it argues which thread may touch
// the memory.
unsafe impl Send for Piece {}

impl Piece {
    /// `len` bytes at `at`.
    pub fn new(at: usize, len: usize) -> Self {
        Piece(libc::iovec { iov_base: at as *mut _, iov_len: len })
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.0.iov_len == 0
    }

    /// The address.
    pub fn at(&self) -> usize {
        self.0.iov_base as usize
    }
}

/// The end of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The tag that the operation was given when it began.
    pub tag: u64,
    /// Bytes transferred, events, or a negative error number.
    pub result: i32,
    /// Whether this is an event of a poll that continues.
    pub more: bool,
    /// The flags of the completion, from the kernel.
    pub flags: u32,
}

impl Done {
    /// Whether a poll of a pipe's reading end found that the other end is no longer open anywhere.
    pub fn is_hang_up(&self) -> bool {
        self.result >= 0 && self.result & i32::from(libc::POLLHUP) != 0
    }
}

/// The address to which a socket connects.
pub struct Address {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl From<SocketAddr> for Address {
    fn from(to: SocketAddr) -> Address {
        let mut address = Address::none();
        let at = (&raw mut address.storage).cast::<libc::c_void>();
        match to {
            SocketAddr::V4(to) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: to.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is large and aligned enough for any address, and only this
                // function uses it.
                unsafe { at.cast::<libc::sockaddr_in>().write(v4) };
                address.len = size_of_val(&v4) as libc::socklen_t;
            }
            SocketAddr::V6(to) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: to.port().to_be(),
                    sin6_flowinfo: to.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: to.ip().octets() },
                    sin6_scope_id: to.scope_id(),
                };
                // SAFETY: the storage is large and aligned enough, and only this function uses it.
                unsafe { at.cast::<libc::sockaddr_in6>().write(v6) };
                address.len = size_of_val(&v6) as libc::socklen_t;
            }
        }
        address
    }
}

impl Address {
    fn none() -> Address {
        // SAFETY: an address of all zeros is valid, and of no family.
        Address { storage: unsafe { std::mem::zeroed() }, len: 0 }
    }

    /// The address of a socket in the file system; `None` if the path is too long.
    pub fn unix(path: &std::path::Path) -> Option<Address> {
        use std::os::unix::ffi::OsStrExt;
        let mut address = Address::none();
        let path = path.as_os_str().as_bytes();
        // SAFETY: the storage is large and aligned enough for any address, and zeros are a valid
        // address.
        let unix = unsafe { &mut *(&raw mut address.storage).cast::<libc::sockaddr_un>() };
        if path.len() >= unix.sun_path.len() || path.contains(&0) {
            return None;
        }
        unix.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in unix.sun_path.iter_mut().zip(path) {
            *to = *from as libc::c_char;
        }
        address.len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        Some(address)
    }

    /// The address family: AF_INET, AF_INET6 or AF_UNIX.
    pub fn family(&self) -> i32 {
        i32::from(self.storage.ss_family)
    }
}

/// Several pieces that are sent to a socket, or received from it, together.
pub struct Message(libc::msghdr);

// SAFETY: a message has addresses and lengths; the code that uses it argues which thread may touch
// the memory.
unsafe impl Send for Message {}

impl Message {
    /// A message of these pieces. Their array must not move while the message is in use.
    pub fn new(pieces: &[Piece]) -> Message {
        // SAFETY: a message of all zeros is valid: without an address, pieces and control data.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = pieces.as_ptr().cast_mut().cast();
        header.msg_iovlen = pieces.len() as _;
        Message(header)
    }
}

/// A send must not raise SIGPIPE in a program that does not ignore it.
fn send_flags(whole: bool) -> i32 {
    libc::MSG_NOSIGNAL | if whole { libc::MSG_WAITALL } else { 0 }
}

fn recv_flags(whole: bool) -> i32 {
    if whole { libc::MSG_WAITALL } else { 0 }
}

/// The error, if this process may not use io_uring at all: its kernel, its container or its user
/// forbids it. If only memory or descriptors are missing, there may be a ring later.
pub fn forbidden() -> Option<Error> {
    let _opening = crate::opening::Opening::begin();
    // As long as `struct io_uring_params`.
    let mut parameters = [0_u32; 30];
    // SAFETY: the kernel reads and writes the parameters, which only this function uses.
    let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_i64, parameters.as_mut_ptr()) };
    match check("io_uring_setup", made) {
        Ok(ring) => {
            // SAFETY: the descriptor was made just now, and has no other user.
            drop(unsafe { OwnedFd::from_raw_fd(ring as RawFd) });
            None
        }
        Err(error) => error.is_forbidden().then_some(error),
    }
}

/// How a ring reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoEngine {
    /// io_uring: everything through one system call.
    Uring,
    /// libaio (`io_submit`): asynchronous for files that are open for direct I/O.
    Aio,
    /// Threads that read and write.
    Threads,
}

impl IoEngine {
    /// All engines, the best first.
    pub const ALL: [IoEngine; 3] = [IoEngine::Uring, IoEngine::Aio, IoEngine::Threads];

    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            IoEngine::Uring => "io_uring",
            IoEngine::Aio => "libaio",
            IoEngine::Threads => "threads",
        }
    }

    /// Its number among the counters: 1, 2 or 3.
    pub fn number(self) -> u64 {
        self as u64 + 1
    }

    /// The engine that `TERAPAGE_IO` names in a test's environment, as the setting does.
    #[doc(hidden)]
    pub fn of_tests() -> Option<IoEngine> {
        match std::env::var("TERAPAGE_IO").as_deref() {
            Ok("uring") => Some(IoEngine::Uring),
            Ok("aio") => Some(IoEngine::Aio),
            Ok("threads") => Some(IoEngine::Threads),
            _ => None,
        }
    }

    /// The engine that a ring of this process has now, if none is wished for.
    pub fn of_this_process() -> IoEngine {
        Ring::with(None, uring::LEAST_ENTRIES, false).map_or(IoEngine::Threads, |ring| ring.engine())
    }
}

#[allow(clippy::large_enum_variant, reason = "a process has one ring, and io_uring's is near at hand")]
enum Inner {
    Uring(Uring),
    Polled(Box<Polled>),
}

/// Operations under way, and their completions.
pub struct Ring(Inner);

/// The same call for each engine: one branch, always taken in the same way.
macro_rules! each {
    ($ring:expr, $engine:ident => $call:expr) => {
        match &mut $ring.0 {
            Inner::Uring($engine) => $call,
            Inner::Polled($engine) => $call,
        }
    };
}

/// Methods of the ring for the operations that use the caller's memory.
macro_rules! for_either_engine {
    ($($(#[$docs:meta])* fn $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        $(#[$docs])*
        ///
        /// # Errors
        /// The kernel does not accept the operation.
        pub unsafe fn $name(&mut self, $($argument: $type,)* tag: u64) -> Result<()> {
            // SAFETY: the engine needs the memory as long as the ring does: until the completion
            // is taken.
            unsafe { each!(self, engine => engine.$name($($argument,)* tag)) }
        }
    )*};
}

impl Ring {
    /// Makes a ring that takes `entries` operations at once, with the best engine that this process
    /// may use, and with the threads that this engine may need.
    ///
    /// # Errors
    /// As for [`with`](Self::with).
    pub fn new(entries: u32) -> Result<Ring> {
        Ring::with(None, entries, true)
    }

    /// Makes a ring that takes `entries` operations at once, or as many as the user's limit on
    /// locked memory allows. Further operations are pushed after these were submitted. Without a
    /// `wish` the engine is io_uring; if that is forbidden, or the user may not lock the memory of
    /// even the smallest ring, libaio; if that is not available either, threads. If no `threads`
    /// may begin, that engine reads and writes in the calling thread.
    ///
    /// # Errors
    /// The requested engine is not available, or there is no descriptor for io_uring.
    pub fn with(wish: Option<IoEngine>, entries: u32, threads: bool) -> Result<Ring> {
        let polled = |engine| Ok(Ring(Inner::Polled(Box::new(Polled::new(engine, entries, threads)?))));
        match wish {
            Some(IoEngine::Uring) => Ok(Ring(Inner::Uring(Uring::new(entries)?))),
            Some(engine) => polled(engine),
            None => match Uring::new(entries) {
                Ok(ring) => Ok(Ring(Inner::Uring(ring))),
                Err(error) if error.is_forbidden() || error.errno() == libc::ENOMEM => {
                    polled(IoEngine::Aio).or_else(|_: Error| polled(IoEngine::Threads))
                }
                Err(error) => Err(error),
            },
        }
    }

    /// The engine.
    pub fn engine(&self) -> IoEngine {
        match &self.0 {
            Inner::Uring(_) => IoEngine::Uring,
            Inner::Polled(polled) => polled.engine(),
        }
    }

    for_either_engine! {
        /// Reads into `pieces` from `offset` of `fd`.
        ///
        /// # Safety
        /// The array of pieces and their memory stay valid, and have no other user, until the
        /// completion has been taken.
        fn read(fd: RawFd, pieces: &[Piece], offset: u64);

        /// Writes `pieces` at `offset` of `fd`.
        ///
        /// # Safety
        /// As for [`read`](Self::read), except that others may read the memory.
        fn write(fd: RawFd, pieces: &[Piece], offset: u64);

        /// Sends a piece to a socket: all of it if `whole`, otherwise as much as the socket takes
        /// at once. If the peer is gone, that is an error, not a signal.
        ///
        /// # Safety
        /// The memory stays valid and unchanged until the completion has been taken.
        fn send(fd: RawFd, piece: Piece, whole: bool);

        /// Receives into a piece from a socket: as much as fits if `whole`, otherwise the bytes
        /// that have arrived.
        ///
        /// # Safety
        /// The memory stays valid, and has no other user, until the completion has been taken.
        fn recv(fd: RawFd, piece: Piece, whole: bool);

        /// Sends several pieces to a socket, all of them if `whole`.
        ///
        /// # Safety
        /// The message, its array of pieces and their memory stay valid and unchanged until the
        /// completion has been taken.
        fn send_message(fd: RawFd, message: &Message, whole: bool);

        /// Receives into several pieces from a socket, as much as fits if `whole`.
        ///
        /// # Safety
        /// The message, its array of pieces and their memory stay valid, and have no other user,
        /// until the completion has been taken.
        fn recv_message(fd: RawFd, message: &mut Message, whole: bool);

        /// Connects a socket.
        ///
        /// # Safety
        /// The address stays valid until the completion has been taken.
        fn connect(fd: RawFd, address: &Address);
    }

    /// Ends after `ns` nanoseconds, with ETIME.
    ///
    /// # Errors
    /// The kernel does not accept the operation.
    pub fn timeout(&mut self, ns: u64, tag: u64) -> Result<()> {
        each!(self, ring => ring.timeout(ns, tag))
    }

    /// Cancels the operation with the tag `of`, if it is still under way. Both operations complete,
    /// each with its own tag.
    ///
    /// # Errors
    /// The kernel does not accept the operation.
    pub fn cancel(&mut self, of: u64, tag: u64) -> Result<()> {
        each!(self, ring => ring.cancel(of, tag))
    }

    /// Polls `fd` until it becomes readable or hangs up: once, or, if `again`, each time while
    /// [`Done::more`] is set.
    ///
    /// # Errors
    /// The kernel does not accept the operation.
    pub fn poll(&mut self, fd: RawFd, again: bool, tag: u64) -> Result<()> {
        each!(self, ring => ring.poll(fd, again, tag))
    }

    /// Submits the pushed operations, and waits until `wanted` operations have ended.
    ///
    /// # Errors
    /// The kernel does not accept the operation.
    pub fn enter(&mut self, wanted: u32) -> Result<()> {
        each!(self, ring => ring.enter(wanted))
    }

    /// Whether an operation was pushed but not yet submitted.
    pub fn has_unsubmitted(&self) -> bool {
        match &self.0 {
            Inner::Uring(ring) => ring.has_unsubmitted(),
            Inner::Polled(ring) => ring.has_unsubmitted(),
        }
    }

    /// Whether a completion waits to be taken.
    pub fn has_done(&mut self) -> bool {
        each!(self, ring => ring.has_done())
    }

    /// Takes a completion, if there is one.
    pub fn done(&mut self) -> Option<Done> {
        each!(self, ring => ring.done())
    }
}

#[cfg(test)]
mod tests;
