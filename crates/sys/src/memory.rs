//! Address space.

use crate::{Error, Result, check};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;

/// Advice: huge pages are wanted.
pub const MADV_HUGEPAGE: i32 = libc::MADV_HUGEPAGE;
/// Advice: none are.
pub const MADV_NOHUGEPAGE: i32 = libc::MADV_NOHUGEPAGE;

/// Bytes of addresses that are reserved.
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of addresses that this process has by [`reserve`] and its kin, and has not given back.
pub fn reserved() -> usize {
    RESERVED.load(Relaxed)
}

/// Reserves `len` bytes of private anonymous memory, readable and writable, without promising that
/// they can all be used at once. A core dump leaves it out, and it gets no huge pages unless they
/// are asked for.
pub fn reserve(len: usize) -> Result<*mut u8> {
    // SAFETY: the kernel chooses the place; nothing is replaced.
    let at = unsafe { map(std::ptr::null_mut(), len, libc::MAP_NORESERVE) }?;
    RESERVED.fetch_add(len, Relaxed);
    // Of terabytes it would look at each page.
    advise(at as usize, len, libc::MADV_DONTDUMP);
    // Books are touched here and there: where the kernel gives huge pages to all, each touch would
    // cost 2 MiB.
    advise(at as usize, len, MADV_NOHUGEPAGE);
    Ok(at)
}

/// `len` bytes that this process shares with its forks; zeros.
pub fn share(len: usize) -> Result<*mut u8> {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the place; nothing is replaced.
    let at = unsafe {
        libc::syscall(libc::SYS_mmap, 0_usize, len, i64::from(rights), i64::from(flags), -1_i64, 0_i64)
    };
    check("mmap", at).map(|at| at as *mut u8)
}

/// Reserves room for `len` bytes, like [`reserve`], that begins on a huge page's edge.
pub fn reserve_huge(len: usize) -> Result<usize> {
    Ok((reserve(len + HUGE)? as usize).next_multiple_of(HUGE))
}

/// Puts fresh private anonymous memory at exactly `at`, over whatever is there.
///
/// # Safety
/// Nobody may rely on what was mapped there.
pub unsafe fn replace(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { put_over(at, len, libc::PROT_READ | libc::PROT_WRITE) }
}

unsafe fn put_over(at: *mut u8, len: usize, prot: i32) -> Result<()> {
    // SAFETY: the caller's promise.
    let replaced = unsafe { map_with(at, len, prot, libc::MAP_NORESERVE | libc::MAP_FIXED) };
    let replaced = replaced.or_else(|error| {
        if error.errno() != libc::ENOMEM {
            return Err(error);
        }
        // A process with all the mappings that it may have (vm.max_map_count) gets none, though
        // this takes the place of others: they go first. SAFETY: as above. What another thread maps
        // there meanwhile stays, and this fails.
        unsafe {
            check("munmap", libc::syscall(libc::SYS_munmap, at, len))?;
            map_with(at, len, prot, libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE)
        }
    });
    replaced.map(|_| ())
}

/// Makes addresses again that nobody may touch, whatever is there. A core dump leaves them out.
///
/// # Safety
/// Nobody may rely on what was mapped there.
pub unsafe fn close(at: usize, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { put_over(at as *mut u8, len, libc::PROT_NONE) }?;
    advise(at, len, libc::MADV_DONTDUMP);
    Ok(())
}

unsafe fn map(at: *mut u8, len: usize, flags: i32) -> Result<*mut u8> {
    // SAFETY: the caller's promise.
    unsafe { map_with(at, len, libc::PROT_READ | libc::PROT_WRITE, flags) }
}

unsafe fn map_with(at: *mut u8, len: usize, prot: i32, flags: i32) -> Result<*mut u8> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: as the callers argue.
    let answer = alike(|| unsafe { libc::syscall(libc::SYS_mmap, at, len, prot, flags, -1i64, 0i64) });
    if answer == -1 { Err(Error::last("mmap")) } else { Ok(answer as *mut u8) }
}

