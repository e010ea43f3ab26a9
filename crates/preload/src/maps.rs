//! Hooks of mmap's family. Private anonymous memory that is readable and writable comes from the
//! arena. On ranges of the arena, the calls have the same effects, as seen by the program, as in
//! the kernel.

use crate::arena::{self, ARENA};
use crate::objects::each_segment;
use crate::{beside, limits, process, real, set_errno, statics};
use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use std::ffi::{c_int, c_void};
use terapage_sys::{PAGE, memory, thread};

/// Smaller mappings are left to the kernel.
pub const LEAST: usize = 16 << 10;

/// The rights of memory that may be paged.
pub const READ_WRITE: c_int = PROT_READ | PROT_WRITE;

/// The result of `mmap` and `mremap` if they fail.
pub fn failed() -> *mut c_void {
    libc::MAP_FAILED
}

fn refuse(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// More addresses than any process can have, even with five levels of page tables.
const ALL_ADDRESSES: usize = 1 << 56;

/// Whether a range ends beyond all addresses. Nothing is done to such a range: rounded up to pages,
/// its length may be 0.
pub fn is_beyond(at: usize, len: usize) -> bool {
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
    // SAFETY: the caller keeps the contract of `mmap`.
    unsafe {
        libc::syscall(libc::SYS_mmap, at, len, prot as i64, flags as i64, fd as i64, offset) as *mut c_void
    }
}

/// Whether a mapping of the program can be served from the arena.
fn pages(len: usize, prot: c_int, flags: c_int) -> bool {
    let plain = MAP_PRIVATE | MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_POPULATE;
    len >= LEAST
        && prot == READ_WRITE
        && flags & !plain == 0
        && flags & MAP_PRIVATE != 0
        && flags & MAP_ANONYMOUS != 0
}

/// Whether mappings of this thread are served: those of the pager's threads are not.
pub fn is_served() -> bool {
    // SAFETY: no memory is touched.
    process::settings().is_some() && !thread::is_internal(unsafe { libc::pthread_self() } as usize)
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // A mapping over another one is no growth: the limits were checked for the first one.
    let over = flags & MAP_FIXED != 0;
    let data = prot & PROT_WRITE != 0 && flags & MAP_PRIVATE != 0;
    if !over && exceeds(len, data) {
        set_errno(libc::ENOMEM);
        return failed();
    }
    // SAFETY: the caller keeps the contract of `mmap`.
    unsafe { map(at, len, prot, flags, fd, offset) }
}

/// Whether `more` bytes would exceed the program's own limits.
pub fn exceeds(more: usize, data: bool) -> bool {
    limits::any() && is_served() && !ARENA.lock().may_grow(more, data)
}

/// `mmap`, without a check of the program's own limits.
pub unsafe fn map(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    if offset % PAGE as i64 != 0 {
        set_errno(libc::EINVAL);
        return failed();
    }
    let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if is_beyond(if fixed { at as usize } else { 0 }, len) {
        // SAFETY: the kernel refuses such a call.
        return unsafe { kernel_mmap(at as usize, len, prot, flags, fd, offset) };
    }
    if fixed && len > 0 {
        // SAFETY: the caller keeps the contract of `mmap`.
        return unsafe { mmap_fixed(at as usize, len, prot, flags, fd, offset) };
    }
    if is_reservation(len, prot, flags)
        && is_served()
        && let Some(at) = reserve(at as usize, len, flags)
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
    if fd < 0 || flags & MAP_PRIVATE == 0 {
        beside::moves(len);
    }
    // SAFETY: the caller keeps the contract of `mmap`.
    unsafe { kernel_mmap(at as usize, len, prot, flags, fd, offset) }
}

/// Reservations of at least this many bytes come from the arena's wide part.
const WIDE_FROM: usize = 64 << 30;

/// Whether a mapping reserves addresses of which the program will open parts later. A stack
/// (`MAP_STACK`) is no reservation.
fn is_reservation(len: usize, prot: c_int, flags: c_int) -> bool {
    let plain = MAP_PRIVATE | MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let private = MAP_PRIVATE | MAP_ANONYMOUS;
    len >= LEAST && prot == libc::PROT_NONE && flags & !plain == 0 && flags & private == private
}

/// Reserves addresses that cannot be touched yet: in the arena, or from the kernel if the program
/// insists on the `place` that it names (0 for none).
fn reserve(place: usize, len: usize, flags: c_int) -> Option<usize> {
    let len = len.checked_next_multiple_of(PAGE)?;
    let mut arena = ARENA.lock();
    if place != 0
        && arena.insists()
        && let Some(at) = reserve_exactly(place, len, flags)
    {
        return Some(at);
    }
    let at = if len > WIDE_FROM { arena.take_wide(len) } else { arena.take_closed(len) }?;
    arena.offer(at, at + len, place != 0);
    Some(at)
}

/// Whether a Java machine is refused a reservation at a place of its choice, as if the place were
/// in use. From version 21 or so on, Java names places for its heap in this way, low addresses
/// first, and in the end takes it anywhere: in the arena, where it is paged. Java with ZGC insists.
fn is_offer_declined(len: usize, prot: c_int, flags: c_int) -> bool {
    flags & MAP_FIXED_NOREPLACE == MAP_FIXED_NOREPLACE
        && flags & MAP_FIXED == 0
        && len >= JAVA_LEAST
        && is_reservation(len, prot, flags & !MAP_FIXED_NOREPLACE)
        && is_served()
        && is_java()
        && ARENA.lock().declines()
}

/// The least bytes of a Java heap.
const JAVA_LEAST: usize = 1 << 20;

fn is_java() -> bool {
    let mut found = false;
    each_segment(|segment| found |= segment.path.to_bytes().ends_with(b"/libjvm.so"));
    found
}

/// Reserves addresses of the kernel at exactly `place`, if that is free.
fn reserve_exactly(place: usize, len: usize, flags: c_int) -> Option<usize> {
    // SAFETY: the flag keeps existing mappings.
    let at = unsafe { kernel_mmap(place, len, libc::PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0) } as usize;
    if at != place && at != failed() as usize {
        // Before Linux 4.17 the flag is ignored. SAFETY: the range was mapped just now, and the
        // program does not know it.
        unsafe { libc::syscall(libc::SYS_munmap, at, len) };
    }
    (at == place).then_some(at)
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
        if is_offer_declined(len, prot, flags) {
            set_errno(libc::EEXIST);
            return failed();
        }
        let paged = paged_within(at, at + len);
        if let Err(error) = leave_static(at, len) {
            set_errno(error.errno());
            return failed();
        }
        // SAFETY: the caller keeps the contract of `mmap`.
        let mapped = unsafe { kernel_mmap(at, len, prot, flags, fd, offset) };
        if mapped == failed() && !paged.is_empty() {
            undo_fixed(&mut ARENA.lock(), paged);
        }
        return mapped;
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
        // For the kernel, the place is in use by the arena.
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
    let paged = arena.paged_within(at, at + len);
    // Each part that is released splits mappings at both its ends, and so does the new mapping.
    // Without room for these, the call is refused below, and no bytes may be lost.
    if closes && memory::has_room_for_mappings(2 * paged.len() + 4) {
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
    // SAFETY: the caller keeps the contract of `mmap`; the blocks are not paged any more.
    let mapped = unsafe { kernel_mmap(at, len, prot, flags, fd, offset) };
    if mapped != failed() {
        arena.forget(at, at + len);
        let private = MAP_PRIVATE | MAP_ANONYMOUS;
        if flags & private != private || flags & !(private | MAP_FIXED | libc::MAP_NORESERVE) != 0 {
            arena.keep_mapped(at, at + len);
        }
        arena.ranges.take_exactly(at, at + len);
        if closes {
            arena.dress(at, at + len, true);
        }
        arena.count_by_region(at, at + len);
        return mapped;
    }
    if only_free {
        after_refusal(|| arena.give(at, at + len, false));
    } else {
        undo_fixed(&mut arena, paged);
        after_refusal(|| arena.regain(at, at + len));
    }
    failed()
}

/// Does `work` after a call that the kernel has refused, and keeps the call's error.
pub fn after_refusal(work: impl FnOnce()) {
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    work();
    set_errno(error);
}

/// After a refused fixed mapping: if the kernel refused it because of the file, the old mappings
/// are still there.
fn undo_fixed(arena: &mut arena::Arena, paged: Vec<(usize, usize)>) {
    if matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF | libc::EACCES)) {
        undo(arena, paged);
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller keeps the contract of `mmap64`.
    unsafe { mmap(at, len, prot, flags, fd, offset) }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    let from = at as usize;
    let is_beyond = is_beyond(from, len);
    if len == 0 || is_beyond || !arena::overlaps(from, len) {
        if !is_beyond && let Err(error) = leave_static(from, len) {
            return refuse(error.errno());
        }
        beside::moves(len);
        // SAFETY: the caller keeps the contract of `munmap`.
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

/// Releases the static arrays in a range to the kernel: they are locked, moved, unmapped or mapped
/// over. Whether there are any.
///
/// # Errors
/// ENOMEM if the process may have no more mappings.
pub fn leave_static(at: usize, len: usize) -> terapage_sys::Result<bool> {
    let len = len.next_multiple_of(PAGE);
    let meets = at.is_multiple_of(PAGE) && statics::meets(at, len) && is_served();
    if meets {
        ARENA.lock().keep_static(at, len)?;
    }
    Ok(meets)
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(at: *mut c_void, len: usize, prot: c_int) -> c_int {
    let from = at as usize;
    if is_beyond(from, len) {
        return refuse(libc::ENOMEM);
    }
    if len > 0 {
        let len = len.next_multiple_of(PAGE);
        let of_arena = arena::overlaps(from, len);
        if !from.is_multiple_of(PAGE) && (of_arena || statics::meets(from, len)) {
            return refuse(libc::EINVAL);
        }
        if of_arena {
            let mut arena = ARENA.lock();
            if let Some(hole) = arena.first_hole(from, from + len) {
                drop(arena);
                // SAFETY: the caller keeps the contract of `mprotect`.
                return up_to_hole(hole - from, |len| unsafe { mprotect(at, len, prot) });
            }
            let mut paged = Vec::new();
            if prot != READ_WRITE {
                paged = arena.paged_within(from, from + len);
                if let Err(error) = arena.release(from, from + len) {
                    return refuse(error.errno());
                }
            } else if !arena.any_loose(from, from + len) {
                return 0;
            } else {
                let opened = arena.odd_bytes(from, from + len);
                if opened > 0 && !arena.is_backed(opened) {
                    return refuse(libc::ENOMEM);
                }
            }
            // SAFETY: the caller keeps the contract of `mprotect`.
            let change = || unsafe { libc::syscall(libc::SYS_mprotect, at, len, prot as i64) as c_int };
            let answer = if prot == READ_WRITE { memory::alike(change) } else { change() };
            if answer == 0 {
                arena.dress(from, from + len, prot == libc::PROT_NONE);
                if prot == READ_WRITE {
                    arena.readmit(from, from + len);
                }
            } else if prot != READ_WRITE {
                undo(&mut arena, paged);
            }
            return answer;
        } else if statics::meets(from, len) {
            return mprotect_static(from, len, prot);
        }
    }
    // SAFETY: the caller keeps the contract of `mprotect`.
    unsafe { libc::syscall(libc::SYS_mprotect, at, len, prot as i64) as c_int }
}

/// `mprotect` of a range that contains parts of static arrays.
fn mprotect_static(at: usize, len: usize, prot: c_int) -> c_int {
    let mut arena = ARENA.lock();
    let paged = arena.paged_within(at, at + len);
    for (from, to) in statics::within(at, len) {
        if prot != READ_WRITE
            && let Err(error) = arena.release(from, to)
        {
            return refuse(error.errno());
        }
    }
    // SAFETY: the program asks for these rights, and paged memory stays readable and writable.
    let change = || unsafe { libc::syscall(libc::SYS_mprotect, at, len, prot as i64) as c_int };
    let answer = if prot == READ_WRITE { memory::alike(change) } else { change() };
    if answer == 0 && prot == READ_WRITE {
        for (from, to) in statics::within(at, len) {
            arena.readmit(from, to);
        }
    }
    if answer != 0 && prot != READ_WRITE {
        undo(&mut arena, paged);
    }
    answer
}

/// After a refused call: pages again what was released for the call.
fn undo(arena: &mut arena::Arena, paged: Vec<(usize, usize)>) {
    after_refusal(|| arena.take_back(paged));
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    let from = at as usize;
    if is_beyond(from, len) {
        return refuse(libc::EINVAL);
    }
    // SAFETY: the caller keeps the contract of `madvise`.
    let kernel = || unsafe { libc::syscall(libc::SYS_madvise, at, len, advice as i64) as c_int };
    let of_arena = arena::overlaps(from, len);
    if len == 0 || !(of_arena || statics::meets(from, len) && is_served()) {
        beside::moves(len);
        return kernel();
    }
    if !from.is_multiple_of(PAGE) {
        return refuse(libc::EINVAL);
    }
    let to = from + len.next_multiple_of(PAGE);
    if of_arena {
        let mapped = ARENA.lock().mapped_within(from, to);
        if mapped != [(from, to)] {
            // The kernel advises all mapped parts, and then says that not all was mapped.
            for (from, to) in mapped {
                // SAFETY: the caller keeps the contract of `madvise`.
                let done = unsafe { madvise(from as *mut c_void, to - from, advice) };
                if done != 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM) {
                    return done;
                }
            }
            return refuse(libc::ENOMEM);
        }
    }
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
        // The kernel decides what a child sees, on memory that is not paged.
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
        // This advice is about performance only. The pager does without it; the kernel gets it for
        // memory that is not paged.
        libc::MADV_COLD..=MADV_COLLAPSE if of_arena => {
            let odd = ARENA.lock().odd_within(from, to);
            // SAFETY: the caller keeps the contract of `madvise`.
            let done = |&(from, to): &(usize, usize)| unsafe {
                libc::syscall(libc::SYS_madvise, from, to - from, advice as i64) == 0
            };
            if odd.iter().all(done) { 0 } else { -1 }
        }
        libc::MADV_NORMAL..=libc::MADV_SEQUENTIAL
        | libc::MADV_DONTFORK..=libc::MADV_DODUMP
        | libc::MADV_COLD..=MADV_COLLAPSE => 0,
        // Nothing in the range is paged.
        _ if of_arena && ARENA.lock().odd_bytes(from, to) == to - from => kernel(),
        // As on a kernel that does not know the advice: it must not seem to be done.
        _ => refuse(libc::EINVAL),
    }
}

/// Drops bytes by advice in a range that contains parts of static arrays; the kernel does the rest
/// of the range.
fn drop_static(at: usize, to: usize, advice: c_int) -> terapage_sys::Result<()> {
    let mut arena = ARENA.lock();
    let mut next = at;
    let mut parts: Vec<_> = statics::within(at, to - at).collect();
    parts.sort_unstable();
    for (from, end) in parts.into_iter().chain([(to, to)]) {
        if next < from {
            // SAFETY: the program asks for the bytes to be dropped.
            unsafe { memory::drop_bytes(next, from - next, advice) }?;
        }
        if from < end {
            arena.drop_bytes(from, end, advice)?;
        }
        next = end;
    }
    Ok(())
}

/// Hook of the C library's function. For the calling process's own memory, [`madvise`] is used.
///
/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    process: c_int,
    pieces: *const libc::iovec,
    count: usize,
    advice: c_int,
    flags: libc::c_uint,
) -> isize {
    let is_own = match is_own(process) {
        Ok(is_own) => is_own,
        Err(errno) => return refuse(errno) as isize,
    };
    if count > memory::PIECES || !is_own {
        // SAFETY: the caller keeps the contract of `process_madvise`.
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
        // SAFETY: the caller passes `count` pieces.
        let piece = unsafe { *pieces.add(index) };
        // SAFETY: the caller keeps the contract of `process_madvise`.
        if unsafe { madvise(piece.iov_base, piece.iov_len, advice) } != 0 {
            return if done > 0 { done } else { -1 };
        }
        done += piece.iov_len as isize;
    }
    done
}

/// Numbers that name the calling thread or process without a descriptor, if the kernel knows them
/// (`PIDFD_SELF_THREAD` and `PIDFD_SELF_THREAD_GROUP`; the latter has had two numbers:
/// `linux/pidfd.h`).
const SELVES: [c_int; 3] = [-10000, -10001, -20000];

/// Whether a descriptor refers to the calling process, or one of its threads.
///
/// # Errors
/// That cannot be told for lack of descriptors, and memory is paged: what the kernel would do must
/// not seem to be done.
fn is_own(process: c_int) -> Result<bool, c_int> {
    let _internal = thread::Internal::enter();
    if SELVES.contains(&process) {
        // SAFETY: no ranges are passed, so no memory is touched.
        let known = unsafe {
            libc::syscall(libc::SYS_process_madvise, process as i64, 0_usize, 0_usize, 0_i64, 0_i64)
        };
        return Ok(known == 0);
    }
    let text = match std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{process}")) {
        Ok(text) => text,
        Err(error) => {
            let short = error.raw_os_error().filter(|errno| matches!(*errno, libc::EMFILE | libc::ENFILE));
            let is_paged = || ARENA.lock().pager.is_some();
            return short.filter(|_| is_paged()).map_or(Ok(false), Err);
        }
    };
    let pid = text
        .lines()
        .find_map(|line| line.strip_prefix("Pid:"))
        .and_then(|pid| pid.trim().parse::<u32>().ok());
    Ok(pid.is_some_and(|pid| std::path::Path::new(&format!("/proc/self/task/{pid}")).exists()))
}

