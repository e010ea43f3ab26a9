//! The census: the number of threads of a process that belong to the pager, whichever copy of this
//! crate began them. `terapage run` loads one copy, and the program may have linked or loaded
//! others.
//!
//! Each copy counts its threads in a separate place. The places are in one census that all copies
//! find: the census of the first library, in the loader's order, that exports `terapage_census`. A
//! place is never given back. A copy that finds no free place counts separately.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The most copies that can have a place.
const PLACES: usize = 16;

/// The places in which copies count. Another version of this crate may read this structure, so any
/// change here must change [`NAME`].
#[repr(C)]
#[derive(Debug)]
pub struct Census {
    taken: AtomicUsize,
    /// Not 0 if a thread waits for the program's last thread.
    awaits: AtomicUsize,
    threads: [AtomicUsize; PLACES],
}

/// The name under which a library exports a function that returns [`own`].
const NAME: &std::ffi::CStr = c"terapage_census";

static OWN: Census = Census::new();

/// The census in which this copy counts, and its place there.
static JOINED: OnceLock<(&'static Census, &'static AtomicUsize)> = OnceLock::new();

impl Census {
    const fn new() -> Census {
        Census {
            taken: AtomicUsize::new(0),
            awaits: AtomicUsize::new(0),
            threads: [const { AtomicUsize::new(0) }; PLACES],
        }
    }

    fn place(&self) -> Option<&AtomicUsize> {
        self.threads.get(self.taken.fetch_add(1, Relaxed))
    }

    fn sum(&self) -> usize {
        self.threads.iter().map(|threads| threads.load(Relaxed)).sum()
    }
}

/// This copy's own census, for libraries that export it.
pub fn own() -> &'static Census {
    &OWN
}

/// Finds the process's census, once. Call it at load, while the caller holds no lock that the
/// loader could wait for.
pub fn join() -> &'static (&'static Census, &'static AtomicUsize) {
    JOINED.get_or_init(|| {
        let census = found().unwrap_or(&OWN);
        let alone = || (&OWN, OWN.place().unwrap_or(&OWN.threads[0]));
        census.place().map_or_else(alone, |place| (census, place))
    })
}

fn found() -> Option<&'static Census> {
    // SAFETY: the name ends in a zero byte, and only functions of this type have it. The census
    // lasts as long as its library, which is not unloaded.
    unsafe {
        let at = libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr());
        if at.is_null() {
            // The program may ask for its own errors, and must not get this one.
            libc::dlerror();
            return None;
        }
        Some(std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> &'static Census>(at)())
    }
}

/// The place in which this copy counts the threads that it has begun.
pub(crate) fn mine() -> &'static AtomicUsize {
    join().1
}

/// The number of threads of all copies. A thread that is just beginning or ending may be missing.
pub(crate) fn threads() -> usize {
    join().0.sum()
}

/// Whether the caller must wait for the program's last thread: no other thread has begun to wait.
pub(crate) fn begin_to_wait() -> bool {
    join().0.awaits.swap(1, Relaxed) == 0
}

/// Whether a thread waits for the program's last thread.
pub(crate) fn is_awaited() -> bool {
    join().0.awaits.load(Relaxed) != 0
}

/// Notes that no thread waits now: no thread could begin, or this is a forked child.
pub(crate) fn wait_no_more() {
    join().0.awaits.store(0, Relaxed);
}
