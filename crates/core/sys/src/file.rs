//! Files: the stores' files and devices, and other files that Terapage reads and writes.

use crate::fd::Fd;
use crate::opening::Opening;
use crate::{Error, Result, check, page_bytes, shared, thread};
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

fn open(path: &Path, flags: i32) -> Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error { call: "open", source: std::io::ErrorKind::InvalidInput.into() })?;
    // SAFETY: the path ends in a zero byte.
    let raw = unsafe {
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, 0o600)
    };
    // SAFETY: the descriptor was opened just now.
    check("open", raw).map(|raw| unsafe { OwnedFd::from_raw_fd(raw as i32) })
}

/// A file that is open for reading and writing.
pub struct Opened {
    /// The file.
    pub fd: Fd,
    /// Whether it was opened with O_DIRECT, which bypasses the page cache.
    pub direct: bool,
}

/// Opens `path` with `flags`, and with O_DIRECT if the file system supports it.
fn open_direct(path: &Path, flags: i32) -> Result<Opened> {
    let _opening = Opening::begin();
    match open(path, flags | libc::O_RDWR | libc::O_DIRECT) {
        Ok(fd) => Ok(Opened { fd: Fd::adopt(fd)?, direct: true }),
        Err(error) if error.errno() == libc::EINVAL => {
            Ok(Opened { fd: Fd::adopt(open(path, flags | libc::O_RDWR)?)?, direct: false })
        }
        Err(error) => Err(error),
    }
}

/// Makes a file without a name in `directory`: the file vanishes with its last descriptor, whatever
/// happens.
///
/// If the file system cannot do this (NFS, an overlay before Linux 6.1), the file has a name for a
/// moment.
pub fn nameless(directory: &Path) -> Result<Opened> {
    match open_direct(directory, libc::O_TMPFILE) {
        Err(error) if matches!(error.errno(), libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT) => {
            unlinked(directory)
        }
        other => other,
    }
}

/// Makes a new file in `directory`, and removes its name.
fn unlinked(directory: &Path) -> Result<Opened> {
    let process = std::process::id();
    let mut number = 0;
    loop {
        let path = directory.join(format!(".terapage-{process}-{number}"));
        match open_direct(&path, libc::O_CREAT | libc::O_EXCL) {
            Err(error) if error.errno() == libc::EEXIST && number < 1000 => number += 1,
            Err(error) => return Err(error),
            Ok(opened) => {
                let removed = std::fs::remove_file(&path);
                return removed.map(|()| opened).map_err(|source| Error { call: "unlink", source });
            }
        }
    }
}

/// Opens an existing block device, for this process alone.
pub fn device(path: &Path) -> Result<Opened> {
    open_direct(path, libc::O_EXCL)
}

/// Allocates room in the file for the bytes from `from` to `from + len`. A file system without the
/// call answers EOPNOTSUPP.
///
/// Beyond the limit on the size of files (`RLIMIT_FSIZE`), this function fails with EFBIG, without
/// the signal that accompanies it. The signal would end a program that did not write the file
/// itself, and the pager can do without more room.
pub fn allocate(fd: &Fd, from: u64, len: u64) -> Result<()> {
    within_limit(Error::errno, || {
        loop {
            // SAFETY: no memory is touched.
            let answer = unsafe { libc::fallocate64(fd.raw(), 0, from as i64, len as i64) };
            match check("fallocate", answer.into()) {
                Err(error) if error.errno() == libc::EINTR => {}
                other => break other.map(|_| ()),
            }
        }
    })
}

/// Writes all of `bytes` to a file of the program, from `offset` on. Beyond the limit on the size
/// of files it fails with EFBIG, also without the signal.
pub fn write_all(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    within_limit(
        |error: &std::io::Error| error.raw_os_error().unwrap_or(0),
        || file.write_all_at(bytes, offset),
    )
}

