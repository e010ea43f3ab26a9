//! Allocations: large ones in separate blocks, the others in a heap over paged memory.
//!
//! Allocations are noted outside their memory. So an address that was never allocated, or was
//! freed, is refused without touching the memory there.

use crate::process::{Process, lock, process, started};
use crate::{Error, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terapage_heap::{CHUNK, Heap, Memory, NotAnObject, Table};
use terapage_sys::memory;

/// Allocations of at least this many bytes have separate blocks.
const LARGE: usize = 128 << 10;

/// The alignment of every allocation.
pub const ALIGN: usize = 16;

/// The table of the small heap's memory.
static TABLE: Table = Table::new();

/// Paged memory for the small heap.
#[derive(Clone, Copy)]
pub(crate) struct Chunks;

// SAFETY: the ranges do not overlap; the table was opened for all of them before.
unsafe impl Memory for Chunks {
    fn take(&self, len: usize) -> Option<usize> {
        started()?.take(len, CHUNK).ok()
    }

    fn give(&self, at: usize, len: usize) {
        // If the pager has failed, the program learns of it at its next request.
        started().map(|process| process.put(at, len));
    }

    fn table(&self) -> &Table {
        &TABLE
    }
}

/// The small heap.
pub(crate) type SmallHeap = Heap<Chunks>;

pub(crate) static SMALL: Mutex<SmallHeap> = Mutex::new(Heap::new(Chunks, 0));

/// Opens the table for paged memory, before the first allocation.
pub(crate) fn open(start: usize, len: usize) -> Result<()> {
    let records = memory::reserve(Table::bytes_for(len))?;
    // SAFETY: the records for all of paged memory were reserved just now, and are never returned.
    unsafe { TABLE.open(start, records.cast()) };
    Ok(())
}

impl Process {
    /// The word and the bit that say whether a medium allocation begins at `at`: the heap itself
    /// cannot tell that.
    fn medium_bit(&self, at: usize) -> Option<(&AtomicU64, u64)> {
        if !self.has(at) || !at.is_multiple_of(ALIGN) {
            return None;
        }
        let index = (at - self.start) / ALIGN;
        // SAFETY: there is a bit for every 16 bytes, and the bits last as long as the process.
        let word = unsafe { AtomicU64::from_ptr((self.medium_bits + index / 64 * 8) as *mut u64) };
        Some((word, 1 << (index % 64)))
    }

    /// Notes that the heap has allocated `at`, if the heap cannot tell that itself.
    fn mark(&self, at: usize) {
        if !TABLE.is_small(at)
            && let Some((word, bit)) = self.medium_bit(at)
        {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// The opposite of [`mark`](Self::mark).
    fn unmark(&self, at: usize) {
        if let Some((word, bit)) = self.medium_bit(at) {
            word.fetch_and(!bit, Relaxed);
        }
    }

    /// Whether the heap has allocated `at` and has not freed it.
    fn is_given(&self, heap: &SmallHeap, at: usize) -> bool {
        if self.has(at) && TABLE.is_small(at) {
            return heap.is_object(at);
        }
        self.medium_bit(at).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    fn take_large(&self, len: usize) -> Result<*mut u8> {
        let at = self.take(len, ALIGN)?;
        lock(&self.ranges).large.insert(at, len);
        Ok(at as *mut u8)
    }
}

/// Allocates `len` bytes, aligned to [`ALIGN`]; all zero if `zeroed`.
///
/// # Errors
/// The pager cannot be started, or there is no room.
pub fn allocate(len: usize, zeroed: bool) -> Result<*mut u8> {
    let process = process()?;
    if len >= LARGE {
        return process.take_large(len);
    }
    let mut heap = lock(&SMALL);
    let at = heap.allocate(len, ALIGN);
    if at.is_null() {
        return Err(Error::Room(len));
    }
    process.mark(at as usize);
    drop(heap);
    if zeroed {
        // SAFETY: the allocation has `len` bytes.
        unsafe { at.write_bytes(0, len) };
    }
    Ok(at)
}

/// Frees an allocation.
///
/// # Safety
/// No code uses the allocation from now on.
///
/// # Errors
/// `at` is not an allocation, or was freed before; then nothing has changed.
pub unsafe fn free(at: *mut u8) -> Result<()> {
    let unknown = Error::Unknown { at: at as usize, what: "allocation" };
    let Some(process) = started() else { return Err(unknown) };
    let large = lock(&process.ranges).large.remove(&(at as usize));
    if let Some(len) = large {
        return process.put(at as usize, len);
    }
    let mut heap = lock(&SMALL);
    if !process.is_given(&heap, at as usize) {
        return Err(unknown);
    }
    process.unmark(at as usize);
    // SAFETY: the object was allocated, and is freed for the first time.
    unsafe { heap.free(at) }.map_err(|NotAnObject| unknown)
}

/// Changes the size of an allocation to `len` bytes, in place or at a new address. The bytes up to
/// the smaller size are kept.
///
/// # Safety
/// No code uses the old address from now on, unless the call fails.
///
/// # Errors
/// `at` is not an allocation, or there is no room: then the allocation is unchanged.
pub unsafe fn reallocate(at: *mut u8, len: usize) -> Result<*mut u8> {
    let unknown = Error::Unknown { at: at as usize, what: "allocation" };
    let Some(process) = started() else { return Err(unknown) };
    let old = lock(&process.ranges).large.get(&(at as usize)).copied();
    let Some(old) = old else {
        // SAFETY: the caller promises that no code uses the old address.
        return unsafe { reallocate_small(process, at, len) }?.ok_or(unknown);
    };
    if len >= LARGE && resize(process, at as usize, old, len)? {
        return Ok(at);
    }
    let new = allocate(len, false)?;
    // SAFETY: both allocations have at least that length, and do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(at, new, old.min(len)) };
    // SAFETY: the caller promises that no code uses the old address.
    unsafe { free(at)? };
    Ok(new)
}

/// Makes a large allocation longer or shorter in place. Returns whether that was possible.
fn resize(process: &Process, at: usize, old: usize, len: usize) -> Result<bool> {
    let (have, want) = (process.round(old)?, process.round(len)?);
    let mut ranges = lock(&process.ranges);
    if want > have && !process.extend(&mut ranges, at, have, want - have) {
        return Ok(false);
    }
    ranges.large.insert(at, len);
    drop(ranges);
    if want < have {
        process.put(at + want, have - want)?;
    }
    Ok(true)
}

/// [`reallocate`] for the small heap; `None` if `at` is not an allocation.
///
/// # Safety
/// As for [`reallocate`].
unsafe fn reallocate_small(process: &Process, at: *mut u8, len: usize) -> Result<Option<*mut u8>> {
    let mut heap = lock(&SMALL);
    if !process.is_given(&heap, at as usize) {
        return Ok(None);
    }
    let new = if len < LARGE {
        process.unmark(at as usize);
        // SAFETY: this heap has allocated the object and has not freed it.
        let new = unsafe { heap.resize(at, len) }.unwrap_or(std::ptr::null_mut());
        process.mark(if new.is_null() { at } else { new } as usize);
        new
    } else {
        let new = process.take_large(len)?;
        // SAFETY: this heap has allocated the object and has not freed it; both objects have at
        // least this many bytes, and do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(at, new, TABLE.usable(at).min(len));
            process.unmark(at as usize);
            heap.free(at).ok();
        }
        new
    };
    if new.is_null() { Err(Error::Room(len)) } else { Ok(Some(new)) }
}
