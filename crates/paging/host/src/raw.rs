//! System calls that leave `errno` unchanged: in the handler of a trapped call, the thread pointer
//! may be the program's, and `errno` is found through it.

use std::arch::asm;

/// Makes a system call. The result is the kernel's: from -4095 to -1 it is an error.
///
/// # Safety
/// The same as for the system call.
#[inline]
pub unsafe fn call(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let answer;
    // SAFETY: the instruction changes only these registers; the caller is responsible for the call.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// [`call`], with fewer arguments.
macro_rules! raw {
    ($number:expr) => { $crate::raw::call($number, [0; 6]) };
    ($number:expr $(, $argument:expr)+ $(,)?) => {{
        let given = [$($argument as usize),+];
        let mut all = [0_usize; 6];
        all[..given.len()].copy_from_slice(&given);
        $crate::raw::call($number, all)
    }};
}
pub(crate) use raw;

/// Whether an answer is an error.
pub fn is_error(answer: isize) -> bool {
    (-4095..0).contains(&answer)
}

/// An error as the answer of a system call.
pub fn error(errno: i32) -> isize {
    -(errno as isize)
}

/// Fresh memory from the kernel, which is never paged; `None` if there is none.
pub fn map(len: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses the place.
    let at = unsafe { raw!(libc::SYS_mmap, 0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1_isize, 0) };
    (!is_error(at)).then_some(at as usize)
}

/// Reads memory of the program, which may not be there. Whether all was read.
pub fn read(at: usize, into: &mut [u8]) -> bool {
    read_some(at, into) == into.len()
}

/// Reads as much memory of the program as is mapped. Returns the number of bytes read.
pub fn read_some(at: usize, into: &mut [u8]) -> usize {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: both pieces are as long as the buffer; the kernel checks the other address.
    let got =
        unsafe { raw!(libc::SYS_process_vm_readv, own_id(), &raw const here, 1, &raw const there, 1, 0) };
    if is_error(got) { 0 } else { got as usize }
}

/// Writes memory of the program, which may not be there. Whether all was written.
///
/// The kernel reads from this process's own memory into the program's, because writing there by
/// `process_vm_writev` would pin pages that may be leaving.
pub fn write(at: usize, from: &[u8]) -> bool {
    let into = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: from.len() };
    let from = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    // SAFETY: both pieces are as long as the bytes; the kernel checks the other address.
    let put =
        unsafe { raw!(libc::SYS_process_vm_readv, own_id(), &raw const into, 1, &raw const from, 1, 0) };
    put == from.iov_len as isize
}

/// The number of the calling process.
pub fn own_id() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { raw!(libc::SYS_getpid) as u32 }
}

/// The number of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { raw!(libc::SYS_gettid) as u32 }
}

/// Sets the signals that are blocked in the calling thread.
pub fn block(signals: u64) {
    // SAFETY: the set has the given length.
    unsafe {
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const signals, 0, size_of::<u64>());
    }
}
