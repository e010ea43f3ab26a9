//! A simulated machine on which the pager's own code runs under a model checker: memory,
//! userfaultfd, io_uring and a store, with the names of `terapage-sys` and `terapage-store`.
//!
//! Shuttle makes every choice (which thread runs next, which operation fails), so a seed repeats a
//! run.
//!
//! # What may go wrong here, and what may not
//! - `UFFDIO_MOVE` stops part way, fails with EBUSY for a page for a short or long time, fails with
//!   EAGAIN, and counts one page too few, even if there is only one. Only if a test requests it, it
//!   counts a page as moved that was not.
//! - `UFFDIO_COPY` stops part way and fails with EAGAIN, or has no memory for more than one page.
//! - A call that removes pages is reported before they vanish, which they do at any time after
//!   that.
//! - Faults are reported late, or although the page has come in meanwhile, and threads wake by
//!   themselves.
//! - Polls of the ring merge and end by themselves, and to enter the ring sometimes does nothing.
//! - There is no memory for a huge page, or the kernel holds one of its pages when the huge page
//!   must be moved.
//! - The store answers in any order, fails, transfers too little or returns wrong bytes, at most
//!   three times in a row.
//! - If there are two disks, the first fails permanently.
//! - Reads of a mapped file fail and transfer too little in the same way, but return no wrong
//!   bytes, which no pager could detect.
//! - A page that is given up is filled with rubbish at once, and touching it through [`memory`]
//!   panics.

pub mod fd;
pub mod file;
pub mod machine;
pub mod memory;
pub mod pagemap;
pub mod program;
pub mod ring;
pub mod store;
pub mod sync;
pub mod thread;
pub mod userfaultfd;

/// Bytes of a page: few, so that runs are short.
pub const PAGE_LEAST: usize = 64;

/// Bytes of a page.
pub const fn page_bytes() -> usize {
    PAGE_LEAST
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
    /// The error number.
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;