/// In `linux/mman.h` since Linux 6.1.
const MADV_COLLAPSE: c_int = 25;

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(at: *mut c_void, len: usize, prot: c_int, key: c_int) -> c_int {
    if key == -1 {
        // SAFETY: the caller keeps the contract of `pkey_mprotect`.
        return unsafe { mprotect(at, len, prot) };
    }
    let mut paged = Vec::new();
    let from = at as usize;
    if is_beyond(from, len) {
        return refuse(libc::ENOMEM);
    }
    if len > 0 {
        if !from.is_multiple_of(PAGE) {
            return refuse(libc::EINVAL);
        }
        if let Some(hole) = first_hole(from, from + len.next_multiple_of(PAGE)) {
            // SAFETY: the caller keeps the contract of `pkey_mprotect`.
            return up_to_hole(hole - from, |len| unsafe { pkey_mprotect(at, len, prot, key) });
        }
        paged = paged_within(from, from + len.next_multiple_of(PAGE));
        // Memory with a protection key cannot be moved like other memory.
        if let Err(error) = leave(from, from + len.next_multiple_of(PAGE)) {
            return refuse(error.errno());
        }
    }
    // SAFETY: the caller keeps the contract of `pkey_mprotect`.
    let answer = unsafe { libc::syscall(libc::SYS_pkey_mprotect, at, len, prot as i64, key as i64) as c_int };
    // There is no such key, or the processor has none: nothing was changed.
    if answer != 0
        && !paged.is_empty()
        && matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
    {
        undo(&mut ARENA.lock(), paged);
    }
    answer
}

