//! The errors of this crate.

use std::path::PathBuf;

/// Why a call has failed. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is invalid.
    #[error(transparent)]
    Settings(#[from] terapage_config::Error),
    /// The pager refused.
    #[error(transparent)]
    Pager(#[from] terapage_pager::Error),
    /// The operating system refused.
    #[error(transparent)]
    System(#[from] terapage_sys::Error),
    /// An argument is invalid.
    #[error("{0}")]
    Argument(String),
    /// Options were given after the pager had started.
    #[error("Terapage has been started already: its options can no longer be set")]
    Started,
    /// The pager belongs to `terapage run`.
    #[error("the budget is that of `terapage run --memory`, for all processes of the run")]
    OfRun,
    /// The reserved address space is used up.
    #[error("no room for {0} bytes in the reserved address space (see address_space in the options)")]
    Room(usize),
    /// No allocation or mapping begins at the address.
    #[error("{at:#x} is no {what} of Terapage's, or one that was already released")]
    Unknown {
        /// The address.
        at: usize,
        /// What the argument should have been.
        what: &'static str,
    },
    /// A file cannot be mapped or written.
    #[error("{}: {doing}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The attempted step.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    /// The error number for C programs.
    pub fn errno(&self) -> i32 {
        use terapage_pager::Error as Pager;
        let system = |error: &terapage_sys::Error| match error.errno() {
            0 => libc::EIO,
            errno => errno,
        };
        match self {
            Error::Settings(_) | Error::Argument(_) | Error::Unknown { .. } => libc::EINVAL,
            Error::Started | Error::OfRun => libc::EALREADY,
            Error::Room(_) => libc::ENOMEM,
            Error::System(error) | Error::Pager(Pager::System(error)) => system(error),
            Error::Pager(Pager::Store(terapage_store::Error::System { source, .. })) => system(source),
            Error::Pager(Pager::Store(terapage_store::Error::Full { .. })) => libc::ENOSPC,
            Error::Pager(Pager::TooManyFiles | Pager::TooManyForks) => libc::ENFILE,
            Error::Pager(_) => libc::EINVAL,
            Error::File { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
