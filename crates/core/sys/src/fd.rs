//! File descriptors with high numbers, out of the program's way.
//!
//! Programs close descriptors that they did not open (daemons close all of 3 to 1023), and expect
//! low numbers from `open`. So the pager's descriptors have high numbers. These are noted here, and
//! the library's hook for `close` leaves them open.

use crate::opening::Opening;
use crate::{Result, check};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The lowest number, if the limit on open files allows it.
const HIGH: RawFd = 700;

/// The numbers that have a bit: a process with many forked children has a pipe for each. Higher
/// numbers have no bit, and cannot be marked as the pager's.
const NUMBERS: usize = 1 << 16;
static OURS: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// The word and the bit of a number.
fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OURS.get(fd / 64)?, 1 << (fd % 64)))
}

/// Whether `fd` belongs to the pager.
pub fn is_ours(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// Notes that a descriptor belongs to the pager, under its present number.
pub fn note(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Relaxed);
    }
}

/// The numbers of the pager's descriptors, ascending.
pub fn ours_sorted() -> impl Iterator<Item = RawFd> {
    let words = OURS.iter().zip((0..).step_by(64)).filter(|(word, _)| word.load(Relaxed) != 0);
    words.flat_map(|(_, first)| first..first + 64).filter(|&fd| is_ours(fd))
}

/// The number of descriptors that a pager opens when it begins, with some to spare.
const NEEDED: u64 = 32;

/// Room for a pager's descriptors, even if the program has opened as many files as it may: while
/// this value lives, the limit on open files is higher.
#[derive(Debug)]
pub struct Room {
    /// The limit on open files before and now, if it was raised.
    raised: Option<[libc::rlimit; 2]>,
}

impl Room {
    /// # Errors
    /// The hard limit does not allow more either, and this process may not raise it.
    pub fn make() -> Result<Room> {
        let was = open_files(None)?;
        // `open` returns the lowest free number, so the numbers just below the limit are used last.
        let mut last = was.rlim_cur.saturating_sub(NEEDED)..was.rlim_cur;
        let is_free = |fd: u64| {
            // SAFETY: fcntl with F_GETFD touches no memory.
            RawFd::try_from(fd).is_ok_and(|fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0)
        };
        if was.rlim_cur >= RawFd::MAX as u64 || was.rlim_cur >= NEEDED && last.all(is_free) {
            return Ok(Room { raised: None });
        }
        // Numbers above the limit are in use if there was room before: a pipe for each child.
        let nth = (was.rlim_cur..).filter(|&fd| is_free(fd)).nth(NEEDED as usize - 1);
        let rlim_cur = nth.map_or(was.rlim_cur + NEEDED, |last| last + 1);
        let is = libc::rlimit { rlim_cur, rlim_max: was.rlim_max.max(rlim_cur) };
        open_files(Some(&is))?;
        Ok(Room { raised: Some([was, is]) })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some([was, is]) = self.raised else { return };
        // The program may have set another limit meanwhile.
        if open_files(None).is_ok_and(|now| (now.rlim_cur, now.rlim_max) == (is.rlim_cur, is.rlim_max)) {
            // To lower a limit is always allowed.
            open_files(Some(&was)).ok();
        }
    }
}