/// Calls a function that may exceed the limit on the size of files, and removes the signal that
/// accompanies EFBIG.
fn within_limit<E>(
    errno: impl FnOnce(&E) -> i32,
    work: impl FnOnce() -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let signals = thread::block_signals();
    let answer = work();
    if answer.as_ref().is_err_and(|error| errno(error) == libc::EFBIG) {
        thread::forget_signal(libc::SIGXFSZ);
    }
    thread::restore_signals(&signals);
    answer
}

/// The size of a file or device, in bytes, found by seeking to its end.
pub fn size(fd: &Fd) -> Result<u64> {
    // SAFETY: no memory is touched.
    check("lseek", unsafe { libc::lseek64(fd.raw(), 0, libc::SEEK_END) }).map(|size| size as u64)
}

/// Opens the file again, for reads past the page cache; `None` if such reads are impossible. Also
/// returns the number of readable bytes in its first page.
pub fn past_cache(file: &File, offset: u64) -> std::io::Result<(Option<File>, usize)> {
    let layout = Layout::from_size_align(page_bytes(), page_bytes()).expect("a page");
    // SAFETY: the size of the layout is not 0.
    let page = unsafe { alloc(layout) };
    if page.is_null() {
        return Err(std::io::ErrorKind::OutOfMemory.into());
    }
    // SAFETY: the page was allocated just now, and is freed below; any bytes are valid.
    let bytes = unsafe {
        page.write_bytes(0, page_bytes());
        std::slice::from_raw_parts_mut(page, page_bytes())
    };
    // This opens the same file. Its path may lead to another file by now.
    let same = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(same);
    // As in `Lease::take`.
    let is_same = |direct: &File| shared::identity(direct.as_raw_fd()) == shared::identity(file.as_raw_fd());
    let direct = direct
        .ok()
        .filter(is_same)
        .and_then(|direct| direct.read_at(bytes, offset).ok().map(|read| (Some(direct), read)));
    let answer = match direct {
        Some(direct) => Ok(direct),
        None => file.read_at(bytes, offset).map(|read| (None, read)),
    };
    // SAFETY: the page was allocated above with the same layout, and is no longer used.
    unsafe { dealloc(page, layout) };
    answer
}

/// The number of the call `cachestat`, which the libc crate lacks for some C libraries.
const CACHESTAT: libc::c_long = 451;

/// The number of bytes of a part of a file that are in the page cache; `None` if the kernel cannot
/// tell (`cachestat`, Linux 6.5).
pub fn cached_bytes(fd: i32, offset: u64, len: u64) -> Option<u64> {
    let range = [offset, len];
    let mut counts = [0_u64; 5];
    // SAFETY: the call reads the range, and writes five counts (`linux/mman.h`).
    let answer = unsafe { libc::syscall(CACHESTAT, fd, range.as_ptr(), counts.as_mut_ptr(), 0_u32) };
    (answer == 0).then(|| counts[0] * page_bytes() as u64)
}

/// Whether the page of a file that is mapped at an address is in the page cache; `None` if nothing
/// is mapped there. For another user's file the kernel always says yes.
pub fn is_cached(at: usize) -> Option<bool> {
    let mut page = 0_u8;
    // SAFETY: the call writes one byte, for one page.
    let answer = unsafe { libc::syscall(libc::SYS_mincore, at, page_bytes(), &raw mut page) };
    (answer == 0).then_some(page & 1 != 0)
}

/// Makes a memory file called `name`, of `len` zero bytes, and maps it, shared, for reading and
/// writing.
pub fn memory_file(name: &std::ffi::CStr, len: usize) -> Result<(Fd, *mut u8)> {
    // SAFETY: the name ends in a zero byte.
    let make = || unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) }.into();
    let fd = Fd::open("memfd_create", make)?;
    // SAFETY: no memory is touched.
    check("ftruncate", unsafe { libc::ftruncate64(fd.raw(), len as i64) }.into())?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses the place.
    let at = unsafe { libc::syscall(libc::SYS_mmap, 0usize, len, prot, libc::MAP_SHARED, fd.raw(), 0i64) };
    if at == -1 { Err(Error::last("mmap")) } else { Ok((fd, at as *mut u8)) }
}

