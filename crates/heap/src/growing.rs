//! Memory for `dlmalloc` that only grows.

use dlmalloc::Allocator;

/// What `dlmalloc` rounds to.
const PAGE: usize = 4096;

/// Where it comes from.
///
/// # Safety
/// What [`grow`](Self::grow) gives is readable and writable, for good, and nobody else's.
pub unsafe trait Grow {
    /// At least `size` bytes: where they begin, and how many. `None`: there are no more.
    fn grow(&self, size: usize) -> Option<(usize, usize)>;
}

/// The same as `dlmalloc` wants it: nothing goes back, moves, or is known to be zero.
pub struct Growing<G>(pub G);

// SAFETY: `Grow` promises ranges that nobody else has; none is taken back.
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
