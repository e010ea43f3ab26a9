//! A heap over paged memory.
//!
//! The places of a program's small objects decide how many pages it touches. In order of
//! allocation, objects that are used together (for example the keys of a table, without their
//! values) are spread over all of memory. Here the small objects of one size lie together, without
//! headers between them, as in Bonwick's slabs (USENIX Summer 1994) and in `jemalloc`. The free
//! objects are noted elsewhere, so freeing an object does not touch it. `dlmalloc` serves larger
//! objects.
//!
//! One thread at a time may use a heap. Several heaps can share a [`Table`], which says to which
//! heap an object belongs.

mod growing;
mod magazine;
mod sizes;
mod small;
mod table;

pub use growing::{Grow, Growing};
pub use magazine::{MOST as KEPT_MOST, Magazines, Put};
pub use sizes::{BYTES as SIZES_BYTES, SIZES, SMALL, of as size_of_small};
pub use small::NotAnObject;
pub use table::{CHUNK, Table};

use dlmalloc::Dlmalloc;
use small::{CHUNK_BITS, Small, Source};
use std::sync::atomic::Ordering::Relaxed;
use table::{EMPTY, MEDIUM};

/// The source of a heap's memory.
///
/// # Safety
/// The memory that [`take`](Self::take) returns is readable and writable, and has no other user
/// until it is given back. Its addresses are in the [table](Self::table).
pub unsafe trait Memory {
    /// Takes `len` bytes, a multiple of [`CHUNK`], at an address that is a multiple of [`CHUNK`];
    /// the bytes have any value. `None` if memory is exhausted.
    fn take(&self, len: usize) -> Option<usize>;

    /// Gives back the whole range that one `take` returned.
    fn give(&self, at: usize, len: usize);

    /// The table that records the use of the addresses.
    fn table(&self) -> &Table;
}

/// The memory, as used by one of the heaps that share it.
struct Part<M> {
    memory: M,
    heap: u8,
}

// SAFETY: `Memory` promises ranges without other users.
unsafe impl<M: Memory> Grow for Part<M> {
    fn grow(&self, size: usize) -> Option<(usize, usize)> {
        let size = size.checked_next_multiple_of(CHUNK)?;
        let at = self.memory.take(size)?;
        self.memory.table().note(at, size, self.heap, MEDIUM);
        Some((at, size))
    }
}

/// Slabs come from the memory; their bits come from the heap for larger objects, where the bits lie
/// close together.
struct Slabs<'a, M: Memory + Send> {
    memory: &'a M,
    medium: &'a mut Dlmalloc<Growing<Part<M>>>,
}

impl<M: Memory + Send> Source for Slabs<'_, M> {
    fn chunk(&mut self) -> Option<usize> {
        self.memory.take(CHUNK)
    }

    fn give_chunk(&mut self, at: usize) {
        self.memory.give(at, CHUNK);
    }

    fn bits(&mut self) -> Option<*mut u64> {
        // SAFETY: any size is allowed.
        let bits = unsafe { self.medium.c_malloc(CHUNK_BITS) };
        (!bits.is_null()).then_some(bits.cast())
    }

    unsafe fn give_bits(&mut self, bits: *mut u64) {
        // SAFETY: the caller gives up bits that `bits` returned.
        unsafe { self.medium.c_free(bits.cast()) }
    }
}

/// A heap.
pub struct Heap<M: Memory + Send> {
    heap: u8,
    memory: M,
    small: Small,
    medium: Dlmalloc<Growing<Part<M>>>,
    /// The number of medium objects in use, and their bytes.
    mediums: (usize, usize),
}

/// The memory that the objects of a heap use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// The number of objects.
    pub objects: usize,
    /// Bytes that the objects may use.
    pub bytes: usize,
}

impl<M: Memory + Send + Copy> Heap<M> {
    /// An empty heap, with its number among the heaps that share the table.
    pub const fn new(memory: M, heap: u8) -> Self {
        let medium = Dlmalloc::new_with_allocator(Growing(Part { memory, heap }));
        Heap { heap, memory, small: Small::new(), medium, mediums: (0, 0) }
    }

    /// Allocates `size` bytes of any value, at a multiple of 16 and of `align`, a power of two.
    /// Null if there is no more memory.
    #[inline]
    pub fn allocate(&mut self, size: usize, align: usize) -> *mut u8 {
        let small = if align <= sizes::ALIGN && size <= sizes::SMALL {
            sizes::of(size)
        } else {
            match sizes::of_aligned(size, align) {
                Some(small) => small,
                None => return self.allocate_medium(size, align),
            }
        };
        match self.small.recent(small, self.memory.table()) {
            Some(at) => at as *mut u8,
            None => self.allocate_small(small),
        }
    }