/// Whether the process may have `more` mappings than it has (`vm.max_map_count`), by making them.
pub fn has_room_for_mappings(more: usize) -> bool {
    let len = (more + 1) * crate::PAGE;
    // SAFETY: the kernel chooses the place; nothing is replaced.
    let made = unsafe { map_with(std::ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_NORESERVE) };
    let Ok(at) = made else { return false };
    // Each page whose rights are not its neighbours' is one more.
    let has_room = (1..=more).step_by(2).all(|page| {
        let page = at as usize + page * crate::PAGE;
        // SAFETY: mapped just now, and nobody's.
        unsafe { libc::syscall(libc::SYS_mprotect, page, crate::PAGE, libc::PROT_READ as i64) == 0 }
    });
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_munmap, at, len) };
    has_room
}

/// Whether the process locks what it maps (`mlockall` with `MCL_FUTURE`): all that it reserves
/// would be in memory at once.
pub fn is_locked_when_mapped() -> Result<bool> {
    // SAFETY: the kernel chooses the place; nothing is replaced.
    let at = unsafe { map(std::ptr::null_mut(), crate::PAGE, libc::MAP_NORESERVE) }?;
    // SAFETY: mapped just now, and nobody's. What is locked cannot be dropped.
    unsafe {
        let dropped = libc::syscall(libc::SYS_madvise, at, crate::PAGE, libc::MADV_DONTNEED as i64);
        libc::syscall(libc::SYS_munmap, at, crate::PAGE);
        Ok(dropped < 0)
    }
}

/// Whether a thread's personality (`personality(2)`) was changed so that what it maps to be read
/// has other rights than before, and whether it could be executed before.
static CHANGED: AtomicBool = AtomicBool::new(false);
static EXECUTABLE: AtomicBool = AtomicBool::new(false);

const READ_IMPLIES_EXEC: i64 = libc::READ_IMPLIES_EXEC as i64;

/// The calling thread's personality was one, and is another.
pub fn personality_changed(was: i64, is: i64) {
    if (was ^ is) & READ_IMPLIES_EXEC != 0 && !CHANGED.load(Relaxed) {
        EXECUTABLE.store(was & READ_IMPLIES_EXEC != 0, Relaxed);
        CHANGED.store(true, Relaxed);
    }
}

/// Maps memory, or changes its rights, as by the personality that the process had at first: pages
/// move only between memory of the same rights.
pub fn alike<T>(change: impl FnOnce() -> T) -> T {
    if !CHANGED.load(Relaxed) {
        return change();
    }
    // SAFETY: it is this thread's alone, and set back below; this number only asks.
    let personality = |to: i64| unsafe { libc::syscall(libc::SYS_personality, to) };
    let now = personality(0xffff_ffff);
    if (now & READ_IMPLIES_EXEC != 0) == EXECUTABLE.load(Relaxed) {
        return change();
    }
    personality(now ^ READ_IMPLIES_EXEC);
    let changed = change();
    let errno = std::io::Error::last_os_error();
    personality(now);
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno.raw_os_error().unwrap_or(0) };
    changed
}

/// Gives address space back.
///
/// # Safety
/// The range was [`reserve`]d, and nobody may use it any more.
pub unsafe fn unmap(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    check("munmap", unsafe { libc::syscall(libc::SYS_munmap, at, len) })?;
    RESERVED.fetch_sub(len, Relaxed);
    Ok(())
}

/// Makes a whole mapping `new_len` bytes long, here or elsewhere, with the bytes that both have;
/// others are zero.
///
/// # Safety
/// The mapping is the caller's alone, and nobody uses its old place any more.
pub unsafe fn remap(at: *mut u8, len: usize, new_len: usize) -> Result<*mut u8> {
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_mremap, at, len, new_len, libc::MREMAP_MAYMOVE as i64) };
    let at = check("mremap", answer)?;
    RESERVED.fetch_add(new_len, Relaxed);
    RESERVED.fetch_sub(len, Relaxed);
    Ok(at as *mut u8)
}

