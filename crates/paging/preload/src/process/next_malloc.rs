//! The C library's own `malloc`, which this library's heap replaces. It serves requests that
//! the user does not want paged (`--heap large`, `--heap off`), and gets every object that is not
//! this library's, as without the library. A host for musl has none: then such requests are served
//! from the library's own heap.

use crate::{family, own_heap};

/// Allocates `size` bytes at a multiple of 16 and of `align`, a power of two. Null, with `errno`
/// set, if memory is exhausted.
pub fn allocate(size: usize, align: usize, zero: bool) -> *mut u8 {
    // SAFETY: any size is allowed.
    unsafe {
        if align > 16 {
            return match family::memalign.of_libc() {
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
        match (zero, family::malloc.of_libc(), family::calloc.of_libc()) {
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
        // Objects of the loader from before any library was loaded cannot be freed.
        if let Some(free) = family::free.of_libc() {
            free(at);
        }
    }
}

/// Changes the size of an object to `size` bytes, in place or at a new address. Null, with `errno`
/// set, if there is no room: then the object is unchanged. `None` if there is no such function.
///
/// # Safety
/// As for [`free`].
pub unsafe fn resize(at: *mut u8, size: usize) -> Option<*mut u8> {
    // SAFETY: the caller passes an object that has not been freed.
    unsafe { family::realloc.of_libc().map(|realloc| realloc(at, size)) }
}

/// The bytes that an object may use; 0 if there is no such function.
///
/// # Safety
/// As for [`free`].
pub unsafe fn usable(at: *mut u8) -> usize {
    // SAFETY: the caller passes an object that has not been freed.
    unsafe { family::malloc_usable_size.of_libc().map_or(0, |usable| usable(at)) }
}
