//! How another copy of Terapage in the same process uses the pager that `terapage run` has started:
//! the library that `terapage run` loads exports a table of functions under the name [`NAME`].
//!
//! The two copies may be of different versions. So the table has only C types, and any change to
//! the table changes [`NAME`].

use std::ffi::{CStr, c_int};
use terapage_stats::Counters;

/// The name of the function that returns the table, or a null pointer if the process is not paged.
pub const NAME: &CStr = c"terapage_owner_3";

/// Advice by number, for [`Owner::advise`]: as in `terapage.h`.
pub mod advice {
    use std::ffi::c_int;
    /// Touched soon.
    pub const WILL_NEED: c_int = 1;
    /// Not touched soon.
    pub const DONE_WITH: c_int = 2;
    /// Touched in order.
    pub const SEQUENTIAL: c_int = 3;
    /// Touched in no order.
    pub const RANDOM: c_int = 4;
}

/// The table. Functions that return a `c_int` return 0, or an error number. Ranges are whole
/// blocks. Each function may wait for a page, or for the pager.
#[repr(C)]
#[derive(Debug)]
pub struct Owner {
    /// Starts the pager if it does not run yet.
    pub begin: extern "C" fn() -> c_int,
    /// Bytes of a block.
    pub block: extern "C" fn() -> usize,
    /// The start and the bytes of the addresses from which [`take`](Self::take) takes.
    pub whole: extern "C" fn(start: &mut usize, len: &mut usize),
    /// Takes a range that reads as zeros, at a multiple of `align`; 0 if there is no room.
    pub take: extern "C" fn(len: usize, align: usize) -> usize,
    /// Returns a range, or part of it. The range no longer has a user.
    pub give: extern "C" fn(at: usize, len: usize),
    /// Whether all pages of a range (here: of any bytes) are in use.
    pub is_used: extern "C" fn(at: usize, len: usize) -> bool,
    /// Advice about a range, one of [`advice`].
    pub advise: extern "C" fn(at: usize, len: usize, advice: c_int) -> c_int,
    /// [`Pager::map_file`](crate::Pager::map_file).
    pub map_file: extern "C" fn(at: usize, len: usize, fd: c_int, offset: u64, bytes: u64) -> c_int,
    /// [`Pager::unmap_file`](crate::Pager::unmap_file).
    pub unmap_file: extern "C" fn(at: usize, len: usize) -> c_int,
    /// [`Pager::sync_file`](crate::Pager::sync_file). If the file was written, but could not be
    /// made durable, the error number is negative.
    pub sync_file:
        extern "C" fn(at: usize, len: usize, fd: c_int, offset: u64, bytes: u64, written: &mut u64) -> c_int,
    /// The pager's counters, which last as long as the process; their `magic` identifies their
    /// layout. A null pointer if there is no pager.
    pub counters: extern "C" fn() -> *const Counters,
}
