//! The heap behind the hooks of [malloc's family](super::malloc): small objects in heaps of the
//! arena, large ones in separate ranges.
//!
//! Each thread uses one of a few heaps, so threads seldom wait for one another. The address of an
//! object determines its heap.
//!
//! Objects of the pager's threads come from the library's [own](crate::own_heap) heap. Requests
//! that the user does not want paged go to the [C library's](crate::next_malloc).

use crate::arena::{self, ARENA};
use crate::elf::{is_defined, object_of};
use crate::lock::Lock;
use crate::{caches, callers, family, limits, locked, maps, next_malloc, own_heap, set_errno};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use terapage_heap::{CHUNK, Heap, Memory, NotAnObject, SIZES_BYTES as BYTES, SMALL, Table, size_of_small};
use terapage_sys::{memory, page_bytes, thread};

/// Requests of at least this many bytes get a separate range.
const LARGE: usize = 1 << 20;
/// The same with `--heap large`: the size from which glibc, too, maps objects.
const LARGE_ONLY: usize = 128 << 10;

/// The number of heaps.
const HEAPS: usize = 8;

/// The header in front of a large object: the start and end of its range, and a mark. The arena may
/// see the range as several ranges, if the program has mapped something over parts of it.
#[repr(C)]
struct Header {
    start: usize,
    end: usize,
    mark: usize,
}

const MARK: usize = 0x7465_7261_7061_6765;
const HEADER: usize = 64;

static MODE: AtomicU8 = AtomicU8::new(CLOSED);
/// Before the library's start: requests of the loader.
const CLOSED: u8 = 0;
const OFF: u8 = 1;
const LARGE_MODE: u8 = 2;
const ALL: u8 = 3;

/// The table that tells the heap of each object in the arena.
pub static TABLE: Table = Table::new();

/// Bytes of the heaps' chunks.
static HEAP_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The number of large objects.
static LARGE_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Bytes of large objects.
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The memory that `malloc` has handed out.
pub struct Figures {
    /// Bytes of the heaps, which serve all objects except large ones.
    pub heap_bytes: usize,
    /// Bytes of the objects in the heaps.
    pub object_bytes: usize,
    /// The number of large objects.
    pub large: usize,
    /// Bytes of large objects.
    pub large_bytes: usize,
}

/// Counts the objects by inspecting each heap. Objects that other threads have freed and keep count
/// as in use.
pub fn figures() -> Figures {
    caches::empty();
    Figures {
        heap_bytes: HEAP_BYTES.load(Relaxed),
        object_bytes: ALL_HEAPS.iter().map(|heap| heap.lock().in_use().bytes).sum(),
        large: LARGE_COUNT.load(Relaxed),
        large_bytes: LARGE_BYTES.load(Relaxed),
    }
}

/// Whether this heap serves all requests of the program.
pub fn serves_all() -> bool {
    MODE.load(Relaxed) == ALL && !family::is_elsewhere()
}

/// The arena as the source of the heaps' chunks.
#[derive(Clone, Copy)]
struct Chunks;

// SAFETY: the arena gives ranges that have no other user; the table was opened for the whole arena.
unsafe impl Memory for Chunks {
    fn take(&self, len: usize) -> Option<usize> {
        let mut arena = ARENA.lock();
        let at = if arena.may_grow(len, true) { arena.take(len, CHUNK, true) } else { None };
        HEAP_BYTES.fetch_add(at.map_or(0, |_| len), Relaxed);
        at
    }

    fn give(&self, at: usize, len: usize) {
        HEAP_BYTES.fetch_sub(len, Relaxed);
        ARENA.lock().give(at, at + len, false);
    }

    fn table(&self) -> &Table {
        &TABLE
    }
}

const fn heap(number: u8) -> Lock<Heap<Chunks>> {
    Lock::new(Heap::new(Chunks, number))
}

static ALL_HEAPS: [Lock<Heap<Chunks>>; HEAPS] =
    [heap(0), heap(1), heap(2), heap(3), heap(4), heap(5), heap(6), heap(7)];

