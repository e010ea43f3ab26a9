//! File descriptors that a program does not stumble over.
//!
//! Programs close what they did not open (daemons close all of 3 to 1023) and expect low
//! numbers from `open`. So the pager's own go where nobody looks, and are known by number,
//! so that an interposed `close` can leave them alone.

use crate::{Result, check};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where the numbers begin, if the limit on open files allows.
const HIGH: RawFd = 700;

/// A bit for each number: a process with many forked children has a pipe for each. Higher numbers than these are not known as ours.
const NUMBERS: usize = 1 << 16;
static OURS: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// Where the bit of a number is.
fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OURS.get(fd / 64)?, 1 << (fd % 64)))
}

/// Whether `fd` is one of the pager's.
pub fn is_ours(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// The pager's descriptors, in order.
pub fn ours_sorted() -> Vec<RawFd> {
    let words = OURS.iter().zip((0..).step_by(64)).filter(|(word, _)| word.load(Relaxed) != 0);
    words.flat_map(|(_, first)| first..first + 64).filter(|&fd| is_ours(fd)).collect()
}

/// A descriptor of the pager's, closed on exec. Dropping it closes it.
#[derive(Debug)]
pub struct Fd(OwnedFd);

impl Fd {
    /// Takes `fd` over: it is moved to a high number and noted as ours.
    pub fn adopt(fd: OwnedFd) -> Result<Fd> {
        // The limit on open files may be under the first, or have become so since the program began.
        let high = [HIGH, 64, 16, 3].into_iter().find_map(|least| {
            // SAFETY: fcntl with F_DUPFD_CLOEXEC touches no memory.
            let high = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
            (high >= 0).then_some(high)
        });
        let high = check(
            "fcntl(F_DUPFD_CLOEXEC); the limit on open files (ulimit -n) should be 128 or more",
            high.unwrap_or(-1).into(),
        )? as RawFd;
        if let Some((word, bit)) = place(high) {
            word.fetch_or(bit, Relaxed);
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
        if let Some((word, bit)) = place(self.raw()) {
            word.fetch_and(!bit, Relaxed);
        }
    }
}
