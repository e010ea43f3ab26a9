//! Memory for `dlmalloc`, which only grows.

use dlmalloc::Allocator;

/// The size to which `dlmalloc` rounds, in bytes.
const PAGE: usize = 4096;

/// The source of the memory.
///
/// # Safety
/// The memory that [`grow`](Self::grow) returns is readable and writable for ever, and has no other
/// user.
pub unsafe trait Grow {
    /// Returns the address and the size of at least `size` bytes. `None` if memory is exhausted.
    fn grow(&self, size: usize) -> Option<(usize, usize)>;
}

/// The source in the form that `dlmalloc` needs. Memory is never returned or moved, and may be
/// nonzero.
pub struct Growing<G>(pub G);

// SAFETY: `Grow` promises ranges without other users, and never takes one back.
unsafe impl<G: Grow + Send> Allocator for Growing<G> {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let (at, size) = self.0.grow(size).unwrap_or_default();
        (at as *mut u8, size, 0)
    }

    fn remap(&self, _at: *mut u8, _old: usize, _new: usize, _move: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, _at: *mut u8, _old: usize, _new: usize) -> bool {
        false
    }

    fn free(&self, _at: *mut u8, _size: usize) -> bool {
        false
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        false
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}
