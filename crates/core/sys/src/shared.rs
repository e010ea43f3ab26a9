//! Memory files that several processes share, and locks on their bytes.
//!
//! The locks belong to an open file description (`F_OFD_SETLK`): they last until its last
//! descriptor is closed, at the latest when the process ends.

use crate::fd::{Fd, move_up, note};
use crate::{Error, Result, check};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// The device and the number of a file.
pub type Identity = (u64, u64);

/// Makes a memory file called `name` of `len` zero bytes, which cannot be shortened.
pub fn make(name: &std::ffi::CStr, len: usize) -> Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends in a zero byte.
    let raw = check("memfd_create", unsafe { libc::memfd_create(name.as_ptr(), flags) }.into())?;
    // SAFETY: the descriptor was made just now.
    let fd = unsafe { OwnedFd::from_raw_fd(raw as RawFd) };
    // SAFETY: no memory is touched.
    check("ftruncate", unsafe { libc::ftruncate64(fd.as_raw_fd(), len as i64) }.into())?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no memory is touched.
    check("fcntl(F_ADD_SEALS)", unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }.into())?;
    Ok(fd)
}

/// Opens a file again, with a separate file description, as the pager's: `number` is that of a
/// descriptor of the process `pid`, or of this one.
pub fn reopen(pid: Option<u32>, number: RawFd) -> Result<Fd> {
    let process = pid.map_or("thread-self".to_owned(), |pid| pid.to_string());
    let path = std::ffi::CString::new(format!("/proc/{process}/fd/{number}")).expect("no zero byte");
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path ends in a zero byte.
    let open = || unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
    Fd::open("open", open)
}

/// Moves a descriptor to a high number, which stays open on exec.
pub fn hand_on(fd: OwnedFd) -> Result<RawFd> {
    let fd = move_up(fd)?;
    keep_on_exec(fd.as_raw_fd())?;
    Ok(fd.into_raw_fd())
}

/// A descriptor stays open on exec from now on.
pub fn keep_on_exec(number: RawFd) -> Result<()> {
    set_flags(number, 0)
}

/// A descriptor is closed on exec from now on.
pub fn close_on_exec(number: RawFd) -> Result<()> {
    set_flags(number, libc::FD_CLOEXEC)
}

fn set_flags(number: RawFd, flags: i32) -> Result<()> {
    // SAFETY: no memory is touched.
    check("fcntl(F_SETFD)", unsafe { libc::fcntl(number, libc::F_SETFD, flags) }.into()).map(|_| ())
}

/// Closes a descriptor that was [opened again](reopen), and that no value owns.
pub fn close(number: RawFd) {
    // SAFETY: the caller gives the descriptor up, and it has no other owner.
    drop(Fd::keep(unsafe { OwnedFd::from_raw_fd(number) }));
}

/// Notes an inherited descriptor as the pager's: the program does not close it.
pub fn take(number: RawFd) {
    note(number);
}

/// The file that is open under this number.
pub fn identity(number: RawFd) -> Option<Identity> {
    // SAFETY: plain data, for which zeros are a value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `found` has room for the answer.
    let known = unsafe { libc::syscall(libc::SYS_fstat, i64::from(number), &raw mut found) } == 0;
    known.then_some((found.st_dev, found.st_ino))
}

/// Maps the first `len` bytes of a file, for reading and writing, as words. They stay mapped.
pub fn map(number: RawFd, len: usize) -> Result<&'static [std::sync::atomic::AtomicU64]> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let fd = i64::from(number);
    // SAFETY: the kernel chooses the place.
    let at = unsafe { libc::syscall(libc::SYS_mmap, 0usize, len, prot, libc::MAP_SHARED, fd, 0i64) };
    if at == -1 {
        return Err(Error::last("mmap"));
    }
    // SAFETY: the memory was mapped just now, is aligned to pages, and is never unmapped; all bits
    // are valid words. The file cannot be shortened.
    Ok(unsafe { std::slice::from_raw_parts(at as *const std::sync::atomic::AtomicU64, len / 8) })
}

fn lock(fd: RawFd, command: i32, kind: i32, byte: u64) -> Option<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte as i64,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the kernel reads and writes this structure.
    let answer = unsafe { libc::syscall(libc::SYS_fcntl, i64::from(fd), i64::from(command), &raw mut lock) };
    (answer == 0).then_some(lock)
}

/// Locks a byte of a file, if no other file description has locked it.
pub fn try_lock(fd: RawFd, byte: u64) -> bool {
    lock(fd, libc::F_OFD_SETLK, libc::F_WRLCK, byte).is_some()
}

/// Gives a lock back.
pub fn unlock(fd: RawFd, byte: u64) {
    lock(fd, libc::F_OFD_SETLK, libc::F_UNLCK, byte);
}

/// Whether no other description has a byte locked.
pub fn is_unlocked(fd: RawFd, byte: u64) -> bool {
    lock(fd, libc::F_OFD_GETLK, libc::F_WRLCK, byte)
        .is_some_and(|found| found.l_type == libc::F_UNLCK as libc::c_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_lasts_as_long_as_its_description() {
        let file = make(c"terapage-test", 4096).unwrap();
        let first = reopen(None, file.as_raw_fd()).unwrap();
        let second = reopen(None, file.as_raw_fd()).unwrap();
        assert_eq!(identity(first.raw()), identity(file.as_raw_fd()));
        assert!(try_lock(first.raw(), 7) && is_unlocked(first.raw(), 7));
        assert!(!try_lock(second.raw(), 7) && !is_unlocked(second.raw(), 7));
        assert!(try_lock(second.raw(), 8));
        unlock(first.raw(), 7);
        assert!(is_unlocked(second.raw(), 7) && try_lock(first.raw(), 7));
        drop(first);
        assert!(try_lock(second.raw(), 7));
        // SAFETY: no memory is touched.
        assert_eq!(unsafe { libc::ftruncate64(file.as_raw_fd(), 0) }, -1, "it cannot be shortened");
    }
}