/// Passes all requests to the allocator that the program would use without this library.
pub fn stand_back() {
    family::find_next();
    begin(OFF);
}

/// Begins to serve from the arena.
pub fn open(mode: terapage_config::Heap) {
    use terapage_config::Heap::{All, Large, Off};
    family::find();
    callers::find();
    let (from, len) = arena::whole();
    let Ok(records) = memory::reserve(Table::bytes_for(len)) else { return begin(OFF) };
    // SAFETY: the records for the whole arena were reserved just now, and are never returned.
    unsafe { TABLE.open(from, records.cast()) };
    let mode = match mode {
        All => ALL,
        Large => LARGE_MODE,
        Off => OFF,
    };
    if mode != OFF && !crate::hosted::is_host() {
        family::replace();
    }
    begin(mode);
    if mode == ALL {
        caches::open();
    }
}

fn begin(mode: u8) {
    MODE.store(mode, SeqCst);
    family::pass_on();
}

/// Whether the program uses this library's `malloc`, and not its own.
pub fn stands_in() -> bool {
    if cfg!(target_env = "musl") {
        // The program is hosted.
        return true;
    }
    // In a program that is not position independent, a name may stand for the program's own jump to
    // the function elsewhere. This concerns only functions whose addresses the program takes:
    // hardly all of these.
    let used = |name: &CStr| {
        // SAFETY: the name ends in a zero byte.
        let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        is_defined(at).then(|| object_of(at))
    };
    let used = [c"malloc", c"calloc", c"realloc", c"free", c"memalign", c"posix_memalign"]
        .into_iter()
        .find_map(used);
    // `malloc` itself could mean the program's, too.
    used.is_none_or(|used| used == object_of(stands_in as *const c_void))
}

/// Has the program's own `malloc`, if there is one, make its first mappings now, and not when the
/// pager's threads begin: mappings that are made then are not paged, and mimalloc reserves 256 MiB
/// or more at once.
pub fn map_early() {
    if stands_in() {
        return;
    }
    type Calloc = unsafe extern "C" fn(usize, usize) -> *mut libc::c_void;
    type Free = unsafe extern "C" fn(*mut libc::c_void);
    // SAFETY: the names end in zero bytes. Functions of these names are those of the C library, or
    // replace them. `pthread_create` calls the same ones as early.
    unsafe {
        let [calloc, free] = [c"calloc", c"free"].map(|name| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()));
        if calloc.is_null() || free.is_null() {
            return;
        }
        let calloc = std::mem::transmute::<*mut libc::c_void, Calloc>(calloc);
        let free = std::mem::transmute::<*mut libc::c_void, Free>(free);
        maps::early(|| free(calloc(1, 1)));
    }
}

/// Takes the heaps' locks in order, for a fork. Returns a bit for each lock that was taken. A lock
/// that the thread already holds (a signal handler forks) is skipped: the interrupted code
/// continues with it after the fork, in the parent and in the child.
pub fn take_all() -> u32 {
    let mut taken = 0;
    for (number, heap) in ALL_HEAPS.iter().enumerate() {
        if !heap.is_mine() {
            heap.take();
            taken |= 1 << number;
        }
    }
    taken
}

/// Releases the heaps' locks that were taken, after a fork.
pub fn give(taken: u32) {
    let is_taken = |number: usize| taken & 1 << number != 0;
    ALL_HEAPS.iter().enumerate().filter(|&(number, _)| is_taken(number)).for_each(|(_, heap)| heap.give());
}

/// The heap of a thread.
fn heap_of(thread: usize) -> &'static Lock<Heap<Chunks>> {
    // Threads' descriptors lie the size of a stack apart; the upper bits of the product mix all
    // bits.
    &ALL_HEAPS[(thread >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61]
}

/// Whether `more` bytes of the C library's heap would exceed the program's own limits. Smaller
/// amounts are not checked, because the allocator may already have them.
fn exceeds(more: usize) -> bool {
    more >= LARGE_ONLY && limits::any() && !ARENA.lock().may_grow(more, true)
}