    #[inline(never)]
    fn allocate_small(&mut self, size: usize) -> *mut u8 {
        let mut source = Slabs { memory: &self.memory, medium: &mut self.medium };
        let at = self.small.allocate(size, self.heap, self.memory.table(), &mut source);
        at.map_or(std::ptr::null_mut(), |at| at as *mut u8)
    }

    /// Takes free objects of a size from the heap's slabs, up to the length of `to`. Returns their
    /// number, which is smaller if the heap would have to grow.
    pub fn take_some(&mut self, size: usize, to: &mut [usize]) -> usize {
        let table = self.memory.table();
        for (index, object) in to.iter_mut().enumerate() {
            match self.small.recent(size, table).or_else(|| self.small.at_hand(size, table)) {
                Some(at) => *object = at,
                None => return index,
            }
        }
        to.len()
    }

    #[inline(never)]
    fn allocate_medium(&mut self, size: usize, align: usize) -> *mut u8 {
        // SAFETY: any size is allowed, and the alignment is a power of two.
        let at = unsafe {
            if align <= sizes::ALIGN {
                self.medium.c_malloc(size)
            } else {
                self.medium.c_memalign(align, size)
            }
        };
        if !at.is_null() {
            self.mediums.0 += 1;
            // SAFETY: the object was allocated just now.
            self.mediums.1 += unsafe { self.memory.table().usable(at) };
        }
        at
    }

    /// Counts the objects in use. It reads each slab with free cells.
    pub fn in_use(&self) -> InUse {
        let small = self.small.in_use(self.memory.table());
        InUse { objects: small.0 + self.mediums.0, bytes: small.1 + self.mediums.1 }
    }

    /// The use of the slab's room at an address.
    #[inline]
    fn what(&self, at: *mut u8) -> u8 {
        let table = self.memory.table();
        table.slab(table.number(at as usize)).what.load(Relaxed)
    }

    /// Whether a small object of this heap begins at an address. The table must say that the
    /// address [has small objects](Table::is_small), of this heap.
    pub fn is_object(&self, at: usize) -> bool {
        self.small.is_object(at, self.memory.table())
    }

    /// Frees an object.
    ///
    /// # Safety
    /// According to the table, the address belongs to this heap. The object is small, or was
    /// allocated by this heap and not freed since.
    ///
    /// # Errors
    /// No object of this heap begins there, or it was freed before; this is detected only for small
    /// objects. Then nothing has changed.
    #[inline]
    pub unsafe fn free(&mut self, at: *mut u8) -> Result<(), NotAnObject> {
        if self.what(at) != MEDIUM {
            let mut source = Slabs { memory: &self.memory, medium: &mut self.medium };
            return self.small.free(at as usize, self.memory.table(), &mut source);
        }
        self.mediums.0 = self.mediums.0.wrapping_sub(1);
        // SAFETY: the caller promises an object of this heap, and the object is not small.
        unsafe {
            self.mediums.1 = self.mediums.1.wrapping_sub(self.memory.table().usable(at));
            self.medium.c_free(at);
        }
        Ok(())
    }

    /// Changes the size of an object to `size` bytes, in place or at a new address. The bytes up to
    /// the smaller size are kept. Null if memory is exhausted: then the object is unchanged.
    ///
    /// # Safety
    /// This heap allocated the object, and it has not been freed since.
    ///
    /// # Errors
    /// As for [`free`](Self::free).
    pub unsafe fn resize(&mut self, at: *mut u8, size: usize) -> Result<*mut u8, NotAnObject> {
        let small = self.what(at) != MEDIUM;
        if !small && size > sizes::SMALL {
            // SAFETY: the caller promises an object of this heap; `dlmalloc` returns another.
            return Ok(unsafe {
                let before = self.memory.table().usable(at);
                let new = self.medium.c_realloc(at, size);
                if !new.is_null() {
                    let after = self.memory.table().usable(new);
                    self.mediums.1 = self.mediums.1.wrapping_sub(before).wrapping_add(after);
                }
                new
            });
        }
        if self.what(at) == EMPTY {
            return Err(NotAnObject);
        }
        // SAFETY: the caller promises an object of this heap.
        let usable = unsafe { self.memory.table().usable(at) };
        if small && size <= sizes::SMALL && usize::from(sizes::BYTES[sizes::of(size)]) == usable {
            return Ok(at);
        }
        let new = self.allocate(size, 1);
        if new.is_null() {
            return Ok(new);
        }
        // SAFETY: both objects are at least as long as the copy, and do not overlap, since the new
        // one was allocated just now.
        unsafe { new.copy_from_nonoverlapping(at, usable.min(size)) };
        // SAFETY: the caller promises an object of this heap; its bytes were copied.
        match unsafe { self.free(at) } {
            Ok(()) => Ok(new),
            Err(error) => {
                // SAFETY: the object was allocated just now.
                let _ = unsafe { self.free(new) };
                Err(error)
            }
        }
    }
}
