//! The page map: which pages of this process are present, as the kernel knows.

use crate::fd::Fd;
use crate::opening::Opening;
use crate::{Error, Result, check, page_bytes};
use linux_raw_sys::general::{PAGE_IS_PRESENT, PAGE_IS_SWAPPED, page_region, pm_scan_arg};
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd};

/// `PAGEMAP_SCAN`, which the ioctl tables lack: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u32 = 0xC000_0000 | (size_of::<pm_scan_arg>() as u32) << 16 | (b'f' as u32) << 8 | 16;
const _: () = assert!(size_of::<pm_scan_arg>() == 96 && size_of::<page_region>() == 24);

/// Bits of an entry of `pagemap` (`Documentation/admin-guide/mm/pagemap.rst`).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;

/// The page map, held open. It is opened through the calling thread (`/proc/thread-self`):
/// `/proc/self` leads to the first thread, which may have ended.
#[derive(Debug)]
pub struct Pagemap(Fd);

impl Pagemap {
    /// Opens the page map of the calling process. A forked child needs to open it again.
    pub fn open() -> Result<Pagemap> {
        let _opening = Opening::begin();
        let path = c"/proc/thread-self/pagemap";
        // SAFETY: the path ends in a zero byte.
        let open = || unsafe {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)
        };
        let mut raw = open();
        if raw < 0 && Error::last("open").errno() == libc::EACCES {
            // The file belongs to root if the process has changed its user. While the process is
            // dumpable, the file belongs to the process's user again. SAFETY: no memory is touched.
            unsafe {
                let before = libc::prctl(libc::PR_GET_DUMPABLE);
                libc::prctl(libc::PR_SET_DUMPABLE, 1);
                raw = open();
                libc::prctl(libc::PR_SET_DUMPABLE, i32::from(before == 1));
            }
        }
        let raw = check("open(/proc/thread-self/pagemap)", raw)?;
        // SAFETY: the descriptor was opened just now.
        Ok(Pagemap(Fd::adopt(unsafe { OwnedFd::from_raw_fd(raw as i32) })?))
    }

    /// Calls `each` with every range of present pages in this range. The time depends on the number
    /// of present pages, not on the length. Returns whether the kernel can tell (Linux 6.7).
    ///
    /// # Errors
    /// Only if the range is not aligned to pages.
    pub fn each_present(&self, range: Range<usize>, mut each: impl FnMut(Range<usize>)) -> Result<bool> {
        const NONE: page_region = page_region { start: 0, end: 0, categories: 0 };
        let mut found = [NONE; 256];
        let there = u64::from(PAGE_IS_PRESENT | PAGE_IS_SWAPPED);
        let mut from = range.start as u64;
        while from < range.end as u64 {
            let mut scan = pm_scan_arg {
                size: size_of::<pm_scan_arg>() as u64,
                flags: 0,
                start: from,
                end: range.end as u64,
                walk_end: 0,
                vec: found.as_mut_ptr() as u64,
                vec_len: found.len() as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: 0,
                category_anyof_mask: there,
                return_mask: there,
            };
            // SAFETY: the kernel writes to `scan`, and to no more regions than there is room for.
            let answer = unsafe { libc::syscall(libc::SYS_ioctl, self.0.raw(), PAGEMAP_SCAN, &raw mut scan) };
            let count = match check("ioctl(PAGEMAP_SCAN)", answer) {
                Ok(count) => count as usize,
                Err(error) if error.errno() == libc::ENOTTY => return Ok(false),
                Err(error) if error.errno() == libc::EINTR => continue,
                Err(error) => return Err(error),
            };
            found[..count].iter().for_each(|found| each(found.start as usize..found.end as usize));
            from = scan.walk_end;
        }
        Ok(true)
    }

    /// For each page from `at` on, whether it has bytes: present, in swap, or in migration.
    pub fn present(&self, at: usize, pages: &mut [bool]) -> Result<()> {
        self.each_word(at, pages, |word| word & (PRESENT | SWAPPED) != 0)
    }

    /// For each page from `at` on, whether it is present and shared: with relatives by a fork, or,
    /// if it was only read, with the kernel (the zero page).
    pub fn shared(&self, at: usize, pages: &mut [bool]) -> Result<()> {
        self.each_word(at, pages, |word| word & (PRESENT | EXCLUSIVE) == PRESENT)
    }

    /// For each page from `at` on, whether it is a private copy of this process in a mapping of a
    /// file: present or in swap, and not the file's.
    pub fn own(&self, at: usize, pages: &mut [bool]) -> Result<()> {
        self.each_word(at, pages, |word| word & (PRESENT | SWAPPED) != 0 && word & FILE == 0)
    }

    fn each_word(&self, at: usize, pages: &mut [bool], tell: impl Fn(u64) -> bool) -> Result<()> {
        let mut words = [0u64; 512];
        for (chunk, out) in pages.chunks_mut(512).enumerate() {
            let offset = (at / page_bytes() + chunk * 512) * 8;
            // SAFETY: `words` has room for 512 words.
            let got = unsafe {
                libc::pread64(self.0.raw(), words.as_mut_ptr().cast(), out.len() * 8, offset as i64)
            };
            if got != (out.len() * 8) as isize {
                return Err(Error::last("read(/proc/self/pagemap)"));
            }
            for (out, word) in out.iter_mut().zip(words) {
                *out = tell(word);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Pagemap;
    use crate::{memory, page_bytes};

    #[test]
    fn a_page_that_was_only_read_is_the_kernels_too() {
        let at = memory::reserve(3 * page_bytes()).unwrap() as usize;
        memory::advise(at, 3 * page_bytes(), memory::MADV_NOHUGEPAGE);
        // SAFETY: only this test uses the pages.
        unsafe {
            assert_eq!((at as *const u8).read_volatile(), 0);
            ((at + page_bytes()) as *mut u8).write_volatile(1);
        }
        let pagemap = Pagemap::open().unwrap();
        let shared = || {
            let (mut present, mut shared) = ([false; 3], [false; 3]);
            pagemap.present(at, &mut present).unwrap();
            pagemap.shared(at, &mut shared).unwrap();
            (present, shared)
        };
        assert_eq!(shared(), ([true, true, false], [true, false, false]));
        // SAFETY: the page is present and writable.
        unsafe { memory::make_exclusive(at) };
        assert_eq!(shared(), ([true, true, false], [false; 3]));
        // SAFETY: the memory is no longer used.
        unsafe { memory::unmap(at as *mut u8, 3 * page_bytes()) }.unwrap();
    }

    #[test]
    fn ranges_that_are_there_are_found_in_a_large_hole() {
        let pages = 1 << 20;
        let at = memory::reserve(pages * page_bytes()).unwrap() as usize;
        for page in [0, 1, 700, pages - 1] {
            // SAFETY: only this test uses the page.
            unsafe { memory::bytes(at + page * page_bytes(), 1) }.fill(1);
        }
        let pagemap = Pagemap::open().unwrap();
        let mut found = Vec::new();
        let listed = pagemap.each_present(at..at + pages * page_bytes(), |range| {
            found.extend(
                (range.start..range.end).step_by(page_bytes()).map(|page| (page - at) / page_bytes()),
            );
        });
        if listed.unwrap() {
            assert_eq!(found, [0, 1, 700, pages - 1]);
        } else {
            eprintln!("skipped: this kernel has no PAGEMAP_SCAN");
        }
        // SAFETY: the memory is no longer used.
        unsafe { memory::unmap(at as *mut u8, pages * page_bytes()) }.unwrap();
    }
}
