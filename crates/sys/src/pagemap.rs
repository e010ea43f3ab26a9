//! Which pages of this process are there: the kernel's own answer.

use crate::fd::Fd;
use crate::{Error, PAGE, Result, check};
use std::os::fd::{FromRawFd, OwnedFd};

/// `/proc/self/pagemap`, held open.
#[derive(Debug)]
pub struct Pagemap(Fd);

impl Pagemap {
    /// Opens it for the calling process; a child needs its own.
    pub fn open() -> Result<Pagemap> {
        let path = c"/proc/self/pagemap";
        // SAFETY: the path ends in a zero byte.
        let raw = unsafe {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)
        };
        let raw = check("open(/proc/self/pagemap)", raw)?;
        // SAFETY: opened just now.
        Ok(Pagemap(Fd::adopt(unsafe { OwnedFd::from_raw_fd(raw as i32) })?))
    }

    /// For each page from `at` on, whether it holds bytes: present, in swap, or on its way between places.
    pub fn present(&self, at: usize, pages: &mut [bool]) -> Result<()> {
        let mut words = [0u64; 512];
        for (chunk, out) in pages.chunks_mut(512).enumerate() {
            let offset = (at / PAGE + chunk * 512) * 8;
            // SAFETY: `words` has room for 512 words.
            let got = unsafe {
                libc::pread64(self.0.raw(), words.as_mut_ptr().cast(), out.len() * 8, offset as i64)
            };
            if got != (out.len() * 8) as isize {
                return Err(Error::last("read(/proc/self/pagemap)"));
            }
            for (out, word) in out.iter_mut().zip(words) {
                *out = word >> 62 != 0;
            }
        }
        Ok(())
    }
}
