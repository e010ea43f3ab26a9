//! How the filter tells guarded programs from others: by where the kernel puts their libraries.
//!
//! With `ADDR_COMPAT_LAYOUT` the kernel gives addresses from one third of all upwards, and
//! otherwise from the upper end downwards. The flag is set just before the exec of a program that
//! will load this library, and the library takes the flag back, so that nothing else is executed
//! with it.
//!
//! With an unlimited stack the kernel puts libraries there, too: on Arm it gives addresses upwards,
//! and on x86-64 it leaves five sixths of all for the stack. So the layout alone says nothing
//! without the flag, and what is executed without this library gets a limit.

use super::{CODE, gate, is_active};
use crate::hosted;
use std::ffi::CStr;
use std::sync::OnceLock;
use terapage_sys::executable::{self, FileName};
use terapage_sys::machine::reaches_guarded;
use terapage_sys::personality::{self, ADDR_COMPAT_LAYOUT};

/// The loader of this process.
static LOADER: OnceLock<FileName> = OnceLock::new();

/// Takes the flag back. Returns whether this process was executed with the layout, or is a guarded
/// host.
pub fn begin() -> bool {
    let is_there = CODE.contains(&(begin as *const () as usize)) && reaches_guarded();
    let flags = if is_there { personality::get().unwrap_or(0) } else { 0 };
    let has_layout = flags & ADDR_COMPAT_LAYOUT != 0;
    // For musl, all programs are hosted, and the host has no loader.
    if cfg!(not(target_env = "musl"))
        && (has_layout || is_active() || hosted::is_guarded())
        && let Some(loader) = executable::loader_of(c"/proc/self/exe")
    {
        LOADER.set(loader).ok();
    }
    if has_layout {
        personality::set(flags & !ADDR_COMPAT_LAYOUT).ok();
    }
    // For musl, this library is in a host.
    if hosted::is_host() || cfg!(target_env = "musl") { hosted::is_guarded() } else { has_layout }
}

/// Whether a program will certainly load this library: it has the loader of this process, and the
/// library's file is there.
fn loads(path: &CStr, library: &CStr) -> bool {
    // SAFETY: the path ends in a zero byte.
    let is_there = || unsafe {
        libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, library.as_ptr(), i64::from(libc::R_OK)) == 0
    };
    LOADER.get().is_some_and(|own| executable::loader_of(path).as_ref() == Some(own)) && is_there()
}

/// Executes a program by `execute`, with the layout of guarded programs if it will be one. `path`
/// is its file, if its environment names `library`.
pub fn executing<R>(path: Option<&CStr>, library: &CStr, execute: impl FnOnce() -> R) -> R {
    if !is_active() {
        return execute();
    }
    let Ok(before) = personality::get() else { return execute() };
    let is_guarded = path.is_some_and(|path| loads(path, library));
    let (with, without) = (before | ADDR_COMPAT_LAYOUT, before & !ADDR_COMPAT_LAYOUT);
    personality::set(if is_guarded { with } else { without }).ok();
    let answer = execute();
    if hosted::is_host() {
        // The host makes the call later, or [`stays`].
        return answer;
    }
    let errno = std::io::Error::last_os_error().raw_os_error();
    personality::set(before).ok();
    crate::set_errno(errno.unwrap_or(0));
    answer
}

/// The limit of an executed program's stack in place of a higher one than [`HIGH`]. The C library
/// also gives each thread as much.
const STACK: u64 = 1 << 30;

/// With a limit up to this, the kernel puts no library into [`CODE`].
const HIGH: u64 = 1 << 44;

/// Limits the stack of what this process executes next, if that would otherwise get the layout of
/// guarded programs without being one. Returns the limit before.
pub fn limit_stack() -> Option<libc::rlimit> {
    let is_guarded = || personality::get().is_ok_and(|flags| flags & ADDR_COMPAT_LAYOUT != 0);
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let arguments = [0, libc::RLIMIT_STACK as usize, 0, &raw mut now as usize, 0, 0];
    // SAFETY: there is room for the answer.
    let got = unsafe { gate::call(libc::SYS_prlimit64, arguments) };
    let is_high = got == 0 && now.rlim_cur > HIGH && !is_guarded();
    (is_high && set_stack(&libc::rlimit { rlim_cur: STACK, ..now })).then_some(now)
}

/// Sets the limit of the stack. Returns whether the kernel did.
pub fn set_stack(limit: &libc::rlimit) -> bool {
    let arguments = [0, libc::RLIMIT_STACK as usize, &raw const *limit as usize, 0, 0, 0];
    // SAFETY: the kernel reads the limit.
    unsafe { gate::call(libc::SYS_prlimit64, arguments) == 0 }
}

/// In a host: there is no exec after all.
pub fn stays() {
    if is_active()
        && let Ok(now) = personality::get()
    {
        personality::set(now & !ADDR_COMPAT_LAYOUT).ok();
    }
}
