//! Hooks of mmap's family. Private anonymous memory that is readable and writable comes from the
//! arena. On ranges of the arena, the calls have the same effects for the program as in the kernel.

use crate::arena::{self, ARENA, Arena};
use crate::elf::each_segment;
use crate::{borrowed, files, limits, paged, places, rereads, set_errno, setup, untracked};
use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_sys::runtimes::JAVA;
use terapage_sys::{memory, page_bytes, thread};

/// Smaller mappings are left to the kernel.
pub const LEAST: usize = 16 << 10;

/// The rights of memory that may be paged.
pub const READ_WRITE: c_int = PROT_READ | PROT_WRITE;

/// The result of `mmap` and `mremap` if they fail.
pub fn failed() -> *mut c_void {
    libc::MAP_FAILED
}

/// Sets `errno`, and returns the answer of a call that fails.
pub fn refuse(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// More addresses than any process can have, even with five levels of page tables.
const ALL_ADDRESSES: usize = 1 << 56;

/// Whether a range ends beyond all addresses. Such a range is left alone, because its length may
/// become 0 when it is rounded up to pages.
pub fn is_beyond(at: usize, len: usize) -> bool {
    at.checked_add(len).is_none_or(|to| to > ALL_ADDRESSES)
}

/// Whether a range starts beyond all addresses, or goes around their end: the kernel then changes
/// nothing, and knows which error comes first.
pub fn is_nowhere(at: usize, len: usize) -> bool {
    at > ALL_ADDRESSES
        || at.checked_add(len).and_then(|to| to.checked_next_multiple_of(page_bytes())).is_none()
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

/// Whether mappings of this thread are served: those of the pager's threads are not, and none are
/// once the program was released.
pub fn is_served() -> bool {
    !arena::is_released() && has_break()
}

/// Whether the break of this thread is the arena's, which stays there in a released program.
pub fn has_break() -> bool {
    setup::settings().is_some() && !thread::is_internal(thread::own_name())
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `mmap`.
        return unsafe {
            borrowed::call(
                libc::SYS_mmap,
                [at as usize, len, prot as usize, flags as usize, fd as usize, offset as usize],
            )
        } as *mut c_void;
    }
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
    if offset % page_bytes() as i64 != 0 {
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
    let closed = is_reservation(len, prot, flags);
    let early = is_early();
    if (closed || pages(len, prot, flags) && (!early || len >= EARLY_LEAST))
        && is_served()
        && let Some(whole) = len.checked_next_multiple_of(page_bytes())
    {
        let hint = at as usize & !(page_bytes() - 1);
        // SAFETY: the place is taken only if it is free.
        if hint != 0 && !early && !is_beyond(hint, whole) && unsafe { honour(hint, whole, prot, flags) } {
            return hint as *mut c_void;
        }
        let taken = match (closed, early) {
            (true, _) => reserve(hint, whole),
            (false, true) => ARENA.lock().take_early(whole, page_bytes().max(places::alignment(hint, whole))),
            (false, false) => take(hint, whole),
        };
        if let Some(at) = taken {
            return at as *mut c_void;
        }
    }
    if let Some(at) = files::serve(len, prot, flags, fd, offset) {
        return at as *mut c_void;
    }
    let may_copy = fd >= 0 && flags & MAP_PRIVATE != 0 && prot & PROT_WRITE != 0;
    if fd < 0 || flags & MAP_PRIVATE == 0 || may_copy {
        untracked::moves(len);
    }
    // SAFETY: the caller keeps the contract of `mmap`.
    let mapped = unsafe { kernel_mmap(at as usize, len, prot, flags, fd, offset) };
    if may_copy && len >= LEAST && mapped != failed() && is_served() {
        let from = mapped as usize;
        ARENA.lock().copies.add(from, from + len.next_multiple_of(page_bytes()), true);
    }
    let to_read = prot == PROT_READ && files::may_page(len, prot, flags, fd, offset);
    if mapped != failed() && to_read && rereads::are_noted() {
        rereads::note(mapped as usize, len, fd);
    }
    mapped
}

/// Whether the program's own `malloc` makes its first mappings now.
static EARLY: AtomicBool = AtomicBool::new(false);

/// An early mapping of fewer bytes is left to the kernel.
const EARLY_LEAST: usize = 16 << 20;

/// Whether the only thread of the process is in [`early`].
pub fn is_early() -> bool {
    EARLY.load(Relaxed)
}

/// Calls the program's own `malloc` before the pager begins. What `malloc` maps and opens meanwhile
/// is not paged, since the pager's threads may need it; of what it reserves, and of large mappings,
/// the rest is paged later ([`Arena::open_early`](crate::arena::Arena::open_early)).
pub fn early(call: impl FnOnce()) {
    EARLY.store(true, Relaxed);
    call();
    EARLY.store(false, Relaxed);
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

/// Maps at a `place` that the program names without insisting, if the mapping belongs there and the
/// place is free. Returns whether this was done.
///
/// - In the arena, near the used part, the mapping is paged there.
/// - Near the program's code, a mapping that is not large is left to the kernel: it is for code,
///   which must be within reach of a jump.
/// - Elsewhere the place is mostly random, and the data must be paged: the arena serves the
///   mapping. If the program then unmaps such mappings again and again, it insists, and the kernel
///   serves them.
unsafe fn honour(place: usize, len: usize, prot: c_int, flags: c_int) -> bool {
    if arena::overlaps(place, len) {
        if !ARENA.lock().has_place(place, place + len) {
            return false;
        }
        // SAFETY: with this flag, only a free place is taken.
        let at = unsafe { mmap_in_arena(place, len, prot, flags | MAP_FIXED_NOREPLACE, -1, 0) };
        return at != failed();
    }
    let writable = prot & PROT_WRITE != 0;
    let arena = ARENA.lock();
    let insists = if writable { arena.mapping.insists() } else { arena.reserving.insists() };
    let has_room = arena.places.have_room(len, writable);
    drop(arena);
    let serves = insists || has_room && places::is_near_code(place, len);
    let done = serves && map_exactly(place, len, prot, flags);
    if done {
        ARENA.lock().places.add(place, place + len, writable);
        untracked::moves(len);
    }
    done
}

/// Takes memory of the arena. The program may have named another `place` (0 for none).
fn take(place: usize, len: usize) -> Option<usize> {
    let mut arena = ARENA.lock();
    let at = arena.take(len, page_bytes().max(places::alignment(place, len)), true)?;
    arena.mapping.offer(at, at + len, place != 0);
    Some(at)
}

/// Reserves addresses of the arena that cannot be touched yet. The program may have named another
/// `place` (0 for none).
fn reserve(place: usize, len: usize) -> Option<usize> {
    let mut arena = ARENA.lock();
    let at = if len > WIDE_FROM {
        arena.take_wide(len)
    } else {
        arena.take_closed(len, page_bytes().max(places::alignment(place, len)))
    }?;
    arena.reserving.offer(at, at + len, place != 0);
    Some(at)
}

/// Whether to refuse a Java machine a reservation at the place that it names, as if the place were
/// in use ([`terapage_sys::runtimes`] says why).
fn is_offer_declined(len: usize, prot: c_int, flags: c_int) -> bool {
    flags & MAP_FIXED_NOREPLACE == MAP_FIXED_NOREPLACE
        && flags & MAP_FIXED == 0
        && len >= JAVA.heap_least
        && is_reservation(len, prot, flags & !MAP_FIXED_NOREPLACE)
        && is_served()
        && is_java()
        && ARENA.lock().reserving.declines()
}

fn is_java() -> bool {
    let mut found = false;
    each_segment(|segment| found |= segment.path.to_bytes().ends_with(JAVA.loaded));
    found
}

/// Maps memory of the kernel at exactly `place`, if the place is free.
fn map_exactly(place: usize, len: usize, prot: c_int, flags: c_int) -> bool {
    // SAFETY: the flag keeps existing mappings.
    let at = unsafe { kernel_mmap(place, len, prot, flags | MAP_FIXED_NOREPLACE, -1, 0) } as usize;
    if at != place && at != failed() as usize {
        // Before Linux 4.17 the flag is ignored. SAFETY: the range was mapped just now, and the
        // program does not know it.
        unsafe { libc::syscall(libc::SYS_munmap, at, len) };
    }
    at == place
}

/// A mapping at a place that the program names.
unsafe fn mmap_fixed(
    at: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let len = len.next_multiple_of(page_bytes());
    if arena::overlaps(at, len) {
        // SAFETY: the caller keeps the contract of `mmap`.
        return unsafe { mmap_in_arena(at, len, prot, flags, fd, offset) };
    }
    if is_offer_declined(len, prot, flags) {
        set_errno(libc::EEXIST);
        return failed();
    }
    let paged = match paged::leave(at, len) {
        Ok(left) => left.unwrap_or_default(),
        Err(error) => {
            set_errno(error.errno());
            return failed();
        }
    };
    // SAFETY: the caller keeps the contract of `mmap`.
    let mapped = unsafe { kernel_mmap(at, len, prot, flags, fd, offset) };
    if mapped == failed() && !paged.is_empty() {
        undo_fixed(&mut ARENA.lock(), paged);
    }
    mapped
}

/// A mapping at a place in the arena.
unsafe fn mmap_in_arena(
    at: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    if !at.is_multiple_of(page_bytes()) {
        set_errno(libc::EINVAL);
        return failed();
    }
    let mut arena = ARENA.lock();
    let only_free = is_only_free(flags);
    if only_free && arena.ranges.is_used(at, at + len) {
        set_errno(libc::EEXIST);
        return failed();
    }
    if !arena.claim(at, at + len) {
        set_errno(libc::ENOMEM);
        return failed();
    }
    arena.leave_files(at, at + len);
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
    // SAFETY: the caller keeps the contract of `mmap`.
    unsafe { map_over(&mut arena, at, len, prot, flags, (fd, offset)) }
}

/// Whether a mapping may only take a free place.
fn is_only_free(flags: c_int) -> bool {
    flags & MAP_FIXED_NOREPLACE == MAP_FIXED_NOREPLACE
}

/// Maps memory that is not paged over a range of the arena, which was claimed.
unsafe fn map_over(
    arena: &mut Arena,
    at: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    (fd, offset): (c_int, i64),
) -> *mut c_void {
    let only_free = is_only_free(flags);
    let closes = is_reservation(usize::MAX, prot, flags & !(MAP_FIXED | MAP_FIXED_NOREPLACE));
    let paged = arena.paged_within(at, at + len);
    // Each released part splits mappings at both its ends, and so does the new mapping. Without
    // room for these, the call is refused below, and no bytes may be lost.
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
    // SAFETY: the caller keeps the contract of `mmap`; the blocks are no longer paged.
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
    } else if only_free {
        after_refusal(|| arena.give(at, at + len, false));
    } else {
        undo_fixed(arena, paged);
        after_refusal(|| arena.regain(at, at + len));
    }
    mapped
}

/// Does `work` after a call that the kernel has refused, and keeps the call's error.
pub fn after_refusal(work: impl FnOnce()) {
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    work();
    set_errno(error);
}

/// After a refused fixed mapping: if the kernel refused it because of the file, the old mappings
/// are still there.
fn undo_fixed(arena: &mut Arena, paged: Vec<(usize, usize)>) {
    if matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF | libc::EACCES)) {
        undo(arena, paged);
    }
}

