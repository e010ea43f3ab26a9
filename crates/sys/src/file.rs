//! Files of blocks.

use crate::fd::Fd;
use crate::{Error, Result, check};
use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn open(path: &Path, flags: i32) -> Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error { call: "open", source: std::io::ErrorKind::InvalidInput.into() })?;
    // SAFETY: the path ends in a zero byte.
    let raw = unsafe {
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, 0o600)
    };
    // SAFETY: opened just now.
    check("open", raw).map(|raw| unsafe { OwnedFd::from_raw_fd(raw as i32) })
}

/// A file for reading and writing; whether its I/O goes past the page cache.
pub struct Opened {
    /// The file.
    pub fd: Fd,
    /// Opened with O_DIRECT.
    pub direct: bool,
}

/// Opens `path` with `flags`, with O_DIRECT where the file system has it.
fn open_direct(path: &Path, flags: i32) -> Result<Opened> {
    match open(path, flags | libc::O_RDWR | libc::O_DIRECT) {
        Ok(fd) => Ok(Opened { fd: Fd::adopt(fd)?, direct: true }),
        Err(error) if error.errno() == libc::EINVAL => {
            Ok(Opened { fd: Fd::adopt(open(path, flags | libc::O_RDWR)?)?, direct: false })
        }
        Err(error) => Err(error),
    }
}

/// A file without a name in `directory`: it goes with its last descriptor, whatever happens.
pub fn nameless(directory: &Path) -> Result<Opened> {
    open_direct(directory, libc::O_TMPFILE)
}

/// An existing file or device, or a new file. A device is taken for this process alone.
pub fn existing_or_new(path: &Path, device: bool) -> Result<Opened> {
    open_direct(path, if device { libc::O_EXCL } else { libc::O_CREAT })
}

/// Makes sure that the file has room for the bytes from `from` to `from + len`.
/// A file system without the call answers EOPNOTSUPP.
pub fn allocate(fd: &Fd, from: u64, len: u64) -> Result<()> {
    loop {
        // SAFETY: no memory is touched.
        let answer = unsafe { libc::fallocate64(fd.raw(), 0, from as i64, len as i64) };
        match check("fallocate", answer.into()) {
            Err(error) if error.errno() == libc::EINTR => {}
            other => return other.map(|_| ()),
        }
    }
}

/// The size of a file or device, by seeking to its end.
pub fn size(fd: &Fd) -> Result<u64> {
    // SAFETY: no memory is touched.
    check("lseek", unsafe { libc::lseek64(fd.raw(), 0, libc::SEEK_END) }).map(|size| size as u64)
}

/// A memory file called `name`, of `len` zero bytes, mapped for reading and writing by all who open it.
pub fn memory_file(name: &std::ffi::CStr, len: usize) -> Result<(Fd, *mut u8)> {
    // SAFETY: the name ends in a zero byte.
    let raw = check("memfd_create", unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) }.into())?;
    // SAFETY: made just now.
    let fd = Fd::adopt(unsafe { OwnedFd::from_raw_fd(raw as i32) })?;
    // SAFETY: no memory is touched.
    check("ftruncate", unsafe { libc::ftruncate64(fd.raw(), len as i64) }.into())?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses the place.
    let at = unsafe { libc::syscall(libc::SYS_mmap, 0usize, len, prot, libc::MAP_SHARED, fd.raw(), 0i64) };
    if at == -1 { Err(Error::last("mmap")) } else { Ok((fd, at as *mut u8)) }
}
