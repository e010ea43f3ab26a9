//! Address space: mapping, reserving, discarding and copying memory.

use crate::{Error, Result, check};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;

/// Whether the kernel's huge pages have [`HUGE`] bytes. With pages of more than 4 KiB they have 32
/// MiB or 512 MiB, which is too much for a budget.
pub fn has_huge() -> bool {
    crate::page_bytes() == crate::PAGE_LEAST
}

/// Advice: huge pages are wanted.
pub const MADV_HUGEPAGE: i32 = libc::MADV_HUGEPAGE;
/// Advice: no huge pages are wanted.
pub const MADV_NOHUGEPAGE: i32 = libc::MADV_NOHUGEPAGE;

/// Bytes of address space that are reserved.
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of address space that this process has reserved by [`reserve`] and its kin, and not
/// returned.
pub fn reserved() -> usize {
    RESERVED.load(Relaxed)
}

/// Reserves `len` bytes of private anonymous memory, readable and writable. All of them together
/// may exceed the usable memory. A core dump leaves them out, and they get no huge pages unless the
/// caller asks for these.
pub fn reserve(len: usize) -> Result<*mut u8> {
    reserve_at(None, len)
}

/// Reserves `len` bytes as [`reserve`] does, at a place if one is given, which must be free.
pub fn reserve_at(place: Option<usize>, len: usize) -> Result<*mut u8> {
    let fixed = if place.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
    let place = std::ptr::without_provenance_mut(place.unwrap_or(0));
    // SAFETY: nothing is replaced.
    let at = unsafe { map(place, len, libc::MAP_NORESERVE | fixed) }?;
    RESERVED.fetch_add(len, Relaxed);
    // A core dump would inspect each page of terabytes.
    advise(at as usize, len, libc::MADV_DONTDUMP);
    // Touches of tables are scattered. If the kernel gave huge pages to all memory, each touch
    // would cost 2 MiB.
    advise(at as usize, len, MADV_NOHUGEPAGE);
    Ok(at)
}

/// Maps `len` bytes of zeros that this process shares with its forked children.
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

/// Puts fresh private anonymous memory at exactly `at`, in place of any other mapping.
///
/// # Safety
/// No code relies on the memory that was mapped there.
pub unsafe fn replace(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: the caller promises that no code relies on the old mappings.
    unsafe { put_over(at, len, libc::PROT_READ | libc::PROT_WRITE) }
}

unsafe fn put_over(at: *mut u8, len: usize, prot: i32) -> Result<()> {
    // SAFETY: the caller promises that no code relies on the old mappings.
    let replaced = unsafe { map_with(at, len, prot, libc::MAP_NORESERVE | libc::MAP_FIXED) };
    let replaced = replaced.or_else(|error| {
        if error.errno() != libc::ENOMEM {
            return Err(error);
        }
        // A process that has all the mappings that it may have (vm.max_map_count) gets no more,
        // even in place of others: so the others are unmapped first. SAFETY: the caller promises
        // that no code relies on the old mappings. If another thread maps something there
        // meanwhile, its mapping stays, and this call fails.
        unsafe {
            check("munmap", libc::syscall(libc::SYS_munmap, at, len))?;
            map_with(at, len, prot, libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE)
        }
    });
    replaced.map(|_| ())
}

/// Makes addresses inaccessible again, whatever is mapped there. A core dump leaves them out.
///
/// # Safety
/// No code relies on the memory that was mapped there.
pub unsafe fn close(at: usize, len: usize) -> Result<()> {
    // SAFETY: the caller promises that no code relies on the old mappings.
    unsafe { put_over(at as *mut u8, len, libc::PROT_NONE) }?;
    advise(at, len, libc::MADV_DONTDUMP);
    Ok(())
}

/// The protection of memory that may be read.
pub const READ_ONLY: i32 = libc::PROT_READ;
/// The protection of memory that may be read and written.
pub const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Sets the protection (`PROT_*`) of whole pages.
///
/// # Safety
/// No code relies on an access that the new protection forbids.
pub unsafe fn protect(at: usize, len: usize, protection: i32) -> Result<()> {
    // SAFETY: the caller promises that no code relies on what is forbidden.
    let answer = unsafe { libc::syscall(libc::SYS_mprotect, at, len, i64::from(protection)) };
    check("mprotect", answer).map(drop)
}

unsafe fn map(at: *mut u8, len: usize, flags: i32) -> Result<*mut u8> {
    // SAFETY: each caller argues for its place and flags.
    unsafe { map_with(at, len, libc::PROT_READ | libc::PROT_WRITE, flags) }
}