/// A file that is read only by system calls and without allocating. In a program's first moments
/// another library's `open` may replace the C library's and not be ready yet; and a thread that
/// holds locks may not allocate.
pub struct Early {
    fd: i64,
    _opening: Opening,
}

impl Early {
    /// Opens a file for reading.
    pub fn open(path: &std::ffi::CStr) -> Option<Early> {
        let opening = Opening::begin();
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path ends in a zero byte.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        (fd >= 0).then_some(Early { fd, _opening: opening })
    }

    /// Reads bytes from `offset` on. Returns their number; 0 at the end, or if they cannot be read.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> usize {
        // SAFETY: the kernel writes into the slice.
        let got =
            unsafe { libc::syscall(libc::SYS_pread64, self.fd, bytes.as_mut_ptr(), bytes.len(), offset) };
        usize::try_from(got).unwrap_or(0)
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        // SAFETY: only this value owns the descriptor, and it is closed once.
        unsafe { libc::syscall(libc::SYS_close, self.fd) };
    }
}

/// Where the kernel lists the descriptors of this thread's process.
const DESCRIPTORS: &std::ffi::CStr = c"/proc/thread-self/fd";

/// The numbers of open descriptors from `from` on, ascending, as many as `into` takes; `None` if
/// they cannot be listed.
pub fn open_numbers(from: u32, into: &mut [u32]) -> Option<usize> {
    /// What precedes the name of an entry (`struct linux_dirent64`), and where its length lies.
    const NAME: usize = 19;
    const LENGTH: usize = 16;
    let directory = Early::open(DESCRIPTORS)?;
    // The kernel's positions are two above the numbers. SAFETY: no memory is touched.
    unsafe { libc::syscall(libc::SYS_lseek, directory.fd, i64::from(from) + 2, libc::SEEK_SET) };
    let (mut bytes, mut found) = ([0_u8; 1024], 0);
    loop {
        // SAFETY: the kernel writes into the bytes.
        let got =
            unsafe { libc::syscall(libc::SYS_getdents64, directory.fd, bytes.as_mut_ptr(), bytes.len()) };
        let mut rest = bytes.get(..usize::try_from(got).ok()?)?;
        if rest.is_empty() {
            return Some(found);
        }
        while let Some(name) = rest.get(NAME..) {
            let name = name.split(|&byte| byte == 0).next()?;
            let number = std::str::from_utf8(name).ok().and_then(|name| name.parse::<u32>().ok());
            if let Some(number) = number.filter(|&number| number >= from && i64::from(number) != directory.fd)
            {
                *into.get_mut(found)? = number;
                found += 1;
                if found == into.len() {
                    return Some(found);
                }
            }
            let len = usize::from(u16::from_ne_bytes([rest[LENGTH], rest[LENGTH + 1]]));
            rest = rest.get(len.max(1)..)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_descriptors_are_listed_in_order() {
        let files: Vec<_> = (0..60).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let own: Vec<u32> = files.iter().map(|file| std::os::fd::AsRawFd::as_raw_fd(file) as u32).collect();
        // A test beside this one can give back a lower number between two of these opens.
        let (mut from, mut seen) = (*own.iter().min().unwrap(), Vec::new());
        loop {
            let mut some = [0; 7];
            let found = open_numbers(from, &mut some).unwrap();
            seen.extend_from_slice(&some[..found]);
            let Some(last) = some[..found].last() else { break };
            from = last + 1;
        }
        assert!(seen.is_sorted(), "{seen:?}");
        assert!(own.iter().all(|number| seen.contains(number)), "{own:?}: {seen:?}");
    }

    #[test]
    fn a_file_loses_its_name_at_once() {
        let directory = std::env::temp_dir().join(format!("terapage-sys-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        for open in [nameless, unlinked] {
            let opened = open(&directory);
            assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
            assert_eq!(size(&opened.unwrap().fd).unwrap(), 0);
        }
        std::fs::remove_dir(&directory).unwrap();
        assert!(nameless(&directory).is_err() && unlinked(&directory).is_err());
    }
}
