//! A swap file of the lab's own.

use crate::janitor::{Janitor, OwnedFile, Thing};
use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::{fs, process};

/// Flags of swapon (`include/linux/swap.h`): SWAP_FLAG_PREFER, and the highest priority. The
/// machine's own swap would be used first.
const FIRST: libc::c_int = 0x8000 | 0x7fff;

/// Less than this in the lab's swap after its program has ended is not told.
const FOREIGN_LEAST: u64 = 1 << 20;

/// A line of /proc/swaps.
#[derive(Debug, PartialEq, Eq)]
struct Area {
    path: String,
    used_bytes: u64,
    priority: i32,
}

/// The areas that /proc/swaps tells of.
fn areas(text: &str) -> Vec<Area> {
    let area = |line: &str| {
        let mut fields = line.split_whitespace();
        let path = fields.next()?.replace("\\040", " ");
        // Type and size come before what is used.
        let used_bytes = fields.nth(2)?.parse::<u64>().ok()? * 1024;
        Some(Area { path, used_bytes, priority: fields.next()?.parse().ok()? })
    };
    text.lines().skip(1).filter_map(area).collect()
}

/// Another area that the kernel would use as readily as the lab's.
pub fn rival() -> Option<String> {
    rival_in(&fs::read_to_string("/proc/swaps").unwrap_or_default())
}

fn rival_in(text: &str) -> Option<String> {
    let highest = FIRST & 0x7fff;
    areas(text).into_iter().find(|area| area.priority >= highest).map(|area| area.path)
}

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
        if unsafe { libc::swapon(name.as_ptr(), FIRST) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(swap)
    }
}

impl Swap<'_> {
    /// Bytes in it that belong to others, once the program that it was made for has ended.
    pub fn foreign_bytes(&self) -> u64 {
        let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
        let path = self.file.path().display().to_string();
        let own = areas(&text).into_iter().find(|area| area.path == path);
        own.map_or(0, |area| area.used_bytes)
            .checked_sub(FOREIGN_LEAST)
            .map_or(0, |more| more + FOREIGN_LEAST)
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
    loop {
        // Not asked of /proc/swaps, which a container may have another of.
        // SAFETY: `name` is a string that ends in a zero byte and lives through the call.
        if unsafe { libc::swapoff(name.as_ptr()) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // A signal stops it half-way: go on.
            Some(libc::EINTR) => {}
            Some(libc::EINVAL | libc::ENOENT) => return Ok(()),
            _ => return Err(error),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::{areas, rival_in};

    const SWAPS: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
        /dev/zram0                              partition\t8388604\t\t512\t\t100\n\
        /var/tmp/a\\040b.swap                    file\t\t65532\t\t2048\t\t32767\n";

    #[test]
    fn who_else_swaps_is_read() {
        let found = areas(SWAPS);
        assert_eq!((found.len(), found[1].path.as_str()), (2, "/var/tmp/a b.swap"));
        assert_eq!((found[1].used_bytes, found[0].priority), (2 << 20, 100));
        assert_eq!(rival_in(SWAPS).as_deref(), Some("/var/tmp/a b.swap"));
        assert_eq!(rival_in(&SWAPS.replace("32767", "99")), None);
        assert!(areas("").is_empty());
    }
}
