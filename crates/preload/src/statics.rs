//! Large static arrays (bss) of the program and its libraries.

use std::ffi::c_int;
use std::sync::OnceLock;
use terapage_sys::PAGE;

/// Static memory smaller than this is left alone.
const LEAST: usize = 1 << 20;

static RANGES: OnceLock<Vec<(usize, usize)>> = OnceLock::new();

/// Finds them: the anonymous part of each writable segment, in whole blocks.
pub fn find(block: usize) {
    let mut found: (usize, Vec<(usize, usize)>) = (block, Vec::new());
    // SAFETY: the callback gets what it was given, and keeps nothing of the loader's.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    RANGES.set(found.1).ok();
}

unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _size: usize, data: *mut libc::c_void) -> c_int {
    // SAFETY: the loader gives a valid description; `data` is what `find` gave.
    unsafe {
        let (block, found) = &mut *data.cast::<(usize, Vec<(usize, usize)>)>();
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
                found.push((from, to - from));
            }
        }
    }
    0
}

/// Their places and lengths.
pub fn ranges() -> impl Iterator<Item = (usize, usize)> {
    RANGES.get().into_iter().flatten().copied()
}

/// Their bytes.
pub fn bytes() -> usize {
    ranges().map(|(_, len)| len).sum()
}
