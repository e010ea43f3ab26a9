//! Read leases: before somebody opens a file for writing or truncates it, the kernel notifies the
//! process that has the lease. The writer waits until the lease is given up, at most as long as
//! `/proc/sys/fs/lease-break-time` says (45 s).

use crate::fd::Fd;
use crate::{Error, Result, check, shared};
use std::os::fd::RawFd;

// `linux/fcntl.h` and `asm-generic/fcntl.h`; the libc crate lacks these.
const F_SETOWN_EX: i32 = 15;
const F_OWNER_TID: i32 = 0;

/// The file systems whose files can be leased, and read past the page cache.
const SYSTEMS: [libc::c_long; 3] = [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::BTRFS_SUPER_MAGIC];

/// A read lease of a file, with its own descriptor.
#[derive(Debug)]
pub struct Lease {
    fd: Fd,
}

/// Whether a file lies on a file system whose files can be leased.
pub fn is_possible(fd: RawFd) -> bool {
    // SAFETY: plain data, for which zeros are a value.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `system` has room for the answer.
    unsafe { libc::fstatfs(fd, &raw mut system) == 0 && SYSTEMS.contains(&(system.f_type as _)) }
}

impl Lease {
    /// Takes a lease of the file that is open under `fd`. The kernel will notify `thread` when the
    /// lease must be given up; [`wait`] receives this signal.
    ///
    /// # Errors
    /// EAGAIN if the file is open for writing; EACCES if it belongs to another user; EINVAL if the
    /// file system has no leases.
    pub fn take(fd: RawFd, thread: u32) -> Result<Lease> {
        let same = std::ffi::CString::new(format!("/proc/thread-self/fd/{fd}")).expect("no zero byte");
        // A lease of another process must not make this process wait.
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the path ends in a zero byte.
        let open = || unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, same.as_ptr(), flags) };
        let lease = Lease { fd: Fd::open("open", open)? };
        // A program that no hook sees may have closed the number, and opened another file.
        if shared::identity(lease.fd.raw()) != shared::identity(fd) {
            return Err(Error { call: "open", source: std::io::Error::from_raw_os_error(libc::EAGAIN) });
        }
        let owner = [F_OWNER_TID, thread as i32];
        // SAFETY: the call reads the two numbers of `struct f_owner_ex`.
        let owned = unsafe { libc::syscall(libc::SYS_fcntl, lease.fd.raw(), F_SETOWN_EX, owner.as_ptr()) };
        check("fcntl(F_SETOWN_EX)", owned)?;
        lease.set(libc::F_RDLCK)?;
        Ok(lease)
    }

    fn set(&self, kind: i32) -> Result<()> {
        // SAFETY: no memory is touched.
        let answer = unsafe { libc::syscall(libc::SYS_fcntl, self.fd.raw(), libc::F_SETLEASE, kind) };
        check("fcntl(F_SETLEASE)", answer).map(drop)
    }

    /// Whether the lease is held, and nobody waits for its end.
    pub fn is_held(&self) -> bool {
        // SAFETY: no memory is touched.
        let kind = unsafe { libc::syscall(libc::SYS_fcntl, self.fd.raw(), libc::F_GETLEASE) };
        kind == i64::from(libc::F_RDLCK)
    }

    /// The descriptor of the file, which is open for reading.
    pub fn fd(&self) -> RawFd {
        self.fd.raw()
    }
}

impl Drop for Lease {
    /// Gives the lease up. To close the descriptor would not be enough, because mappings and
    /// children may still hold the file open.
    fn drop(&mut self) {
        self.set(libc::F_UNLCK).ok();
    }
}

/// The calling thread's users: the real one, the effective one, the saved one. A thread may cause a
/// signal to another one if it has root's rights, or if one of its first two users is the real or
/// the saved one of the other (`sigio_perm`).
pub fn users() -> [u32; 3] {
    let mut users = [0_u32; 3];
    let [real, effective, saved] = &mut users;
    // SAFETY: there is room for the three answers.
    unsafe { libc::syscall(libc::SYS_getresuid, &raw mut *real, &raw mut *effective, &raw mut *saved) };
    users
}

/// Waits at most `ms` milliseconds for the signal that a lease must be given up. All signals are
/// blocked in the thread.
pub fn wait(ms: u64) {
    let set = 1_u64 << (libc::SIGIO - 1);
    let most = libc::timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as i64 };
    // SAFETY: the set has 8 bytes, the description of the signal is not wanted, and the time is
    // valid while the call lasts.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            &raw const set,
            std::ptr::null::<libc::siginfo_t>(),
            &raw const most,
            size_of_val(&set),
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_writer_waits_until_the_lease_is_given_up() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "before").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        if !is_possible(file.as_raw_fd()) {
            return eprintln!("SKIPPED: no leases on this file system");
        }
        let signals = crate::thread::block_signals();
        let lease = Lease::take(file.as_raw_fd(), crate::thread::id()).unwrap();
        assert!(lease.is_held());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| std::fs::write(&path, "after"));
            while lease.is_held() {
                wait(1000);
            }
            assert_eq!(std::fs::read(format!("/proc/self/fd/{}", lease.fd())).unwrap(), b"before");
            drop(lease);
            writer.join().unwrap().unwrap();
        });
        assert_eq!(std::fs::read(&path).unwrap(), b"after");
        let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let refused = Lease::take(file.as_raw_fd(), crate::thread::id());
        assert_eq!(refused.unwrap_err().errno(), libc::EAGAIN);
        drop(writer);
        // Receives the signal if it has not come yet.
        wait(0);
        crate::thread::restore_signals(&signals);
    }
}
