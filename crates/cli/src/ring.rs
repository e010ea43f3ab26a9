//! How stores can be read and written here: by io_uring, or otherwise.

use std::fs;
use std::io;
use terapage_config::Io;
use terapage_sys::ring::{IoEngine, Ring};

/// Why there is no ring of io_uring.
pub struct Refusal {
    /// What is wrong.
    pub what: String,
    /// What mends it.
    pub fix: &'static str,
    error: io::Error,
}

impl Refusal {
    /// Whether the refusal is lasting: this process and its kernel, container or user can have no
    /// ring of io_uring at all. A shortage of memory or descriptors does not matter to a program
    /// that never grows.
    pub fn is_lasting(&self) -> bool {
        matches!(self.error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
    }

    /// Whether another engine is used in place of io_uring, unless the user wants io_uring.
    pub fn is_avoided(&self) -> bool {
        self.is_lasting() || self.error.raw_os_error() == Some(libc::ENOMEM)
    }
}

/// What raises the limit on locked memory.
pub const MORE_LOCKED: &str = "ulimit -l 8192; if that is refused, memlock in \
    /etc/security/limits.conf, or in a container --ulimit memlock=8388608";

/// Makes a ring of io_uring, to see whether the kernel refuses it.
pub fn refusal() -> Option<Refusal> {
    let error = io_uring::IoUring::new(2).err()?;
    if error.raw_os_error() == Some(libc::ENOMEM) {
        let what = "the user may not lock the memory of a ring (ulimit -l)".to_owned();
        return Some(Refusal { what, fix: MORE_LOCKED, error });
    }
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

/// Why a program that may only use io_uring would not be paged.
pub fn barred(io: Io) -> Option<Refusal> {
    if io == Io::Uring { refusal().filter(Refusal::is_lasting) } else { None }
}

/// Whether stores can be read and written by an engine. If not, the error says what is wrong.
pub fn works(engine: IoEngine) -> Result<(), String> {
    Ring::with(Some(engine), 2, false).map(drop).map_err(|error| error.to_string())
}
