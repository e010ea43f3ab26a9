//! Whether rings of io_uring can be had from the kernel.

use std::fs;
use std::io;

/// Why they cannot.
pub struct Refusal {
    /// What is wrong.
    pub what: String,
    /// What mends it.
    pub fix: &'static str,
    error: io::Error,
}

/// Makes a ring, to see whether that is refused.
pub fn refusal() -> Option<Refusal> {
    let error = io_uring::IoUring::new(2).err()?;
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let (what, fix) = match disabled.trim() {
        number @ ("1" | "2") => (
            format!("io_uring is disabled: kernel.io_uring_disabled is {number}"),
            "sudo sysctl kernel.io_uring_disabled=0",
        ),
        _ => (
            format!("no ring of io_uring can be made: {error}"),
            "use Linux 5.13 or later; in a container, allow io_uring in its seccomp profile",
        ),
    };
    Some(Refusal { what, fix, error })
}

/// A refusal that will not pass: this process and its kernel, container or user can have no ring at
/// all. For want of memory or descriptors a program that never grows does not care.
pub fn forbidden() -> Option<Refusal> {
    let lasting =
        |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS));
    refusal().filter(|refusal| lasting(&refusal.error))
}
