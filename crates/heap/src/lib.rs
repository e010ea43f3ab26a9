//! A heap over paged memory.
//!
//! Where a program's small objects lie decides how many pages it touches. In the order of their
//! allocation, what is used together (the keys of a table, say, and not their values) is spread
//! over all of memory. Here the small objects of one size lie together, without heads between them,
//! as in Bonwick's slabs (USENIX Summer 1994) and in `jemalloc`; which of them are free is noted
//! elsewhere, so that to give one back does not touch it. Larger objects are `dlmalloc`'s.
//!
//! A heap is not for several threads at a time. Several may share a [`Table`], which tells whose an
//! object is.

mod growing;
mod sizes;
mod small;
mod table;

pub use growing::{Grow, Growing};
pub use small::NotAnObject;
pub use table::{CHUNK, Table};

use dlmalloc::Dlmalloc;
use small::{CHUNK_BITS, Small, Source};
use std::sync::atomic::Ordering::Relaxed;
use table::{EMPTY, MEDIUM};

/// Where a heap's memory comes from.
///
/// # Safety
/// What [`take`](Self::take) gives is readable and writable, nobody else's until it is given back,
/// and its addresses are the [table's](Self::table).
pub unsafe trait Memory {
    /// `len` bytes, a multiple of [`CHUNK`], beginning at such a multiple; they may have any value.
    /// `None`: there are no more.
    fn take(&self, len: usize) -> Option<usize>;

    /// Takes back what `take` gave, as a whole.
    fn give(&self, at: usize, len: usize);

    /// What lies where.
    fn table(&self) -> &Table;
}

/// The memory of one of the heaps that share it.
struct Part<M> {
    memory: M,
    heap: u8,
}

// SAFETY: `Memory` promises ranges that nobody else has.
unsafe impl<M: Memory> Grow for Part<M> {
    fn grow(&self, size: usize) -> Option<(usize, usize)> {
        let size = size.checked_next_multiple_of(CHUNK)?;
        let at = self.memory.take(size)?;
        self.memory.table().note(at, size, self.heap, MEDIUM);
        Some((at, size))
    }
}

/// Slabs come from memory, their bits from the heap for larger objects: they lie close together
/// there.
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
        // SAFETY: any size will do.
        let bits = unsafe { self.medium.c_malloc(CHUNK_BITS) };
        (!bits.is_null()).then_some(bits.cast())
    }

    unsafe fn give_bits(&mut self, bits: *mut u64) {
        // SAFETY: the caller's promise.
        unsafe { self.medium.c_free(bits.cast()) }
    }
}

/// A heap.
pub struct Heap<M: Memory + Send> {
    heap: u8,
    memory: M,
    small: Small,
    medium: Dlmalloc<Growing<Part<M>>>,
    /// Medium objects in use, and their bytes.
    mediums: (usize, usize),
}

/// What a heap's objects take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// How many there are.
    pub objects: usize,
    /// Bytes that they may use.
    pub bytes: usize,
}

impl<M: Memory + Send + Copy> Heap<M> {
    /// An empty one, number `heap` of those that share a table.
    pub const fn new(memory: M, heap: u8) -> Self {
        let medium = Dlmalloc::new_with_allocator(Growing(Part { memory, heap }));
        Heap { heap, memory, small: Small::new(), medium, mediums: (0, 0) }
    }

    /// Memory for `size` bytes, of any value, at a multiple of 16 and of `align`, a power of two.
    /// Null: there is no more.
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

    #[inline(never)]
    fn allocate_medium(&mut self, size: usize, align: usize) -> *mut u8 {
        // SAFETY: it takes any size and a power of two.
        let at = unsafe {
            if align <= sizes::ALIGN {
                self.medium.c_malloc(size)
            } else {
                self.medium.c_memalign(align, size)
            }
        };
        if !at.is_null() {
            self.mediums.0 += 1;
            // SAFETY: it was given just now.
            self.mediums.1 += unsafe { self.memory.table().usable(at) };
        }
        at
    }

    /// What is in use. It looks at each slab that has room.
    pub fn in_use(&self) -> InUse {
        let small = self.small.in_use(self.memory.table());
        InUse { objects: small.0 + self.mediums.0, bytes: small.1 + self.mediums.1 }
    }

    /// What the room at an address is used for.
    #[inline]
    fn what(&self, at: *mut u8) -> u8 {
        let table = self.memory.table();
        table.slab(table.number(at as usize)).what.load(Relaxed)
    }

    /// Whether a small object begins at an address of which the table says that it [is
    /// one](Table::is_small), and this heap's.
    pub fn is_object(&self, at: usize) -> bool {
        self.small.is_object(at, self.memory.table())
    }

    /// Gives an object back.
    ///
    /// # Safety
    /// It lies in memory that the table says is this heap's. It is small, or this heap gave it and
    /// has not got it back.
    ///
    /// # Errors
    /// It is no object of this heap, or not any more: noticed among small ones only. Nothing has
    /// happened then.
    #[inline]
    pub unsafe fn free(&mut self, at: *mut u8) -> Result<(), NotAnObject> {
        if self.what(at) != MEDIUM {
            let mut source = Slabs { memory: &self.memory, medium: &mut self.medium };
            return self.small.free(at as usize, self.memory.table(), &mut source);
        }
        self.mediums.0 = self.mediums.0.wrapping_sub(1);
        // SAFETY: the caller's promise.
        unsafe {
            self.mediums.1 = self.mediums.1.wrapping_sub(self.memory.table().usable(at));
            self.medium.c_free(at);
        }
        Ok(())
    }

    /// Makes an object `size` bytes long, here or elsewhere: the bytes that both have are kept.
    /// Null: there is no more memory, and the object is as it was.
    ///
    /// # Safety
    /// This heap gave it and has not got it back.
    ///
    /// # Errors
    /// As for [`free`](Self::free).
    pub unsafe fn resize(&mut self, at: *mut u8, size: usize) -> Result<*mut u8, NotAnObject> {
        let small = self.what(at) != MEDIUM;
        if !small && size > sizes::SMALL {
            // SAFETY: the caller's promise; what it gives is an object.
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
        // SAFETY: the caller's promise.
        let usable = unsafe { self.memory.table().usable(at) };
        if small && size <= sizes::SMALL && usize::from(sizes::BYTES[sizes::of(size)]) == usable {
            return Ok(at);
        }
        let new = self.allocate(size, 1);
        if new.is_null() {
            return Ok(new);
        }
        // SAFETY: both are at least as long as what is copied, and apart: the new one was given
        // just now.
        unsafe { new.copy_from_nonoverlapping(at, usable.min(size)) };
        // SAFETY: the caller's promise.
        match unsafe { self.free(at) } {
            Ok(()) => Ok(new),
            Err(error) => {
                // SAFETY: it was given just now.
                let _ = unsafe { self.free(new) };
                Err(error)
            }
        }
    }
}
