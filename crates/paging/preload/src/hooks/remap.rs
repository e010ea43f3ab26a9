//! The hook of `mremap`: memory that grows, shrinks and moves, between the arena and the kernel's
//! mappings.

use crate::advise::madvise;
use crate::arena::{self, ARENA};
use crate::maps::{
    LEAST, READ_WRITE, after_refusal, exceeds, failed, first_hole, is_beyond, is_nowhere, is_served, map,
    munmap,
};
use crate::rights::mprotect;
use crate::{borrowed, paged, set_errno, setup, statics};
use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE};
use std::ffi::{c_int, c_void};
use terapage_sys::opening::Opening;
use terapage_sys::{memory, page_bytes, thread};

unsafe fn kernel_mremap(old: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> *mut c_void {
    // SAFETY: the caller keeps the contract of `mremap`.
    unsafe { libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags as i64, new) as *mut c_void }
}

/// Moves one of the kernel's mappings to a place in the arena, which is not paged from then on.
unsafe fn mremap_into(old: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> *mut c_void {
    if !new.is_multiple_of(page_bytes()) || new_len == 0 {
        set_errno(libc::EINVAL);
        return failed();
    }
    let to = new + new_len.next_multiple_of(page_bytes());
    let mut arena = ARENA.lock();
    if !arena.claim(new, to) {
        set_errno(libc::ENOMEM);
        return failed();
    }
    if let Err(error) = arena.release(new, to) {
        set_errno(error.errno());
        return failed();
    }
    // SAFETY: the caller keeps the contract of `mremap`; the blocks are no longer paged.
    let moved = unsafe { kernel_mremap(old, old_len, new_len, flags, new) };
    if moved != failed() {
        // This may be memory from the arena, which only forks known to the pager copy: now every
        // fork must copy it.
        memory::advise(new, to - new, libc::MADV_DOFORK);
        arena.forget_private(new, to);
        arena.keep_mapped(new, to);
        arena.ranges.take_exactly(new, to);
        arena.count_by_region(new, to);
    } else {
        after_refusal(|| arena.regain(new, to));
    }
    moved
}

/// Moves pages of the arena that belong to the kernel. They leave the arena, or move to a place in
/// it that the program names. The old place stays mapped until the arena puts its own memory there,
/// because another thread's mapping could take a hole.
unsafe fn mremap_special(
    old: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: usize,
) -> *mut c_void {
    let (keep, may_move) = (libc::MREMAP_DONTUNMAP, libc::MREMAP_MAYMOVE);
    // SAFETY: the caller keeps the contract of `mremap`; the kernel chooses the place.
    let aside = unsafe { kernel_mremap(old, old_len, old_len, may_move | keep, 0) };
    if aside == failed() {
        return aside;
    }
    let moved = if flags & libc::MREMAP_FIXED != 0 {
        let flags = flags & !keep;
        // SAFETY: the pages were moved there just now.
        unsafe { mremap(aside, old_len, new_len, flags, new as *mut c_void) }
    } else if new_len != old_len {
        // SAFETY: the pages were moved there just now.
        unsafe { kernel_mremap(aside as usize, old_len, new_len, may_move, 0) }
    } else {
        aside
    };
    if moved == failed() {
        // SAFETY: the pages go back to their old place, which is still mapped and has no user.
        unsafe { kernel_mremap(aside as usize, old_len, old_len, may_move | libc::MREMAP_FIXED, old) };
    } else {
        if !arena::overlaps(moved as usize, new_len) {
            // Forks unknown to the pager do not copy the arena, and core dumps contain only its
            // used part. Outside the arena the pages get the usual properties.
            memory::advise(moved as usize, new_len, libc::MADV_DOFORK);
            memory::advise(moved as usize, new_len, libc::MADV_DODUMP);
        }
        if flags & keep == 0 {
            ARENA.lock().give(old, old + old_len, false);
        }
    }
    moved
}

/// The kernel's mappings in a range (from, to), if all are readable, writable, private memory.
fn plain_mappings(from: usize, to: usize) -> Option<Vec<(usize, usize)>> {
    let _internal = thread::Internal::enter();
    let _opening = Opening::begin();
    let maps = std::fs::read_to_string("/proc/thread-self/maps").ok()?;
    let mut mappings = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        if end <= from || start >= to {
            continue;
        }
        // The fields are the range, the rights, the offset, the device and the file's number
        // (proc(5)).
        if words.next() != Some("rw-p") || words.nth(2) != Some("0") {
            return None;
        }
        mappings.push((start.max(from), end.min(to)));
    }
    Some(mappings)
}

