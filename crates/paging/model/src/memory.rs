//! Address space.

use crate::machine::{Area, Page, choose, point, trouble, with};
use crate::{Result, page_bytes};

/// Bytes of a huge page: a few blocks.
pub const HUGE: usize = 1024;

/// Whether there are huge pages.
pub fn has_huge() -> bool {
    true
}

/// Advice that has no effect; frames never get it.
pub const MADV_HUGEPAGE: i32 = 14;
/// Advice that has no effect.
pub const MADV_NOHUGEPAGE: i32 = 15;

/// Reserves `len` bytes of zeros.
///
/// # Errors
/// None; the real function has some.
pub fn reserve(len: usize) -> Result<*mut u8> {
    Ok(with(|machine| machine.reserve(len)) as *mut u8)
}

/// Reserves room for `len` bytes, like [`reserve`], that begins on a huge page's edge.
///
/// # Errors
/// None; the real function has some.
pub fn reserve_huge(len: usize) -> Result<usize> {
    Ok((reserve(len + HUGE)? as usize).next_multiple_of(HUGE))
}

/// Drops the pages of a range.
///
/// # Safety
/// No code relies on the bytes.
pub unsafe fn discard(at: usize, len: usize) -> Result<()> {
    point();
    with(|machine| {
        if machine.page(at).is_some() {
            for at in (at..at + len).step_by(page_bytes()) {
                machine.remove(at);
            }
        }
    });
    Ok(())
}

/// Drops the pages of several ranges.
///
/// # Errors
/// None; the real function has some.
///
/// # Safety
/// No code relies on the bytes.
pub unsafe fn discard_all(ranges: &[(usize, usize)]) -> Result<()> {
    // SAFETY: no code relies on the bytes, as the caller promises.
    ranges.iter().try_for_each(|&(at, len)| unsafe { discard(at, len) })
}

/// The machine keeps reserved memory until it ends.
///
/// # Errors
/// None; the real function has some.
///
/// # Safety
/// The range was [`reserve`]d, and is no longer used.
pub unsafe fn unmap(_at: *mut u8, _len: usize) -> Result<()> {
    Ok(())
}

/// Advice has no effect.
pub fn advise(at: usize, len: usize, advice: i32) -> bool {
    if advice == MADV_HUGEPAGE {
        with(|machine| machine.buffers.push(at..at + len));
    }
    false
}

/// There are no huge pages.
pub fn part(_at: usize) {}

/// The protection of memory that may be read.
pub const READ_ONLY: i32 = 1;
/// The protection of memory that may be read and written.
pub const READ_WRITE: i32 = 3;

/// Does nothing, because the model has no files that the program only reads.
///
/// # Errors
/// None; the real function has some.
///
/// # Safety
/// As for the real function.
pub unsafe fn protect(_at: usize, _len: usize, _protection: i32) -> Result<()> {
    Ok(())
}

/// Puts fresh memory at exactly `at`, over any mapping, and registers it.
///
/// # Errors
/// ENOMEM now and then, but not if pages are given back.
///
/// # Safety
/// No code relies on the memory that was there.
pub unsafe fn replace(at: *mut u8, len: usize) -> Result<()> {
    let at = at as usize;
    point();
    let gave_back = with(|machine| {
        if machine.page(at).is_none() {
            let pages = vec![Page::default(); len / page_bytes()];
            machine.areas.push(Area { start: at, uffd: 0, pages, truth: vec![0; len] });
        }
        (at..at + len).step_by(page_bytes()).filter(|&at| machine.remove(at).present).count() > 0
    });
    if !gave_back && trouble(1) {
        return Err(no_memory("mmap"));
    }
    Ok(())
}

/// Makes every page of a registered range present and zero; the kernel may hold one for a moment.
/// Other memory is already present.
///
/// # Errors
/// ENOMEM now and then, with no page.
pub fn populate(at: usize, len: usize) -> Result<()> {
    point();
    if trouble(1) {
        return Err(no_memory("madvise(MADV_POPULATE_WRITE)"));
    }
    let held = at + if trouble(1) { choose(len / page_bytes()) * page_bytes() } else { len };
    with(|machine| {
        if machine.page(at).is_some() {
            for page in (at..at + len).step_by(page_bytes()) {
                machine.bring(page, Page { busy: u32::from(page == held), ..Page::default() });
                // SAFETY: the page is memory of the machine; no other thread runs in between.
                unsafe { std::slice::from_raw_parts_mut(page as *mut u8, page_bytes()) }.fill(0);
            }
        }
    });
    Ok(())
}

fn no_memory(call: &'static str) -> crate::Error {
    crate::Error { call, source: std::io::Error::from_raw_os_error(12) }
}

/// Makes the page at `at` shared with no child any more.
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

/// The bytes of a range, to read and write. To touch a missing page is a bus error.
///
/// # Safety
/// The range is mapped, and has no other user while the slice lives.
pub unsafe fn bytes<'a>(at: usize, len: usize) -> &'a mut [u8] {
    with(|machine| {
        if machine.page(at).is_some() {
            for at in (at..at + len).step_by(page_bytes()) {
                assert!(machine.watched(at).present, "{at:#x} is touched without its page");
            }
        }
    });
    // SAFETY: the caller promises a mapped range without other users.
    unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) }
}