alias! {
    fn mmap64(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void = mmap(at, len, prot, flags, fd, offset);
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `munmap`.
        return unsafe { borrowed::call(libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]) } as c_int;
    }
    let from = at as usize;
    let is_beyond = is_beyond(from, len);
    if len == 0 || is_beyond || !arena::overlaps(from, len) {
        if !is_beyond {
            paged::drop_before_unmapping(from, len);
        }
        if !is_beyond && let Err(error) = paged::leave(from, len) {
            return refuse(error.errno());
        }
        if places::bytes() + places::copied_bytes() + places::read_bytes() > 0 && len > 0 && !is_beyond {
            let (mut arena, to) = (ARENA.lock(), from + len.next_multiple_of(page_bytes()));
            arena.places.remove(from, to);
            arena.copies.remove(from, to);
            arena.reads.remove(from, to);
        }
        untracked::moves(len);
        // SAFETY: the caller keeps the contract of `munmap`.
        return unsafe { libc::syscall(libc::SYS_munmap, at, len) as c_int };
    }
    if !from.is_multiple_of(page_bytes()) {
        return refuse(libc::EINVAL);
    }
    let (mut arena, to) = (ARENA.lock(), from + len.next_multiple_of(page_bytes()));
    arena.is_unmapped(from, to);
    arena.give(from, to, false);
    0
}

/// After a refused call: pages the blocks again that were released for the call.
pub fn undo(arena: &mut Arena, paged: Vec<(usize, usize)>) {
    after_refusal(|| arena.take_back(paged));
}

/// The first page of a range that is in the arena and not in use: the program has no mapping there.
pub fn first_hole(from: usize, to: usize) -> Option<usize> {
    arena::overlaps(from, to - from).then(|| ARENA.lock().first_hole(from, to)).flatten()
}

/// A call on a range with a hole: like the kernel, does the `len` bytes before the hole, then
/// refuses.
pub fn up_to_hole(len: usize, call: impl FnOnce(usize) -> c_int) -> c_int {
    let before = if len > 0 { call(len) } else { 0 };
    if before == 0 { refuse(libc::ENOMEM) } else { before }
}
