//! A swap file of the lab's own.

use crate::janitor::{Janitor, OwnedFile, Thing};
use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::{fs, process};

/// A swap file in use; taken out of use and removed when dropped.
pub struct Swap<'a> {
    // Dropped after `drop` has taken the file out of use.
    file: OwnedFile<'a>,
    janitor: &'a Janitor,
}

impl<'a> Swap<'a> {
    /// Makes a swap file of `bytes` bytes in `directory` and puts it to use. Needs root.
    pub fn on(janitor: &'a Janitor, directory: &Path, bytes: u64) -> io::Result<Swap<'a>> {
        let path = directory.join(format!("terapage-lab-{}.swap", process::id()));
        let file = OwnedFile::allocate(janitor, path, bytes)?;
        write_header(file.path(), bytes)?;
        janitor.tell(&Thing::Swap(file.path().to_owned()))?;
        let swap = Swap { file, janitor };
        let name = c_path(swap.file.path())?;
        // SAFETY: `name` is a string that ends in a zero byte and lives through the call.
        if unsafe { libc::swapon(name.as_ptr(), 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(swap)
    }
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        if off(self.file.path()).is_ok() {
            self.janitor.gone(&Thing::Swap(self.file.path().to_owned()));
        }
    }
}

/// Takes a swap file out of use; no error where it is not in use.
pub fn off(path: &Path) -> io::Result<()> {
    let name = c_path(path)?;
    while in_use(path) {
        // SAFETY: `name` is a string that ends in a zero byte and lives through the call.
        if unsafe { libc::swapoff(name.as_ptr()) } != 0 {
            let error = io::Error::last_os_error();
            // A signal stops it half-way: go on.
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Whether /proc/swaps names the file.
pub fn in_use(path: &Path) -> bool {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    // So are the bytes written there that would end a word or a line.
    let escaped = [("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")];
    let name = path.to_string_lossy().into_owned();
    let name = escaped.iter().fold(name, |name, (byte, octal)| name.replace(byte, octal));
    swaps.lines().any(|line| line.split_whitespace().next() == Some(name.as_str()))
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// Writes the header that mkswap writes: `union swap_header` of include/linux/swap.h.
fn write_header(path: &Path, bytes: u64) -> io::Result<()> {
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
