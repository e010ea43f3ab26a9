//! Slices in paged memory.

use crate::process::{Advice, advise};
use crate::{Error, Result, heap};
use std::ops::{Deref, DerefMut};

/// Values that any bytes are, zeros among them: numbers, and arrays of them.
///
/// # Safety
/// Every pattern of bits of this size is a value of the type, without padding or pointers.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($name:ty)*) => { $(
        // SAFETY: any bits are one of these.
        unsafe impl Plain for $name {}
    )* };
}

plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array has no padding of its own.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A slice of a fixed length in paged memory, all zero at first.
///
/// Address space and the store bound its length, not memory. Touching it takes part of the budget,
/// and dropping it gives all that back.
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

// SAFETY: the memory is its own, as with a `Vec`.
unsafe impl<T: Plain> Send for Paged<T> {}
// SAFETY: as above; changing it takes a `&mut`.
unsafe impl<T: Plain> Sync for Paged<T> {}

impl<T: Plain> Paged<T> {
    /// `len` zeros.
    ///
    /// # Errors
    /// The pager cannot be started; no room.
    pub fn new(len: usize) -> Result<Paged<T>> {
        const { assert!(align_of::<T>() <= heap::ALIGN) };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Error::Room(usize::MAX))?;
        Ok(Paged { at: heap::allocate(bytes, true)?.cast(), len })
    }

    /// Says how it is going to be used.
    ///
    /// # Errors
    /// None that a program could do something about.
    pub fn advise(&self, advice: Advice) -> Result<()> {
        advise(self.at.cast(), size_of_val(&self[..]), advice)
    }
}

impl<T: Plain> Deref for Paged<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: allocated for that many values, which any bytes are.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl<T: Plain> DerefMut for Paged<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl<T: Plain> Drop for Paged<T> {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference to it any more.
        unsafe { heap::free(self.at.cast()) }.ok();
    }
}