/// Frees the pages of a range of private anonymous memory; it reads as zeros, or faults, from then
/// on.
///
/// # Safety
/// Nobody may rely on the bytes.
pub unsafe fn discard(at: usize, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { drop_bytes(at, len, libc::MADV_DONTNEED) }
}

/// The same, of several ranges: an address and bytes each. Other processors are interrupted once
/// for all of them where the kernel can (Linux 6.16), and once for each elsewhere.
///
/// # Safety
/// Nobody may rely on the bytes.
pub unsafe fn discard_all(ranges: &[(usize, usize)]) -> Result<()> {
    /// The calling thread, whose memory is meant, without a descriptor (Linux 6.15,
    /// `linux/pidfd.h`). The process would not do: its first thread may have ended.
    const PIDFD_SELF_THREAD: i32 = -10000;
    /// Ranges of one call.
    const MOST: usize = 1024;
    static UNKNOWN: AtomicBool = AtomicBool::new(false);
    for ranges in ranges.chunks(MOST) {
        if ranges.len() > 1 && !UNKNOWN.load(Relaxed) {
            let piece = |&(at, len): &(usize, usize)| libc::iovec { iov_base: at as *mut _, iov_len: len };
            let pieces: Vec<libc::iovec> = ranges.iter().map(piece).collect();
            let (first, count) = (pieces.as_ptr(), pieces.len());
            // SAFETY: the pieces are an array of `count`; for their memory, the caller's promise.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_process_madvise,
                    PIDFD_SELF_THREAD,
                    first,
                    count,
                    libc::MADV_DONTNEED,
                    0,
                )
            };
            if done == pieces.iter().map(|piece| piece.iov_len).sum::<usize>() as i64 {
                continue;
            }
            UNKNOWN.store(true, Relaxed);
        }
        // SAFETY: the caller's promise; to discard what is discarded does nothing.
        ranges.iter().try_for_each(|&(at, len)| unsafe { discard(at, len) })?;
    }
    Ok(())
}

/// The same, of any memory, by the advice that says how (`MADV_DONTNEED`, `MADV_FREE`,
/// `MADV_REMOVE`).
///
/// # Safety
/// Nobody may rely on the bytes.
pub unsafe fn drop_bytes(at: usize, len: usize, advice: i32) -> Result<()> {
    // SAFETY: the caller's promise.
    check("madvise", unsafe { libc::syscall(libc::SYS_madvise, at, len, advice) }).map(|_| ())
}

/// Gives advice about a range that changes no bytes (huge pages, dump, fork). Whether it was taken.
pub fn advise(at: usize, len: usize, advice: i32) -> bool {
    debug_assert!(![libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE].contains(&advice));
    // SAFETY: such advice changes no bytes.
    unsafe { libc::syscall(libc::SYS_madvise, at, len, advice) == 0 }
}

/// Makes every page of a range present and writable, as a write to it would.
pub fn populate(at: usize, len: usize) -> Result<()> {
    const MADV_POPULATE_WRITE: i32 = 23;
    // SAFETY: populating changes no bytes that anybody sees.
    let answer = unsafe { libc::syscall(libc::SYS_madvise, at, len, MADV_POPULATE_WRITE) };
    check("madvise(MADV_POPULATE_WRITE)", answer).map(|_| ())
}

/// Makes the page at `at` this process's alone, when a fork has left it shared, by
/// writing back a word that it holds.
///
/// # Safety
/// `at` is the address of a present, writable page.
pub unsafe fn make_exclusive(at: usize) {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    // SAFETY: the page is present and writable; an atomic exchange of a word for itself
    // is seen by no other thread, and no other thread's write is lost.
    let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
    let mut now = word.load(SeqCst);
    while let Err(other) = word.compare_exchange(now, now, SeqCst, SeqCst) {
        now = other;
    }
}

/// Has the kernel split the huge page that the page at `at` is one of, if any, into single ones; as
/// far as it can.
///
/// `UFFDIO_MOVE` asks whether the first page of a huge page is this process's alone, whichever it
/// is to move: where a fork has had that one copied, the others would never go (Linux 6.18).
pub fn part(at: usize) {
    // A huge page of which a part is to be reclaimed first is split.
    advise(at, crate::PAGE, libc::MADV_COLD);
}

