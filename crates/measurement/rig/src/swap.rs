//! Swap areas: writes their header, and turns them on and off.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A flag of swapon (`include/linux/swap.h`): the priority is given.
const SWAP_FLAG_PREFER: libc::c_int = 0x8000;

/// The highest priority, since the machine's own swap would be used first otherwise.
pub const PRIORITY: libc::c_int = 0x7fff;

/// Turns a swap file off. It is not an error if it is not on.
///
/// # Errors
/// The kernel refuses it.
pub fn off(path: &Path) -> io::Result<()> {
    let name = c_path(path)?;
    loop {
        // /proc/swaps is not read, since in a container it may show other swap. SAFETY: `name` is a
        // string that ends in a zero byte and lives through the call.
        if unsafe { libc::swapoff(name.as_ptr()) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // A signal has interrupted the call: try again.
            Some(libc::EINTR) => {}
            Some(libc::EINVAL | libc::ENOENT) => return Ok(()),
            _ => return Err(error),
        }
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// Starts swapping to a device or file of this size; its contents are lost.
///
/// # Errors
/// It cannot be written, or the kernel refuses it.
pub fn start(path: &Path, bytes: u64) -> io::Result<()> {
    write_header(path, bytes)?;
    turn_on(path)
}

/// Turns on an area that has a header already.
///
/// # Errors
/// The kernel refuses it.
pub fn turn_on(path: &Path) -> io::Result<()> {
    let name = c_path(path)?;
    // SAFETY: `name` is a string that ends in a zero byte and lives through the call.
    if unsafe { libc::swapon(name.as_ptr(), SWAP_FLAG_PREFER | PRIORITY) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Writes the header that mkswap would write: `union swap_header` of include/linux/swap.h.
///
/// # Errors
/// It cannot be written, or has an impossible size.
pub fn write_header(path: &Path, bytes: u64) -> io::Result<()> {
    // SAFETY: sysconf takes a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).map_err(io::Error::other)?;
    let pages =
        u32::try_from(bytes / page as u64).map_err(|_| io::Error::other("too large for a swap file"))?;
    let mut header = vec![0u8; page];
    header[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&pages.saturating_sub(1).to_ne_bytes());
    header[page - 10..].copy_from_slice(b"SWAPSPACE2");
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&header, 0)?;
    file.flush()?;
    file.sync_all()
}