fn large_from() -> usize {
    match MODE.load(Relaxed) {
        ALL => LARGE,
        LARGE_MODE => LARGE_ONLY,
        _ => usize::MAX,
    }
}

/// Whether objects of a size come from the C library's heap.
fn is_next(size: usize) -> bool {
    size < large_from() && matches!(MODE.load(Relaxed), LARGE_MODE | OFF)
}

/// Makes a large object in a separate range. It replaces an object of `instead` bytes; 0 for none.
fn large(size: usize, align: usize, zero: bool, instead: usize) -> *mut u8 {
    let before = HEADER.max(align);
    // An object of 0 bytes must also have an address within its range, by which it is recognised.
    let Some(len) = size.max(1).checked_add(before).filter(|&len| len < isize::MAX as usize) else {
        set_errno(libc::ENOMEM);
        return std::ptr::null_mut();
    };
    let len = len.next_multiple_of(page_bytes());
    let mut arena = ARENA.lock();
    let more = len.saturating_sub(instead);
    let start = if arena.may_grow(more, true) { arena.take(len, align, zero) } else { None };
    drop(arena);
    let Some(start) = start else {
        set_errno(libc::ENOMEM);
        return std::ptr::null_mut();
    };
    LARGE_COUNT.fetch_add(1, Relaxed);
    LARGE_BYTES.fetch_add(len, Relaxed);
    let at = start + before;
    // SAFETY: the range was taken just now, and the header lies within it, before `at`.
    unsafe { header_of(at).write(Header { start, end: start + len, mark: MARK }) };
    at as *mut u8
}

/// The start and end of a large object's range. `None` if the object is another allocator's, which
/// may have mapped its memory in the arena.
///
/// # Safety
/// `at` is an object that has not been freed.
unsafe fn range_of(at: usize) -> Option<(usize, usize)> {
    let arena = ARENA.lock();
    // A range may begin with other data than a header, and the bytes before `at` may not be
    // readable.
    let is_there = |&(from, to): &(usize, usize)| {
        at >= from + HEADER && (at < to || arena.special_within(header_of(at) as usize, at).is_empty())
    };
    let range = arena.ranges.around(header_of(at) as usize).filter(is_there);
    drop(arena);
    if let Some((from, _)) = range {
        // SAFETY: the header lies in a range in use, before the object.
        let header = unsafe { header_of(at).read() };
        if header.mark == MARK && header.start == from {
            return Some((from, header.end));
        }
    }
    if MODE.load(Relaxed) == ALL {
        not_an_object();
    }
    None
}

/// The address of a large object's header.
fn header_of(at: usize) -> *mut Header {
    at.wrapping_sub(size_of::<Header>()) as *mut Header
}

pub fn not_an_object() -> ! {
    crate::setup::fail(
        "free() or realloc() of a pointer that malloc() did not return, or that is already free: the program has a bug",
    )
}

/// Stops a program that frees an address without an object, before that does harm.
///
/// Call it without the heap's lock, because the message needs memory.
fn or_stop<T>(result: Result<T, NotAnObject>) -> T {
    result.unwrap_or_else(|NotAnObject| not_an_object())
}

pub fn allocate(size: usize, align: usize, zero: bool) -> *mut u8 {
    if size > isize::MAX as usize {
        // As in the C library: rounding up could overflow.
        return or_none(std::ptr::null_mut());
    }
    let thread = thread::own_name();
    let (all, internal) = (MODE.load(Relaxed) == ALL, thread::is_internal(thread));
    if internal || !all || size >= LARGE || align > page_bytes() {
        if internal || MODE.load(Relaxed) == CLOSED {
            return or_none(own_heap::allocate(size, align, zero));
        }
        if size >= large_from() || (align > page_bytes() && all) {
            let at = large(size, align, zero, 0);
            return if at.is_null() && all { cleared(reuse(size, align), size, zero) } else { at };
        }
        if !all {
            return or_none(if exceeds(size) {
                std::ptr::null_mut()
            } else {
                next_malloc::allocate(size, align, zero)
            });
        }
    }
    if size <= SMALL
        && align <= 16
        && let Some(at) = caches::take(thread, size_of_small(size))
    {
        return cleared(at as *mut u8, size, zero);
    }
    let at = heap_of(thread).lock().allocate(size, align);
    let at = if at.is_null() { reuse(size, align) } else { at };
    cleared(at, size, zero)
}

