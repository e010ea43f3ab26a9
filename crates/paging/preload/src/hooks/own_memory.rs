//! The file `/proc/self/mem`, by which a program reads and writes its own memory.
//!
//! There the kernel does not wait for a page: at one that is paged out it gives up (EIO, or fewer
//! bytes). `process_vm_readv` and `process_vm_writev` do wait, so they transfer such pages. All
//! other pages are the file's business, since it ignores their rights.

use super::direct::{HERE, Way, process_vm_writev};
use crate::{paged, set_errno};
use libc::{c_int, c_void, iovec, off64_t, ssize_t};
use std::ffi::CStr;

/// Bytes of one transfer that waits for pages.
const PART: usize = 1 << 20;

/// Whether an offset of a file can be an address of paged memory.
pub fn may_be(offset: off64_t, len: usize) -> bool {
    offset > 0 && paged::meets(offset as usize, len)
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Whether a descriptor is of a file that is this process's memory.
fn is_own(fd: c_int) -> bool {
    let number = |stat: &dyn Fn(*mut libc::stat) -> c_int| {
        // SAFETY: plain data, for which zeros are a value.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        (stat(&raw mut found) == 0).then_some((found.st_dev, found.st_ino))
    };
    // SAFETY: the caller's place has room for the answer, and each path is a text.
    let of = |path: &CStr| number(&|into| unsafe { libc::stat(path.as_ptr(), into) });
    // SAFETY: the caller's place has room for the answer.
    let this = number(&|into| unsafe { libc::fstat(fd, into) });
    this.is_some() && [c"/proc/self/mem", c"/proc/thread-self/mem"].into_iter().any(|path| of(path) == this)
}

/// Continues a transfer at an offset that [may be](may_be) an address, if it was one of own memory.
/// `answer` is the kernel's to the whole transfer.
///
/// # Safety
/// The contract is that of `preadv` or `pwritev`, whose pieces the kernel has read.
pub unsafe fn go_on(way: Way, fd: c_int, pieces: &[iovec], offset: off64_t, answer: ssize_t) -> ssize_t {
    let errno = errno();
    if answer == -1 && errno != libc::EIO || !is_own(fd) {
        set_errno(errno);
        return answer;
    }
    let mut done = 0;
    for piece in pieces {
        // SAFETY: the caller's pieces.
        let moved =
            unsafe { transfer(way, fd, piece.iov_base as usize, piece.iov_len, offset as usize + done) };
        done += moved;
        if moved < piece.iov_len {
            break;
        }
    }
    let all: usize = pieces.iter().map(|piece| piece.iov_len).sum();
    if done == 0 && all > 0 { -1 } else { done as ssize_t }
}

/// The same at the file's position, after the kernel's refusal.
///
/// # Safety
/// As for [`go_on`].
pub unsafe fn after_refusal(way: Way, fd: c_int, pieces: &[iovec]) -> ssize_t {
    if errno() != libc::EIO {
        return -1;
    }
    // SAFETY: no memory is touched.
    let offset = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    if offset == HERE || !may_be(offset, 1) {
        set_errno(libc::EIO);
        return -1;
    }
    set_errno(libc::EIO);
    // SAFETY: the caller's pieces.
    let moved = unsafe { go_on(way, fd, pieces, offset, -1) };
    if moved > 0 {
        // SAFETY: no memory is touched.
        unsafe { libc::lseek(fd, offset + moved as off64_t, libc::SEEK_SET) };
    }
    moved
}

/// Transfers between a piece and own memory. Returns the bytes; if too few, `errno` says why.
unsafe fn transfer(way: Way, fd: c_int, at: usize, len: usize, from: usize) -> usize {
    let call = match way {
        Way::Read => libc::SYS_pread64,
        Way::Write => libc::SYS_pwrite64,
    };
    let mut done = 0;
    while done < len {
        // SAFETY: the caller's piece.
        let mut moved =
            unsafe { libc::syscall(call, fd as i64, at + done, len - done, from + done) as isize };
        if moved == -1 && errno() == libc::EIO && paged::meets(from + done, 1) {
            // SAFETY: the caller's piece; the kernel checks both addresses.
            moved = unsafe { wait_for(way, at + done, (len - done).min(PART), from + done) };
        }
        if moved <= 0 {
            break;
        }
        done += moved as usize;
    }
    done
}

/// Transfers by a call that waits for pages.
unsafe fn wait_for(way: Way, at: usize, len: usize, from: usize) -> isize {
    let [here, there] = [at, from].map(|at| iovec { iov_base: at as *mut c_void, iov_len: len });
    let me = std::process::id() as libc::pid_t;
    // SAFETY: the caller's piece, and own memory, whose writing the caller answers for.
    let moved = unsafe {
        match way {
            Way::Read => libc::syscall(
                libc::SYS_process_vm_readv,
                i64::from(me),
                &raw const here,
                1_u64,
                &raw const there,
                1_u64,
                0_u64,
            ) as isize,
            Way::Write => process_vm_writev(me, &raw const here, 1, &raw const there, 1, 0),
        }
    };
    if moved == -1 {
        set_errno(libc::EIO);
    }
    moved
}
