//! A machine that the pager's own code runs on under a model checker: memory, userfaultfd, io_uring
//! and a store, all simulated, with the names of `terapage-sys` and `terapage-store`.
//!
//! Every choice (who runs next, what fails) is shuttle's, so a seed repeats a run.
//!
//! # What may go wrong here, and what may not
//! - `UFFDIO_MOVE` stops part way, says EBUSY for a page for a while or for long, says EAGAIN, and
//!   counts one page too few. It says that a page went which did not only where a test wants that.
//! - `UFFDIO_COPY` stops part way and says EAGAIN, or that there is no memory for more than one
//!   page.
//! - A call that removes pages is told before they go, which they do at any time after that.
//! - Faults are told late, told though the page has come meanwhile, and a thread wakes by itself.
//! - Polls of the ring merge, end by themselves; entering it does nothing now and then.
//! - There is no memory for a huge page, or the kernel holds one of its pages when it is to move.
//! - The store answers in any order, fails, transfers too little or gives wrong bytes, three
//!   times in a row at most.
//! - Or, where there are two disks, the first does so without end.
//! - A mapped file's reads fail and transfer too little likewise; wrong bytes of it no pager could
//!   tell.
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

/// Bytes of a page: few, so that a run is short.
pub const PAGE: usize = 64;

/// An error of the operating system, with the call that met it.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct Error {
    /// The system call.
    pub call: &'static str,
    /// What it answered.
    pub source: std::io::Error,
}

impl Error {
    /// The error number.
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// What a call of this crate gives.
pub type Result<T> = std::result::Result<T, Error>;
