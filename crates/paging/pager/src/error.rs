//! The errors of the pager.

use std::path::PathBuf;

/// Why the pager cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error(transparent)]
    System(#[from] terapage_sys::Error),
    /// The store cannot be opened or used.
    #[error(transparent)]
    Store(#[from] terapage_store::Error),
    /// The range does not consist of paged blocks.
    #[error("{len} bytes at {start:#x} are not all paged")]
    NotPaged {
        /// The first address.
        start: usize,
        /// Bytes.
        len: usize,
    },
    /// No policy has this name.
    #[error("unknown policy")]
    Policy,
    /// The budget cannot have this number of bytes.
    #[error("the budget can be {} KiB to {} MiB, with which the pager began", least >> 10, most >> 20)]
    Budget {
        /// The least.
        least: usize,
        /// The most.
        most: usize,
    },
    /// Forks of forks have used up the numbers of stores.
    #[error("more than 250 generations of forks, or with mapped files more than 254 of both")]
    TooManyForks,
    /// All numbers of stores are in use.
    #[error("too many files are mapped at once (about 250 are possible)")]
    TooManyFiles,
    /// The kernel cannot protect single pages.
    #[error("the kernel cannot write-protect pages by userfaultfd (Linux 5.7, on Arm 6.10)")]
    NoProtection,
    /// No file is mapped at the range.
    #[error("no file is mapped there")]
    NoFile,
    /// In the child of a fork, something touched paged-out memory before the child had a pager.
    #[error(
        "the child of a fork used memory at {at:#x}, which was paged out, before its pager began: it is stopped rather than given wrong bytes"
    )]
    TouchedEarly {
        /// The page.
        at: usize,
    },
    /// The trace cannot be written.
    #[error("the trace {}: {source}", path.display())]
    Trace {
        /// The trace file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether the error is temporary (EAGAIN).
    pub(crate) fn is_for_now(&self) -> bool {
        const EAGAIN: i32 = 11;
        matches!(self, Error::System(error) if error.errno() == EAGAIN)
    }
}
