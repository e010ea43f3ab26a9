//! io_uring: reads, writes and waiting, through one system call.
//!
//! A ring belongs to the thread that made it.

use crate::fd::Fd;
use crate::{Error, Result, check};
use io_uring::{IoUring, opcode, squeue, types};
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A piece of memory, in the form that readv and writev take.
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
    /// Whether a poll of a pipe's reading end found that nobody has the other end open any more.
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
                // SAFETY: as above.
                unsafe { at.cast::<libc::sockaddr_in6>().write(v6) };
                address.len = size_of_val(&v6) as libc::socklen_t;
            }
        }
        address
    }
}

impl Address {
    fn none() -> Address {
        // SAFETY: an address of zeros is a valid one, of no family.
        Address { storage: unsafe { std::mem::zeroed() }, len: 0 }
    }

    /// The address of a socket in the file system; `None` if the path is too long.
    pub fn unix(path: &std::path::Path) -> Option<Address> {
        use std::os::unix::ffi::OsStrExt;
        let mut address = Address::none();
        let path = path.as_os_str().as_bytes();
        // SAFETY: the storage is large and aligned enough for any address, and zeros are one.
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
    /// A message of these pieces. Their array must stay where it is while the message is in use.
    pub fn new(pieces: &[Piece]) -> Message {
        // SAFETY: a message of zeros is a valid one: without an address, pieces and control data.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = pieces.as_ptr().cast_mut().cast();
        header.msg_iovlen = pieces.len() as _;
        Message(header)
    }
}

/// A submission and a completion queue.
pub struct Ring {
    // The descriptor was moved to another number, so the `IoUring` must not close its old one.
    ring: ManuallyDrop<IoUring>,
    fd: Fd,
    unsubmitted: u32,
    /// Times of timeouts that were not yet submitted.
    #[allow(clippy::vec_box, reason = "the kernel has their addresses")]
    times: Vec<Box<types::Timespec>>,
}

/// The entries of the smallest ring: one page for the operations, one or two for the queues.
const LEAST_ENTRIES: u32 = 16;

/// A send must not raise SIGPIPE in a program that does not ignore it.
fn send_flags(whole: bool) -> i32 {
    libc::MSG_NOSIGNAL | if whole { libc::MSG_WAITALL } else { 0 }
}

fn recv_flags(whole: bool) -> i32 {
    if whole { libc::MSG_WAITALL } else { 0 }
}

fn build(entries: u32) -> std::io::Result<IoUring> {
    IoUring::builder()
        .setup_clamp()
        .setup_cqsize(entries * 4)
        .setup_single_issuer()
        .setup_coop_taskrun()
        .build(entries)
        .or_else(|_| IoUring::builder().setup_clamp().setup_cqsize(entries * 4).build(entries))
}

/// The error, if this process may have no ring at all: its kernel, its container or its user
/// forbids it. If only memory or descriptors are missing, there may be a ring later.
pub fn forbidden() -> Option<Error> {
    // As long as `struct io_uring_params`.
    let mut parameters = [0_u32; 30];
    // SAFETY: the kernel reads and writes the parameters, which only this function uses.
    let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_i64, parameters.as_mut_ptr()) };
    match check("io_uring_setup", made) {
        Ok(ring) => {
            // SAFETY: the descriptor was made just now, and nobody else uses it.
            drop(unsafe { OwnedFd::from_raw_fd(ring as RawFd) });
            None
        }
        Err(error) => error.is_forbidden().then_some(error),
    }
}

