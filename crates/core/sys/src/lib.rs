//! The system calls that Terapage needs, and nearly all of its `unsafe`.
//!
//! Memory is mapped by raw system calls only: the preload library hooks `mmap` and its kin, and
//! must not call itself.

pub mod action;
pub mod adoption;
pub mod binding;
pub mod census;
pub mod cgroup;
pub mod executable;
pub mod fd;
pub mod file;
pub mod hosting;
pub mod last;
pub mod lease;
pub mod machine;
pub mod memory;
pub mod opening;
pub mod pagemap;
pub mod personality;
pub mod processors;
pub mod ring;
pub mod runtimes;
pub mod seccomp;
pub mod shared;
pub mod thread;
pub mod trial;
pub mod userfaultfd;

/// Bytes of the smallest page that a processor has.
pub const PAGE_LEAST: usize = 4096;

/// Bytes of a page. x86-64 has one size; elsewhere it is the kernel's.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub const fn page_bytes() -> usize {
    PAGE_LEAST
}

/// Bytes of a page. x86-64 has one size; elsewhere it is the kernel's.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn page_bytes() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    match KNOWN.load(Relaxed) {
        0 => {
            // SAFETY: no memory is touched.
            let bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
            KNOWN.store(bytes, Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// An error of the operating system, with the call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct Error {
    /// The system call.
    pub call: &'static str,
    /// The error that the call returned.
    pub source: std::io::Error,
}

impl Error {
    pub(crate) fn last(call: &'static str) -> Self {
        Error { call, source: std::io::Error::last_os_error() }
    }

    /// Whether the error is lasting: the process, its user, its container or its kernel does not
    /// allow the call.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.errno(), libc::EPERM | libc::EACCES | libc::ENOSYS)
    }

    /// The error number.
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// The result of a system call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn check(call: &'static str, answer: libc::c_long) -> Result<libc::c_long> {
    if answer < 0 { Err(Error::last(call)) } else { Ok(answer) }
}
