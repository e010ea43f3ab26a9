//! The crate `libc`, but for `syscall()`: the library that is loaded into programs stands before
//! the C library's, for what the program asks by it of paged memory, and must not meet itself.
//!
//! Crates that make system calls of their own use this one under the name `libc`.

pub use ::libc::*;

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// Makes a system call: what `syscall()` does, but nothing stands before it.
    ///
    /// # Safety
    /// As the call has it.
    #[link_name = "terapage_raw_syscall"]
    pub fn syscall(number: c_long, ...) -> c_long;
}

/// The call has failed.
#[cfg(target_arch = "x86_64")]
extern "C" fn failed(answer: c_long) -> c_long {
    // SAFETY: the location is this thread's own.
    unsafe { *__errno_location() = -answer as c_int };
    -1
}

// The arguments of a function are elsewhere than a system call's (System V ABI, A.2.1): all come
// one place earlier, and the fourth in r10. The answers from -4095 on are error numbers.
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
        // Six arguments, the last of which is looked at.
        // SAFETY: the kernel chooses the place; nothing is replaced.
        let mapped = |offset: i64| unsafe {
            super::syscall(super::SYS_mmap, 0_usize, 4096_usize, super::PROT_READ, private, -1_i64, offset)
        };
        assert!(mapped(0) > 0);
        assert_eq!(mapped(1), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(super::EINVAL));
    }
}