/// Takes small objects of a size (its index) from the heap of a thread, which may grow for the
/// first object. Returns their number. Returns how many.
pub fn take_some(thread: usize, size: usize, to: &mut [usize]) -> usize {
    let mut heap = heap_of(thread).lock();
    let first = heap.allocate(usize::from(BYTES[size]), 1) as usize;
    let [at, more @ ..] = to else { return 0 };
    if first == 0 {
        return 0;
    }
    *at = first;
    1 + heap.take_some(size, more)
}

/// Gives small objects back to their heaps.
pub fn give_back(objects: &[usize]) {
    let mut rest = objects;
    while let Some(heap) = rest.first().and_then(|&at| TABLE.heap_of(at)) {
        let mut locked = ALL_HEAPS[usize::from(heap)].lock();
        let mut freed = Ok(());
        while let Some((&at, others)) = rest.split_first()
            && freed.is_ok()
            && TABLE.heap_of(at) == Some(heap)
        {
            rest = others;
            // SAFETY: the object lies in that heap's memory, and the program has freed it.
            freed = unsafe { locked.free(at as *mut u8) };
        }
        drop(locked);
        or_stop(freed);
    }
}

/// Allocates from the remaining memory of any heap, if the program's own limits allow no growth.
/// (Heaps keep most of the freed memory.)
#[cold]
fn reuse(size: usize, align: usize) -> *mut u8 {
    let found = ALL_HEAPS.iter().map(|heap| heap.lock().allocate(size, align)).find(|at| !at.is_null());
    or_none(found.unwrap_or(std::ptr::null_mut()))
}

/// Fills an object that was allocated just now with zeros, if `zero`.
fn cleared(at: *mut u8, size: usize, zero: bool) -> *mut u8 {
    if zero && !at.is_null() {
        // SAFETY: the object has `size` bytes.
        unsafe { at.write_bytes(0, size) };
    }
    at
}

/// The object; if it is null, sets `errno`.
pub fn or_none(at: *mut u8) -> *mut u8 {
    if at.is_null() {
        set_errno(libc::ENOMEM);
    }
    at
}

/// The bytes that an object may use.
///
/// # Safety
/// `at` is an object that has not been freed.
pub unsafe fn usable(at: *mut u8) -> usize {
    if !arena::contains(at as usize) {
        // SAFETY: the caller passes an object that has not been freed.
        return unsafe {
            if own_heap::contains(at as usize) { own_heap::usable(at) } else { next_malloc::usable(at) }
        };
    }
    match TABLE.heap_of(at as usize) {
        // SAFETY: the caller passes an object that has not been freed.
        None => unsafe {
            range_of(at as usize).map_or_else(|| next_malloc::usable(at), |(_, end)| end - at as usize)
        },
        // SAFETY: the caller passes an object that has not been freed.
        Some(_) => unsafe { TABLE.usable(at) },
    }
}