/// Mappings that each moved part may need for a moment.
const MAPPINGS: usize = 4;

/// The parts of a range that are locked, have a protection key, or must be empty in a child. The
/// range consists of several `mappings`, and each part lies in one of them.
fn special_parts(from: usize, to: usize, mappings: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let special = ARENA.lock().special(from, to);
    let within = |&(start, end): &(usize, usize)| {
        let parts = mappings.iter().map(move |&(a, b)| (a.max(start), b.min(end)));
        parts.filter(|(a, b)| a < b).collect::<Vec<_>>()
    };
    special.iter().flat_map(within).collect()
}

/// Moves the given parts of a range one by one, so that they keep their properties, and copies the
/// rest. Ranges that must be zero are not copied, since the destination is already zero. The pages
/// at `from` stay mapped. If a part has moved only partly, `mremap` cannot report it, so the
/// program is stopped.
///
/// # Safety
/// Both ranges belong to the program, and do not overlap.
unsafe fn move_by_parts(from: usize, to: usize, len: usize, parts: &[(usize, usize)]) {
    let copy = |at: usize, end: usize| {
        let filled = if at < end { ARENA.lock().filled_within(at, end) } else { Vec::new() };
        for (at, end) in filled {
            // SAFETY: the caller owns both ranges, which do not overlap.
            unsafe { ((to + (at - from)) as *mut u8).copy_from_nonoverlapping(at as *const u8, end - at) };
        }
    };
    let mut next = from;
    for &(at, end) in parts {
        copy(next, at);
        next = end;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: the caller owns both ranges, which do not overlap.
        if unsafe { mremap_special(at, end - at, end - at, flags, to + (at - from)) } == failed() {
            setup::fail("mremap of memory of several mappings stopped half way");
        }
    }
    copy(next, from + len);
}

/// `mremap` with a range that ends beyond all addresses, which fails. If there is nothing at the
/// old place, the kernel knows which error comes first.
///
/// # Safety
/// The contract is that of `mremap`.
unsafe fn mremap_beyond(
    from: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: usize,
) -> *mut c_void {
    let page = page_bytes();
    if arena::contains(from) {
        let wrong = refusal_of_arguments(from, whole_pages(old_len), whole_pages(new_len), flags, new);
        let hole = || first_hole(from, from + page).map(|_| libc::EFAULT);
        set_errno(wrong.or_else(hole).unwrap_or(libc::EINVAL));
        return failed();
    }
    // Of something that is there the kernel may empty the new place before it fails.
    let empties = flags & libc::MREMAP_FIXED != 0 && !is_beyond(new, new_len);
    // SAFETY: nothing is changed; a page that keeps its size stays where it is.
    unsafe {
        if empties && kernel_mremap(from, page, page, 0, 0) != failed() {
            set_errno(libc::EINVAL);
            return failed();
        }
        kernel_mremap(from, old_len, new_len, flags, new)
    }
}

/// Whole pages, as the kernel counts them: the largest lengths become 0.
fn whole_pages(len: usize) -> usize {
    len.checked_next_multiple_of(page_bytes()).unwrap_or(0)
}

/// Hook of the C library's function. Without `MREMAP_FIXED` its callers need not pass a place, so
/// the last argument may be anything.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let no_place = flags & libc::MREMAP_FIXED == 0 && arena::contains(old as usize);
    let new = if no_place { std::ptr::null_mut() } else { new };
    // SAFETY: the caller keeps the contract of `mremap`.
    unsafe { by_number(old, old_len, new_len, flags, new) }
}