impl Ring {
    /// Makes a ring that takes `entries` operations at once, or as many as the user may lock memory
    /// for. Further ones are pushed after these were submitted.
    pub fn new(entries: u32) -> Result<Ring> {
        let is_short = |error: &std::io::Error| error.raw_os_error() == Some(libc::ENOMEM);
        let mut size = entries;
        let mut ring = build(size);
        while size > LEAST_ENTRIES && ring.as_ref().is_err_and(is_short) {
            size /= 2;
            ring = build(size);
        }
        let ring = ring.map_err(|source| {
            let call = if is_short(&source) {
                "io_uring_setup; rings count against what a user may lock (ulimit -l): raise that, or run fewer at once"
            } else {
                "io_uring_setup"
            };
            Error { call, source }
        })?;
        let ring = ManuallyDrop::new(ring);
        // SAFETY: the IoUring is never dropped and never used to enter the kernel, so its
        // descriptor can be moved.
        let fd = Fd::adopt(unsafe { OwnedFd::from_raw_fd(ring.as_raw_fd()) })?;
        Ok(Ring { ring, fd, unsubmitted: 0, times: Vec::new() })
    }

    fn push(&mut self, entry: squeue::Entry) -> Result<()> {
        loop {
            // SAFETY: the callers promise that the memory to which the entry points stays valid
            // until the operation has ended.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                self.unsubmitted += 1;
                return Ok(());
            }
            self.enter(0)?;
        }
    }

    /// Reads into `pieces` from `offset` of `fd`.
    ///
    /// # Safety
    /// The pieces' array and their memory stay valid, and nobody else touches the
    /// memory, until the end of the operation has been taken.
    pub unsafe fn read(&mut self, fd: RawFd, pieces: &[Piece], offset: u64, tag: u64) -> Result<()> {
        let vectors = pieces.as_ptr().cast();
        self.push(
            opcode::Readv::new(types::Fd(fd), vectors, pieces.len() as u32)
                .offset(offset)
                .build()
                .user_data(tag),
        )
    }

    /// Writes `pieces` at `offset` of `fd`.
    ///
    /// # Safety
    /// As for [`read`](Self::read), except that others may read the memory.
    pub unsafe fn write(&mut self, fd: RawFd, pieces: &[Piece], offset: u64, tag: u64) -> Result<()> {
        let vectors = pieces.as_ptr().cast();
        self.push(
            opcode::Writev::new(types::Fd(fd), vectors, pieces.len() as u32)
                .offset(offset)
                .build()
                .user_data(tag),
        )
    }

    /// Sends a piece to a socket: all of it if `whole`, else as much as the socket takes at once.
    /// If the peer is gone, that is an error, not a signal.
    ///
    /// # Safety
    /// The memory stays valid, and nobody writes to it, until the end of the operation has been
    /// taken.
    pub unsafe fn send(&mut self, fd: RawFd, piece: Piece, whole: bool, tag: u64) -> Result<()> {
        let at = piece.at() as *const u8;
        let entry = opcode::Send::new(types::Fd(fd), at, piece.len() as u32).flags(send_flags(whole));
        self.push(entry.build().user_data(tag))
    }

    /// Receives into a piece from a socket: as much as fits if `whole`, else what has come.
    ///
    /// # Safety
    /// The memory stays valid, and nobody else touches it, until the end of the operation has been
    /// taken.
    pub unsafe fn recv(&mut self, fd: RawFd, piece: Piece, whole: bool, tag: u64) -> Result<()> {
        let at = piece.at() as *mut u8;
        let entry = opcode::Recv::new(types::Fd(fd), at, piece.len() as u32).flags(recv_flags(whole));
        self.push(entry.build().user_data(tag))
    }

    /// Sends several pieces to a socket, all of them if `whole`.
    ///
    /// # Safety
    /// The message, its pieces' array and their memory stay valid, and nobody writes to them, until
    /// the end of the operation has been taken.
    pub unsafe fn send_message(&mut self, fd: RawFd, message: &Message, whole: bool, tag: u64) -> Result<()> {
        let entry = opcode::SendMsg::new(types::Fd(fd), &raw const message.0);
        self.push(entry.flags(send_flags(whole) as u32).build().user_data(tag))
    }

    /// Receives into several pieces from a socket, as much as fits if `whole`.
    ///
    /// # Safety
    /// The message, its pieces' array and their memory stay valid, and nobody else touches them,
    /// until the end of the operation has been taken.
    pub unsafe fn recv_message(
        &mut self,
        fd: RawFd,
        message: &mut Message,
        whole: bool,
        tag: u64,
    ) -> Result<()> {
        let entry = opcode::RecvMsg::new(types::Fd(fd), &raw mut message.0);
        self.push(entry.flags(recv_flags(whole) as u32).build().user_data(tag))
    }

    /// Connects a socket.
    ///
    /// # Safety
    /// The address stays valid until the end of the operation has been taken.
    pub unsafe fn connect(&mut self, fd: RawFd, address: &Address, tag: u64) -> Result<()> {
        let at = (&raw const address.storage).cast();
        self.push(opcode::Connect::new(types::Fd(fd), at, address.len).build().user_data(tag))
    }

    /// Ends after `ns` nanoseconds, with ETIME.
    pub fn timeout(&mut self, ns: u64, tag: u64) -> Result<()> {
        const SECOND: u64 = 1_000_000_000;
        let time = types::Timespec::new().sec(ns / SECOND).nsec((ns % SECOND) as u32);
        let time = Box::new(time);
        let entry = opcode::Timeout::new(&raw const *time).build().user_data(tag);
        // The kernel reads the time when the timeout is submitted.
        self.times.push(time);
        self.push(entry)
    }

    /// Cancels the operation with the tag `of`, if it is still under way. Both end, each with its
    /// own tag.
    pub fn cancel(&mut self, of: u64, tag: u64) -> Result<()> {
        self.push(opcode::AsyncCancel::new(of).build().user_data(tag))
    }

    /// Polls `fd` until it becomes readable or hangs up: once, or, if `again`, each time as long as
    /// [`Done::more`] is set.
    pub fn poll(&mut self, fd: RawFd, again: bool, tag: u64) -> Result<()> {
        let events = (libc::POLLIN | libc::POLLHUP) as u32;
        self.push(opcode::PollAdd::new(types::Fd(fd), events).multi(again).build().user_data(tag))
    }

    /// Submits what was pushed, and waits until `wanted` operations have ended.
    pub fn enter(&mut self, wanted: u32) -> Result<()> {
        self.ring.submission().sync();
        const IORING_ENTER_GETEVENTS: u32 = 1;
        loop {
            // SAFETY: no signal mask is given; the queues are valid.
            let answer = unsafe {
                libc::syscall(
                    libc::SYS_io_uring_enter,
                    self.fd.raw(),
                    self.unsubmitted,
                    wanted,
                    IORING_ENTER_GETEVENTS,
                    std::ptr::null::<u8>(),
                    0usize,
                )
            };
            match check("io_uring_enter", answer) {
                Ok(taken) => {
                    self.unsubmitted -= (taken as u32).min(self.unsubmitted);
                    if self.unsubmitted == 0 {
                        self.times.clear();
                    }
                    if self.unsubmitted == 0 || wanted > 0 {
                        return Ok(());
                    }
                }
                Err(error) if matches!(error.errno(), libc::EINTR) => {}
                // Too many completions are waiting, or there is no memory for the moment: the
                // caller takes completions and tries again.
                Err(error) if matches!(error.errno(), libc::EAGAIN | libc::EBUSY) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether something was pushed that was not yet submitted.
    pub fn has_unsubmitted(&self) -> bool {
        self.unsubmitted > 0
    }

    /// Whether a completion waits to be taken.
    pub fn has_done(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Takes a completion, if there is one.
    pub fn done(&mut self) -> Option<Done> {
        let entry = self.ring.completion().next()?;
        let flags = entry.flags();
        let more = io_uring::cqueue::more(flags);
        Some(Done { tag: entry.user_data(), result: entry.result(), more, flags })
    }

    /// The number of the ring's descriptor.
    pub fn raw(&self) -> RawFd {
        self.fd.raw()
    }
}
