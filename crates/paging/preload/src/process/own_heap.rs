//! The library's own heap: memory that is not paged and does not come from any other `malloc`.
//!
//! The pager must not wait for itself, so the memory that it uses must not be paged. The C
//! library's heap would suffice, but no name reliably leads to it: tcmalloc, jemalloc and others,
//! as libraries or in the program, also define `__libc_malloc`, and their objects lie in paged
//! memory.
//!
//! This heap is the [global allocator](OwnHeap) of the library, and serves `malloc` for objects
//! that must not be paged.

use crate::limits;
use crate::lock::Lock;
use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_heap::{Grow, Growing};
use terapage_sys::{memory, page_bytes};

/// Bytes of addresses reserved for the heap. Large tables are elsewhere, so the heap does not fill
/// them.
const MOST: usize = 1 << 30;
/// The least bytes of addresses for the heap.
const LEAST: usize = 16 << 20;
/// The heap takes a limit (`ulimit -v`, `ulimit -d`) divided by this: the arena needs the rest.
const PART_OF_LIMIT: usize = 64;

/// The heap grows in steps of this many bytes.
const STEP: usize = 256 << 10;

/// The library's own objects of at least this many bytes get separate mappings: tables that grow by
/// moving. If no further mappings are allowed, they come from the heap, like others.
const LARGE: usize = 1 << 20;

/// The start of the heap.
static FROM: AtomicUsize = AtomicUsize::new(0);
/// The end of the filled part.
static FILLED: AtomicUsize = AtomicUsize::new(0);
/// The end of the heap's addresses.
static TO: AtomicUsize = AtomicUsize::new(0);

/// The heap's memory: one range, filled from the front, of which nothing is returned. It is used
/// under the heap's lock.
struct Room;

// SAFETY: the ranges are parts of one reservation, and each is handed out once.
unsafe impl Grow for Room {
    fn grow(&self, size: usize) -> Option<(usize, usize)> {
        if FROM.load(Relaxed) == 0 {
            open();
        }
        let at = FILLED.load(Relaxed);
        let size = size.checked_next_multiple_of(STEP)?;
        let end = at.checked_add(size).filter(|&end| end <= TO.load(Relaxed))?;
        FILLED.store(end, Relaxed);
        // Debuggers read data that the loader keeps here.
        memory::advise(at, size, libc::MADV_DODUMP);
        Some((at, size))
    }
}

/// Reserves the range. It stays empty if not even the minimum can be reserved.
fn open() {
    let most = limits::lower().map_or(MOST, |limit| limit / PART_OF_LIMIT);
    let mut len = most.clamp(LEAST, MOST).next_multiple_of(STEP);
    while len >= LEAST {
        if let Ok(at) = memory::reserve(len) {
            FILLED.store(at as usize, Relaxed);
            TO.store(at as usize + len, Relaxed);
            FROM.store(at as usize, Relaxed);
            return;
        }
        len /= 2;
    }
}

static HEAP: Lock<Dlmalloc<Growing<Room>>> = Lock::quiet(Dlmalloc::new_with_allocator(Growing(Room)));

/// Objects before this address were allocated before the fork that made this process: they may be
/// used, but not freed.
static INHERITED: AtomicUsize = AtomicUsize::new(0);

/// Begins a new heap, in the child of a fork. The parent's pager cannot be kept from allocating
/// during the fork, since it serves the forking thread's faults. So the old heap may be in the
/// middle of a change, with its lock held for ever. Its objects are left alone.
///
/// # Safety
/// The process has one thread.
pub unsafe fn renew() {
    INHERITED.store(FILLED.load(Relaxed), Relaxed);
    // SAFETY: the caller promises that there is one thread, so the lock has no other user.
    unsafe { HEAP.renew(Dlmalloc::new_with_allocator(Growing(Room))) };
}

fn is_inherited(at: *mut u8) -> bool {
    (at as usize) < INHERITED.load(Relaxed)
}

/// Whether an address is in the heap.
pub fn contains(at: usize) -> bool {
    at >= FROM.load(Relaxed) && at < FILLED.load(Relaxed)
}

