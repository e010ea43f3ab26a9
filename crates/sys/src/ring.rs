//! io_uring: reads, writes and waiting, through one system call.
//!
//! Belongs to the thread that made it.

use crate::fd::Fd;
use crate::{Error, Result, check};
use io_uring::{IoUring, opcode, squeue, types};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A piece of memory, as readv and writev take it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Piece(libc::iovec);

// SAFETY: a piece is an address and a length; who may touch it is decided where it is used.
unsafe impl Send for Piece {}

impl Piece {
    /// `len` bytes at `at`.
    pub fn new(at: usize, len: usize) -> Self {
        Piece(libc::iovec { iov_base: at as *mut _, iov_len: len })
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.iov_len == 0
    }

    /// Its address.
    pub fn at(&self) -> usize {
        self.0.iov_base as usize
    }
}

/// The end of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// What it was called when it began.
    pub tag: u64,
    /// Bytes transferred or events, or a negative error number.
    pub result: i32,
    /// A poll that goes on.
    pub more: bool,
}

impl Done {
    /// Whether a poll of a pipe's reading end found that nobody holds the other end any more.
    pub fn is_hang_up(&self) -> bool {
        self.result >= 0 && self.result & i32::from(libc::POLLHUP) != 0
    }
}

/// A submission and a completion queue.
pub struct Ring {
    // Its descriptor lives on under another number, so it must not close its own.
    ring: ManuallyDrop<IoUring>,
    fd: Fd,
    unsubmitted: u32,
}

/// The smallest ring that there is: one page for the operations, one or two for the queues.
const LEAST_ENTRIES: u32 = 16;

fn build(entries: u32) -> std::io::Result<IoUring> {
    IoUring::builder()
        .setup_clamp()
        .setup_cqsize(entries * 4)
        .setup_single_issuer()
        .setup_coop_taskrun()
        .build(entries)
        .or_else(|_| IoUring::builder().setup_clamp().setup_cqsize(entries * 4).build(entries))
}

impl Ring {
    /// A ring for `entries` operations at once, or for as many as the user may lock memory for:
    /// more begin when those have been handed over.
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
        // descriptor is ours to move.
        let fd = Fd::adopt(unsafe { OwnedFd::from_raw_fd(ring.as_raw_fd()) })?;
        Ok(Ring { ring, fd, unsubmitted: 0 })
    }

    fn push(&mut self, entry: squeue::Entry) -> Result<()> {
        loop {
            // SAFETY: what the entry points to is kept valid until its end, as the callers promise.
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
    /// As for [`read`](Self::read), but that others may read the memory.
    pub unsafe fn write(&mut self, fd: RawFd, pieces: &[Piece], offset: u64, tag: u64) -> Result<()> {
        let vectors = pieces.as_ptr().cast();
        self.push(
            opcode::Writev::new(types::Fd(fd), vectors, pieces.len() as u32)
                .offset(offset)
                .build()
                .user_data(tag),
        )
    }

    /// Ends at once: for a store that has done its work otherwise.
    pub fn nothing(&mut self, tag: u64) -> Result<()> {
        self.push(opcode::Nop::new().build().user_data(tag))
    }

    /// Tells when `fd` becomes readable or hangs up: once, or, `again`, each time while it has
    /// [`Done::more`].
    pub fn poll(&mut self, fd: RawFd, again: bool, tag: u64) -> Result<()> {
        let events = (libc::POLLIN | libc::POLLHUP) as u32;
        self.push(opcode::PollAdd::new(types::Fd(fd), events).multi(again).build().user_data(tag))
    }

    /// Hands over what was pushed and waits until `wanted` operations have ended.
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
                    if self.unsubmitted == 0 || wanted > 0 {
                        return Ok(());
                    }
                }
                Err(error) if matches!(error.errno(), libc::EINTR) => {}
                // Too many ends untaken, or no memory for now: the caller takes ends and comes
                // again.
                Err(error) if matches!(error.errno(), libc::EAGAIN | libc::EBUSY) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether something was pushed that the kernel has not been told of.
    pub fn has_unsubmitted(&self) -> bool {
        self.unsubmitted > 0
    }

    /// Whether an operation has ended that was not taken.
    pub fn has_done(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Takes the end of an operation, if one has ended.
    pub fn done(&mut self) -> Option<Done> {
        let entry = self.ring.completion().next()?;
        let more = io_uring::cqueue::more(entry.flags());
        Some(Done { tag: entry.user_data(), result: entry.result(), more })
    }

    /// Whether the ring's descriptor is `fd`.
    pub fn raw(&self) -> RawFd {
        self.fd.raw()
    }
}
