//! File descriptors that a program does not stumble over.
//!
//! Programs close what they did not open (daemons close all of 3 to 1023) and expect low
//! numbers from `open`. So the pager's own go where nobody looks, and are known by number,
//! so that an interposed `close` can leave them alone.

use crate::{Result, check};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Where the numbers begin, if the limit on open files allows.
const HIGH: RawFd = 700;

const SLOTS: usize = 64;
static OURS: [AtomicI32; SLOTS] = [const { AtomicI32::new(-1) }; SLOTS];

/// Whether `fd` is one of the pager's.
pub fn is_ours(fd: RawFd) -> bool {
    fd >= 0 && OURS.iter().any(|slot| slot.load(Relaxed) == fd)
}

/// The pager's descriptors, in order.
pub fn ours_sorted() -> Vec<RawFd> {
    let mut all: Vec<RawFd> = OURS.iter().map(|slot| slot.load(Relaxed)).filter(|&fd| fd >= 0).collect();
    all.sort_unstable();
    all
}

/// A descriptor of the pager's, closed on exec. Dropping it closes it.
#[derive(Debug)]
pub struct Fd(OwnedFd);

impl Fd {
    /// Takes `fd` over: it is moved to a high number and noted as ours.
    pub fn adopt(fd: OwnedFd) -> Result<Fd> {
        // SAFETY: fcntl with F_DUPFD_CLOEXEC touches no memory.
        let mut high = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH) };
        if high < 0 {
            // SAFETY: as above; the limit on open files is under HIGH.
            high = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 64) };
        }
        let high = check(
            "fcntl(F_DUPFD_CLOEXEC); the limit on open files (ulimit -n) must be 128 or more",
            high.into(),
        )? as RawFd;
        if let Some(slot) = OURS.iter().find(|slot| slot.load(Relaxed) < 0) {
            slot.store(high, Relaxed);
        }
        // SAFETY: the duplicate was made just now and belongs to nobody else.
        Ok(Fd(unsafe { OwnedFd::from_raw_fd(high) }))
    }

    /// An event counter (`eventfd`), non-blocking.
    pub fn event() -> Result<Fd> {
        // SAFETY: eventfd touches no memory.
        let raw =
            check("eventfd", unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }.into())?;
        // SAFETY: made just now.
        Fd::adopt(unsafe { OwnedFd::from_raw_fd(raw as RawFd) })
    }

    /// A pipe: its reading and its writing end.
    pub fn pipe() -> Result<(Fd, Fd)> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors.
        check("pipe2", unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
        // SAFETY: made just now.
        let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        Ok((Fd::adopt(read)?, Fd::adopt(write)?))
    }

    /// Adds one to an event counter.
    pub fn signal(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read from `one`. A counter that is full is signalled all the same.
        unsafe { libc::syscall(libc::SYS_write, self.raw(), &raw const one, 8) };
    }

    /// Sets an event counter to zero.
    pub fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes are written to `count`.
        unsafe { libc::syscall(libc::SYS_read, self.raw(), &raw mut count, 8) };
    }

    /// The number.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        let raw = self.raw();
        if let Some(slot) = OURS.iter().find(|slot| slot.load(Relaxed) == raw) {
            slot.store(-1, Relaxed);
        }
    }
}