/// Allocates `size` bytes at a multiple of 16 and of `align`, a power of two. Null if memory is
/// exhausted.
pub fn allocate(size: usize, align: usize, zero: bool) -> *mut u8 {
    let mut heap = HEAP.lock();
    // SAFETY: any size is allowed, and the alignment is a power of two.
    let at = unsafe { if align <= 16 { heap.c_malloc(size) } else { heap.c_memalign(align, size) } };
    drop(heap);
    if zero && !at.is_null() {
        // SAFETY: the object has `size` bytes.
        unsafe { at.write_bytes(0, size) };
    }
    at
}

/// Frees an object.
///
/// # Safety
/// [`allocate`] or [`resize`] returned the object, and it has not been freed.
pub unsafe fn free(at: *mut u8) {
    if !is_inherited(at) {
        // SAFETY: the caller passes an object that has not been freed.
        unsafe { HEAP.lock().c_free(at) }
    }
}

/// Changes the size of an object, aligned to 16, to `size` bytes, in place or at a new address.
/// Null if there is no room: then the object is unchanged.
///
/// # Safety
/// As for [`free`].
pub unsafe fn resize(at: *mut u8, size: usize) -> *mut u8 {
    if !is_inherited(at) {
        // SAFETY: the caller passes an object that has not been freed.
        return unsafe { HEAP.lock().c_realloc(at, size) };
    }
    let new = allocate(size, 16, false);
    if !new.is_null() {
        // SAFETY: both objects are at least as long as the copy, and do not overlap.
        unsafe { new.copy_from_nonoverlapping(at, usable(at).min(size)) };
    }
    new
}

/// The bytes that an object may use.
///
/// # Safety
/// As for [`free`].
pub unsafe fn usable(at: *mut u8) -> usize {
    // dlmalloc's header, a word before the object: the size including that word, and three flags in
    // the lowest bits. SAFETY: the caller passes an object that has not been freed.
    let head = unsafe { *at.cast::<usize>().sub(1) };
    (head & !7) - size_of::<usize>()
}

/// The global allocator.
pub struct OwnHeap;

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= page_bytes()
}

