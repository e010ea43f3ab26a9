//! mmap's family. Private anonymous memory that the program may read and write comes from the arena; on
//! ranges of the arena the calls do what the kernel would, seen from the program.

use crate::arena::{self, ARENA};
use crate::{limits, process, set_errno, statics};
use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use std::ffi::{c_int, c_void};
use terapage_sys::{PAGE, memory, thread};

/// Mappings smaller than this are the kernel's.
const LEAST: usize = 16 << 10;

const READ_WRITE: c_int = PROT_READ | PROT_WRITE;

fn failed() -> *mut c_void {
    libc::MAP_FAILED
}

fn refuse(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// More addresses than any process can have: with five levels of tables.
const ALL_ADDRESSES: usize = 1 << 56;

/// Whether a range ends where no process has addresses. Nothing is done to such a one: rounded up to pages its length may be 0.
fn is_beyond(at: usize, len: usize) -> bool {
    at.checked_add(len).is_none_or(|to| to > ALL_ADDRESSES)
}

unsafe fn kernel_mmap(
    at: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        libc::syscall(libc::SYS_mmap, at, len, prot as i64, flags as i64, fd as i64, offset) as *mut c_void
    }
}

/// Whether a range of the program's may be served from the arena.
fn pages(len: usize, prot: c_int, flags: c_int) -> bool {
    let plain = MAP_PRIVATE | MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_POPULATE;
    len >= LEAST
        && prot == READ_WRITE
        && flags & !plain == 0
        && flags & MAP_PRIVATE != 0
        && flags & MAP_ANONYMOUS != 0
}

/// Whether the thread's mappings are served: the pager's own are not.
fn is_served() -> bool {
    // SAFETY: no memory is touched.
    process::settings().is_some() && !thread::is_internal(unsafe { libc::pthread_self() } as usize)
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // What goes over something else is not more: it was refused, or not, when that came.
    let over = flags & MAP_FIXED != 0;
    let data = prot & PROT_WRITE != 0 && flags & MAP_PRIVATE != 0;
    if !over && exceeds(len, data) {
        set_errno(libc::ENOMEM);
        return failed();
    }
    // SAFETY: the caller's promise.
    unsafe { map(at, len, prot, flags, fd, offset) }
}

/// Whether so many bytes more are beyond the program's own limits.
fn exceeds(more: usize, data: bool) -> bool {
    limits::any() && is_served() && !ARENA.lock().may_grow(more, data)
}

/// `mmap` without a look at the program's own limits.
unsafe fn map(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if is_beyond(if fixed { at as usize } else { 0 }, len) {
        // SAFETY: the kernel refuses it.
        return unsafe { kernel_mmap(at as usize, len, prot, flags, fd, offset) };
    }
    if fixed && len > 0 {
        // SAFETY: the caller's promise.
        return unsafe { mmap_fixed(at as usize, len, prot, flags, fd, offset) };
    }
    if is_reservation(len, prot, flags)
        && is_served()
        && let Some(at) = reserve(len, !at.is_null())
    {
        return at as *mut c_void;
    }
    if pages(len, prot, flags)
        && is_served()
        && let Some(from) = len.checked_next_multiple_of(PAGE)
        && let Some(at) = ARENA.lock().take(from, PAGE, true)
    {
        return at as *mut c_void;
    }
    // SAFETY: the caller's promise.
    unsafe { kernel_mmap(at as usize, len, prot, flags, fd, offset) }
}

/// Larger reservations are of the arena's wide part.
const WIDE_FROM: usize = 64 << 30;

/// Whether a mapping reserves addresses of which the program will open parts later.
fn is_reservation(len: usize, prot: c_int, flags: c_int) -> bool {
    let plain = MAP_PRIVATE | MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let private = MAP_PRIVATE | MAP_ANONYMOUS;
    len >= 1 << 20 && prot == libc::PROT_NONE && flags & !plain == 0 && flags & private == private
}

