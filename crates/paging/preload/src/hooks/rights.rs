//! Hooks of `mprotect` and `pkey_mprotect`.

use crate::arena::{ARENA, Arena};
use crate::maps::{READ_WRITE, first_hole, is_beyond, is_early, is_nowhere, refuse, undo, up_to_hole};
use crate::{borrowed, paged};
use std::ffi::{c_int, c_void};
use terapage_sys::{memory, page_bytes, thread};

unsafe fn kernel_mprotect(from: usize, len: usize, prot: c_int) -> c_int {
    // SAFETY: the caller keeps the contract of `mprotect`.
    unsafe { libc::syscall(libc::SYS_mprotect, from, len, i64::from(prot)) as c_int }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn mprotect(at: *mut c_void, len: usize, prot: c_int) -> c_int {
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `mprotect`.
        return unsafe { borrowed::call(libc::SYS_mprotect, [at as usize, len, prot as usize, 0, 0, 0]) }
            as c_int;
    }
    let from = at as usize;
    if is_nowhere(from, len) {
        // SAFETY: nothing is changed.
        return unsafe { kernel_mprotect(from, len, prot) };
    }
    if is_beyond(from, len) {
        let wrong = !from.is_multiple_of(page_bytes()) || is_wrong(prot, -1);
        return refuse(if wrong { libc::EINVAL } else { libc::ENOMEM });
    }
    let to = from + len.next_multiple_of(page_bytes());
    // What the program's own `malloc` opens before or while the pager's threads begin stays
    // unpaged. In the latter case the arena's lock is held.
    let begins = is_early() || thread::is_internal(thread::own_name());
    if len == 0 || begins || !paged::concerns(from, to - from) {
        // SAFETY: the caller keeps the contract of `mprotect`.
        return unsafe { kernel_mprotect(from, len, prot) };
    }
    if !from.is_multiple_of(page_bytes()) {
        return refuse(libc::EINVAL);
    }
    let mut arena = ARENA.lock();
    if let Some(hole) = arena.first_hole(from, to) {
        drop(arena);
        if prot & !(READ_WRITE | libc::PROT_EXEC) != 0 && is_wrong(prot, -1) {
            return refuse(libc::EINVAL);
        }
        // SAFETY: the caller keeps the contract of `mprotect`.
        return up_to_hole(hole - from, |len| unsafe { mprotect(at, len, prot) });
    }
    if prot == libc::PROT_READ && arena.is_file_to_read(from, to) {
        return 0;
    }
    if prot == READ_WRITE {
        match arena.let_write(from, to) {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(errno) => return refuse(errno),
        }
    }
    arena.leave_files(from, to);
    // SAFETY: the caller keeps the contract of `mprotect`.
    unsafe {
        if prot == READ_WRITE {
            make_plain(&mut arena, from, to)
        } else {
            make_special(&mut arena, from, to, prot)
        }
    }
}

/// Whether the kernel refuses these rights, or has no such key, whatever the range. It checks that
/// before it finds that nothing lies there.
fn is_wrong(prot: c_int, key: c_int) -> bool {
    const NOWHERE: usize = 1 << 62;
    // SAFETY: nothing lies there.
    let answer = unsafe {
        libc::syscall(libc::SYS_pkey_mprotect, NOWHERE, page_bytes(), i64::from(prot), i64::from(key))
    };
    answer != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

/// Makes a range readable and writable: its blocks are paged again.
unsafe fn make_plain(arena: &mut Arena, from: usize, to: usize) -> c_int {
    if paged::is_whole(from, to) && !arena.any_loose(from, to) {
        return 0;
    }
    let opened: usize = paged::parts(from, to).map(|(from, to)| arena.special_bytes(from, to)).sum();
    if opened > 0 && !arena.is_backed(opened) {
        return refuse(libc::ENOMEM);
    }
    // SAFETY: the caller keeps the contract of `mprotect`.
    let answer = memory::alike(|| unsafe { kernel_mprotect(from, to - from, READ_WRITE) });
    if answer == 0 {
        for (from, to) in paged::parts(from, to) {
            arena.dress(from, to, false);
            arena.readmit(from, to);
        }
    }
    answer
}

/// Gives a range other rights: its blocks are no longer paged.
unsafe fn make_special(arena: &mut Arena, from: usize, to: usize, prot: c_int) -> c_int {
    let paged = match arena.release_parts(from, to) {
        Ok(paged) => paged,
        Err(error) => return refuse(error.errno()),
    };
    // SAFETY: the caller keeps the contract of `mprotect`.
    let answer = unsafe { kernel_mprotect(from, to - from, prot) };
    if answer == 0 {
        for (from, to) in paged::parts(from, to) {
            arena.dress(from, to, prot == libc::PROT_NONE);
        }
    } else {
        undo(arena, paged);
    }
    answer
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn pkey_mprotect(at: *mut c_void, len: usize, prot: c_int, key: c_int) -> c_int {
    if key == -1 {
        // SAFETY: the caller keeps the contract of `pkey_mprotect`.
        return unsafe { mprotect(at, len, prot) };
    }
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `pkey_mprotect`.
        return unsafe {
            borrowed::call(libc::SYS_pkey_mprotect, [at as usize, len, prot as usize, key as usize, 0, 0])
        } as c_int;
    }
    let from = at as usize;
    if is_nowhere(from, len) {
        // SAFETY: nothing is changed.
        return unsafe { libc::syscall(libc::SYS_pkey_mprotect, at, len, prot as i64, key as i64) as c_int };
    }
    if is_beyond(from, len) {
        let wrong = !from.is_multiple_of(page_bytes()) || is_wrong(prot, key);
        return refuse(if wrong { libc::EINVAL } else { libc::ENOMEM });
    }
    let mut paged = Vec::new();
    if len > 0 {
        if !from.is_multiple_of(page_bytes()) {
            return refuse(libc::EINVAL);
        }
        if let Some(hole) = first_hole(from, from + len.next_multiple_of(page_bytes())) {
            if is_wrong(prot, key) {
                return refuse(libc::EINVAL);
            }
            // SAFETY: the caller keeps the contract of `pkey_mprotect`.
            return up_to_hole(hole - from, |len| unsafe { pkey_mprotect(at, len, prot, key) });
        }
        // Memory with a protection key cannot be moved like other memory.
        match paged::leave(from, len) {
            Ok(left) => paged = left.unwrap_or_default(),
            Err(error) => return refuse(error.errno()),
        }
    }
    // SAFETY: the caller keeps the contract of `pkey_mprotect`.
    let answer = unsafe { libc::syscall(libc::SYS_pkey_mprotect, at, len, prot as i64, key as i64) as c_int };
    // There is no such key, or the processor has no keys: nothing was changed.
    if answer != 0
        && !paged.is_empty()
        && matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
    {
        undo(&mut ARENA.lock(), paged);
    }
    answer
}
