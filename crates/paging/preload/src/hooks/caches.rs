//! Freed small objects that a thread keeps for itself. Most calls of `malloc` and `free` need no
//! heap's lock then.
//!
//! A cache belongs to a thread by the thread's `pthread_self`, not by a thread-local variable,
//! because the loader may allocate to find such a variable. A new thread may get the descriptor of
//! a thread that has ended, and with it the cache.
//!
//! A signal handler may come at any moment. While the interrupted thread uses its cache, the cache
//! is busy, and the handler's calls go to a heap.

use super::heap::{self, TABLE};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, compiler_fence};
use terapage_heap::{KEPT_MOST, Magazines, Put};
use terapage_sys::thread;

/// The number of caches, a power of two. Further threads have none.
const CACHES: usize = 64;
/// The number of places in which a thread looks for a cache.
const TRIES: usize = 4;

/// A cache. It starts on a separate line of the processor's cache.
#[repr(align(128))]
struct Cache {
    /// The `pthread_self` of its thread; 0 for none. A thread that ends releases the magazines by
    /// setting 0, and the next owner acquires them. A thread that finds its own name needs no
    /// order: it has written the name itself, or a thread has whose descriptor it got, from the C
    /// library's lock, after that thread's end.
    owner: AtomicUsize,
    /// The thread uses the magazines just now.
    busy: AtomicBool,
    magazines: UnsafeCell<Magazines>,
}

// SAFETY: only the owner uses the magazines, and it does so while the cache is not busy.
unsafe impl Sync for Cache {}

static ALL: [Cache; CACHES] = [const {
    Cache {
        owner: AtomicUsize::new(0),
        busy: AtomicBool::new(false),
        magazines: UnsafeCell::new(Magazines::new()),
    }
}; CACHES];

/// One more than the key whose destructor runs when a thread ends; 0 if there is no key: then no
/// thread has a cache.
static KEY: AtomicU32 = AtomicU32::new(0);

/// From now on threads have caches.
pub fn open() {
    let mut key = 0;
    // SAFETY: the destructor lives as long as the process.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) } == 0 {
        KEY.store(key + 1, Relaxed);
    }
}

/// The places in which a thread's cache may be.
#[inline]
fn places(thread: usize) -> impl Iterator<Item = &'static Cache> {
    // Threads' descriptors lie the size of a stack apart; the upper bits of the product mix all
    // bits.
    let first = (thread >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - CACHES.ilog2());
    (0..TRIES).map(move |step| &ALL[(first + step) % CACHES])
}

/// The cache of the calling thread.
#[inline]
fn own(thread: usize) -> Option<&'static Cache> {
    places(thread).find(|cache| cache.owner.load(Relaxed) == thread).or_else(|| claim(thread))
}

/// Gives the calling thread a cache, if one is free.
#[cold]
fn claim(thread: usize) -> Option<&'static Cache> {
    let key = KEY.load(Relaxed).checked_sub(1)?;
    if thread::is_internal(thread) {
        return None;
    }
    let free = |cache: &&Cache| cache.owner.compare_exchange(0, thread, Acquire, Relaxed).is_ok();
    let cache = places(thread).find(free)?;
    // SAFETY: any value may be set; it is only compared with null.
    unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(cache).cast()) };
    Some(cache)
}

impl Cache {
    /// Lets the owner use the magazines. `None` if this is a signal handler, and the interrupted
    /// code uses them.
    #[inline]
    fn with<T>(&self, work: impl FnOnce(&mut Magazines) -> T) -> Option<T> {
        if self.busy.load(Relaxed) {
            return None;
        }
        self.busy.store(true, Relaxed);
        compiler_fence(SeqCst);
        // SAFETY: this is the owner, and code that it may have interrupted does not use the
        // magazines.
        let done = work(unsafe { &mut *self.magazines.get() });
        compiler_fence(SeqCst);
        self.busy.store(false, Relaxed);
        Some(done)
    }
}

