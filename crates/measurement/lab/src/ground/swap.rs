//! Swap that the lab makes: a file, or a compressed device in memory.

use crate::ground::janitor::{Janitor, OwnedFile, Thing};
use std::io;
use std::path::{Path, PathBuf};
use std::{fs, process};
use terapage_rig::swap::{PRIORITY, off, turn_on, write_header};

/// If less than this is in the lab's swap after its program has ended, nothing is reported. Chosen,
/// not measured.
const FOREIGN_LEAST: u64 = 1 << 20;

/// A line of /proc/swaps.
#[derive(Debug, PartialEq, Eq)]
struct Area {
    path: String,
    used_bytes: u64,
    priority: i32,
}

/// The swap areas in /proc/swaps.
fn areas(text: &str) -> Vec<Area> {
    let area = |line: &str| {
        let mut fields = line.split_whitespace();
        let path = fields.next()?.replace("\\040", " ");
        // The fields: path, type, size, bytes in use, priority.
        let used_bytes = fields.nth(2)?.parse::<u64>().ok()? * 1024;
        Some(Area { path, used_bytes, priority: fields.next()?.parse().ok()? })
    };
    text.lines().skip(1).filter_map(area).collect()
}

/// Another swap area with the same or a higher priority than the lab's.
pub fn rival() -> Option<String> {
    rival_in(&fs::read_to_string("/proc/swaps").unwrap_or_default())
}

fn rival_in(text: &str) -> Option<String> {
    areas(text).into_iter().find(|area| area.priority >= PRIORITY).map(|area| area.path)
}

/// The directory by which the kernel creates and removes compressed devices in memory.
const ZRAM: &str = "/sys/class/zram-control";

/// The file that switches zswap on.
pub const ZSWAP: &str = "/sys/module/zswap/parameters/enabled";

/// The file that switches the multi-generational LRU on.
pub const MGLRU: &str = "/sys/kernel/mm/lru_gen/enabled";

/// A compressed device in memory; dropping this value removes it.
struct Zram<'a> {
    number: u32,
    janitor: &'a Janitor,
}

impl<'a> Zram<'a> {
    /// Makes a device for `bytes` bytes before compression. Needs root.
    fn new(janitor: &'a Janitor, bytes: u64) -> io::Result<Zram<'a>> {
        let text = fs::read_to_string(format!("{ZRAM}/hot_add"))?;
        let number = text.trim().parse().map_err(io::Error::other)?;
        // The number is known only now. If the lab is killed before this line, an empty device
        // remains.
        let zram = Zram { number, janitor };
        janitor.tell(&Thing::Zram(number))?;
        fs::write(format!("/sys/block/zram{number}/disksize"), bytes.to_string())?;
        Ok(zram)
    }

    fn device(&self) -> PathBuf {
        format!("/dev/zram{}", self.number).into()
    }
}

impl Drop for Zram<'_> {
    fn drop(&mut self) {
        if remove_zram(self.number).is_ok() {
            self.janitor.gone(&Thing::Zram(self.number));
        }
    }
}

/// Removes a compressed device that is not in use. It is no error if there is none.
pub fn remove_zram(number: u32) -> io::Result<()> {
    match Path::new(&format!("/sys/block/zram{number}")).exists() {
        true => fs::write(format!("{ZRAM}/hot_remove"), number.to_string()),
        false => Ok(()),
    }
}

/// Bytes of memory that a compressed device uses, from its `mm_stat`.
fn zram_bytes(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(2)?.parse().ok()
}

/// Bytes of memory that zswap uses, from /proc/meminfo.
fn zswap_bytes(meminfo: &str) -> Option<u64> {
    crate::ground::runner::fields(meminfo).get("Zswap").copied()
}

/// The place of swapped pages.
enum Place<'a> {
    File(OwnedFile<'a>),
    Zram(Zram<'a>),
}

/// Swap in use. Dropping this value turns it off and removes it.
pub struct Swap<'a> {
    // Dropped after `drop` has turned the swap off.
    place: Place<'a>,
    janitor: &'a Janitor,
}

