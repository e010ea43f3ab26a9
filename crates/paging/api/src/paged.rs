//! Slices in paged memory.

use crate::process::{Advice, advise};
use crate::{Error, Result, heap};
use std::ops::{Deref, DerefMut};

/// Types for which any bytes are a value, such as zeros: numbers, and arrays of numbers.
///
/// # Safety
/// Every pattern of bits of this size is a value of the type, without padding or pointers.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($name:ty)*) => { $(
        // SAFETY: any bits are a value of this type.
        unsafe impl Plain for $name {}
    )* };
}

plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array has no padding.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A slice of a fixed length in paged memory, all zero at first.
///
/// Its length is limited by address space and the store, not by memory. Touched parts use the
/// budget; dropping the slice frees everything.
///
/// ```
/// # if let Err(error) = terapage::init(&terapage::Options { memory: Some(8 << 20), ..Default::default() }) {
/// #     assert!([1, 38].contains(&error.errno()), "{error}"); // EPERM, ENOSYS
/// #     eprintln!("SKIPPED: {error}");
/// #     return Ok(());
/// # }
/// let mut table = terapage::Paged::<u64>::new(4 << 20)?; // 32 MiB, in a budget of 8
/// table[4_000_000] = 7;
/// assert_eq!(table.iter().sum::<u64>(), 7);
/// # Ok::<(), terapage::Error>(())
/// ```
#[derive(Debug)]
pub struct Paged<T: Plain> {
    at: *mut T,
    len: usize,
}

// SAFETY: the slice owns its memory, like a `Vec`.
unsafe impl<T: Plain> Send for Paged<T> {}
// SAFETY: a change needs a `&mut`.
unsafe impl<T: Plain> Sync for Paged<T> {}

impl<T: Plain> Paged<T> {
    /// Makes a slice of `len` zeros.
    ///
    /// # Errors
    /// The pager cannot be started, or there is no room.
    pub fn new(len: usize) -> Result<Paged<T>> {
        const { assert!(align_of::<T>() <= heap::ALIGN) };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Error::Room(usize::MAX))?;
        Ok(Paged { at: heap::allocate(bytes, true)?.cast(), len })
    }

    /// Says how the slice will be used.
    ///
    /// # Errors
    /// None that a program could handle.
    pub fn advise(&self, advice: Advice) -> Result<()> {
        advise(self.at.cast(), size_of_val(&self[..]), advice)
    }
}

impl<T: Plain> Deref for Paged<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory was allocated for this many values, and any bytes are values.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl<T: Plain> DerefMut for Paged<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the values are there, and `self` is borrowed for changing.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl<T: Plain> Drop for Paged<T> {
    fn drop(&mut self) {
        // SAFETY: there are no references to the slice any longer.
        unsafe { heap::free(self.at.cast()) }.ok();
    }
}