/// Addresses of the arena that nobody may touch yet. `wanted`: the program has named a place.
fn reserve(len: usize, wanted: bool) -> Option<usize> {
    let len = len.checked_next_multiple_of(PAGE)?;
    let mut arena = ARENA.lock();
    if len > WIDE_FROM {
        return arena.take_wide(len, wanted);
    }
    let at = arena.ranges.take(len, PAGE, true)?;
    // SAFETY: the range was taken just now.
    let close = || unsafe { libc::syscall(libc::SYS_mprotect, at, len, libc::PROT_NONE as i64) } == 0;
    let closed = arena.release(at, at + len).is_ok() && close();
    if !closed {
        arena.give(at, at + len, false);
        return None;
    }
    Some(at)
}

unsafe fn mmap_fixed(
    at: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let len = len.next_multiple_of(PAGE);
    if !arena::overlaps(at, len) {
        if let Err(error) = leave_static(at, len) {
            set_errno(error.errno());
            return failed();
        }
        // SAFETY: the caller's promise.
        return unsafe { kernel_mmap(at, len, prot, flags, fd, offset) };
    }
    if !at.is_multiple_of(PAGE) {
        set_errno(libc::EINVAL);
        return failed();
    }
    let mut arena = ARENA.lock();
    let only_free = flags & MAP_FIXED_NOREPLACE == MAP_FIXED_NOREPLACE;
    if only_free && arena.ranges.is_used(at, at + len) {
        set_errno(libc::EEXIST);
        return failed();
    }
    if !arena.claim(at, at + len) {
        set_errno(libc::ENOMEM);
        return failed();
    }
    if only_free {
        // To the kernel the arena is there already.
        arena.ranges.take_exactly(at, at + len);
    }
    if pages(len.max(LEAST), prot, flags & !(MAP_FIXED | MAP_FIXED_NOREPLACE)) {
        arena.ranges.take_exactly(at, at + len);
        arena.renew(at, at + len);
        arena.dress(at, at + len, false);
        arena.count_by_region(at, at + len);
        return at as *mut c_void;
    }
    let closes = is_reservation(usize::MAX, prot, flags & !(MAP_FIXED | MAP_FIXED_NOREPLACE));
    if closes {
        arena.drop_blocks(at, at + len);
    }
    if let Err(error) = arena.release(at, at + len) {
        if only_free {
            arena.give(at, at + len, false);
        }
        set_errno(error.errno());
        return failed();
    }
    let flags = (flags & !(MAP_FIXED_NOREPLACE & !MAP_FIXED)) | MAP_FIXED;
    // SAFETY: the caller's promise; the blocks are not paged any more.
    let mapped = unsafe { kernel_mmap(at, len, prot, flags, fd, offset) };
    if mapped != failed() {
        arena.forget(at, at + len);
        let private = MAP_PRIVATE | MAP_ANONYMOUS;
        if flags & private != private || flags & !(private | MAP_FIXED | libc::MAP_NORESERVE) != 0 {
            // Released above: it does not fail.
            arena.keep(at, at + len).ok();
        }
        arena.ranges.take_exactly(at, at + len);
        if closes {
            arena.dress(at, at + len, true);
        }
        arena.count_by_region(at, at + len);
    }
    mapped
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(at, len, prot, flags, fd, offset) }
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    let from = at as usize;
    let is_beyond = is_beyond(from, len);
    if len == 0 || is_beyond || !arena::overlaps(from, len) {
        if !is_beyond && let Err(error) = leave_static(from, len) {
            return refuse(error.errno());
        }
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_munmap, at, len) as c_int };
    }
    if !from.is_multiple_of(PAGE) {
        return refuse(libc::EINVAL);
    }
    let (mut arena, to) = (ARENA.lock(), from + len.next_multiple_of(PAGE));
    arena.is_unmapped(from, to);
    arena.give(from, to, false);
    0
}

unsafe fn kernel_mremap(old: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags as i64, new) as *mut c_void }
}

