//! The hook of `syscall()`: calls that the program makes by number.
//!
//! The library serves exec, calls of mmap's family that concern memory that may be paged, and calls
//! that close descriptors, like the functions. Others are passed on, at the cost of a comparison.
//! Calls that the program makes by its own system call instruction are not seen here; the kernel
//! reports those of memory to the pager.

use crate::real::Texts;
use crate::{advise, arena, exec, exit, locked, maps, paged, remap, rights, shm, zero_copy};
use libc::{c_char, c_int, c_long, c_uint, c_void};
use terapage_sys::{binding, opening};

/// # Safety
/// The contract is that of the C library's function. All six arguments are passed on, even if a
/// call has fewer: on these processors, variable arguments are passed in the same way.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller keeps the contract of `syscall`.
    unsafe {
        if may_be_served(number)
            && let Some(answer) = serve(number, [a, b, c, d, e, f])
        {
            return answer;
        }
        libc::syscall(number, a, b, c, d, e, f)
    }
}

fn may_be_served(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_mmap
            | libc::SYS_mprotect
            | libc::SYS_munmap
            | libc::SYS_mremap
            | libc::SYS_madvise
            | libc::SYS_process_madvise
            | libc::SYS_pkey_mprotect
            | libc::SYS_mlock
            | libc::SYS_mlock2
            | libc::SYS_mlockall
            | libc::SYS_munlock
            | libc::SYS_munlockall
            | libc::SYS_shmat
            | libc::SYS_shmdt
            | libc::SYS_setsockopt
            | libc::SYS_seccomp
            | libc::SYS_prctl
            | libc::SYS_close
            | libc::SYS_close_range
            | libc::SYS_dup3
            | libc::SYS_execve
            | libc::SYS_execveat
            | libc::SYS_sched_getaffinity
            | libc::SYS_sched_setaffinity
            | libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_set_tid_address
            | libc::SYS_set_robust_list
            | libc::SYS_rseq
    )
}

/// Serves a call, if the library has to.
unsafe fn serve(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    let at = a as *mut c_void;
    let fixed = |flags: usize, by: c_int| flags as c_int & by != 0;
    let meets = paged::meets;
    // SAFETY: the caller keeps the contract of the call, which equals the hook's.
    let answer = unsafe {
        match number {
            libc::SYS_mmap if fixed(d, libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) && meets(a, b) => {
                maps::mmap(at, b, c as c_int, d as c_int, e as c_int, f as i64) as c_long
            }
            libc::SYS_mprotect if meets(a, b) => rights::mprotect(at, b, c as c_int).into(),
            libc::SYS_munmap if meets(a, b) => maps::munmap(at, b).into(),
            libc::SYS_mremap if meets(a, b) || fixed(d, libc::MREMAP_FIXED) && meets(e, c) => {
                remap::by_number(at, b, c, d as c_int, e as *mut c_void) as c_long
            }
            libc::SYS_madvise if meets(a, b) => advise::madvise(at, b, c as c_int).into(),
            libc::SYS_process_madvise if arena::is_open() => {
                advise::process_madvise(a as c_int, b as *const libc::iovec, c, d as c_int, e as c_uint)
                    as c_long
            }
            libc::SYS_pkey_mprotect if meets(a, b) => {
                rights::pkey_mprotect(at, b, c as c_int, d as c_int).into()
            }
            libc::SYS_mlock if meets(a, b) => locked::mlock(at, b).into(),
            libc::SYS_mlock2 if meets(a, b) => locked::mlock2(at, b, c as c_uint).into(),
            libc::SYS_mlockall => locked::mlockall(a as c_int).into(),
            libc::SYS_munlock if meets(a, b) => locked::munlock(at, b).into(),
            libc::SYS_munlockall => locked::munlockall().into(),
            libc::SYS_shmat if meets(b, 1) => {
                shm::shmat(a as c_int, b as *const c_void, c as c_int) as c_long
            }
            libc::SYS_shmdt if meets(a, 1) => shm::shmdt(at).into(),
            libc::SYS_setsockopt if b as c_int == libc::SOL_SOCKET && c as c_int == libc::SO_ZEROCOPY => {
                zero_copy::setsockopt(a as c_int, b as c_int, c as c_int, d as *const c_void, e as c_uint)
                    .into()
            }
            libc::SYS_prctl if a as c_int != libc::PR_SET_SECCOMP => return None,
            libc::SYS_prctl | libc::SYS_seccomp => {
                opening::is_filtered();
                return None;
            }
            libc::SYS_close => exit::close(a as c_int).into(),
            libc::SYS_close_range => exit::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_dup3 => exit::dup3(a as c_int, b as c_int, c as c_int).into(),
            libc::SYS_execve => exec::execve(a as *const c_char, b as Texts, c as Texts).into(),
            libc::SYS_execveat => {
                exec::execveat(a as c_int, b as *const c_char, c as Texts, d as Texts, e as c_int).into()
            }
            libc::SYS_sched_getaffinity | libc::SYS_sched_setaffinity => {
                binding::freed(|| libc::syscall(number, a, b, c))
            }
            // What begins inherits the processors. It may share this stack, so it does not return
            // through a function.
            libc::SYS_clone | libc::SYS_clone3 => {
                locked::keep_words(number, &[a, b, c, d, e, f]);
                binding::unbind();
                return None;
            }
            libc::SYS_set_tid_address | libc::SYS_set_robust_list | libc::SYS_rseq => {
                locked::keep_words(number, &[a, b, c, d, e, f]);
                return None;
            }
            _ => return None,
        }
    };
    Some(answer)
}
