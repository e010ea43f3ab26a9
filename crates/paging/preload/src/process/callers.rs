//! Callers of `malloc` whose memory is never paged.
//!
//! In the child of a fork, the C library uses some of its own memory before the child has a pager
//! that could bring it in:
//! - the loader's (`ld.so`) lists of libraries and of thread-local variables, when the pager's
//!   thread begins;
//! - the tables of threads' values (`pthread_setspecific`), which it clears for threads that the
//!   child does not have.
//!
//! Its other uses of memory are [rehearsed](crate::fork).

use crate::elf::{each_segment, symbol_of};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A range of code: its start and its end.
struct Code(AtomicUsize, AtomicUsize);

static LOADER: Code = Code(AtomicUsize::new(0), AtomicUsize::new(0));
static SET_SPECIFIC: Code = Code(AtomicUsize::new(0), AtomicUsize::new(0));

impl Code {
    fn set(&self, code: Range<usize>) {
        self.0.store(code.start, Relaxed);
        self.1.store(code.end, Relaxed);
    }

    fn has(&self, at: usize) -> bool {
        (self.0.load(Relaxed)..self.1.load(Relaxed)).contains(&at)
    }
}

unsafe extern "C" {
    /// A function of the loader. It is never called here; its address shows where the loader is.
    fn __tls_get_addr(index: *const usize) -> *mut u8;
}

/// Finds the code of these callers.
pub fn find() {
    let inside = __tls_get_addr as *const () as usize;
    each_segment(|segment| {
        if segment.range.contains(&inside) {
            LOADER.set(segment.range);
        }
    });
    SET_SPECIFIC.set(code_of(libc::pthread_setspecific as *const c_void));
}

/// The code of the function at an address; empty if unknown.
fn code_of(at: *const c_void) -> Range<usize> {
    symbol_of(at).map_or(0..0, |(start, symbol)| start..start + symbol.st_size as usize)
}

/// Whether memory that the code at `caller`, the return address, allocates is never paged.
pub fn is_unpaged(caller: usize) -> bool {
    LOADER.has(caller) || SET_SPECIFIC.has(caller)
}

#[cfg(test)]
mod tests {
    use super::{__tls_get_addr, LOADER, SET_SPECIFIC, find, is_unpaged};

    #[test]
    fn the_loader_and_the_tables_of_values_are_found() {
        find();
        let (loader, set) =
            (__tls_get_addr as *const () as usize, libc::pthread_setspecific as *const () as usize);
        assert!(LOADER.has(loader) && !SET_SPECIFIC.has(loader));
        assert!(SET_SPECIFIC.has(set + 16) && !LOADER.has(set));
        assert!(is_unpaged(loader) && is_unpaged(set));
        assert!(!is_unpaged(libc::strdup as *const () as usize) && !is_unpaged(find as *const () as usize));
    }
}
