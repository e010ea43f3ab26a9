//! Copies to and from memory of the program that a call names, which may not be there.

use super::gate;
use crate::arena::{self, ARENA};
use terapage_sys::page_bytes;

/// The most parts of a range that are looked up at once.
const PARTS: usize = 8;

/// Calls `each` with the parts of a range that are paged, or will be: memory that is there,
/// readable and writable, though its pages may be out. Parts of the arena that the program has
/// protected or mapped belong to the kernel.
pub fn paged_parts(at: usize, len: usize, mut each: impl FnMut(usize, usize)) {
    let page = page_bytes();
    let Some(end) = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(page)) else { return };
    let Some((mut from, to)) = arena::part_of(at / page * page, end) else { return };
    while from < to {
        let (mut parts, mut count) = ([(0, 0); PARTS], 0);
        let rest = {
            // Signals are blocked while the list lives: it lies in the library's own heap.
            let arena = ARENA.lock();
            let found = arena.paged_blocks(from, to);
            for &part in found.iter().take(PARTS) {
                parts[count] = part;
                count += 1;
            }
            if found.len() > PARTS { parts[count - 1].1 } else { to }
        };
        parts[..count].iter().for_each(|&(from, to)| each(from, to));
        from = rest;
    }
}

/// Whether a range consists of paged parts.
fn is_paged(at: usize, len: usize) -> bool {
    let page = page_bytes();
    let mut sum = 0;
    paged_parts(at, len, |from, to| sum += to - from);
    len > 0 && sum >= (at + len).next_multiple_of(page) - at / page * page
}

/// Reads memory of the program. Whether all was read.
pub fn read(at: usize, into: &mut [u8]) -> bool {
    if arena::overlaps(at, into.len()) && is_paged(at, into.len()) {
        // SAFETY: the memory is there.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(at as *const u8, into.len()) };
        return true;
    }
    carry(at, into.as_mut_ptr() as usize, into.len())
}

/// Writes memory of the program. Whether all was written.
pub fn write(at: usize, from: &[u8]) -> bool {
    if arena::overlaps(at, from.len()) && is_paged(at, from.len()) {
        // SAFETY: the memory is there, and the program passed it to be written.
        unsafe { (at as *mut u8).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        return true;
    }
    carry(from.as_ptr() as usize, at, from.len())
}

/// Has the kernel copy within this process, as far as the memory is there.
fn carry(from: usize, to: usize, len: usize) -> bool {
    let piece = |at: usize| libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
    let (there, into) = (piece(from), piece(to));
    let own = std::process::id() as usize;
    let arguments = [own, &raw const into as usize, 1, &raw const there as usize, 1, 0];
    // SAFETY: the kernel checks the addresses.
    let got = unsafe { gate::call(libc::SYS_process_vm_readv, arguments) };
    if got == -(libc::EPERM as isize) || got == -(libc::ENOSYS as isize) {
        // A filter forbids the call: then the program's address is trusted. SAFETY: the program
        // passed the address as its own memory.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(from as *const u8, len) };
        return true;
    }
    got == len as isize
}