/// Frees an object. One that is not this library's goes to the C library, as without the library.
///
/// # Safety
/// `at` is null or an object that has not been freed.
pub unsafe fn release(at: *mut u8) {
    if at.is_null() {
        return;
    }
    if !arena::contains(at as usize) {
        // SAFETY: the caller passes an object that has not been freed.
        return unsafe {
            if own_heap::contains(at as usize) { own_heap::free(at) } else { next_malloc::free(at) }
        };
    }
    match TABLE.heap_of(at as usize) {
        // SAFETY: the caller passes an object that has not been freed.
        None => match unsafe { range_of(at as usize) } {
            Some((start, end)) => {
                // The object's bytes may stay in memory, so the mark is removed. SAFETY: the header
                // lies before the object, which the caller gives up.
                unsafe { (*header_of(at as usize)).mark = 0 };
                LARGE_COUNT.fetch_sub(1, Relaxed);
                LARGE_BYTES.fetch_sub(end - start, Relaxed);
                ARENA.lock().give(start, end, true);
            }
            // SAFETY: the caller passes an object that has not been freed.
            None => unsafe { next_malloc::free(at) },
        },
        Some(heap) => {
            // SAFETY: the caller passes an object that has not been freed.
            locked::freed(at as usize, || unsafe { TABLE.usable(at) });
            // SAFETY: the object lies in that heap's memory, and the caller passes one that has not
            // been freed.
            let freed = unsafe { ALL_HEAPS[usize::from(heap)].lock().free(at) };
            or_stop(freed);
        }
    }
}

/// Changes the size of an object. One that is not this library's goes to the C library.
///
/// # Safety
/// `old` is an object that has not been freed.
pub unsafe fn resize(old: *mut u8, size: usize) -> *mut u8 {
    let mut instead = 0;
    if !arena::contains(old as usize) {
        if !own_heap::contains(old as usize) && (is_next(size) || MODE.load(Relaxed) == ALL) {
            // SAFETY: the caller passes an object that has not been freed.
            let had = unsafe { next_malloc::usable(old) };
            if exceeds(size.saturating_sub(had)) {
                return or_none(std::ptr::null_mut());
            }
            // SAFETY: the caller passes an object that has not been freed.
            if let Some(new) = unsafe { next_malloc::resize(old, size) } {
                return new;
            }
        }
    } else if let Some(heap) = TABLE.heap_of(old as usize) {
        if caches::has(old as usize) {
            not_an_object();
        }
        if size < large_from() {
            // SAFETY: the object lies in that heap's memory, and the caller passes one that has not
            // been freed.
            let new = unsafe { ALL_HEAPS[usize::from(heap)].lock().resize(old, size) };
            return or_none(or_stop(new));
        }
    // SAFETY: the caller passes an object that has not been freed.
    } else if let Some((start, end)) = unsafe { range_of(old as usize) } {
        // No object can be this large, and rounding up would overflow.
        if size > isize::MAX as usize - page_bytes() {
            return or_none(std::ptr::null_mut());
        }
        let wanted = (old as usize - start + size).next_multiple_of(page_bytes());
        if wanted > end - start {
            let mut arena = ARENA.lock();
            if arena.may_grow(wanted - (end - start), true) && arena.extend(start, wanted) {
                // SAFETY: the header lies before the object, which only the caller uses.
                unsafe { (*header_of(old as usize)).end = start + wanted };
                LARGE_BYTES.fetch_add(start + wanted - end, Relaxed);
                return old;
            }
            if size >= large_from() {
                instead = end - start;
            }
        }
        if wanted <= end - start && size >= large_from() {
            if start + wanted < end {
                // SAFETY: the header lies before the object, which only the caller uses.
                unsafe { (*header_of(old as usize)).end = start + wanted };
                LARGE_BYTES.fetch_sub(end - (start + wanted), Relaxed);
                ARENA.lock().give(start + wanted, end, false);
            }
            return old;
        }
    } else if is_next(size)
        // SAFETY: the caller passes an object that has not been freed.
        && let Some(new) = unsafe { next_malloc::resize(old, size) }
    {
        return new;
    }
    // SAFETY: the caller passes an object that has not been freed.
    let had = unsafe { usable(old) };
    if had == 0 {
        not_an_object();
    }
    let new = match instead {
        0 => allocate(size, 16, false),
        _ => large(size, 16, false, instead),
    };
    if !new.is_null() {
        // SAFETY: both objects are at least as long as the copy, and do not overlap.
        unsafe {
            new.copy_from_nonoverlapping(old, had.min(size));
            release(old);
        }
    }
    new
}
