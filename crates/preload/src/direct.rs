//! Direct reads into paged memory on kernels before Linux 6.8.
//!
//! There a block leaves the program by a copy, and nothing tells that a device is still writing into the page that
//! was copied: its bytes would be lost. So a direct read goes through memory that is not paged. (From 6.8 on such a
//! page refuses to move, and stays.) Only reads that wait for their end are seen here; `docs/pager.md` says
//! what follows for others.

use crate::arena;
use libc::{c_int, c_void, iovec, off64_t, size_t, ssize_t};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use terapage_sys::{PAGE, memory};

static COPYING: AtomicBool = AtomicBool::new(false);

/// Bytes that go at once.
const BOUNCE: usize = 4 << 20;

/// The C library's own function of a name, past ours: it lets a waiting thread be cancelled, as a bare system call
/// would not.
macro_rules! real {
    ($name:literal as fn($($type:ty),*) -> $out:ty) => {{
        static REAL: AtomicUsize = AtomicUsize::new(0);
        let mut at = REAL.load(Relaxed);
        if at == 0 {
            // SAFETY: the name ends in a zero byte.
            at = unsafe { libc::dlsym(libc::RTLD_NEXT, $name.as_ptr()) } as usize;
            REAL.store(at, Relaxed);
        }
        // SAFETY: the C library has the function, of this type.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $out>(at) }
    }};
}

/// The pager moves blocks by copies.
pub fn begin() {
    COPYING.store(true, Relaxed);
}

/// Whether a read must go around paged memory.
fn goes_around(fd: c_int, at: *const c_void, len: usize) -> bool {
    COPYING.load(Relaxed)
        && len > 0
        && arena::overlaps(at as usize, len)
        // SAFETY: no memory is touched.
        && unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_DIRECT != 0
}

/// Reads by way of memory of the library's own; `offset` negative: from where the file stands.
unsafe fn read_around(fd: c_int, at: *mut c_void, len: usize, offset: off64_t) -> ssize_t {
    let size = len.min(BOUNCE).next_multiple_of(PAGE);
    let Ok(bounce) = memory::reserve(size) else {
        crate::set_errno(libc::ENOMEM);
        return -1;
    };
    let mut done = 0;
    let mut answer = 0;
    while done < len {
        let part = (len - done).min(size);
        // SAFETY: the bounce has room for the part.
        answer = unsafe {
            if offset < 0 {
                libc::syscall(libc::SYS_read, fd as i64, bounce, part)
            } else {
                libc::syscall(libc::SYS_pread64, fd as i64, bounce, part, offset + done as i64)
            }
        };
        if answer <= 0 {
            break;
        }
        // SAFETY: the caller's buffer has room, by its promise; the bounce was filled just now.
        unsafe { at.cast::<u8>().add(done).copy_from_nonoverlapping(bounce, answer as usize) };
        done += answer as usize;
        if (answer as usize) < part {
            break;
        }
    }
    // SAFETY: nobody has seen the bounce.
    unsafe { memory::unmap(bounce, size) }.ok();
    if done > 0 { done as ssize_t } else { answer as ssize_t }
}

unsafe fn read_vector(fd: c_int, vector: *const iovec, count: c_int, offset: off64_t) -> Option<ssize_t> {
    if !COPYING.load(Relaxed) || count <= 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    let pieces = unsafe { std::slice::from_raw_parts(vector, count as usize) };
    if !pieces.iter().any(|piece| goes_around(fd, piece.iov_base, piece.iov_len)) {
        return None;
    }
    let mut done: ssize_t = 0;
    for piece in pieces {
        let at = if offset < 0 { offset } else { offset + done as off64_t };
        // SAFETY: the caller's promise.
        let got = unsafe { read_around(fd, piece.iov_base, piece.iov_len, at) };
        if got < 0 {
            return Some(if done > 0 { done } else { got });
        }
        done += got;
        if (got as usize) < piece.iov_len {
            break;
        }
    }
    Some(done)
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, at: *mut c_void, len: size_t) -> ssize_t {
    if goes_around(fd, at, len) {
        // SAFETY: the caller's promise.
        return unsafe { read_around(fd, at, len, -1) };
    }
    let real = real!(c"read" as fn(c_int, *mut c_void, size_t) -> ssize_t);
    // SAFETY: the caller's promise.
    unsafe { real(fd, at, len) }
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: c_int, at: *mut c_void, len: size_t, offset: off64_t) -> ssize_t {
    if offset >= 0 && goes_around(fd, at, len) {
        // SAFETY: the caller's promise.
        return unsafe { read_around(fd, at, len, offset) };
    }
    let real = real!(c"pread64" as fn(c_int, *mut c_void, size_t, off64_t) -> ssize_t);
    // SAFETY: the caller's promise.
    unsafe { real(fd, at, len, offset) }
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(fd: c_int, at: *mut c_void, len: size_t, offset: off64_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { pread(fd, at, len, offset) }
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    let around = unsafe { read_vector(fd, vector, count, -1) };
    let real = real!(c"readv" as fn(c_int, *const iovec, c_int) -> ssize_t);
    // SAFETY: the caller's promise.
    around.unwrap_or_else(|| unsafe { real(fd, vector, count) })
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv(fd: c_int, vector: *const iovec, count: c_int, offset: off64_t) -> ssize_t {
    // SAFETY: the caller's promise.
    let around = if offset >= 0 { unsafe { read_vector(fd, vector, count, offset) } } else { None };
    let real = real!(c"preadv64" as fn(c_int, *const iovec, c_int, off64_t) -> ssize_t);
    // SAFETY: the caller's promise.
    around.unwrap_or_else(|| unsafe { real(fd, vector, count, offset) })
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64(fd: c_int, vector: *const iovec, count: c_int, offset: off64_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { preadv(fd, vector, count, offset) }
}
