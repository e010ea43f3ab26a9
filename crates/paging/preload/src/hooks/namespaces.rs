//! Hooks for programs whose children get a separate PID namespace: those that start containers.
//!
//! After such a call Linux begins no thread in the process itself (EINVAL), so its pager is started
//! before the call. A child of a fork is in the new namespace, and begins its pager's thread as
//! usual.

use crate::arena::ARENA;
use crate::{exit, setup};
use libc::{CLONE_NEWPID, CLONE_NEWUSER, CLONE_SIGHAND, CLONE_THREAD, CLONE_VM};
use std::ffi::c_int;

/// Flags that only a process with one thread may use.
const FOR_ONE_THREAD: c_int = CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;

/// The request that asks for the type of a namespace (`linux/nsfs.h`).
const NS_GET_NSTYPE: libc::Ioctl = 0xb703;

/// Starts the pager if the call would prevent that later.
fn start_before(flags: c_int) {
    if flags & CLONE_NEWPID != 0
        && flags & FOR_ONE_THREAD == 0
        && setup::settings().is_some()
        && exit::is_owner()
    {
        let mut arena = ARENA.lock();
        if arena.pager.is_none() {
            arena.start();
        }
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    let Some(flags) = exit::without_own_descriptors(flags, libc::CLONE_FILES) else { return -1 };
    start_before(flags);
    // SAFETY: the caller keeps the contract of `unshare`.
    unsafe { libc::syscall(libc::SYS_unshare, flags as i64) as c_int }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    // SAFETY: no memory is touched.
    start_before(if kind == 0 { unsafe { libc::ioctl(fd, NS_GET_NSTYPE) }.max(0) } else { kind });
    // SAFETY: the caller keeps the contract of `setns`.
    unsafe { libc::syscall(libc::SYS_setns, fd as i64, kind as i64) as c_int }
}
