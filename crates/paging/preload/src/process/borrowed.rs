//! Children of `vfork`: processes that borrow this process's memory until they execute a program or
//! end, while the thread that began them waits.
//!
//! Such a child can be killed between any two instructions, and its parent goes on with what it
//! left. So the child's calls about memory take none of this library's locks and write none of its
//! data, except for one word each in [`LATER`] and the atomics that need no other word: there is no
//! lock to break and no data to repair. The calls reach the kernel if they concern memory that is
//! not paged. Paged memory that the child unmaps is unmapped by the parent, later; other changes of
//! paged memory are refused, as if memory were lacking. Programs do without: between `vfork` and
//! `exec` they hardly call anything. (The heap is not part of this: a child that is killed within
//! `malloc` leaves a lock taken natively, too.)

use crate::maps::{is_beyond, refuse};
use crate::{arena, brk, exit, maps, paged};
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terapage_sys::page_bytes;

/// How often this process's memory is lent now.
static LENT: AtomicU32 = AtomicU32::new(0);

/// Paged memory that children have unmapped: in one word the number of the first page and, in the
/// lower [`COUNT_BITS`], the number of pages; 0 is free. Addresses have 47 bits, on Arm 48.
static LATER: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
const COUNT_BITS: u32 = if cfg!(target_arch = "aarch64") { 28 } else { 29 };

/// Notes that a child is about to begin which borrows the memory.
pub fn lend() {
    LENT.fetch_add(1, Relaxed);
}

/// Notes that a child has gone which had borrowed the memory, and unmaps what it has unmapped.
pub fn is_back() {
    LENT.fetch_sub(1, Relaxed);
    if !exit::is_owner() {
        return;
    }
    for place in &LATER {
        let range = if place.load(Relaxed) == 0 { 0 } else { place.swap(0, Acquire) };
        let (at, pages) = ((range >> COUNT_BITS) as usize, (range & ((1 << COUNT_BITS) - 1)) as usize);
        if pages > 0 {
            // SAFETY: the child has asked for this, in the name of the program.
            unsafe { maps::munmap((at * page_bytes()) as *mut c_void, pages * page_bytes()) };
        }
    }
}

/// In the child of a fork, which has memory of its own.
pub fn in_child() {
    LENT.store(0, Relaxed);
}

/// Whether the calling process borrows the memory.
#[inline]
pub fn is_borrower() -> bool {
    LENT.load(Relaxed) > 0 && !exit::is_owner()
}

/// Serves a call of a child that borrows the memory. The answer is -1 if the call fails, and
/// `errno` says why.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn call(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let meets = |at: usize, len: usize| !is_beyond(at, len) && paged::meets(at, len);
    let over = d as c_int & libc::MAP_FIXED != 0 && d as c_int & FREE != FREE;
    let refused = match number {
        libc::SYS_munmap if b > 0 && meets(a, b) => return unmap_later(a, b) as isize,
        libc::SYS_brk => return brk::now() as isize,
        libc::SYS_madvise if paged::meets(a, b) => match c as c_int {
            libc::MADV_NORMAL..=libc::MADV_WILLNEED | libc::MADV_FREE => return 0,
            _ => Some(libc::ENOMEM),
        },
        libc::SYS_mmap if over && meets(a, b) => Some(libc::ENOMEM),
        libc::SYS_mprotect
        | libc::SYS_pkey_mprotect
        | libc::SYS_mlock
        | libc::SYS_mlock2
        | libc::SYS_munlock
            if paged::meets(a, b) =>
        {
            Some(libc::ENOMEM)
        }
        libc::SYS_mremap if meets(a, b) || d as c_int & libc::MREMAP_FIXED != 0 && meets(e, c) => {
            Some(libc::ENOMEM)
        }
        // Whose memory is meant could be found only with this library's own heap.
        libc::SYS_process_madvise | libc::SYS_mlockall | libc::SYS_munlockall => Some(libc::ENOMEM),
        libc::SYS_shmat if b != 0 && meets(b, 1) => Some(libc::EINVAL),
        libc::SYS_shmdt if arena::contains(a) => Some(libc::EINVAL),
        _ => None,
    };
    match refused {
        Some(errno) => refuse(errno) as isize,
        // SAFETY: the program answers for the call, which concerns no paged memory.
        None => unsafe { libc::syscall(number, a, b, c, d, e, f) as isize },
    }
}

/// The flag of a mapping that takes only a free place, with the flag that it implies.
const FREE: c_int = libc::MAP_FIXED_NOREPLACE;

fn unmap_later(at: usize, len: usize) -> c_int {
    let (first, pages) = (at / page_bytes(), len.div_ceil(page_bytes()));
    if !at.is_multiple_of(page_bytes()) {
        return refuse(libc::EINVAL);
    }
    if first >> (u64::BITS - COUNT_BITS) != 0 || pages >> COUNT_BITS != 0 {
        return refuse(libc::ENOMEM);
    }
    let range = (first as u64) << COUNT_BITS | pages as u64;
    let noted = LATER.iter().any(|place| place.compare_exchange(0, range, Release, Relaxed).is_ok());
    if noted { 0 } else { refuse(libc::ENOMEM) }
}

/// After the `vfork` of the C hook: `answer` is the kernel's. Returns the function's.
#[cfg(all(target_arch = "x86_64", not(target_env = "musl")))]
unsafe extern "C" fn after(answer: isize) -> c_int {
    is_back();
    crate::guard::forget_traced(answer as u32);
    if answer < 0 { refuse(-answer as c_int) } else { answer as c_int }
}

/// Hook of the C library's function. The child returns from here on its parent's stack, and
/// overwrites the return address, which therefore stays in a register: the kernel keeps it.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg(all(target_arch = "x86_64", not(target_env = "musl")))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> libc::pid_t {
    std::arch::naked_asm!(
        "pop rdi",
        "lock add dword ptr [rip + {lent}], 1",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "test rax, rax",
        "jz 2f",
        "sub rsp, 8",
        "mov rdi, rax",
        "call {after}",
        "add rsp, 8",
        "2:",
        "ret",
        lent = sym LENT,
        number = const libc::SYS_vfork,
        after = sym after,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_unmaps_is_noted_in_one_word() {
        let page = page_bytes();
        assert_eq!(unmap_later(page + 1, page), -1, "not a page");
        assert_eq!(unmap_later(page, (1 << COUNT_BITS) * page), -1, "more pages than fit");
        let at = (1 << (u64::BITS - COUNT_BITS + 12)) - page;
        assert_eq!(unmap_later(at, page + 1), 0);
        let noted = LATER[0].swap(0, Relaxed);
        assert_eq!(noted, ((at / page) as u64) << COUNT_BITS | 2);
        for _ in &LATER {
            assert_eq!(unmap_later(at, page), 0);
        }
        assert_eq!(unmap_later(at, page), -1, "no more than these");
        LATER.iter().for_each(|place| place.store(0, Relaxed));
        assert!(!is_borrower(), "nobody borrows");
    }
}
