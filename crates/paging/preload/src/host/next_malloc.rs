//! The next allocator, which the program would use without this library: the C library's, or one
//! that replaces it (tcmalloc, jemalloc). It serves requests that the user does not want paged
//! (`--heap large`, `--heap off`). If it replaces only some functions, these would mix with the C
//! library's. Then it is not used, and such requests are served from the library's own heap.

use crate::elf::object_of;
use crate::own_heap;
use crate::real::{self, Real};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether all the functions belong to one allocator. Otherwise only [`free`] is used.
static WHOLE: AtomicBool = AtomicBool::new(false);

/// Finds the functions that the loader finds behind this library.
pub fn find() {
    real::find_allocator();
    let all = [
        real::malloc.address(),
        real::calloc.address(),
        real::realloc.address(),
        real::free.address(),
        real::memalign.address(),
        real::malloc_usable_size.address(),
    ];
    let objects = all.map(|at| object_of(at as *const c_void));
    WHOLE.store(objects.iter().all(|&object| object == objects[0]), Relaxed);
}

/// A function of the next allocator, if all belong to one.
fn of_whole<F: Copy>(function: &Real<F>) -> Option<F> {
    function.known().filter(|_| WHOLE.load(Relaxed))
}

/// Allocates `size` bytes at a multiple of 16 and of `align`, a power of two. Null, with `errno`
/// set, if memory is exhausted.
pub fn allocate(size: usize, align: usize, zero: bool) -> *mut u8 {
    // SAFETY: any size is allowed.
    unsafe {
        if align > 16 {
            return match of_whole(&real::memalign) {
                Some(memalign) => {
                    let at = memalign(align, size);
                    if zero && !at.is_null() {
                        at.write_bytes(0, size);
                    }
                    at
                }
                None => own_heap::allocate(size, align, zero),
            };
        }
        match (zero, of_whole(&real::malloc), of_whole(&real::calloc)) {
            (false, Some(malloc), _) => malloc(size),
            (true, _, Some(calloc)) => calloc(1, size),
            _ => own_heap::allocate(size, align, zero),
        }
    }
}

/// Frees an object.
///
/// # Safety
/// The object was not allocated by this library, and not freed.
pub unsafe fn free(at: *mut u8) {
    // SAFETY: the caller passes an object that has not been freed.
    unsafe {
        // Objects of other allocators can always be freed. Objects of the loader from before any
        // library was loaded cannot be freed.
        if let Some(free) = real::free.known() {
            free(at);
        }
    }
}

/// Changes the size of an object to `size` bytes, in place or at a new address. Null, with `errno`
/// set, if there is no room: then the object is unchanged. `None` if its allocator is unknown.
///
/// # Safety
/// As for [`free`].
pub unsafe fn resize(at: *mut u8, size: usize) -> Option<*mut u8> {
    // SAFETY: the caller passes an object that has not been freed.
    unsafe { of_whole(&real::realloc).map(|realloc| realloc(at, size)) }
}

/// The bytes that an object may use; 0 if its allocator is unknown.
///
/// # Safety
/// As for [`free`].
pub unsafe fn usable(at: *mut u8) -> usize {
    // SAFETY: the caller passes an object that has not been freed.
    unsafe { of_whole(&real::malloc_usable_size).map_or(0, |usable| usable(at)) }
}
