//! The crate `libc`, except for `syscall()`. The library in a program replaces the C library's
//! `syscall()`, for the program's calls about paged memory, and must not call its own replacement.
//!
//! Crates that make system calls use this crate under the name `libc`.

pub use ::libc::*;

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

unsafe extern "C" {
    /// Makes a system call, like `syscall()`, but without the replacement.
    ///
    /// # Safety
    /// The same as for the system call.
    #[link_name = "terapage_raw_syscall"]
    pub fn syscall(number: c_long, ...) -> c_long;
}

/// The address of code that makes a system call, if calls must come from there; otherwise 0.
static GATE: AtomicUsize = AtomicUsize::new(0);

/// From now on [`passing`] makes its calls by the code at this address: the call, and a return.
pub fn set_gate(at: usize) {
    GATE.store(at, Relaxed);
}

/// Makes a system call that a filter of this library lets pass.
///
/// # Safety
/// The same as for the system call, of whose memory nothing is paged.
pub unsafe fn passing(number: c_long, arguments: [usize; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    match GATE.load(Relaxed) {
        0 => {}
        gate => {
            let answer: c_long;
            // SAFETY: the code at the gate changes only these registers; the caller answers for the
            // call.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                core::arch::asm!(
                    "call {gate}",
                    gate = in(reg) gate,
                    inlateout("rax") number => answer,
                    in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
                    lateout("rcx") _, lateout("r11") _,
                );
            }
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                core::arch::asm!(
                    "blr {gate}",
                    gate = in(reg) gate,
                    // The kernel changes it if it makes the call again.
                    inlateout("x8") number => _,
                    inlateout("x0") a => answer,
                    in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
                    lateout("x30") _,
                );
            }
            return if (-4095..0).contains(&answer) { failed(answer) } else { answer };
        }
    }
    // SAFETY: the caller answers for the call.
    unsafe { syscall(number, a, b, c, d, e, f) }
}

/// The call has failed.
extern "C" fn failed(answer: c_long) -> c_long {
    // SAFETY: the location is this thread's own.
    unsafe { *__errno_location() = -answer as c_int };
    -1
}

// A function's arguments lie elsewhere than a system call's (System V ABI, A.2.1): each moves one
// place forward, and the fourth moves to r10. The answers from -4095 on are error numbers.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl terapage_raw_syscall",
    ".hidden terapage_raw_syscall",
    ".type terapage_raw_syscall, @function",
    ".p2align 4",
    "terapage_raw_syscall:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, qword ptr [rsp + 8]",
    "syscall",
    "cmp rax, -4095",
    "jae 2f",
    "ret",
    "2:",
    "mov rdi, rax",
    "jmp {failed}",
    ".cfi_endproc",
    ".size terapage_raw_syscall, . - terapage_raw_syscall",
    failed = sym failed,
);

// Here too they come one place earlier (AAPCS64), and the number in x8.
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl terapage_raw_syscall",
    ".hidden terapage_raw_syscall",
    ".type terapage_raw_syscall, %function",
    ".p2align 4",
    "terapage_raw_syscall:",
    ".cfi_startproc",
    "mov x8, x0",
    "mov x0, x1",
    "mov x1, x2",
    "mov x2, x3",
    "mov x3, x4",
    "mov x4, x5",
    "mov x5, x6",
    "svc #0",
    "cmn x0, #4095",
    "b.cs {failed}",
    "ret",
    ".cfi_endproc",
    ".size terapage_raw_syscall, . - terapage_raw_syscall",
    failed = sym failed,
);

#[cfg(test)]
mod tests {
    #[test]
    fn it_answers_as_the_c_librarys_does() {
        let mut pipe = [0; 2];
        // SAFETY: the pipe has room for both descriptors.
        assert_eq!(unsafe { super::syscall(super::SYS_pipe2, pipe.as_mut_ptr(), super::O_CLOEXEC) }, 0);
        // SAFETY: no memory is touched.
        assert_eq!(unsafe { super::syscall(super::SYS_close, -1) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(super::EBADF));
        let private = super::MAP_PRIVATE | super::MAP_ANONYMOUS;
        // A call with six arguments, the last of which the kernel checks. SAFETY: the kernel
        // chooses the place; nothing is replaced.
        let mapped = |offset: i64| unsafe {
            super::syscall(super::SYS_mmap, 0_usize, 4096_usize, super::PROT_READ, private, -1_i64, offset)
        };
        assert!(mapped(0) > 0);
        assert_eq!(mapped(1), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(super::EINVAL));
    }
}
