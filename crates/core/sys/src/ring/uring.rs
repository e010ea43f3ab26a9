//! io_uring: one system call submits, waits, and reports completions.

use super::workers::Request;
use super::{Address, Done, Message, Piece, recv_flags, send_flags};
use crate::fd::Fd;
use crate::opening::Opening;
use crate::{Error, Result, check};
use io_uring::{IoUring, opcode, squeue, types};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A submission and a completion queue.
pub(super) struct Uring {
    // The descriptor has moved to another number, so the `IoUring` must not close the old number.
    ring: ManuallyDrop<IoUring>,
    fd: Fd,
    unsubmitted: u32,
    /// Times of timeouts that were not yet submitted.
    #[allow(clippy::vec_box, reason = "the kernel has their addresses")]
    times: Vec<Box<types::Timespec>>,
    /// The reads and writes under way.
    requests: Vec<Request>,
}

/// The number of entries of the smallest ring: one page for the operations, one or two for the
/// queues.
pub(super) const LEAST_ENTRIES: u32 = 16;

/// A forked child does not get the ring's memory: the ring, and with it all descriptors with
/// operations under way, would otherwise stay until the child has ended.
fn build(entries: u32) -> std::io::Result<IoUring> {
    IoUring::builder()
        .dontfork()
        .setup_clamp()
        .setup_cqsize(entries * 4)
        .setup_single_issuer()
        .setup_coop_taskrun()
        .build(entries)
        .or_else(|_| IoUring::builder().dontfork().setup_clamp().setup_cqsize(entries * 4).build(entries))
}