/// Sets the limit on open files, if `new` is given. Returns the previous limit.
fn open_files(new: Option<&libc::rlimit>) -> Result<libc::rlimit> {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the call reads one limit, if `new` is given, and writes one. (A system call, since
    // the program or this library may replace the C library's function.)
    check("prlimit64(RLIMIT_NOFILE)", unsafe {
        libc::syscall(libc::SYS_prlimit64, 0_i64, i64::from(libc::RLIMIT_NOFILE), new, &raw mut old)
    })?;
    Ok(old)
}

/// Moves a descriptor to a high number, closed on exec.
///
/// # Errors
/// The limit on open files allows no more.
pub fn move_up(fd: OwnedFd) -> Result<OwnedFd> {
    copy_up(std::os::fd::AsFd::as_fd(&fd))
}

fn copy_up(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    // The limit on open files may be below the first number.
    let high = [HIGH, 64, 16, 3].into_iter().find_map(|least| {
        // SAFETY: fcntl with F_DUPFD_CLOEXEC touches no memory.
        let high = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
        (high >= 0).then_some(high)
    });
    let high = check(
        "fcntl(F_DUPFD_CLOEXEC); the limit on open files (ulimit -n) should be 128 or more",
        high.unwrap_or(-1).into(),
    )?;
    // SAFETY: the duplicate was made just now, and has no other user.
    Ok(unsafe { OwnedFd::from_raw_fd(high as RawFd) })
}

/// The message if a thread has a separate table of descriptors: it cannot reach the pager's.
const OWN_TABLE: &str = "terapage: a thread does not have the pager's descriptors (a direct \
                         unshare or clone without CLONE_FILES); the program is stopped\n";

/// A descriptor of the pager, closed on exec, and closed when dropped.
#[derive(Debug)]
pub struct Fd(ManuallyDrop<OwnedFd>);

impl Fd {
    /// Takes ownership of `fd`: moves it to a high number, and notes it as the pager's. The caller
    /// has begun an [`Opening`] before it opened `fd`.
    pub fn adopt(fd: OwnedFd) -> Result<Fd> {
        Fd::copy(std::os::fd::AsFd::as_fd(&fd))
    }

    /// A copy of `fd` as the pager's.
    pub fn copy(fd: BorrowedFd<'_>) -> Result<Fd> {
        let _opening = Opening::begin();
        let high = copy_up(fd)?;
        note(high.as_raw_fd());
        Ok(Fd(ManuallyDrop::new(high)))
    }

    /// What a system call opens, as the pager's.
    ///
    /// # Errors
    /// `open` has answered with an error, or there are no descriptors left.
    pub fn open(call: &'static str, open: impl FnOnce() -> i64) -> Result<Fd> {
        let _opening = Opening::begin();
        let raw = check(call, open())?;
        // SAFETY: the descriptor was made just now, and has no other owner.
        Fd::adopt(unsafe { OwnedFd::from_raw_fd(raw as RawFd) })
    }

    /// Takes ownership of `fd` without changing its number or its behaviour on exec, because others
    /// know the number.
    pub fn keep(fd: OwnedFd) -> Fd {
        if let Some((word, bit)) = place(fd.as_raw_fd()) {
            word.fetch_or(bit, Relaxed);
        }
        Fd(ManuallyDrop::new(fd))
    }

    /// An event counter (`eventfd`), non-blocking.
    pub fn event() -> Result<Fd> {
        // SAFETY: eventfd touches no memory.
        Fd::open("eventfd", || unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }.into())
    }

    /// A timer that becomes readable each `ms` milliseconds from now on (`timerfd`), non-blocking.
    /// [`clear`] resets it.
    ///
    /// [`clear`]: Fd::clear
    pub fn each(ms: u64) -> Result<Fd> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no memory is touched.
        let make = || unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) }.into();
        let timer = Fd::open("timerfd_create", make)?;
        timer.every(ms)?;
        Ok(timer)
    }

    /// Has a timer become readable each `ms` milliseconds from now on.
    pub fn every(&self, ms: u64) -> Result<()> {
        let (tv_sec, tv_nsec) = ((ms / 1000) as i64, (ms % 1000) as i64 * 1_000_000);
        let period = libc::timespec { tv_sec, tv_nsec };
        let times = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: `times` is valid; the old times are not requested.
        check("timerfd_settime", unsafe {
            libc::timerfd_settime(self.raw(), 0, &raw const times, std::ptr::null_mut()).into()
        })?;
        Ok(())
    }

    /// A pipe: its reading and its writing end.
    pub fn pipe() -> Result<(Fd, Fd)> {
        let _opening = Opening::begin();
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors.
        check("pipe2", unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
        // SAFETY: the descriptor was made just now.
        let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        Ok((Fd::adopt(read)?, Fd::adopt(write)?))
    }

    /// Adds one to an event counter.
    pub fn signal(&self) {
        let one = 1u64;
        // SAFETY: the call reads eight bytes from `one`. If the counter is full, it is already
        // signalled.
        let written = unsafe { libc::syscall(libc::SYS_write, self.raw(), &raw const one, 8) };
        if written < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EBADF) {
            // The other side would never get the signal.
            crate::thread::stop(OWN_TABLE);
        }
    }

    /// Sets an event counter to zero.
    pub fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes are written to `count`.
        unsafe { libc::syscall(libc::SYS_read, self.raw(), &raw mut count, 8) };
    }

    /// The descriptor.
    pub fn file(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&*self.0)
    }

    /// The number of the descriptor.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // From here on the number is not noted as the pager's, and still open.
        let _opening = Opening::begin();
        if let Some((word, bit)) = place(self.raw()) {
            word.fetch_and(!bit, Relaxed);
        }
        // SAFETY: the value is not used again.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}