impl<'a> Swap<'a> {
    /// Makes a swap file of `bytes` bytes in `directory` and turns it on. Needs root.
    pub fn on(janitor: &'a Janitor, directory: &Path, bytes: u64) -> io::Result<Swap<'a>> {
        let path = directory.join(format!("terapage-lab-{}.swap", process::id()));
        let file = OwnedFile::allocate(janitor, path, bytes)?;
        Swap::begin(Place::File(file), janitor, bytes)
    }

    /// Makes swap on a compressed device in memory and turns it on. Needs root.
    pub fn on_zram(janitor: &'a Janitor, bytes: u64) -> io::Result<Swap<'a>> {
        Swap::begin(Place::Zram(Zram::new(janitor, bytes)?), janitor, bytes)
    }

    fn begin(place: Place<'a>, janitor: &'a Janitor, bytes: u64) -> io::Result<Swap<'a>> {
        let swap = Swap { place, janitor };
        write_header(&swap.path(), bytes)?;
        janitor.tell(&Thing::Swap(swap.path()))?;
        turn_on(&swap.path())?;
        Ok(swap)
    }
}

impl Swap<'_> {
    fn path(&self) -> PathBuf {
        match &self.place {
            Place::File(file) => file.path().to_owned(),
            Place::Zram(zram) => zram.device(),
        }
    }

    /// Bytes of memory that hold compressed swapped pages: those of the device in memory, or, with
    /// a swap file, those of zswap.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = match &self.place {
            Place::File(_) => zswap_bytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            Place::Zram(zram) => {
                let stat = fs::read_to_string(format!("/sys/block/zram{}/mm_stat", zram.number));
                zram_bytes(&stat.unwrap_or_default())
            }
        };
        bytes.unwrap_or(0)
    }

    /// Bytes in it that belong to other programs. Call this function after the program has ended
    /// for which the swap was made.
    pub fn foreign_bytes(&self) -> u64 {
        let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
        foreign_in(&text, &self.path().display().to_string())
    }
}

fn foreign_in(text: &str, path: &str) -> u64 {
    let own = areas(text).into_iter().find(|area| area.path == path);
    own.map(|area| area.used_bytes).filter(|bytes| *bytes >= FOREIGN_LEAST).unwrap_or(0)
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        if off(&self.path()).is_ok() {
            self.janitor.gone(&Thing::Swap(self.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{areas, foreign_in, rival_in, zram_bytes, zswap_bytes};

    const SWAPS: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
        /dev/zram0                              partition\t8388604\t\t512\t\t100\n\
        /var/tmp/a\\040b.swap                    file\t\t65532\t\t2048\t\t32767\n";

    #[test]
    fn what_compressed_pages_take_is_read() {
        let stat = " 1048576    32768   49152        0    65536        3        0        0        0\n";
        assert_eq!(zram_bytes(stat), Some(49152));
        assert_eq!(zram_bytes(""), None);
        assert_eq!(
            zswap_bytes("MemTotal: 9 kB\nZswap:              12 kB\nZswapped: 40 kB\n"),
            Some(12 << 10)
        );
        assert_eq!(zswap_bytes("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn who_else_swaps_is_read() {
        let found = areas(SWAPS);
        assert_eq!((found.len(), found[1].path.as_str()), (2, "/var/tmp/a b.swap"));
        assert_eq!((found[1].used_bytes, found[0].priority), (2 << 20, 100));
        assert_eq!(rival_in(SWAPS).as_deref(), Some("/var/tmp/a b.swap"));
        assert_eq!(rival_in(&SWAPS.replace("32767", "99")), None);
        assert!(areas("").is_empty());
        // If other programs have pages in the lab's swap, its run is disturbed; a few pages are not
        // reported.
        assert_eq!(foreign_in(SWAPS, "/var/tmp/a b.swap"), 2 << 20);
        assert_eq!(foreign_in(SWAPS, "/dev/zram0"), 0, "512 KiB");
        assert_eq!(foreign_in(SWAPS, "/absent"), 0);
    }
}