unsafe fn map_with(at: *mut u8, len: usize, prot: i32, flags: i32) -> Result<*mut u8> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: each caller argues for its place and flags.
    let answer = alike(|| unsafe { libc::syscall(libc::SYS_mmap, at, len, prot, flags, -1i64, 0i64) });
    if answer == -1 { Err(Error::last("mmap")) } else { Ok(answer as *mut u8) }
}

/// Whether the process may have `more` additional mappings (`vm.max_map_count`): tries it.
pub fn has_room_for_mappings(more: usize) -> bool {
    let len = (more + 1) * crate::page_bytes();
    // SAFETY: the kernel chooses the place; nothing is replaced.
    let made = unsafe { map_with(std::ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_NORESERVE) };
    let Ok(at) = made else { return false };
    // Each page whose rights differ from its neighbours' is one more mapping.
    let has_room = (1..=more).step_by(2).all(|page| {
        let page = at as usize + page * crate::page_bytes();
        // SAFETY: the memory was mapped just now, and has no other user.
        unsafe { libc::syscall(libc::SYS_mprotect, page, crate::page_bytes(), libc::PROT_READ as i64) == 0 }
    });
    // SAFETY: the memory was mapped by this function, and nobody else uses it.
    unsafe { libc::syscall(libc::SYS_munmap, at, len) };
    has_room
}

/// Whether the process locks all memory that it maps (`mlockall` with `MCL_FUTURE`): then all
/// reserved memory would be present at once.
pub fn is_locked_when_mapped() -> Result<bool> {
    // SAFETY: the kernel chooses the place; nothing is replaced.
    let at = unsafe { map(std::ptr::null_mut(), crate::page_bytes(), libc::MAP_NORESERVE) }?;
    // SAFETY: the page was mapped just now, and has no other user. A locked page cannot be dropped.
    unsafe {
        let dropped = libc::syscall(libc::SYS_madvise, at, crate::page_bytes(), libc::MADV_DONTNEED as i64);
        libc::syscall(libc::SYS_munmap, at, crate::page_bytes());
        Ok(dropped < 0)
    }
}

/// Whether a thread changed its personality (`personality(2)`) so that readable mappings get other
/// rights than before.
static CHANGED: AtomicBool = AtomicBool::new(false);
/// Whether readable mappings were executable before that change.
static EXECUTABLE: AtomicBool = AtomicBool::new(false);

const READ_IMPLIES_EXEC: i64 = libc::READ_IMPLIES_EXEC as i64;

/// Notes that the personality of the calling thread was `was`, and is `is`.
pub fn personality_changed(was: i64, is: i64) {
    if (was ^ is) & READ_IMPLIES_EXEC != 0 && !CHANGED.load(Relaxed) {
        EXECUTABLE.store(was & READ_IMPLIES_EXEC != 0, Relaxed);
        CHANGED.store(true, Relaxed);
    }
}

/// Runs `change`, which maps memory or changes its rights, under the personality with which the
/// process began: pages move only between mappings with the same rights.
pub fn alike<T>(change: impl FnOnce() -> T) -> T {
    if !CHANGED.load(Relaxed) {
        return change();
    }
    // SAFETY: the personality concerns only this thread, and is restored below; the number
    // 0xffffffff only queries.
    let personality = |to: i64| unsafe { libc::syscall(libc::SYS_personality, to) };
    let now = personality(0xffff_ffff);
    if (now & READ_IMPLIES_EXEC != 0) == EXECUTABLE.load(Relaxed) {
        return change();
    }
    personality(now ^ READ_IMPLIES_EXEC);
    let changed = change();
    let errno = std::io::Error::last_os_error();
    personality(now);
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() = errno.raw_os_error().unwrap_or(0) };
    changed
}

/// Gives reserved address space back.
///
/// # Safety
/// The range was [`reserve`]d, and is no longer used.
pub unsafe fn unmap(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: the caller promises a reserved range that is no longer used.
    check("munmap", unsafe { libc::syscall(libc::SYS_munmap, at, len) })?;
    RESERVED.fetch_sub(len, Relaxed);
    Ok(())
}

/// Changes the length of a whole mapping to `new_len` bytes, in place or at a new address. The
/// bytes up to the smaller length are kept; new bytes are zero.
///
/// # Safety
/// Only the caller uses the mapping, and no code uses its old place.
pub unsafe fn remap(at: *mut u8, len: usize, new_len: usize) -> Result<*mut u8> {
    // SAFETY: the caller promises that only it uses the mapping.
    let answer = unsafe { libc::syscall(libc::SYS_mremap, at, len, new_len, libc::MREMAP_MAYMOVE as i64) };
    let at = check("mremap", answer)?;
    RESERVED.fetch_add(new_len, Relaxed);
    RESERVED.fetch_sub(len, Relaxed);
    Ok(at as *mut u8)
}

