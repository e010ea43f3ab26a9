//! Hooks of `shmat` and `shmdt`: System V shared memory at a place that is paged.
//!
//! For the kernel, all of the arena is mapped, even its unused parts. So a segment is attached
//! elsewhere and moved to its place, which is not paged from then on.

use crate::arena::{self, ARENA};
use crate::maps::{after_refusal, failed, is_beyond};
use crate::remap::mremap;
use crate::{borrowed, paged, set_errno, setup, untracked};
use std::ffi::{c_int, c_void};
use terapage_sys::opening::Opening;
use terapage_sys::{page_bytes, thread};

unsafe fn kernel_shmat(id: c_int, at: usize, flags: c_int) -> *mut c_void {
    // SAFETY: the caller keeps the contract of `shmat`.
    unsafe { libc::syscall(libc::SYS_shmat, id as i64, at, flags as i64) as *mut c_void }
}

unsafe fn kernel_shmdt(at: usize) -> c_int {
    // SAFETY: the caller keeps the contract of `shmdt`.
    unsafe { libc::syscall(libc::SYS_shmdt, at) as c_int }
}

/// Bytes of a segment; 0 if it cannot be attached.
fn segment_bytes(id: c_int) -> usize {
    // SAFETY: plain data, for which zeros are a value.
    let mut about: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: `about` has room for the answer.
    if unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut about) } == 0 { about.shm_segsz } else { 0 }
}

/// The parts (from, to) of the segment that is attached at an address; several, if the program has
/// changed some of them. As in the kernel, the first mapping whose distance from the address equals
/// its offset in its segment determines the segment.
fn attached(at: usize) -> Vec<(usize, usize)> {
    let _internal = thread::Internal::enter();
    let _opening = Opening::begin();
    let maps = std::fs::read_to_string("/proc/thread-self/maps").unwrap_or_default();
    let mut segment = None;
    let mut parts = Vec::new();
    for line in maps.lines() {
        // The fields are the range, the rights, the offset, the device, the file's number and its
        // name (proc(5)).
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let [range, _, offset, device, number, name, ..] = words[..] else { continue };
        let hex = |text: &str| usize::from_str_radix(text, 16).ok();
        let Some((from, to)) = range.split_once('-').and_then(|(from, to)| Some((hex(from)?, hex(to)?)))
        else {
            continue;
        };
        let lies_there = from.checked_sub(at).is_some_and(|behind| hex(offset) == Some(behind));
        if name.starts_with("/SYSV")
            && lies_there
            && *segment.get_or_insert((device, number)) == (device, number)
        {
            parts.push((from, to));
        }
    }
    parts
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn shmat(id: c_int, at: *const c_void, flags: c_int) -> *mut c_void {
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `shmat`.
        return unsafe { borrowed::call(libc::SYS_shmat, [id as usize, at as usize, flags as usize, 0, 0, 0]) }
            as *mut c_void;
    }
    untracked::moves(segment_bytes(id));
    let rounds = flags & libc::SHM_RND != 0;
    let place = if rounds { at as usize / page_bytes() * page_bytes() } else { at as usize };
    let chosen = place != 0 && place.is_multiple_of(page_bytes()) && setup::settings().is_some();
    let len = if chosen { segment_bytes(id) } else { 0 };
    let replaces = flags & libc::SHM_REMAP != 0;
    let is_paged = arena::overlaps(place, len) || replaces && paged::meets(place, len);
    if len == 0 || is_beyond(place, len) || !is_paged {
        // SAFETY: the caller keeps the contract of `shmat`.
        return unsafe { kernel_shmat(id, at as usize, flags) };
    }
    // SAFETY: the kernel chooses the place.
    let aside = unsafe { kernel_shmat(id, 0, flags & !(libc::SHM_REMAP | libc::SHM_RND)) };
    if aside == failed() {
        return aside;
    }
    // SAFETY: the segment was attached just now, and the caller gives up the place.
    let moved = unsafe { move_to(aside, place, replaces) };
    if moved == failed() {
        after_refusal(|| {
            // SAFETY: the program does not know this address.
            unsafe { kernel_shmdt(aside as usize) };
        });
    }
    moved
}

/// Moves a segment that was attached just now. With `replaces`, it replaces the mapping at the
/// place; otherwise the place must be unused.
unsafe fn move_to(aside: *mut c_void, place: usize, replaces: bool) -> *mut c_void {
    // It may be longer than the program requested, if it consists of huge pages.
    let Some(&(_, end)) = attached(aside as usize).last() else {
        set_errno(libc::ENOMEM);
        return failed();
    };
    let len = end - aside as usize;
    if !replaces {
        let mut arena = ARENA.lock();
        if arena.ranges.is_used(place, place + len) || !arena.claim(place, place + len) {
            set_errno(libc::EINVAL);
            return failed();
        }
        arena.ranges.take_exactly(place, place + len);
    }
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller gives up the place.
    let moved = unsafe { mremap(aside, len, len, flags, place as *mut c_void) };
    if moved == failed() && !replaces {
        after_refusal(|| ARENA.lock().give(place, place + len, false));
    }
    moved
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn shmdt(at: *const c_void) -> c_int {
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `shmdt`.
        return unsafe { borrowed::call(libc::SYS_shmdt, [at as usize, 0, 0, 0, 0, 0]) } as c_int;
    }
    untracked::passes_by();
    if !arena::contains(at as usize) {
        // SAFETY: the caller keeps the contract of `shmdt`.
        return unsafe { kernel_shmdt(at as usize) };
    }
    let mut arena = ARENA.lock();
    let parts = attached(at as usize);
    if parts.is_empty() || !(at as usize).is_multiple_of(page_bytes()) {
        set_errno(libc::EINVAL);
        return -1;
    }
    for (from, to) in parts {
        // Parts that share a block with other memory are unmapped, too.
        arena.renew(from, to);
        arena.give(from, to, false);
    }
    0
}