impl Uring {
    /// Makes a ring that takes `entries` operations at once, or as many as the user's limit on
    /// locked memory allows. Further operations are pushed after these were submitted.
    pub(super) fn new(entries: u32) -> Result<Uring> {
        let _opening = Opening::begin();
        let is_short = |error: &std::io::Error| error.raw_os_error() == Some(libc::ENOMEM);
        let mut size = entries;
        let mut ring = build(size);
        while size > LEAST_ENTRIES && ring.as_ref().is_err_and(is_short) {
            size /= 2;
            ring = build(size);
        }
        let ring = ring.map_err(|source| {
            let call = if is_short(&source) {
                "io_uring_setup; rings count against the memory that a user may lock (ulimit -l): \
                 raise that limit, or run fewer programs at once"
            } else {
                "io_uring_setup"
            };
            Error { call, source }
        })?;
        let ring = ManuallyDrop::new(ring);
        // SAFETY: the IoUring is never dropped and never used to enter the kernel, so its
        // descriptor can be moved.
        let fd = Fd::adopt(unsafe { OwnedFd::from_raw_fd(ring.as_raw_fd()) })?;
        Ok(Uring { ring, fd, unsubmitted: 0, times: Vec::new(), requests: Vec::new() })
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
    /// The array of pieces and their memory stay valid, and have no other user, until the
    /// completion has been taken.
    pub(super) unsafe fn read(&mut self, fd: RawFd, pieces: &[Piece], offset: u64, tag: u64) -> Result<()> {
        let (at, count) = (pieces.as_ptr(), pieces.len());
        let entry = opcode::Readv::new(types::Fd(fd), at.cast(), count as u32).offset(offset);
        self.push(entry.build().user_data(tag))?;
        self.requests.push(Request { write: false, fd, pieces: at, count, offset, tag });
        Ok(())
    }

    /// Writes `pieces` at `offset` of `fd`.
    ///
    /// # Safety
    /// Like that of [`read`](Self::read), except that other code may read the memory.
    pub(super) unsafe fn write(&mut self, fd: RawFd, pieces: &[Piece], offset: u64, tag: u64) -> Result<()> {
        let (at, count) = (pieces.as_ptr(), pieces.len());
        let entry = opcode::Writev::new(types::Fd(fd), at.cast(), count as u32).offset(offset);
        self.push(entry.build().user_data(tag))?;
        self.requests.push(Request { write: true, fd, pieces: at, count, offset, tag });
        Ok(())
    }

    /// Sends a piece to a socket: all of it if `whole`, otherwise as much as the socket takes at
    /// once. If the peer is gone, that is an error, not a signal.
    ///
    /// # Safety
    /// The memory stays valid and unchanged until the completion has been taken.
    pub(super) unsafe fn send(&mut self, fd: RawFd, piece: Piece, whole: bool, tag: u64) -> Result<()> {
        let at = piece.at() as *const u8;
        let entry = opcode::Send::new(types::Fd(fd), at, piece.len() as u32).flags(send_flags(whole));
        self.push(entry.build().user_data(tag))
    }

    /// Receives into a piece from a socket: as much as fits if `whole`, otherwise the bytes that
    /// have arrived.
    ///
    /// # Safety
    /// The memory stays valid, and has no other user, until the completion has been taken.
    pub(super) unsafe fn recv(&mut self, fd: RawFd, piece: Piece, whole: bool, tag: u64) -> Result<()> {
        let at = piece.at() as *mut u8;
        let entry = opcode::Recv::new(types::Fd(fd), at, piece.len() as u32).flags(recv_flags(whole));
        self.push(entry.build().user_data(tag))
    }

    /// Sends several pieces to a socket, all of them if `whole`.
    ///
    /// # Safety
    /// The message, its array of pieces and their memory stay valid and unchanged until the
    /// completion has been taken.
    pub(super) unsafe fn send_message(
        &mut self,
        fd: RawFd,
        message: &Message,
        whole: bool,
        tag: u64,
    ) -> Result<()> {
        let entry = opcode::SendMsg::new(types::Fd(fd), &raw const message.0);
        self.push(entry.flags(send_flags(whole) as u32).build().user_data(tag))
    }

    /// Receives into several pieces from a socket, as much as fits if `whole`.
    ///
    /// # Safety
    /// The message, its array of pieces and their memory stay valid, and have no other user, until
    /// the completion has been taken.
    pub(super) unsafe fn recv_message(
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
    /// The address stays valid until the completion has been taken.
    pub(super) unsafe fn connect(&mut self, fd: RawFd, address: &Address, tag: u64) -> Result<()> {
        let at = (&raw const address.storage).cast();
        self.push(opcode::Connect::new(types::Fd(fd), at, address.len).build().user_data(tag))
    }

    /// Ends after `ns` nanoseconds, with ETIME.
    pub(super) fn timeout(&mut self, ns: u64, tag: u64) -> Result<()> {
        const SECOND: u64 = 1_000_000_000;
        let time = types::Timespec::new().sec(ns / SECOND).nsec((ns % SECOND) as u32);
        let time = Box::new(time);
        let entry = opcode::Timeout::new(&raw const *time).build().user_data(tag);
        // The kernel reads the time when the timeout is submitted.
        self.times.push(time);
        self.push(entry)
    }

    /// Cancels the operation with the tag `of`, if it is still under way. Both operations complete,
    /// each with its own tag.
    pub(super) fn cancel(&mut self, of: u64, tag: u64) -> Result<()> {
        self.requests.retain(|request| request.tag != of);
        self.push(opcode::AsyncCancel::new(of).build().user_data(tag))
    }

    /// Polls `fd` until it becomes readable or hangs up: once, or, if `again`, each time while
    /// [`Done::more`] is set.
    pub(super) fn poll(&mut self, fd: RawFd, again: bool, tag: u64) -> Result<()> {
        let events = (libc::POLLIN | libc::POLLHUP) as u32;
        self.push(opcode::PollAdd::new(types::Fd(fd), events).multi(again).build().user_data(tag))
    }

    /// Submits the pushed operations, and waits until `wanted` operations have ended.
    pub(super) fn enter(&mut self, wanted: u32) -> Result<()> {
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

    /// Whether an operation was pushed but not yet submitted.
    pub(super) fn has_unsubmitted(&self) -> bool {
        self.unsubmitted > 0
    }

    /// Whether a completion waits to be taken.
    pub(super) fn has_done(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Takes a completion, if there is one.
    ///
    /// The kernel executes a read or write that would wait in a thread of its own. If the limit on
    /// processes (RLIMIT_NPROC, or the cgroup's) allows none, the kernel cancels the operation.
    /// Then the calling thread executes it.
    pub(super) fn done(&mut self) -> Option<Done> {
        let entry = self.ring.completion().next()?;
        let (tag, result, flags) = (entry.user_data(), entry.result(), entry.flags());
        let request = self.requests.iter().position(|request| request.tag == tag);
        let request = request.map(|at| self.requests.swap_remove(at));
        if let Some(request) = request.filter(|_| result == -libc::ECANCELED) {
            return Some(request.carry_out());
        }
        Some(Done { tag, result, more: io_uring::cqueue::more(flags), flags })
    }
}