/// Frees the pages of a range of private anonymous memory: from then on the range reads as zeros,
/// or faults.
///
/// # Safety
/// No code relies on the bytes.
pub unsafe fn discard(at: usize, len: usize) -> Result<()> {
    // SAFETY: the caller promises that no code relies on the bytes.
    unsafe { drop_bytes(at, len, libc::MADV_DONTNEED) }
}

/// Frees the pages of several ranges, each an address and a length. If the kernel can (Linux 6.16),
/// it interrupts other processors once for all ranges, otherwise once for each range.
///
/// # Safety
/// No code relies on the bytes.
pub unsafe fn discard_all(ranges: &[(usize, usize)]) -> Result<()> {
    /// Names the memory of the calling thread, without a descriptor (Linux 6.15, `linux/pidfd.h`).
    /// The process itself cannot be named, because its first thread may have ended.
    const PIDFD_SELF_THREAD: i32 = -10000;
    /// The most ranges of one call.
    const MOST: usize = 1024;
    static UNKNOWN: AtomicBool = AtomicBool::new(false);
    for ranges in ranges.chunks(MOST) {
        if ranges.len() > 1 && !UNKNOWN.load(Relaxed) {
            let piece = |&(at, len): &(usize, usize)| libc::iovec { iov_base: at as *mut _, iov_len: len };
            let pieces: Vec<libc::iovec> = ranges.iter().map(piece).collect();
            let (first, count) = (pieces.as_ptr(), pieces.len());
            // SAFETY: the pieces are an array of `count`; the caller promises that no code relies
            // on their memory.
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
        // SAFETY: the caller promises that no code relies on the bytes; discarding a range twice is
        // harmless.
        ranges.iter().try_for_each(|&(at, len)| unsafe { discard(at, len) })?;
    }
    Ok(())
}

/// Drops the bytes of any memory, in the way that the advice says (`MADV_DONTNEED`, `MADV_FREE`,
/// `MADV_REMOVE`).
///
/// # Safety
/// No code relies on the bytes.
pub unsafe fn drop_bytes(at: usize, len: usize, advice: i32) -> Result<()> {
    // SAFETY: the caller promises that no code relies on the bytes.
    check("madvise", unsafe { madvise(at, len, advice) }).map(|_| ())
}

/// The kernel's `madvise`.
///
/// # Safety
/// No code relies on the bytes that the advice drops.
pub unsafe fn madvise(at: usize, len: usize, advice: i32) -> i64 {
    // SAFETY: the caller promises that no code relies on the bytes.
    unsafe { libc::passing(libc::SYS_madvise, [at, len, advice as usize, 0, 0, 0]) }
}

/// Gives advice about a range that changes no bytes (huge pages, dump, fork). Returns whether the
/// kernel accepted it.
pub fn advise(at: usize, len: usize, advice: i32) -> bool {
    debug_assert!(![libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE].contains(&advice));
    // SAFETY: such advice changes no bytes.
    unsafe { madvise(at, len, advice) == 0 }
}

/// Whether any of the first pages of a mapping, or its last page, is in memory: whether its use has
/// begun.
pub fn is_begun(at: usize, len: usize) -> bool {
    let mut pages = [0_u8; 256];
    let mut begun = |from: usize, len: usize| {
        // SAFETY: the kernel writes a byte for each page, and there are no more pages than bytes.
        let done = unsafe { libc::syscall(libc::SYS_mincore, from, len, pages.as_mut_ptr()) };
        done != 0 || pages[..len.div_ceil(crate::page_bytes())].iter().any(|page| page & 1 != 0)
    };
    let last = (at + len - 1) / crate::page_bytes() * crate::page_bytes();
    begun(at, len.min(256 * crate::page_bytes())) || begun(last, crate::page_bytes())
}

/// Makes every page of a range present and writable, as a write to it would.
pub fn populate(at: usize, len: usize) -> Result<()> {
    const MADV_POPULATE_WRITE: i32 = 23;
    // SAFETY: populating changes no visible bytes.
    let answer = unsafe { madvise(at, len, MADV_POPULATE_WRITE) };
    check("madvise(MADV_POPULATE_WRITE)", answer).map(|_| ())
}

/// If a fork has left the page at `at` shared, makes it exclusive to this process, by writing one
/// of its words back to itself.
///
/// # Safety
/// `at` is the address of a present, writable page.
pub unsafe fn make_exclusive(at: usize) {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    // SAFETY: the page is present and writable. An atomic exchange of a word with itself changes
    // nothing for other threads and loses none of their writes.
    let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
    let mut now = word.load(SeqCst);
    while let Err(other) = word.compare_exchange(now, now, SeqCst, SeqCst) {
        now = other;
    }
}

/// Lets the kernel split the huge page that contains the page at `at`, if there is one and if the
/// kernel can.
///
/// `UFFDIO_MOVE` checks whether the first page of the huge page is exclusive to this process,
/// whichever page it moves. If that first page was copied after a fork, the others could never be
/// moved (Linux 6.18).
pub fn part(at: usize) {
    // The kernel splits a huge page if only a part of it is marked as cold.
    advise(at, crate::page_bytes(), libc::MADV_COLD);
}

/// The bytes of a range, to read and write.
///
/// # Safety
/// The range is mapped and populated, and has no other user while the slice lives.
pub unsafe fn bytes<'a>(at: usize, len: usize) -> &'a mut [u8] {
    // SAFETY: the caller promises a mapped range without other users.
    unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) }
}

