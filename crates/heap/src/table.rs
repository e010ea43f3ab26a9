//! What lies where: a record for every slab's room in the address space, outside of paged memory.

use crate::sizes;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Bytes of a slab.
pub const SLAB: usize = 64 << 10;

/// Bytes by which a heap grows.
pub const CHUNK: usize = 1 << 20;

/// Slabs of a chunk.
pub const SLABS: usize = CHUNK / SLAB;

/// What a slab's room is used for: no heap's; medium objects; nothing now; from here on, small
/// objects of that size.
pub const NONE: u8 = 0;
pub const MEDIUM: u8 = 1;
pub const EMPTY: u8 = 2;
pub const FIRST_SIZE: u8 = 3;

/// One slab's record. All zero: no heap's. Who changes it holds the heap's lock; `heap` and `what`
/// are also read by who has an object there.
#[derive(Default)]
#[repr(C)]
pub struct Slab {
    /// A bit for each cell: whether it is free. In paged memory.
    pub bits: AtomicPtr<u64>,
    /// Its neighbours in the list that it is in: their numbers plus one.
    pub before: AtomicU32,
    pub after: AtomicU32,
    /// Free cells.
    pub free: AtomicU16,
    /// The word of the bits to look at first.
    pub hint: AtomicU16,
    /// In a chunk's first: how many of the chunk's slabs are not empty.
    pub used: AtomicU8,
    pub what: AtomicU8,
    pub heap: AtomicU8,
}

impl Slab {
    /// The size of its objects, as an index into [`sizes::BYTES`].
    #[inline]
    pub fn size(&self) -> Option<usize> {
        self.what.load(Relaxed).checked_sub(FIRST_SIZE).map(usize::from)
    }
}

/// The records of all slabs in a range of addresses that several heaps share.
pub struct Table {
    base: AtomicUsize,
    slabs: AtomicPtr<Slab>,
}

impl Table {
    /// One that knows of no addresses yet.
    pub const fn new() -> Self {
        Table { base: AtomicUsize::new(0), slabs: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Bytes of memory that the records of `len` bytes of addresses take.
    pub const fn bytes_for(len: usize) -> usize {
        len.div_ceil(SLAB) * size_of::<Slab>()
    }

    /// Begins with the addresses from `base`, a multiple of [`CHUNK`], on.
    ///
    /// # Safety
    /// At `memory` are [as many bytes](Table::bytes_for) as the addresses take that this is asked
    /// about, all zero, aligned to a page, for nobody else, for good.
    pub unsafe fn open(&self, base: usize, memory: *mut u8) {
        self.base.store(base, Relaxed);
        self.slabs.store(memory.cast(), Relaxed);
    }

    /// The number of the slab at an address.
    #[inline]
    pub(crate) fn number(&self, at: usize) -> u32 {
        ((at - self.base.load(Relaxed)) / SLAB) as u32
    }

    /// Where a slab begins.
    #[inline]
    pub(crate) fn start(&self, number: u32) -> usize {
        self.base.load(Relaxed) + number as usize * SLAB
    }

    #[inline]
    pub(crate) fn slab(&self, number: u32) -> &Slab {
        // SAFETY: `open` was promised a record for every address that is asked about. All fields
        // are atomic.
        unsafe { &*self.slabs.load(Relaxed).add(number as usize) }
    }

    /// The heap that an object at an address belongs to; `None`: that of none.
    #[inline]
    pub fn heap_of(&self, at: usize) -> Option<u8> {
        let slab = self.slab(self.number(at));
        (slab.what.load(Relaxed) != NONE).then(|| slab.heap.load(Relaxed))
    }

    /// Whether only small objects lie at an address: a heap can tell whether one begins there.
    #[inline]
    pub fn is_small(&self, at: usize) -> bool {
        self.slab(self.number(at)).what.load(Relaxed) >= EMPTY
    }

    /// Bytes that an object may use.
    ///
    /// # Safety
    /// A heap of this table gave it and has not got it back.
    pub unsafe fn usable(&self, at: *mut u8) -> usize {
        match self.slab(self.number(at as usize)).size() {
            Some(size) => usize::from(sizes::BYTES[size]),
            // SAFETY: dlmalloc keeps the size of a chunk in use, and three flags, in the word
            // before it.
            None => unsafe { (*at.cast::<usize>().sub(1) & !7) - size_of::<usize>() },
        }
    }

    /// Notes what a range, whole slabs, is used for.
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