/// Moves one of the kernel's mappings to a place in the arena, which is not paged from then on.
unsafe fn mremap_into(old: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> *mut c_void {
    if !new.is_multiple_of(PAGE) || new_len == 0 {
        set_errno(libc::EINVAL);
        return failed();
    }
    let to = new + new_len.next_multiple_of(PAGE);
    let mut arena = ARENA.lock();
    if !arena.claim(new, to) {
        set_errno(libc::ENOMEM);
        return failed();
    }
    if let Err(error) = arena.release(new, to) {
        set_errno(error.errno());
        return failed();
    }
    // SAFETY: the caller's promise; the blocks are not paged any more.
    let moved = unsafe { kernel_mremap(old, old_len, new_len, flags, new) };
    if moved != failed() {
        // Whatever it is. Released above: it does not fail.
        arena.keep(new, to).ok();
        arena.ranges.take_exactly(new, to);
        arena.count_by_region(new, to);
    }
    moved
}

/// Moves pages of the arena that are the kernel's. They leave the arena, or go to a place in it that the program names. What was there stays mapped
/// until the arena puts its own memory there: a hole could become somebody else's mapping.
unsafe fn mremap_odd(old: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> *mut c_void {
    let (keep, may_move) = (libc::MREMAP_DONTUNMAP, libc::MREMAP_MAYMOVE);
    // SAFETY: the caller's promise; the kernel chooses the place.
    let aside = unsafe { kernel_mremap(old, old_len, old_len, may_move | keep, 0) };
    if aside == failed() {
        return aside;
    }
    let moved = if flags & libc::MREMAP_FIXED != 0 {
        let flags = flags & !keep;
        // SAFETY: moved there just now.
        unsafe { mremap(aside, old_len, new_len, flags, new as *mut c_void) }
    } else if new_len != old_len {
        // SAFETY: moved there just now.
        unsafe { kernel_mremap(aside as usize, old_len, new_len, may_move, 0) }
    } else {
        aside
    };
    if moved == failed() {
        // SAFETY: back to where it was, which is still mapped and nobody's.
        unsafe { kernel_mremap(aside as usize, old_len, old_len, may_move | libc::MREMAP_FIXED, old) };
    } else {
        if !arena::overlaps(moved as usize, new_len) {
            // What lies in the arena is not copied by a fork that the pager does not hear of, and is in core dumps where it is in use: here it is like any other.
            memory::advise(moved as usize, new_len, libc::MADV_DOFORK);
            memory::advise(moved as usize, new_len, libc::MADV_DODUMP);
        }
        if flags & keep == 0 {
            ARENA.lock().give(old, old + old_len, false);
        }
    }
    moved
}

/// What a range has of static arrays is the kernel's from now on: it is locked, moved, unmapped or mapped over. Whether it has any.
///
/// # Errors
/// ENOMEM where the process may have no more mappings.
fn leave_static(at: usize, len: usize) -> terapage_sys::Result<bool> {
    let len = len.next_multiple_of(PAGE);
    let meets = at.is_multiple_of(PAGE) && statics::meets(at, len) && is_served();
    if meets {
        ARENA.lock().keep_static(at, len)?;
    }
    Ok(meets)
}

/// Whether the kernel has nothing but readable and writable private memory in a range.
fn is_plain(from: usize, to: usize) -> bool {
    let _internal = thread::Internal::enter();
    let Ok(maps) = std::fs::read_to_string("/proc/thread-self/maps") else { return false };
    maps.lines().all(|line| {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        let Some((start, end)) = range.and_then(|(start, end)| Some((number(start)?, number(end)?))) else {
            return false;
        };
        // The fields are the range, the rights, the offset, the device and the file's number (proc(5)).
        end <= from || start >= to || (words.next() == Some("rw-p") && words.nth(2) == Some("0"))
    })
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let from = old as usize;
    let place = if flags & libc::MREMAP_FIXED != 0 { new as usize } else { 0 };
    if is_beyond(from, old_len) || is_beyond(place, new_len) {
        set_errno(libc::EINVAL);
        return failed();
    }
    let more = if flags & libc::MREMAP_DONTUNMAP != 0 { new_len } else { new_len.saturating_sub(old_len) };
    if more > 0 && exceeds(more, arena::contains(from)) {
        set_errno(libc::ENOMEM);
        return failed();
    }
    let fixed = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    if !arena::contains(from) {
        let into = flags & libc::MREMAP_FIXED != 0 && arena::overlaps(new as usize, new_len);
        let over = if flags & libc::MREMAP_FIXED != 0 && !into { new_len } else { 0 };
        let left = leave_static(from, old_len).and_then(|left| {
            if over > 0 {
                leave_static(new as usize, over)?;
            }
            Ok(left)
        });
        match left {
            // What moves has to do with the pager no more, which alone forks what it pages.
            Ok(true) => drop(memory::advise(from, old_len, libc::MADV_DOFORK)),
            Ok(false) => {}
            Err(error) => {
                set_errno(error.errno());
                return failed();
            }
        }
        // SAFETY: the caller's promise.
        return unsafe {
            if into {
                mremap_into(from, old_len, new_len, flags, new as usize)
            } else {
                kernel_mremap(from, old_len, new_len, flags, new as usize)
            }
        };
    }
    if !from.is_multiple_of(PAGE) || new_len == 0 || old_len == 0 {
        set_errno(libc::EINVAL);
        return failed();
    }
    let (old_len, new_len) = (old_len.next_multiple_of(PAGE), new_len.next_multiple_of(PAGE));
    let (place, ends) = (new as usize, (new as usize).saturating_add(new_len));
    if flags & libc::MREMAP_FIXED != 0
        && (!place.is_multiple_of(PAGE) || place < from + old_len && from < ends)
    {
        set_errno(libc::EINVAL);
        return failed();
    }
    if !fixed {
        if new_len <= old_len {
            ARENA.lock().give(from + new_len, from + old_len, false);
            return old;
        }
        let mut arena = ARENA.lock();
        if arena.ranges.end_of(from) == Some(from + old_len)
            && !arena.is_loose(from)
            && arena.extend(from, new_len)
        {
            return old;
        }
        if flags & libc::MREMAP_MAYMOVE == 0 {
            set_errno(libc::ENOMEM);
            return failed();
        }
    }
    let odd = ARENA.lock().odd_bytes(from, from + old_len);
    match odd {
        0 => {}
        // The kernel's, whatever it is: protected, shared, a file's.
        odd if odd == old_len => {
            // SAFETY: the caller's promise.
            return unsafe { mremap_odd(from, old_len, new_len, flags, new as usize) };
        }
        // Locked once, and else like the rest.
        _ if is_plain(from, from + old_len) => {}
        // To the kernel these are several mappings.
        _ => {
            set_errno(libc::EFAULT);
            return failed();
        }
    }
    let to = if flags & libc::MREMAP_FIXED != 0 {
        // SAFETY: the caller's promise.
        unsafe { map(new, new_len, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) }
    } else {
        // SAFETY: the kernel or the arena chooses the place.
        unsafe {
            map(std::ptr::null_mut(), new_len.max(LEAST), READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        }
    };
    if to == failed() {
        return to;
    }
    // SAFETY: both ranges are the program's, and apart.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(old.cast(), old_len.min(new_len)) };
    if flags & libc::MREMAP_DONTUNMAP != 0 {
        ARENA.lock().discard(from, from + old_len);
    } else {
        ARENA.lock().give(from, from + old_len, false);
    }
    to
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(at: *mut c_void, len: usize, prot: c_int) -> c_int {
    let from = at as usize;
    if is_beyond(from, len) {
        return refuse(libc::ENOMEM);
    }
    if len > 0 {
        let len = len.next_multiple_of(PAGE);
        if arena::overlaps(from, len) {
            let mut arena = ARENA.lock();
            if !arena.is_mapped(from, from + len) {
                return refuse(libc::ENOMEM);
            }
            if prot != READ_WRITE {
                if let Err(error) = arena.release(from, from + len) {
                    return refuse(error.errno());
                }
            } else if !arena.any_loose(from, from + len) {
                return 0;
            }
            // SAFETY: the caller's promise.
            let answer = unsafe { libc::syscall(libc::SYS_mprotect, at, len, prot as i64) as c_int };
            if answer == 0 {
                arena.dress(from, from + len, prot == libc::PROT_NONE);
                if prot == READ_WRITE {
                    arena.readmit(from, from + len);
                }
            }
            return answer;
        } else if statics::meets(from, len) {
            return mprotect_static(from, len, prot);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mprotect, at, len, prot as i64) as c_int }
}

/// `mprotect` of a range that has parts of static arrays.
fn mprotect_static(at: usize, len: usize, prot: c_int) -> c_int {
    let mut arena = ARENA.lock();
    for (from, to) in statics::within(at, len) {
        if prot != READ_WRITE
            && let Err(error) = arena.release(from, to)
        {
            return refuse(error.errno());
        }
    }
    // SAFETY: the program asks for it, and what is paged and was readable and writable is so still.
    let answer = unsafe { libc::syscall(libc::SYS_mprotect, at, len, prot as i64) as c_int };
    if answer == 0 && prot == READ_WRITE {
        for (from, to) in statics::within(at, len) {
            arena.readmit(from, to);
        }
    }
    answer
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    let from = at as usize;
    if is_beyond(from, len) {
        return refuse(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let kernel = || unsafe { libc::syscall(libc::SYS_madvise, at, len, advice as i64) as c_int };
    let of_arena = arena::overlaps(from, len);
    if len == 0 || !(of_arena || statics::meets(from, len) && is_served()) {
        return kernel();
    }
    if !from.is_multiple_of(PAGE) {
        return refuse(libc::EINVAL);
    }
    let to = from + len.next_multiple_of(PAGE);
    match advice {
        libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED | libc::MADV_FREE => {
            let dropped = if of_arena {
                ARENA.lock().drop_bytes(from, to, advice)
            } else {
                drop_static(from, to, advice)
            };
            dropped.map_or_else(|error| refuse(error.errno()), |()| 0)
        }
        libc::MADV_WILLNEED => {
            let arena = ARENA.lock();
            let block = process::block();
            let (first, last) = (from / block * block, to.next_multiple_of(block));
            if let Some(pager) = &arena.pager
                && of_arena
            {
                process::or_fail(pager.will_need(first, last - first));
            }
            0
        }
        // What a child sees is the kernel's to see to, on memory that is not paged.
        libc::MADV_WIPEONFORK | libc::MADV_KEEPONFORK => {
            let wipes = advice == libc::MADV_WIPEONFORK;
            let mut arena = ARENA.lock();
            let parts = of_arena.then_some((from, to)).into_iter().chain(statics::within(from, to - from));
            for (from, to) in parts {
                if let Err(error) = arena.wipe_on_fork(from, to, wipes) {
                    return refuse(error.errno());
                }
            }
            kernel()
        }
        // These are about how, not what; the pager sees to that itself.
        libc::MADV_NORMAL..=libc::MADV_SEQUENTIAL
        | libc::MADV_DONTFORK..=libc::MADV_DODUMP
        | libc::MADV_COLD..=MADV_COLLAPSE => 0,
        // Nothing of it is paged.
        _ if of_arena && ARENA.lock().odd_bytes(from, to) == to - from => kernel(),
        // As on a kernel that does not know them: what is not done must not seem to be.
        _ => refuse(libc::EINVAL),
    }
}

/// Advice by which bytes go, of a range that has parts of static arrays: the rest of it is the kernel's.
fn drop_static(at: usize, to: usize, advice: c_int) -> terapage_sys::Result<()> {
    let mut arena = ARENA.lock();
    let mut next = at;
    let mut parts: Vec<_> = statics::within(at, to - at).collect();
    parts.sort_unstable();
    for (from, end) in parts.into_iter().chain([(to, to)]) {
        if next < from {
            // SAFETY: the program asks for it.
            unsafe { memory::drop_bytes(next, from - next, advice) }?;
        }
        if from < end {
            arena.drop_bytes(from, end, advice)?;
        }
        next = end;
    }
    Ok(())
}

/// The calling process's own memory is [`madvise`]'s to see to.
///
/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    process: c_int,
    pieces: *const libc::iovec,
    count: usize,
    advice: c_int,
    flags: libc::c_uint,
) -> isize {
    if count > MOST_PIECES || !is_own(process) {
        // SAFETY: the caller's promise.
        return unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                process as i64,
                pieces,
                count,
                advice as i64,
                flags as i64,
            ) as isize
        };
    }
    if flags != 0 {
        return refuse(libc::EINVAL) as isize;
    }
    let mut done = 0;
    for index in 0..count {
        // SAFETY: the caller's promise: there are so many.
        let piece = unsafe { *pieces.add(index) };
        // SAFETY: the caller's promise.
        if unsafe { madvise(piece.iov_base, piece.iov_len, advice) } != 0 {
            return if done > 0 { done } else { -1 };
        }
        done += piece.iov_len as isize;
    }
    done
}

/// Pieces in one call (`IOV_MAX`).
const MOST_PIECES: usize = 1024;

/// Whether a descriptor stands for the calling process.
fn is_own(process: c_int) -> bool {
    let _internal = thread::Internal::enter();
    let Ok(text) = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{process}")) else {
        return false;
    };
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    pid.is_some_and(|pid| pid.trim().parse() == Ok(std::process::id()))
}

/// `linux/mman.h` has it since Linux 6.1.
const MADV_COLLAPSE: c_int = 25;

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(at: *mut c_void, len: usize, prot: c_int, key: c_int) -> c_int {
    if key == -1 {
        // SAFETY: the caller's promise.
        return unsafe { mprotect(at, len, prot) };
    }
    let from = at as usize;
    if is_beyond(from, len) {
        return refuse(libc::ENOMEM);
    }
    if len > 0 {
        // What carries a key does not move like other memory.
        if let Err(error) = leave(from, from + len.next_multiple_of(PAGE)) {
            return refuse(error.errno());
        }
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_pkey_mprotect, at, len, prot as i64, key as i64) as c_int }
}

/// Where a thread with a stack of the program's has its descriptor: at the stack's end. (On some processors its thread-local variables come behind it.)
const DESCRIPTOR: usize = 16 << 10;

/// When a thread ends, the kernel clears a word in its descriptor, by which others see the end, and cannot wait for a page then. So a descriptor is not paged.
///
/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_attr_setstack(
    attributes: *mut libc::pthread_attr_t,
    at: *mut c_void,
    len: usize,
) -> c_int {
    let end = (at as usize).saturating_add(len);
    if let Err(error) = keep_in_memory(end - len.min(DESCRIPTOR), end) {
        return error.errno();
    }
    // SAFETY: the name ends in a zero byte.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_attr_setstack".as_ptr()) };
    type SetStack = unsafe extern "C" fn(*mut libc::pthread_attr_t, *mut c_void, usize) -> c_int;
    // SAFETY: the C library has the function, of this type; the caller's promise.
    unsafe { std::mem::transmute::<*mut c_void, SetStack>(next)(attributes, at, len) }
}

/// Stops paging memory that the kernel uses where it cannot wait.
fn keep_in_memory(from: usize, to: usize) -> terapage_sys::Result<()> {
    if process::settings().is_none() {
        return Ok(());
    }
    leave(from / PAGE * PAGE, to.next_multiple_of(PAGE))
}

/// Stops paging what a range has of the arena, or of static arrays.
///
/// # Errors
/// ENOMEM where the process may have no more mappings.
fn leave(from: usize, to: usize) -> terapage_sys::Result<()> {
    if arena::overlaps(from, to - from) {
        ARENA.lock().keep(from, to)
    } else {
        leave_static(from, to - from).map(|_| ())
    }
}

unsafe fn lock(call: i64, at: *const c_void, len: usize, flags: c_int) -> c_int {
    if is_beyond(at as usize, len) {
        return refuse(libc::EINVAL);
    }
    let from = at as usize / PAGE * PAGE;
    let to = (at as usize + len).next_multiple_of(PAGE);
    // What is locked stays out of the budget, so it may be no more than a part of it.
    let budget = process::settings().map_or(usize::MAX, |settings| settings.memory.0 as usize);
    if to - from > budget / 4 && arena::may_be_paged(from, to - from) {
        return refuse(libc::ENOMEM);
    }
    if let Err(error) = leave(from, to) {
        return refuse(error.errno());
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(call, at, len, flags as i64) as c_int }
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(at: *const c_void, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { lock(libc::SYS_mlock, at, len, 0) }
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(at: *const c_void, len: usize, flags: libc::c_uint) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { lock(libc::SYS_mlock2, at, len, flags as c_int) }
}

/// All of memory cannot be locked within a budget.
///
/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if process::settings().is_some() {
        return refuse(libc::ENOMEM);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mlockall, flags as i64) as c_int }
}