/// Bytes at the end of a stack that the program provides: there the thread has its descriptor. (On
/// some processors the thread-local variables follow it.)
const DESCRIPTOR: usize = 16 << 10;

/// Hook of the C library's function. When a thread ends, the kernel clears a word in its
/// descriptor, by which others see the end, and the kernel cannot wait for a page then. So the
/// descriptor is not paged.
///
/// # Safety
/// The contract is that of the C library's function.
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
    // SAFETY: the caller keeps the contract of `pthread_attr_setstack`.
    unsafe { real::call!(pthread_attr_setstack(attributes, at, len) or libc::ENOSYS) }
}

/// Stops paging memory that the kernel uses at times when it cannot wait.
pub fn keep_in_memory(from: usize, to: usize) -> terapage_sys::Result<()> {
    if process::settings().is_none() {
        return Ok(());
    }
    leave(from / PAGE * PAGE, to.next_multiple_of(PAGE))
}

/// The first page of a range that is in the arena and not in use: the program has nothing mapped
/// there.
fn first_hole(from: usize, to: usize) -> Option<usize> {
    arena::overlaps(from, to - from).then(|| ARENA.lock().first_hole(from, to)).flatten()
}

/// A call on a range with a hole: like the kernel, does the `len` bytes before the hole, then
/// refuses.
fn up_to_hole(len: usize, call: impl FnOnce(usize) -> c_int) -> c_int {
    let before = if len > 0 { call(len) } else { 0 };
    if before == 0 { refuse(libc::ENOMEM) } else { before }
}