/// `mremap` as a system call, of which every argument counts.
///
/// # Safety
/// The contract is that of the system call.
pub unsafe fn by_number(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `mremap`.
        return unsafe {
            borrowed::call(
                libc::SYS_mremap,
                [old as usize, old_len, new_len, flags as usize, new as usize, 0],
            )
        } as *mut c_void;
    }
    let from = old as usize;
    let place = if flags & libc::MREMAP_FIXED != 0 { new as usize } else { 0 };
    if is_nowhere(from, 0) && flags & libc::MREMAP_FIXED == 0 {
        // SAFETY: nothing is changed.
        return unsafe { kernel_mremap(from, old_len, new_len, flags, new as usize) };
    }
    if is_beyond(from, old_len) || is_beyond(place, new_len) {
        // SAFETY: the caller keeps the contract of `mremap`.
        return unsafe { mremap_beyond(from, old_len, new_len, flags, new as usize) };
    }
    let more = if flags & libc::MREMAP_DONTUNMAP != 0 { new_len } else { new_len.saturating_sub(old_len) };
    if more > 0 && exceeds(more, arena::contains(from)) {
        set_errno(libc::ENOMEM);
        return failed();
    }
    // SAFETY: the caller keeps the contract of `mremap`.
    unsafe {
        if arena::contains(from) {
            if let Some(moved) = mremap_private(from, old_len, new_len, flags, new as usize) {
                return moved;
            }
            ARENA.lock().leave_files(from, from + old_len);
            mremap_paged(from, old_len, new_len, flags, new as usize)
        } else {
            mremap_others(from, old_len, new_len, flags, new as usize)
        }
    }
}

/// `mremap` of static arrays that grow, and may move: they move into the arena, by a copy, and stay
/// paged. `None` if they are not plain memory, or there is no room.
unsafe fn mremap_into_arena(from: usize, old_len: usize, new_len: usize) -> Option<*mut c_void> {
    let end = from + old_len;
    let mappings = plain_mappings(from, end)?;
    let plain: usize = mappings.iter().map(|(from, to)| to - from).sum();
    if plain < old_len || !ARENA.lock().special(from, end).is_empty() {
        return None;
    }
    // SAFETY: the arena, or the kernel, chooses the place.
    let to = unsafe { place_for(new_len, 0, 0) };
    if to == failed() {
        return None;
    }
    let copy = |at: usize, end: usize| {
        // SAFETY: the program owns the old range, and the new one was mapped just now.
        unsafe {
            ((to as usize + (at - from)) as *mut u8).copy_from_nonoverlapping(at as *const u8, end - at)
        };
    };
    paged::others(from, end).into_iter().for_each(|(at, end)| copy(at, end));
    for (at, end) in paged::parts(from, end).collect::<Vec<_>>() {
        let filled = ARENA.lock().filled_within(at, end);
        filled.into_iter().for_each(|(at, end)| copy(at, end));
    }
    // SAFETY: the program's memory is at its new place.
    unsafe { munmap(from as *mut c_void, old_len) };
    Some(to)
}

/// `mremap` of memory outside the arena, which may move into it.
unsafe fn mremap_others(
    from: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: usize,
) -> *mut c_void {
    let whole = old_len.next_multiple_of(page_bytes());
    if flags == libc::MREMAP_MAYMOVE
        && new_len > whole
        && from.is_multiple_of(page_bytes())
        && statics::meets(from, whole)
        && is_served()
        // SAFETY: the caller keeps the contract of `mremap`.
        && let Some(moved) = unsafe { mremap_into_arena(from, whole, new_len) }
    {
        return moved;
    }
    let into = flags & libc::MREMAP_FIXED != 0 && arena::overlaps(new, new_len);
    let over = if flags & libc::MREMAP_FIXED != 0 && !into { new_len } else { 0 };
    let left = paged::leave(from, old_len).and_then(|left| {
        if over > 0 {
            paged::leave(new, over)?;
        }
        Ok(left)
    });
    match left {
        // Moved memory is no longer paged, so every fork must copy it.
        Ok(Some(_)) => drop(memory::advise(from, old_len, libc::MADV_DOFORK)),
        Ok(None) => {}
        Err(error) => {
            set_errno(error.errno());
            return failed();
        }
    }
    // SAFETY: the caller keeps the contract of `mremap`.
    unsafe {
        if into {
            mremap_into(from, old_len, new_len, flags, new)
        } else {
            kernel_mremap(from, old_len, new_len, flags, new)
        }
    }
}

/// Whether a call names a place. (Without `MREMAP_FIXED`, the kernel only checks that place.)
fn names_place(flags: c_int) -> bool {
    flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0
}

/// The kernel's error for a new range, if it finds one before it looks at the old range: this
/// depends on its version.
fn refusal_of_new(new_len: usize, flags: c_int, new: usize) -> Option<c_int> {
    const NOWHERE: usize = 1 << 62;
    /// Fewer addresses than any process can have.
    const FEW: usize = 1 << 38;
    if !names_place(flags) && new_len < FEW {
        return None;
    }
    // Unlike `MREMAP_FIXED`, this never empties the new place.
    let keep = if names_place(flags) { libc::MREMAP_DONTUNMAP } else { 0 };
    // SAFETY: nothing lies at the old place, so nothing is changed.
    unsafe { kernel_mremap(NOWHERE, new_len, new_len, libc::MREMAP_MAYMOVE | keep, new) };
    (std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)).then_some(libc::EINVAL)
}