/// The bytes of a range, to read and write.
///
/// # Safety
/// The range is mapped and populated, and nobody else touches it while the slice lives.
pub unsafe fn bytes<'a>(at: usize, len: usize) -> &'a mut [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) }
}

/// Pieces of one call at most: the kernel's own limit (`IOV_MAX`).
pub const PIECES: usize = 1024;

/// Copies `len` bytes that a program says to have; `false` where they cannot all be read. The
/// kernel looks, as it does in a system call.
///
/// # Safety
/// There is room for the bytes at `to`.
pub unsafe fn copy_what_is_there(to: *mut u8, from: *const u8, len: usize) -> bool {
    let mut done = 0;
    while done < len {
        let piece =
            |at: usize| libc::iovec { iov_base: (at + done) as *mut libc::c_void, iov_len: len - done };
        let (into, there) = (piece(to as usize), piece(from as usize));
        // SAFETY: the kernel writes where there is room, by the caller's promise, and says what it
        // cannot read.
        let got = unsafe {
            libc::syscall(
                libc::SYS_process_vm_readv,
                libc::getpid(),
                &raw const into,
                1u64,
                &raw const there,
                1u64,
                0u64,
            )
        };
        if got <= 0 {
            let may_not = Error::last("process_vm_readv").errno() != libc::EFAULT && got < 0;
            if may_not {
                // A filter keeps the call from processes: then the program is trusted.
                // SAFETY: the caller's promise, and the program's.
                unsafe { to.add(done).copy_from_nonoverlapping(from.add(done), len - done) };
            }
            return may_not;
        }
        done += got as usize;
    }
    true
}

/// Whether a program's pieces of memory can be read: where they are, not what they name.
pub fn are_readable(pieces: *const libc::iovec, count: usize) -> bool {
    const PART: usize = 256;
    let (from, len) = (pieces as usize, count.saturating_mul(size_of::<libc::iovec>()));
    let mut part = [0; PART];
    // SAFETY: the part has room.
    (0..len).step_by(PART).all(|at| unsafe {
        copy_what_is_there(part.as_mut_ptr(), from.wrapping_add(at) as *const u8, PART.min(len - at))
    })
}

#[cfg(test)]
mod tests {
    use super::{bytes, discard_all, reserve};
    use crate::PAGE;

    #[test]
    fn several_ranges_are_discarded_and_nothing_else() {
        const PAGES: usize = 3000;
        let at = reserve(PAGES * PAGE).unwrap() as usize;
        // SAFETY: mapped just now, and this test's alone.
        let memory = unsafe { bytes(at, PAGES * PAGE) };
        for ranges in [0, 1, 2, PAGES / 2] {
            memory.fill(7);
            let pieces: Vec<_> = (0..ranges).map(|index| (at + 2 * index * PAGE, PAGE)).collect();
            // SAFETY: nobody relies on them.
            unsafe { discard_all(&pieces) }.unwrap();
            for (page, bytes) in memory.chunks(PAGE).enumerate() {
                let discarded = page % 2 == 0 && page / 2 < ranges;
                assert!(bytes.iter().all(|&byte| byte == if discarded { 0 } else { 7 }), "{ranges}: {page}");
            }
        }
        // SAFETY: never mapped.
        assert!(unsafe { discard_all(&[(1 << 46, PAGE), ((1 << 46) + 2 * PAGE, PAGE)]) }.is_err());
    }

    #[test]
    fn what_is_reserved_gets_no_huge_pages() {
        let at = reserve(16 * PAGE).unwrap() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        let flags = maps.lines().find(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let Some((from, to)) = range.and_then(|(from, to)| Some((number(from)?, number(to)?))) {
                inside = from <= at && at < to;
            }
            inside && line.starts_with("VmFlags:")
        });
        assert!(flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "nh")), "{flags:?}");
    }
}