/// The parts of a range that are paged.
fn paged_within(from: usize, to: usize) -> Vec<(usize, usize)> {
    let of_arena = arena::overlaps(from, to - from);
    let may_be = of_arena || statics::meets(from, to - from) && is_served();
    if may_be { ARENA.lock().paged_within(from, to) } else { Vec::new() }
}

/// Stops paging the parts of a range that are in the arena or in static arrays.
///
/// # Errors
/// ENOMEM if the process may have no more mappings.
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
    // Locked memory does not count in the budget, so it may be no more than a part of the budget.
    let budget = process::settings().map_or(usize::MAX, |settings| settings.memory.0 as usize);
    if to - from > budget / 4 && arena::may_be_paged(from, to - from) {
        return refuse(libc::ENOMEM);
    }
    if let Some(hole) = first_hole(from, to) {
        // SAFETY: the caller keeps the contract of `mlock2`.
        return up_to_hole(hole - from, |len| unsafe { lock(call, from as *const c_void, len, flags) });
    }
    let paged = paged_within(from, to);
    if let Err(error) = leave(from, to) {
        return refuse(error.errno());
    }
    // SAFETY: the caller keeps the contract of `mlock2`.
    let answer = unsafe { libc::syscall(call, at, len, flags as i64) as c_int };
    if answer != 0 && !paged.is_empty() {
        after_refusal(|| {
            for &(from, to) in &paged {
                // SAFETY: the memory was paged before, so it was not locked.
                unsafe { libc::syscall(libc::SYS_munlock, from, to - from) };
            }
            ARENA.lock().take_back(paged);
        });
    }
    answer
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(at: *const c_void, len: usize) -> c_int {
    // SAFETY: the caller keeps the contract of `mlock`.
    unsafe { lock(libc::SYS_mlock, at, len, 0) }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(at: *const c_void, len: usize, flags: libc::c_uint) -> c_int {
    // SAFETY: the caller keeps the contract of `mlock2`.
    unsafe { lock(libc::SYS_mlock2, at, len, flags as c_int) }
}

/// Hook of the C library's function. It is refused: not all memory can be locked within a budget.
///
/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if process::settings().is_some() {
        return refuse(libc::ENOMEM);
    }
    // SAFETY: the caller keeps the contract of `mlockall`.
    unsafe { libc::syscall(libc::SYS_mlockall, flags as i64) as c_int }
}
