//! How many threads of a process are the pager's, whoever began them: `terapage run` loads one copy
//! of this crate, and the program may have linked or loaded others.
//!
//! Each copy counts its own, in a place of the census that all of them find: that of the first
//! library, in the loader's order, which gives it out as `terapage_census`. A place is never given
//! back; a copy for which there is none counts alone.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Copies that have a place.
const PLACES: usize = 16;

/// Where copies count. Another version of this crate may read it: what changes here changes the
/// name of [`NAME`].
#[repr(C)]
#[derive(Debug)]
pub struct Census {
    taken: AtomicUsize,
    /// Not 0: a thread waits for the program's last one.
    awaits: AtomicUsize,
    threads: [AtomicUsize; PLACES],
}

/// What a library calls the function that answers with [`own`].
const NAME: &std::ffi::CStr = c"terapage_census";

static OWN: Census = Census::new();

/// The census that this copy counts in, and its place there.
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

/// This copy's own, for the libraries that give it out.
pub fn own() -> &'static Census {
    &OWN
}

/// Finds the process's census, if that was not done before: at load, when no lock is held that the
/// loader could wait for.
pub fn join() -> &'static (&'static Census, &'static AtomicUsize) {
    JOINED.get_or_init(|| {
        let census = found().unwrap_or(&OWN);
        let alone = || (&OWN, OWN.place().unwrap_or(&OWN.threads[0]));
        census.place().map_or_else(alone, |place| (census, place))
    })
}

fn found() -> Option<&'static Census> {
    // SAFETY: the name ends in a zero byte. What goes by it is the function of this type, whose
    // census lasts as long as its library: that is not unloaded.
    unsafe {
        let at = libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr());
        if at.is_null() {
            // The program may ask for errors of its own.
            libc::dlerror();
            return None;
        }
        Some(std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> &'static Census>(at)())
    }
}

/// Where this copy counts the threads that it has begun.
pub(crate) fn mine() -> &'static AtomicUsize {
    join().1
}

/// The threads of all copies; one that just begins or ends may not be counted.
pub(crate) fn threads() -> usize {
    join().0.sum()
}

/// Whether the caller is to wait for the program's last thread: nobody does so far.
pub(crate) fn begin_to_wait() -> bool {
    join().0.awaits.swap(1, Relaxed) == 0
}

/// Nobody waits any more: no thread could begin, or this is a forked child.
pub(crate) fn wait_no_more() {
    join().0.awaits.store(0, Relaxed);
}