// SAFETY: `Dlmalloc` keeps the contract, and the kernel does so for whole pages. The layout and the
// address determine which of the two served an object.
unsafe impl GlobalAlloc for OwnHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout)
            && let Ok(at) = memory::reserve(layout.size())
        {
            return at;
        }
        allocate(layout.size(), layout.align(), false)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller promises an object of this allocator, with its layout.
        unsafe {
            if is_large(layout) && !contains(at as usize) {
                memory::unmap(at, layout.size()).ok();
            } else {
                free(at);
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout)
            && let Ok(at) = memory::reserve(layout.size())
        {
            // Fresh pages are zero.
            return at;
        }
        allocate(layout.size(), layout.align(), true)
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size does not overflow with this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller promises an object of this allocator; the copy lies within both.
        unsafe {
            let is_mapped = is_large(layout) && !contains(at as usize);
            if is_mapped
                && is_large(new_layout)
                && let Ok(new) = memory::remap(at, layout.size(), size)
            {
                return new;
            }
            match (is_mapped, is_large(new_layout)) {
                (false, false) if layout.align() <= 16 => resize(at, size),
                _ => {
                    let new = self.alloc(new_layout);
                    if !new.is_null() {
                        new.copy_from_nonoverlapping(at, size.min(layout.size()));
                        self.dealloc(at, layout);
                    }
                    new
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LARGE, OwnHeap, STEP, allocate, contains, free, renew, resize, usable};
    use proptest::prelude::*;
    use std::alloc::{GlobalAlloc, Layout};

    #[test]
    fn an_object_has_the_room_that_it_says() {
        for size in [0, 1, 15, 24, 25, 1000, STEP, 3 * STEP + 1] {
            for align in [1, 16, 64, 4096] {
                let at = allocate(size, align, true);
                assert!(contains(at as usize) && (at as usize).is_multiple_of(align.max(16)));
                // SAFETY: the object was allocated just now, with this length.
                unsafe {
                    assert!(usable(at) >= size);
                    assert!((0..size).all(|i| *at.add(i) == 0));
                    at.write_bytes(0xee, usable(at));
                    free(at);
                }
            }
        }
    }

    #[test]
    fn a_resized_object_keeps_its_bytes() {
        let mut at = allocate(10, 16, false);
        // SAFETY: the object has the given length.
        unsafe {
            at.write_bytes(7, 10);
            for size in [100, 100_000, 3 * STEP, 20] {
                at = resize(at, size);
                assert!((0..10).all(|i| *at.add(i) == 7));
                at.add(10).write_bytes(8, size - 10);
            }
            free(at);
        }
    }

    #[test]
    fn a_child_leaves_alone_what_it_inherits() {
        let old: Vec<*mut u8> = (0..100).map(|_| allocate(100, 16, false)).collect();
        // SAFETY: the objects have the given lengths; the child uses only this heap, and ends.
        unsafe {
            old.iter().for_each(|at| at.write_bytes(7, 100));
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                renew();
                let longer = resize(old[0], 5000);
                let mut right = (0..100).all(|i| *longer.add(i) == 7);
                old.iter().for_each(|&at| free(at));
                for _ in 0..1000 {
                    let new = allocate(100, 16, false);
                    right &= !new.is_null() && old.iter().all(|&at| at.addr().abs_diff(new.addr()) >= 100);
                }
                libc::_exit(if right { 0 } else { 1 });
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
            old.into_iter().for_each(|at| free(at));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Objects of the global allocator against plain vectors.
        #[test]
        fn allocations_keep_their_bytes(
            steps in prop::collection::vec((0_usize..8, 1_usize..2 * LARGE, 0_u32..14), 0..30)
        ) {
            let mut live: Vec<Option<(*mut u8, Layout, u8)>> = vec![None; 8];
            let check = |(at, layout, value): (*mut u8, Layout, u8)| {
                // SAFETY: the object lives, and has this length.
                let bytes = unsafe { std::slice::from_raw_parts(at, layout.size()) };
                assert!(bytes.iter().all(|&byte| byte == value));
            };
            for (number, (place, size, align)) in steps.into_iter().enumerate() {
                let value = number as u8;
                let layout = Layout::from_size_align(size, 1 << align).unwrap();
                // SAFETY: each object is used only while it lives, with its layout.
                unsafe {
                    live[place] = match live[place] {
                        None => {
                            let at = OwnHeap.alloc_zeroed(layout);
                            check((at, layout, 0));
                            Some((at, layout))
                        }
                        Some((at, old, had)) if number % 2 == 0 => {
                            let new = Layout::from_size_align(size, old.align()).unwrap();
                            let at = OwnHeap.realloc(at, old, size);
                            check((at, Layout::from_size_align(size.min(old.size()), 1).unwrap(), had));
                            Some((at, new))
                        }
                        Some((at, old, had)) => {
                            check((at, old, had));
                            OwnHeap.dealloc(at, old);
                            None
                        }
                    }
                    .map(|(at, layout)| {
                        assert!((at as usize).is_multiple_of(layout.align()));
                        at.write_bytes(value, layout.size());
                        (at, layout, value)
                    });
                }
            }
            for object in live.into_iter().flatten() {
                check(object);
                // SAFETY: as above.
                unsafe { OwnHeap.dealloc(object.0, object.1) };
            }
        }
    }

    #[test]
    fn within_the_leading_lock_signals_are_blocked_once_and_till_its_end() {
        static OUTER: crate::lock::Lock<()> = crate::lock::Lock::leading(());
        static INNER: crate::lock::Lock<()> = crate::lock::Lock::quiet(());
        let blocked = || {
            // SAFETY: plain data, for which zeros are a value, and which has room for the answer.
            unsafe {
                let mut now: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now);
                libc::sigismember(&raw const now, libc::SIGALRM) == 1
            }
        };
        for _ in 0..2 {
            assert!(!blocked());
            let outer = OUTER.lock();
            assert!(blocked());
            drop(INNER.lock());
            assert!(blocked(), "the inner lock must not unblock them");
            drop(outer);
            assert!(!blocked());
            let inner = INNER.lock();
            assert!(blocked(), "alone, the inner lock blocks them");
            drop(inner);
        }
    }
}