/// The most pieces of one call: the kernel's limit (`IOV_MAX`).
pub const PIECES: usize = 1024;

/// Copies `len` bytes from an address that a program passed; `false` if some of them cannot be
/// read. The kernel checks the address, as in any system call.
///
/// # Safety
/// `to` has room for `len` bytes.
pub unsafe fn copy_what_is_there(to: *mut u8, from: *const u8, len: usize) -> bool {
    let mut done = 0;
    while done < len {
        let piece =
            |at: usize| libc::iovec { iov_base: (at + done) as *mut libc::c_void, iov_len: len - done };
        let (into, there) = (piece(to as usize), piece(from as usize));
        // SAFETY: the caller promises room at `to`; the kernel reports unreadable bytes.
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
                // A seccomp filter may forbid the call: then the program's address is trusted.
                // SAFETY: the caller promises room at `to`, and the program passed the address as
                // its own memory.
                unsafe { to.add(done).copy_from_nonoverlapping(from.add(done), len - done) };
            }
            return may_not;
        }
        done += got as usize;
    }
    true
}

/// Whether a program's array of pieces can be read: only the array itself, not the memory of its
/// pieces.
pub fn are_readable(pieces: *const libc::iovec, count: usize) -> bool {
    const PART: usize = 256;
    let (from, len) = (pieces as usize, count.saturating_mul(size_of::<libc::iovec>()));
    let mut part = [0; PART];
    // SAFETY: the buffer has room for a part.
    (0..len).step_by(PART).all(|at| unsafe {
        copy_what_is_there(part.as_mut_ptr(), from.wrapping_add(at) as *const u8, PART.min(len - at))
    })
}

/// A copy of an array of pieces; `None` if the array cannot be read.
pub fn copied_pieces(pieces: *const libc::iovec, count: usize) -> Option<Vec<libc::iovec>> {
    let mut copy = vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; count];
    // SAFETY: the copy has room for all pieces.
    let is_read = unsafe {
        copy_what_is_there(copy.as_mut_ptr().cast(), pieces.cast(), count * size_of::<libc::iovec>())
    };
    is_read.then_some(copy)
}

#[cfg(test)]
mod tests {
    use super::{bytes, discard_all, reserve};
    use crate::page_bytes;

    #[test]
    fn several_ranges_are_discarded_and_nothing_else() {
        const PAGES: usize = 3000;
        let at = reserve(PAGES * page_bytes()).unwrap() as usize;
        // SAFETY: the memory was mapped just now, and only this test uses it.
        let memory = unsafe { bytes(at, PAGES * page_bytes()) };
        for ranges in [0, 1, 2, PAGES / 2] {
            memory.fill(7);
            let pieces: Vec<_> =
                (0..ranges).map(|index| (at + 2 * index * page_bytes(), page_bytes())).collect();
            // SAFETY: no code relies on these pages.
            unsafe { discard_all(&pieces) }.unwrap();
            for (page, bytes) in memory.chunks(page_bytes()).enumerate() {
                let discarded = page % 2 == 0 && page / 2 < ranges;
                assert!(bytes.iter().all(|&byte| byte == if discarded { 0 } else { 7 }), "{ranges}: {page}");
            }
        }
        let nowhere = [1 << 46, (1 << 46) + 2 * page_bytes()].map(|at| (at, page_bytes()));
        // SAFETY: the addresses were never mapped.
        assert!(unsafe { discard_all(&nowhere) }.is_err());
    }

    #[test]
    fn what_is_reserved_gets_no_huge_pages() {
        let at = reserve(16 * page_bytes()).unwrap() as usize;
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
