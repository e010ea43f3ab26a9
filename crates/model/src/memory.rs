//! Address space.

use crate::machine::{point, with};
use crate::{PAGE, Result};

/// Reserves `len` bytes of zeros.
///
/// # Errors
/// None; the real one has some.
pub fn reserve(len: usize) -> Result<*mut u8> {
    Ok(with(|machine| machine.reserve(len)) as *mut u8)
}

/// The pages of a range are gone.
///
/// # Safety
/// Nobody may rely on the bytes.
pub unsafe fn discard(at: usize, len: usize) -> Result<()> {
    point();
    with(|machine| {
        if machine.page(at).is_some() {
            for at in (at..at + len).step_by(PAGE) {
                machine.remove(at);
            }
        }
    });
    Ok(())
}

/// Advice is not taken.
pub fn advise(_at: usize, _len: usize, _advice: i32) -> bool {
    false
}

/// Not simulated: there are no huge pages here, for which the pager maps memory anew.
///
/// # Errors
/// Always ENOMEM.
///
/// # Safety
/// None is needed.
pub unsafe fn replace(_at: *mut u8, _len: usize) -> Result<()> {
    Err(crate::Error { call: "mmap", source: std::io::Error::from_raw_os_error(12) })
}

/// Every page is there already: this is for memory that is not watched.
///
/// # Errors
/// None; the real one has some.
pub fn populate(_at: usize, _len: usize) -> Result<()> {
    Ok(())
}

/// The page at `at` is shared with no child any more.
///
/// # Safety
/// `at` is the address of a present page.
pub unsafe fn make_exclusive(at: usize) {
    point();
    with(|machine| {
        let page = machine.watched(at);
        assert!(page.present, "{at:#x} is touched without its page");
        page.shared = false;
    });
}

/// The bytes of a range, to read and write. Touching a page that is not there is a bus error.
///
/// # Safety
/// The range is mapped, and nobody else touches it while the slice lives.
pub unsafe fn bytes<'a>(at: usize, len: usize) -> &'a mut [u8] {
    with(|machine| {
        if machine.page(at).is_some() {
            for at in (at..at + len).step_by(PAGE) {
                assert!(machine.watched(at).present, "{at:#x} is touched without its page");
            }
        }
    });
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) }
}
