//! The next allocator, which the program would have without this library: the C library's, or one
//! that replaces it (tcmalloc, jemalloc). It serves requests that are not paged by the user's wish
//! (`--heap large`, `--heap off`). If it replaces only some functions, they would mix with the C
//! library's: then it is not used, and such requests come from the library's own heap.

use crate::objects::object_of;
use crate::own;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const NAMES: [&CStr; 6] = [c"malloc", c"calloc", c"realloc", c"free", c"memalign", c"malloc_usable_size"];
const MALLOC: usize = 0;
const CALLOC: usize = 1;
const REALLOC: usize = 2;
const FREE: usize = 3;
const MEMALIGN: usize = 4;
const USABLE: usize = 5;

static FOUND: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Finds the functions that the loader finds behind this library.
pub fn find() {
    // SAFETY: each name ends in a zero byte.
    let found = NAMES.map(|name| unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) });
    let whole = found.iter().all(|&at| object_of(at) == object_of(found[MALLOC]));
    for (index, (at, place)) in found.iter().zip(&FOUND).enumerate() {
        // Objects of other allocators can be freed in any case.
        if whole || index == FREE {
            place.store(*at as usize, Relaxed);
        }
    }
}

/// The function with that index in `NAMES`, if it was found.
macro_rules! found {
    ($index:ident as fn($($type:ty),*) -> $out:ty) => {{
        let at = FOUND[$index].load(Relaxed);
        // The C library has the function, with this type, and so has an allocator that replaces it.
        (at != 0).then(|| std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $out>(at))
    }};
}

/// Allocates `size` bytes at a multiple of 16 and of `align`, a power of two. Null, with `errno`
/// set, if there are no more.
pub fn allocate(size: usize, align: usize, zero: bool) -> *mut u8 {
    // SAFETY: any size is allowed.
    unsafe {
        if align > 16 {
            return match found!(MEMALIGN as fn(usize, usize) -> *mut u8) {
                Some(memalign) => {
                    let at = memalign(align, size);
                    if zero && !at.is_null() {
                        at.write_bytes(0, size);
                    }
                    at
                }
                None => own::allocate(size, align, zero),
            };
        }
        match (zero, found!(MALLOC as fn(usize) -> *mut u8), found!(CALLOC as fn(usize, usize) -> *mut u8)) {
            (false, Some(malloc), _) => malloc(size),
            (true, _, Some(calloc)) => calloc(1, size),
            _ => own::allocate(size, align, zero),
        }
    }
}

/// Frees an object.
///
/// # Safety
/// The object was not allocated by this library, and not freed.
pub unsafe fn free(at: *mut u8) {
    // SAFETY: the caller passes an object that is not freed.
    unsafe {
        // Objects of the loader from before any library was loaded cannot be freed by anybody.
        if let Some(free) = found!(FREE as fn(*mut u8) -> ()) {
            free(at);
        }
    }
}

/// Makes an object `size` bytes long, at its address or another. Null, with `errno` set, if there
/// is no room: then the object is as it was. `None` if its allocator is unknown.
///
/// # Safety
/// As for [`free`].
pub unsafe fn resize(at: *mut u8, size: usize) -> Option<*mut u8> {
    // SAFETY: the caller passes an object that is not freed.
    unsafe { found!(REALLOC as fn(*mut u8, usize) -> *mut u8).map(|realloc| realloc(at, size)) }
}

/// The bytes that an object may use; 0 if its allocator is unknown.
///
/// # Safety
/// As for [`free`].
pub unsafe fn usable(at: *mut u8) -> usize {
    // SAFETY: the caller passes an object that is not freed.
    unsafe { found!(USABLE as fn(*mut u8) -> usize).map_or(0, |usable| usable(at)) }
}