/// Allocates a small object of a size (its index) for the calling thread. `None` if it has no
/// cache, or no heap has room.
#[inline]
pub fn take(thread: usize, size: usize) -> Option<usize> {
    let cache = own(thread)?;
    match cache.with(|magazines| magazines.take(size)) {
        Some(Some(at)) => Some(at),
        Some(None) => fill(cache, thread, size),
        None => None,
    }
}

/// Takes several objects from the thread's heap, and returns one.
#[inline(never)]
fn fill(cache: &Cache, thread: usize, size: usize) -> Option<usize> {
    let mut objects = [0; KEPT_MOST];
    let count = heap::take_some(thread, size, &mut objects[..Magazines::step(size)]);
    let (&at, more) = objects[..count].split_first()?;
    // The last object kept is given out first, so their order stays.
    for &object in more.iter().rev() {
        if cache.with(|magazines| magazines.add(size, object)) != Some(true) {
            heap::give_back(&[object]);
        }
    }
    Some(at)
}

/// Frees an object, if the calling thread has a cache and the object is small. Returns whether the
/// object was freed.
#[inline]
pub fn put(at: usize) -> bool {
    let Some(size) = TABLE.object(at) else { return false };
    let Some(cache) = own(thread::own_name()) else { return false };
    match cache.with(|magazines| magazines.put(size, at)) {
        Some(Put::Done) => true,
        Some(Put::There) => heap::not_an_object(),
        Some(Put::Full) => {
            give_back_some(cache, size);
            cache.with(|magazines| magazines.put(size, at)) == Some(Put::Done)
        }
        None => false,
    }
}

/// Gives the oldest objects of a size back to their heaps.
#[inline(never)]
fn give_back_some(cache: &Cache, size: usize) {
    let mut objects = [0; KEPT_MOST];
    let step = &mut objects[..Magazines::step(size)];
    let count = cache.with(|magazines| magazines.take_oldest(size, step)).unwrap_or(0);
    heap::give_back(&step[..count]);
}

/// Whether the calling thread has freed an object and keeps it.
pub fn has(at: usize) -> bool {
    let Some(size) = TABLE.object(at) else { return false };
    let thread = thread::own_name();
    let own = places(thread).find(|cache| cache.owner.load(Relaxed) == thread);
    own.and_then(|cache| cache.with(|magazines| magazines.has(size, at))).unwrap_or(false)
}

/// Gives all that the calling thread keeps back to the heaps.
pub fn empty() {
    let thread = thread::own_name();
    if let Some(cache) = places(thread).find(|cache| cache.owner.load(Relaxed) == thread) {
        empty_all(cache);
    }
}

fn empty_all(cache: &Cache) {
    for size in 0..terapage_heap::SIZES {
        let mut objects = [0; KEPT_MOST];
        let count = cache.with(|magazines| magazines.take_oldest(size, &mut objects)).unwrap_or(0);
        heap::give_back(&objects[..count]);
    }
}

/// Called when a thread ends that has a cache.
unsafe extern "C" fn ends(cache: *mut libc::c_void) {
    // SAFETY: the value was set to a cache.
    let cache = unsafe { &*cache.cast::<Cache>() };
    if cache.owner.load(Relaxed) == thread::own_name() {
        empty_all(cache);
        cache.owner.store(0, Release);
    }
}

/// In the child of a fork: empties the caches of threads that it does not have. Objects that these
/// threads kept stay allocated: the fork may have happened while they changed their caches.
pub fn in_child() {
    let thread = thread::own_name();
    for cache in ALL.iter().filter(|cache| !matches!(cache.owner.load(Relaxed), 0)) {
        if cache.owner.load(Relaxed) != thread {
            // SAFETY: the owner does not exist in this process, which has one thread.
            unsafe { *cache.magazines.get() = Magazines::new() };
            cache.busy.store(false, Relaxed);
            cache.owner.store(0, Relaxed);
        }
    }
}
