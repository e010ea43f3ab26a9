//! Zero copy: memory that the kernel would send without copying it (`vmsplice`, `MSG_ZEROCOPY`).
//!
//! A pipe or a socket then has references to the pages, but does not pin them, so nothing shows
//! that they are in use. The block may leave, and its frame may get another block's bytes, before
//! the pages are read. (Swap keeps such a page, since it sees the references.) So memory is copied
//! before it is spliced, and sockets lack this mode, as before Linux 4.14.

use crate::{paged, real, setup};
use libc::{c_int, c_uint, c_void, iovec, size_t, socklen_t, ssize_t};
use terapage_sys::{memory, page_bytes};

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn vmsplice(fd: c_int, vector: *const iovec, count: size_t, flags: c_uint) -> ssize_t {
    if setup::settings().is_none()
        || count == 0
        || count > memory::PIECES
        || !memory::are_readable(vector, count)
    {
        // SAFETY: the caller keeps the contract of `vmsplice`.
        return unsafe { real::call!(vmsplice(fd, vector, count, flags) or -1) };
    }
    // SAFETY: the caller passes `count` pieces, and the array can be read.
    let pieces = unsafe { std::slice::from_raw_parts(vector, count) };
    let paged = pieces.iter().any(|piece| paged::meets(piece.iov_base as usize, piece.iov_len));
    let most = match paged && is_for_writing(fd) {
        // SAFETY: no memory is touched.
        true => unsafe { libc::fcntl(fd, libc::F_GETPIPE_SZ) },
        false => 0,
    };
    if most <= 0 {
        // No paged memory is shared: the memory is not paged, or it will be filled, or this is not
        // a pipe. SAFETY: the caller keeps the contract of `vmsplice`.
        return unsafe { real::call!(vmsplice(fd, vector, count, flags) or -1) };
    }
    // SAFETY: the caller keeps the contract of `vmsplice`.
    unsafe { splice_copy(fd, pieces, most as usize, flags) }
}

fn is_for_writing(fd: c_int) -> bool {
    // SAFETY: no memory is touched.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Splices a copy of the first bytes, as many as fit into a pipe of `most` bytes. The pages of the
/// copy then belong to the pipe.
unsafe fn splice_copy(fd: c_int, pieces: &[iovec], most: usize, flags: c_uint) -> ssize_t {
    let len = pieces.iter().fold(0, |sum: usize, piece| sum.saturating_add(piece.iov_len)).min(most);
    let size = len.max(1).next_multiple_of(page_bytes());
    let Ok(copy) = memory::reserve(size) else {
        crate::set_errno(libc::ENOMEM);
        return -1;
    };
    let mut done = 0;
    for piece in pieces {
        let part = piece.iov_len.min(len - done);
        // SAFETY: the copy has room for `len` bytes.
        let there = unsafe { memory::copy_what_is_there(copy.add(done), piece.iov_base.cast(), part) };
        if !there {
            // SAFETY: nobody else knows the addresses of the copy.
            unsafe { memory::unmap(copy, size) }.ok();
            crate::set_errno(libc::EFAULT);
            return -1;
        }
        done += part;
    }
    let whole = iovec { iov_base: copy.cast(), iov_len: len };
    // SAFETY: the copy is `len` bytes long.
    let answer = unsafe { real::call!(vmsplice(fd, &raw const whole, 1, flags) or -1) };
    // SAFETY: nobody else knows the addresses of the copy; the pipe has its own references to the
    // pages.
    unsafe { memory::unmap(copy, size) }.ok();
    answer
}

/// An option that no kernel knows: it is refused as SO_ZEROCOPY was before Linux 4.14, after the
/// socket and the value are checked.
const UNKNOWN: c_int = 0x7e4a;

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let lacks = level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY && setup::settings().is_some();
    let name = if lacks { UNKNOWN } else { name };
    // SAFETY: the caller keeps the contract of `setsockopt`.
    unsafe {
        libc::syscall(libc::SYS_setsockopt, socket as i64, level as i64, name as i64, value, len) as c_int
    }
}
