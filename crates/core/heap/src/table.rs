//! The table: a record for each slab's room in the address space, outside paged memory.

use crate::sizes;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Bytes of a slab.
pub const SLAB: usize = 64 << 10;

/// Bytes by which a heap grows.
pub const CHUNK: usize = 1 << 20;

/// Slabs of a chunk.
pub const SLABS: usize = CHUNK / SLAB;

/// The use of a slab's room: the room belongs to no heap.
pub const NONE: u8 = 0;
/// The room has medium objects.
pub const MEDIUM: u8 = 1;
/// The room belongs to a heap and has no objects.
pub const EMPTY: u8 = 2;
/// The room has small objects of the first size; the next numbers are those of the other sizes.
pub const FIRST_SIZE: u8 = 3;

/// The record of one slab. If it is all zero, the room belongs to no heap. A thread that changes it
/// holds the heap's lock; threads that have an object there also read `heap` and `what`.
#[derive(Default)]
#[repr(C)]
pub struct Slab {
    /// A bit for each cell, set if the cell is free. The bits lie in paged memory.
    pub bits: AtomicPtr<u64>,
    /// One more than the number of the slab before it in its list; 0 for none.
    pub before: AtomicU32,
    /// One more than the number of the slab behind it in its list; 0 for none.
    pub after: AtomicU32,
    /// The number of free cells.
    pub free: AtomicU16,
    /// The index of the word of `bits` at which a search begins.
    pub hint: AtomicU16,
    /// In the first slab of a chunk: how many slabs of the chunk are not empty.
    pub used: AtomicU8,
    pub what: AtomicU8,
    pub heap: AtomicU8,
}

impl Slab {
    /// The size of the slab's objects, as an index into [`sizes::BYTES`].
    #[inline]
    pub fn size(&self) -> Option<usize> {
        self.what.load(Relaxed).checked_sub(FIRST_SIZE).map(usize::from)
    }
}

/// The records of all slabs in a range of addresses that several heaps share.
///
/// Loads and stores need no order. The table is opened before other threads use it. A heap writes a
/// record under its lock, before it hands out the first object there. A thread that frees the
/// object has got its address in an ordered way, or the program has a data race of its own.
pub struct Table {
    base: AtomicUsize,
    slabs: AtomicPtr<Slab>,
}

impl Table {
    /// A table without addresses; see [`open`](Self::open).
    pub const fn new() -> Self {
        Table { base: AtomicUsize::new(0), slabs: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Bytes of the records for `len` bytes of addresses.
    pub const fn bytes_for(len: usize) -> usize {
        len.div_ceil(SLAB) * size_of::<Slab>()
    }

    /// Opens the table for addresses from `base`, a multiple of [`CHUNK`].
    ///
    /// # Safety
    /// `memory` has [the bytes](Table::bytes_for) for all addresses of the table. The bytes are
    /// zero and aligned to a page, stay mapped for ever, and have no other user.
    pub unsafe fn open(&self, base: usize, memory: *mut u8) {
        self.base.store(base, Relaxed);
        self.slabs.store(memory.cast(), Relaxed);
    }

    /// The number of the slab at an address.
    #[inline]
    pub(crate) fn number(&self, at: usize) -> u32 {
        ((at - self.base.load(Relaxed)) / SLAB) as u32
    }

    /// The address of a slab.
    #[inline]
    pub(crate) fn start(&self, number: u32) -> usize {
        self.base.load(Relaxed) + number as usize * SLAB
    }

    #[inline]
    pub(crate) fn slab(&self, number: u32) -> &Slab {
        // SAFETY: the caller of `open` promised a record for each address of the table. All fields
        // are atomic.
        unsafe { &*self.slabs.load(Relaxed).add(number as usize) }
    }

    /// The heap to which an object at an address belongs; `None` if it belongs to none.
    #[inline]
    pub fn heap_of(&self, at: usize) -> Option<u8> {
        let slab = self.slab(self.number(at));
        (slab.what.load(Relaxed) != NONE).then(|| slab.heap.load(Relaxed))
    }

    /// Whether the slab at an address has only small objects, or none: then a heap can tell whether
    /// an object begins there.
    #[inline]
    pub fn is_small(&self, at: usize) -> bool {
        self.slab(self.number(at)).what.load(Relaxed) >= EMPTY
    }

    /// The size of the small object that begins at an address: an index, as
    /// [`size_of_small`](crate::size_of_small) returns it. `None` if none begins there, or if the
    /// object was freed to its heap. The caller owns the object, or holds the heap's lock.
    #[inline]
    pub fn object(&self, at: usize) -> Option<usize> {
        crate::small::object_at(at, self)
    }

    /// The bytes that an object may use.
    ///
    /// # Safety
    /// A heap of this table allocated the object, and it has not been freed since.
    pub unsafe fn usable(&self, at: *mut u8) -> usize {
        match self.slab(self.number(at as usize)).size() {
            Some(size) => usize::from(sizes::BYTES[size]),
            // SAFETY: dlmalloc keeps the size of an allocated chunk, and three flags, in the word
            // before it.
            None => unsafe { (*at.cast::<usize>().sub(1) & !7) - size_of::<usize>() },
        }
    }

    /// Notes the use of a range of whole slabs.
    pub(crate) fn note(&self, at: usize, len: usize, heap: u8, what: u8) {
        let first = self.number(at);
        for number in first..first + (len / SLAB) as u32 {
            let slab = self.slab(number);
            slab.heap.store(heap, Relaxed);
            slab.what.store(what, Relaxed);
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}
