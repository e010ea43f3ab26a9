//! The source of paged memory: this library's own pager, or under `terapage run` the existing
//! pager. Then all memory comes from that pager's addresses, and the process has one budget.

use crate::{Error, Result};
use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use terapage_pager::owner::{NAME, Owner, advice};
use terapage_pager::{FDATASYNC, Pager};
use terapage_stats::{Counters, MAGIC, Snapshot};

/// The pager that serves the requests about paged memory.
pub(crate) enum Pages {
    Own(Pager),
    Owner(&'static Owner),
}

static OWNER: OnceLock<Option<&'static Owner>> = OnceLock::new();

/// Finds the pager of `terapage run`, if there is one. Call it at load, while the caller holds no
/// lock that the loader could wait for.
pub(crate) fn find() {
    OWNER.get_or_init(|| {
        // SAFETY: the name ends in a zero byte, and only functions of this type have it. The table
        // lasts as long as its library, which is not unloaded.
        unsafe {
            let at = libc::dlsym(libc::RTLD_DEFAULT, CStr::as_ptr(NAME));
            if at.is_null() {
                // The program may ask for its own errors, and must not get this one.
                libc::dlerror();
                return None;
            }
            std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Owner>(at)().as_ref()
        }
    });
}

/// The pager of `terapage run`, started; `None` if there is none, it cannot start, or its counters
/// have another version.
pub(crate) fn owner() -> Option<&'static Owner> {
    let owner = OWNER.get().copied().flatten()?;
    let is_known = |counters: &Counters| counters.magic.load(std::sync::atomic::Ordering::SeqCst) == MAGIC;
    // SAFETY: the counters last as long as the process.
    ((owner.begin)() == 0 && unsafe { (owner.counters)().as_ref() }.is_some_and(is_known)).then_some(owner)
}

/// The result for an error number of `call`.
fn result(call: &'static str, errno: c_int) -> Result<()> {
    match errno {
        0 => Ok(()),
        libc::ENFILE => Err(Error::Pager(terapage_pager::Error::TooManyFiles)),
        errno => Err(system(call, errno).into()),
    }
}

fn system(call: &'static str, errno: c_int) -> terapage_pager::Error {
    terapage_sys::Error { call, source: std::io::Error::from_raw_os_error(errno) }.into()
}

impl Pages {
    /// The pager's counters.
    pub fn snapshot(&self) -> Snapshot {
        match self {
            Pages::Own(pager) => pager.snapshot(),
            Pages::Owner(owner) => {
                // SAFETY: the counters last as long as the process.
                let counters = unsafe { (owner.counters)().as_ref() };
                counters.map(Counters::snapshot).unwrap_or_default()
            }
        }
    }

    pub fn will_need(&self, at: usize, len: usize) -> Result<()> {
        match self {
            Pages::Own(pager) => Ok(pager.will_need(at, len)?),
            Pages::Owner(owner) => result("paging in", (owner.advise)(at, len, advice::WILL_NEED)),
        }
    }

    pub fn done_with(&self, at: usize, len: usize) -> Result<()> {
        match self {
            Pages::Own(pager) => Ok(pager.done_with(at, len)?),
            Pages::Owner(owner) => result("paging out", (owner.advise)(at, len, advice::DONE_WITH)),
        }
    }

    pub fn set_random(&self, at: usize, len: usize, random: bool) -> Result<()> {
        match self {
            Pages::Own(pager) => Ok(pager.set_random(at, len, random)?),
            Pages::Owner(owner) => {
                let what = if random { advice::RANDOM } else { advice::SEQUENTIAL };
                result("advice", (owner.advise)(at, len, what))
            }
        }
    }

    pub fn map_file(&self, at: usize, len: usize, file: &File, offset: u64, bytes: u64) -> Result<()> {
        match self {
            Pages::Own(pager) => Ok(pager.map_file(at, len, file, offset, bytes)?),
            Pages::Owner(owner) => {
                result("mapping", (owner.map_file)(at, len, file.as_raw_fd(), offset, bytes))
            }
        }
    }

    pub fn unmap_file(&self, at: usize, len: usize) -> Result<()> {
        match self {
            Pages::Own(pager) => Ok(pager.unmap_file(at, len)?),
            Pages::Owner(owner) => result("unmapping", (owner.unmap_file)(at, len)),
        }
    }

    pub fn sync_file(
        &self,
        at: usize,
        len: usize,
        file: &File,
        offset: u64,
        bytes: u64,
    ) -> std::result::Result<u64, terapage_pager::Error> {
        match self {
            Pages::Own(pager) => pager.sync_file(at, len, file, offset, bytes),
            Pages::Owner(owner) => {
                let mut written = 0;
                match (owner.sync_file)(at, len, file.as_raw_fd(), offset, bytes, &mut written) {
                    0 => Ok(written),
                    errno if errno < 0 => Err(system(FDATASYNC, -errno)),
                    errno => Err(system("write to the mapped file", errno)),
                }
            }
        }
    }
}
