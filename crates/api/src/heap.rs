//! Allocations: large ones in blocks of their own, small ones by dlmalloc in pieces of paged memory.
//!
//! What is not given out is known without touching paged memory, so an address that was never given out, or was
//! given back, is refused and not believed.

use crate::process::{Process, lock, process, started};
use crate::{Error, Result};
use dlmalloc::{Allocator, Dlmalloc};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Allocations of this many bytes and more have blocks of their own.
const LARGE: usize = 128 << 10;

/// What every allocation is aligned to.
pub const ALIGN: usize = 16;

/// Pieces that the small heap takes at once.
const PIECE: usize = 2 << 20;

/// Paged memory for the small heap.
pub(crate) struct Pieces;

// SAFETY: each piece is a range of its own, which reads as zeros.
unsafe impl Allocator for Pieces {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let none = (std::ptr::null_mut(), 0, 0);
        let Some(process) = started() else { return none };
        process.take(size, PIECE).map_or(none, |at| (at as *mut u8, size, 0))
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, at: *mut u8, size: usize) -> bool {
        started().is_some_and(|process| process.put(at as usize, size).is_ok())
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        terapage_sys::PAGE
    }
}

const fn small_heap() -> Dlmalloc<Pieces> {
    let mut heap = Dlmalloc::new_with_allocator(Pieces);
    assert!(heap.set_granularity(PIECE));
    heap
}

/// The small heap.
pub(crate) type SmallHeap = Dlmalloc<Pieces>;

pub(crate) static SMALL: Mutex<SmallHeap> = Mutex::new(small_heap());

impl Process {
    /// The word and the bit that tell whether a small allocation begins at `at`.
    fn small_bit(&self, at: usize) -> Option<(&AtomicU64, u64)> {
        if !self.has(at) || !at.is_multiple_of(ALIGN) {
            return None;
        }
        let index = (at - self.start) / ALIGN;
        // SAFETY: there is a bit for every 16 bytes, and their memory lasts as long as the process.
        let word = unsafe { AtomicU64::from_ptr((self.small_bits + index / 64 * 8) as *mut u64) };
        Some((word, 1 << (index % 64)))
    }

    fn mark_small(&self, at: usize) {
        if let Some((word, bit)) = self.small_bit(at) {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Whether it was one until now.
    fn unmark_small(&self, at: usize) -> bool {
        self.small_bit(at).is_some_and(|(word, bit)| word.fetch_and(!bit, Relaxed) & bit != 0)
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
    // SAFETY: any length will do.
    let at = unsafe { if zeroed { heap.calloc(len.max(1), ALIGN) } else { heap.malloc(len.max(1), ALIGN) } };
    if at.is_null() {
        return Err(Error::Room(len));
    }
    process.mark_small(at as usize);
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
    if !process.unmark_small(at as usize) {
        return Err(unknown);
    }
    // SAFETY: it was given out, and is given back for the first time.
    unsafe { heap.c_free(at) };
    Ok(())
}

/// Makes an allocation `len` bytes long, at its place or another: the bytes that both have are kept.
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
        return unsafe { reallocate_small(process, at, len) };
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

/// # Safety
/// As for [`reallocate`].
unsafe fn reallocate_small(process: &Process, at: *mut u8, len: usize) -> Result<*mut u8> {
    let mut heap = lock(&SMALL);
    if !process.unmark_small(at as usize) {
        return Err(Error::Unknown { at: at as usize, what: "allocation" });
    }
    if len < LARGE {
        // SAFETY: it was given out by this heap.
        let new = unsafe { heap.c_realloc(at, len.max(1)) };
        process.mark_small(if new.is_null() { at } else { new } as usize);
        return if new.is_null() { Err(Error::Room(len)) } else { Ok(new) };
    }
    let new = match process.take_large(len) {
        Ok(new) => new,
        Err(error) => {
            process.mark_small(at as usize);
            return Err(error);
        }
    };
    // The heap knows how long it was: made long enough there, it can be copied whole.
    // SAFETY: it was given out by this heap.
    let long = unsafe { heap.c_realloc(at, LARGE) };
    if long.is_null() {
        process.mark_small(at as usize);
        lock(&process.ranges).large.remove(&(new as usize));
        process.put(new as usize, len)?;
        return Err(Error::Room(len));
    }
    // SAFETY: both have at least that many bytes, and are different allocations.
    unsafe { std::ptr::copy_nonoverlapping(long, new, LARGE) };
    // SAFETY: it was given out by this heap, and is given back for the first time.
    unsafe { heap.c_free(long) };
    Ok(new)
}
