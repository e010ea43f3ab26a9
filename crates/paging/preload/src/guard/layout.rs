//! How the filter tells guarded programs from others: by where the kernel puts their libraries.
//!
//! With `ADDR_COMPAT_LAYOUT` the kernel gives addresses from one third of all upwards, and
//! otherwise from the upper end downwards. The flag is set just before the exec of a program that
//! will load this library, and the library takes the flag back, so that nothing else is executed
//! with it.

use super::{CODE, is_active};
use crate::hosted;
use std::ffi::CStr;
use std::sync::OnceLock;
use terapage_sys::executable::{self, FileName};
use terapage_sys::personality::{self, ADDR_COMPAT_LAYOUT};

/// The loader of this process.
static LOADER: OnceLock<FileName> = OnceLock::new();

/// Takes the flag back. Returns whether this process was executed with the layout, or is a guarded
/// host.
pub fn begin() -> bool {
    let has_layout = CODE.contains(&(begin as *const () as usize));
    // For musl, all programs are hosted, and the host has no loader.
    if cfg!(not(target_env = "musl"))
        && (has_layout || is_active() || hosted::is_guarded())
        && let Some(loader) = executable::loader_of(c"/proc/self/exe")
    {
        LOADER.set(loader).ok();
    }
    if has_layout
        && let Ok(now) = personality::get()
        && now & ADDR_COMPAT_LAYOUT != 0
    {
        personality::set(now & !ADDR_COMPAT_LAYOUT).ok();
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

/// In a host: there is no exec after all.
pub fn stays() {
    if is_active()
        && let Ok(now) = personality::get()
    {
        personality::set(now & !ADDR_COMPAT_LAYOUT).ok();
    }
}