/// The error of a call on memory in the arena whose arguments the kernel would refuse before it
/// looks at that memory. The lengths are whole pages.
fn refusal_of_arguments(
    from: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: usize,
) -> Option<c_int> {
    let (fixed, keep) = (libc::MREMAP_FIXED, libc::MREMAP_DONTUNMAP);
    let is_wrong = flags & !(libc::MREMAP_MAYMOVE | fixed | keep) != 0
        || names_place(flags) && flags & libc::MREMAP_MAYMOVE == 0
        || !from.is_multiple_of(page_bytes())
        || new_len == 0
        || flags & keep != 0 && old_len != new_len;
    if is_wrong {
        return Some(libc::EINVAL);
    }
    // A place beyond all addresses tells whether the kernel looks at places first.
    let is_early = || refusal_of_new(page_bytes(), flags, 1 << 62).is_some();
    refusal_of_new(new_len, flags, new)
        .or_else(|| (overlaps(from, old_len, new_len, flags, new) && is_early()).then_some(libc::EINVAL))
}

/// Whether the new place that a call names overlaps the old one.
fn overlaps(from: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> bool {
    names_place(flags) && new < from.saturating_add(old_len) && from < new.saturating_add(new_len)
}

/// The error of a call on memory in the arena that the kernel would refuse at once. The lengths are
/// whole pages.
fn refusal(from: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> Option<c_int> {
    if let Some(errno) = refusal_of_arguments(from, old_len, new_len, flags, new) {
        return Some(errno);
    }
    // A range that is shortened in place may end in a hole.
    let grows = names_place(flags) || new_len > old_len;
    let needed = if grows { old_len.max(page_bytes()) } else { page_bytes() };
    if first_hole(from, from + needed).is_some() {
        return Some(libc::EFAULT);
    }
    let misplaced = names_place(flags) && !new.is_multiple_of(page_bytes());
    (old_len == 0 || misplaced || overlaps(from, old_len, new_len, flags, new)).then_some(libc::EINVAL)
}

/// Takes memory for a copy of paged memory: at `new`, with `MREMAP_FIXED`, or anywhere.
unsafe fn place_for(new_len: usize, flags: c_int, new: usize) -> *mut c_void {
    let plain = MAP_PRIVATE | MAP_ANONYMOUS;
    if flags & libc::MREMAP_FIXED != 0 {
        // SAFETY: the caller keeps the contract of `mremap`.
        return unsafe { map(new as *mut c_void, new_len, READ_WRITE, plain | MAP_FIXED, -1, 0) };
    }
    let least = new_len.max(LEAST);
    // SAFETY: the kernel or the arena chooses the place.
    let to = unsafe { map(std::ptr::null_mut(), least, READ_WRITE, plain, -1, 0) };
    if to != failed() && new_len < least {
        // The range was lengthened only so that it comes from the arena. SAFETY: the rest was
        // mapped just now, and the program does not know it.
        unsafe { munmap(to.byte_add(new_len), least - new_len) };
    }
    to
}

/// `mremap` of memory in the arena. Paged memory moves by a copy.
unsafe fn mremap_paged(from: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> *mut c_void {
    let (old_len, new_len) = (old_len.next_multiple_of(page_bytes()), new_len.next_multiple_of(page_bytes()));
    if let Some(errno) = refusal(from, old_len, new_len, flags, new) {
        set_errno(errno);
        return failed();
    }
    let fixed = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    if !fixed && let Some(done) = mremap_in_place(from, old_len, new_len, flags) {
        return done;
    }
    let special = ARENA.lock().special_bytes(from, from + old_len);
    if special == old_len {
        // Memory of the kernel: protected, shared or a file's. SAFETY: the caller keeps the
        // contract of `mremap`.
        let moved = unsafe { mremap_special(from, old_len, new_len, flags, new) };
        if moved != failed() || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT) {
            return moved;
        }
    }
    // For the kernel these are several mappings: a part was once locked, or they came from several
    // places.
    let mappings = if special > 0 { plain_mappings(from, from + old_len) } else { Some(Vec::new()) };
    let Some(mappings) = mappings else {
        set_errno(libc::EFAULT);
        return failed();
    };
    let moved = old_len.min(new_len);
    let parts = special_parts(from, from + moved, &mappings);
    if !parts.is_empty() && !memory::has_room_for_mappings(MAPPINGS * parts.len()) {
        set_errno(libc::ENOMEM);
        return failed();
    }
    // SAFETY: the caller keeps the contract of `mremap`.
    let to = unsafe { place_for(new_len, flags, new) };
    if to == failed() {
        return to;
    }
    // SAFETY: both ranges belong to the program, and do not overlap.
    unsafe { move_by_parts(from, to as usize, moved, &parts) };
    if flags & libc::MREMAP_DONTUNMAP != 0 {
        ARENA.lock().discard(from, from + old_len);
    } else {
        ARENA.lock().give(from, from + old_len, false);
    }
    to
}

/// `mremap` of a private mapping of a file that the program may change, or of a part of it. The
/// mapping moves by a new one and a copy of what the program has changed. `None` if the range is
/// none.
unsafe fn mremap_private(
    from: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: usize,
) -> Option<*mut c_void> {
    let (old_len, new_len) = (old_len.next_multiple_of(page_bytes()), new_len.next_multiple_of(page_bytes()));
    let arena = ARENA.lock();
    let (file, offset) = arena.files.privates.under(from, from + old_len)?;
    let moved = old_len.min(new_len);
    let rights = arena.rights_of(from, from + moved);
    let with_pages = arena.end_of_file(from).clamp(from, from + moved);
    let is_to_read = rights.iter().all(|(_, _, prot)| prot & libc::PROT_WRITE == 0);
    if is_to_read && arena.changed_within(from, with_pages).is_empty() {
        return None;
    }
    drop(arena);
    if let Some(errno) = refusal(from, old_len, new_len, flags, new) {
        set_errno(errno);
        return Some(failed());
    }
    let keeps = flags & libc::MREMAP_DONTUNMAP != 0;
    if flags & libc::MREMAP_FIXED == 0 && !keeps && new_len <= old_len {
        ARENA.lock().give(from + new_len, from + old_len, false);
        return Some(from as *mut c_void);
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        set_errno(libc::ENOMEM);
        return Some(failed());
    }
    let fixed = if flags & libc::MREMAP_FIXED != 0 { MAP_FIXED } else { 0 };
    let place = if fixed != 0 { new } else { 0 } as *mut c_void;
    // SAFETY: the caller gives a fixed place up; otherwise a free one is chosen.
    let to = unsafe { map(place, new_len, READ_WRITE, MAP_PRIVATE | fixed, file.raw(), offset as i64) };
    if to == failed() {
        return Some(to);
    }
    let arena = ARENA.lock();
    let changed = arena.changed_within(from, with_pages);
    drop(arena);
    // SAFETY: the caller owns both ranges, which do not overlap; the rights of what moves matter no
    // more at the old place.
    unsafe {
        for &(at, end, _) in rights.iter().filter(|(_, _, prot)| prot & libc::PROT_READ == 0) {
            mprotect(at as *mut c_void, end - at, libc::PROT_READ);
        }
        for (at, end) in changed {
            to.byte_add(at - from).cast::<u8>().copy_from_nonoverlapping(at as *const u8, end - at);
        }
        for (at, end, prot) in rights.into_iter().filter(|(_, _, prot)| *prot != READ_WRITE) {
            mprotect(to.byte_add(at - from), end - at, prot);
        }
        if keeps {
            madvise(from as *mut c_void, old_len, libc::MADV_DONTNEED);
        } else {
            ARENA.lock().give(from, from + old_len, false);
        }
    }
    Some(to)
}

/// Shortens a range of the arena, or lengthens it if there is room. `None` if the range must move.
fn mremap_in_place(from: usize, old_len: usize, new_len: usize, flags: c_int) -> Option<*mut c_void> {
    if new_len <= old_len {
        ARENA.lock().give(from + new_len, from + old_len, false);
        return Some(from as *mut c_void);
    }
    let mut arena = ARENA.lock();
    if arena.ranges.end_of(from) == Some(from + old_len)
        && !arena.is_loose(from)
        && arena.extend(from, new_len)
    {
        return Some(from as *mut c_void);
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        set_errno(libc::ENOMEM);
        return Some(failed());
    }
    None
}
