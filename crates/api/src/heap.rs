//! Allocations: large ones in blocks of their own, the rest in a heap over paged memory.
//!
//! What is not given out is known without touching what lies there, so an address that was never
//! given out, or was given back, is refused and not believed.

use crate::process::{Process, lock, process, started};
use crate::{Error, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terapage_heap::{CHUNK, Heap, Memory, NotAnObject, Table};
use terapage_sys::memory;

/// Allocations of this many bytes and more have blocks of their own.
const LARGE: usize = 128 << 10;

/// What every allocation is aligned to.
pub const ALIGN: usize = 16;

/// Which objects of paged memory are the small heap's.
static TABLE: Table = Table::new();

/// Paged memory for the small heap.
#[derive(Clone, Copy)]
pub(crate) struct Chunks;

// SAFETY: each is a range of its own; the table was opened for all of them before.
unsafe impl Memory for Chunks {
    fn take(&self, len: usize) -> Option<usize> {
        started()?.take(len, CHUNK).ok()
    }

    fn give(&self, at: usize, len: usize) {
        // Where the pager has failed, the program hears of it at its next request.
        started().map(|process| process.put(at, len));
    }

    fn table(&self) -> &Table {
        &TABLE
    }
}

/// The small heap.
pub(crate) type SmallHeap = Heap<Chunks>;

pub(crate) static SMALL: Mutex<SmallHeap> = Mutex::new(Heap::new(Chunks, 0));

/// Notes where paged memory lies, before the first allocation.
pub(crate) fn open(start: usize, len: usize) -> Result<()> {
    let records = memory::reserve(Table::bytes_for(len))?;
    // SAFETY: reserved just now, as many as paged memory takes, and never given back.
    unsafe { TABLE.open(start, records.cast()) };
    Ok(())
}

impl Process {
    /// The word and the bit that tell whether an allocation of the heap begins at `at` that the
    /// heap itself cannot tell.
    fn medium_bit(&self, at: usize) -> Option<(&AtomicU64, u64)> {
        if !self.has(at) || !at.is_multiple_of(ALIGN) {
            return None;
        }
        let index = (at - self.start) / ALIGN;
        // SAFETY: there is a bit for every 16 bytes, and their memory lasts as long as the process.
        let word = unsafe { AtomicU64::from_ptr((self.medium_bits + index / 64 * 8) as *mut u64) };
        Some((word, 1 << (index % 64)))
    }

    /// Notes that the heap gave `at`, if it cannot tell by itself.
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

    /// Whether the heap gave `at` and has not got it back.
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

/// Memory for `len` bytes, aligned to [`ALIGN`]; all zero if `zeroed`.
///
/// # Errors
/// The pager cannot be started; no room.
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
        // SAFETY: so many bytes were given.
        unsafe { at.write_bytes(0, len) };
    }
    Ok(at)
}

/// Gives an allocation back.
///
/// # Safety
/// Nobody uses it any more.
///
/// # Errors
/// `at` is no allocation, or not any more; nothing has happened then.
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
    // SAFETY: it was given out, and is given back for the first time.
    unsafe { heap.free(at) }.map_err(|NotAnObject| unknown)
}

/// Makes an allocation `len` bytes long, at its place or another: the bytes that both have are
/// kept.
///
/// # Safety
/// Nobody uses its old address any more, unless it fails.
///
/// # Errors
/// `at` is no allocation; no room. The allocation is as it was then.
pub unsafe fn reallocate(at: *mut u8, len: usize) -> Result<*mut u8> {
    let unknown = Error::Unknown { at: at as usize, what: "allocation" };
    let Some(process) = started() else { return Err(unknown) };
    let old = lock(&process.ranges).large.get(&(at as usize)).copied();
    let Some(old) = old else {
        // SAFETY: the caller's promise.
        return unsafe { reallocate_small(process, at, len) }?.ok_or(unknown);
    };
    if len >= LARGE && resize(process, at as usize, old, len)? {
        return Ok(at);
    }
    let new = allocate(len, false)?;
    // SAFETY: both are allocations of at least that length, and different ones.
    unsafe { std::ptr::copy_nonoverlapping(at, new, old.min(len)) };
    // SAFETY: the caller's promise.
    unsafe { free(at)? };
    Ok(new)
}

/// Whether a large allocation could be made longer or shorter where it is.
fn resize(process: &Process, at: usize, old: usize, len: usize) -> Result<bool> {
    let mut ranges = lock(&process.ranges);
    let (have, want) = match (ranges.space.round(old), ranges.space.round(len)) {
        (Some(have), Some(want)) => (have, want),
        _ => return Err(Error::Room(len)),
    };
    if want > have && !ranges.space.extend(at, have, want - have) {
        return Ok(false);
    }
    ranges.large.insert(at, len);
    drop(ranges);
    if want < have {
        process.put(at + want, have - want)?;
    }
    Ok(true)
}

/// The same for one of the small heap's; `None`: it is no allocation.
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
        // SAFETY: it was given out by this heap, and not given back.
        let new = unsafe { heap.resize(at, len) }.unwrap_or(std::ptr::null_mut());
        process.mark(if new.is_null() { at } else { new } as usize);
        new
    } else {
        let new = process.take_large(len)?;
        // SAFETY: it was given out by this heap, and not given back; both have at least so many
        // bytes, and are apart.
        unsafe {
            std::ptr::copy_nonoverlapping(at, new, TABLE.usable(at).min(len));
            process.unmark(at as usize);
            heap.free(at).ok();
        }
        new
    };
    if new.is_null() { Err(Error::Room(len)) } else { Ok(Some(new)) }
}
