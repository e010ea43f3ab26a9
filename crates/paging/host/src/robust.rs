//! Robust mutexes: when a thread ends, the kernel walks the list of those that the thread holds,
//! and cannot wait for a page there. A static program's C library asks nobody before it makes such
//! a mutex. But before a thread ends, the C library blocks all signals, even one of its own, and
//! before the process does, it calls `exit_group`. What the thread holds then is kept in memory.

use crate::raw::{self, raw};
use crate::{library, seat};

/// The first real-time signal, which only C libraries themselves block.
const OF_LIBRARY: u64 = 1 << 31;

/// As many entries of a list as the kernel visits (`ROBUST_LIST_LIMIT`).
const MOST: usize = 2048;

/// Whether a thread that blocks these signals may be about to end.
pub fn may_end(blocked: u64) -> bool {
    blocked & OF_LIBRARY != 0
}

/// Keeps the robust mutexes that the calling thread holds in memory.
///
/// # Safety
/// All signals of the calling thread are blocked, and it runs on the stack of its slot.
pub unsafe fn keep() {
    let (mut head, mut len) = (0_usize, 0_usize);
    // SAFETY: there is room for both answers.
    let answer = unsafe { raw!(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
    let Some([mut entry, offset, pending]) = words::<3>(head).filter(|_| answer == 0 && head != 0) else {
        return;
    };
    let words_of = |entry: usize| [entry & !1, (entry & !1).wrapping_add(offset)];
    if pending != 0 {
        let words_here = words_of(pending);
        // SAFETY: the caller keeps the contract.
        unsafe { seat::with(keep_words, &raw const words_here as usize) };
    }
    for _ in 0..MOST {
        // The lowest bit of an entry says that the mutex lends priority.
        let at = entry & !1;
        if at == head {
            return;
        }
        let words_here = words_of(entry);
        let Some([next]) = words::<1>(at) else { return };
        // SAFETY: the caller keeps the contract.
        unsafe { seat::with(keep_words, &raw const words_here as usize) };
        entry = next;
    }
}

unsafe extern "C" fn keep_words(words: usize) {
    // SAFETY: the words come from above. If they cannot be kept, natively nothing would be said.
    unsafe { library::thread(0, 0, &*(words as *const [usize; 2])) };
}

/// Words of the program.
fn words<const COUNT: usize>(at: usize) -> Option<[usize; COUNT]> {
    let mut words = [0_usize; COUNT];
    // SAFETY: any bytes are words.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), COUNT * size_of::<usize>())
    };
    raw::read(at, bytes).then_some(words)
}
