//! Large static arrays (bss) of the program and its libraries.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;
use terapage_sys::PAGE;

/// Static memory smaller than this is left alone.
const LEAST: usize = 1 << 20;

/// One object's: where they begin, their bytes, and the object's name.
struct Arrays {
    start: usize,
    len: usize,
    object: String,
}

static RANGES: OnceLock<Vec<Arrays>> = OnceLock::new();

/// Finds them: the anonymous part of each writable segment, in whole blocks.
pub fn find(block: usize) {
    let mut found: (usize, Vec<Arrays>) = (block, Vec::new());
    // SAFETY: the callback gets what it was given, and keeps nothing of the loader's.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    RANGES.set(found.1).ok();
}

unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _size: usize, data: *mut libc::c_void) -> c_int {
    // SAFETY: the loader gives a valid description; `data` is what `find` gave.
    unsafe {
        let (block, found) = &mut *data.cast::<(usize, Vec<Arrays>)>();
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        for header in headers {
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W == 0 {
                continue;
            }
            let start = info.dlpi_addr as usize + header.p_vaddr as usize;
            let from = (start + header.p_filesz as usize).next_multiple_of(PAGE).next_multiple_of(*block);
            let to = (start + header.p_memsz as usize) / *block * *block;
            if to > from && to - from >= LEAST {
                found.push(Arrays { start: from, len: to - from, object: name_of(info.dlpi_name) });
            }
        }
    }
    0
}

/// The last part of an object's path.
///
/// # Safety
/// A text that ends in a zero byte, or null.
unsafe fn name_of(path: *const libc::c_char) -> String {
    // SAFETY: the caller's promise.
    let path = if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } };
    let path = path.to_string_lossy();
    match path.rsplit('/').next() {
        // The loader gives the program itself no name.
        None | Some("") => "the program".to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// Their places, lengths and objects.
pub fn named_ranges() -> impl Iterator<Item = (usize, usize, &'static str)> {
    RANGES.get().into_iter().flatten().map(|arrays| (arrays.start, arrays.len, &*arrays.object))
}

/// Their places and lengths.
pub fn ranges() -> impl Iterator<Item = (usize, usize)> {
    named_ranges().map(|(start, len, _)| (start, len))
}

/// Their bytes.
pub fn bytes() -> usize {
    ranges().map(|(_, len)| len).sum()
}
