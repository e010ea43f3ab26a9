//! What the machine has, for a budget that follows it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use terapage_config::{Level, Machine};
use terapage_lease::Table;
use terapage_sys::fd::Room;
use terapage_sys::file::Early;
use terapage_sys::thread::now_ns;

/// The least time between two regular looks of all processes of a job: a look takes a twentieth of
/// it. A process that lacks memory looks at once.
pub const PAUSE_NS: u64 = 2_000_000;
/// The cgroups around the process are looked for after this time: the process may have been moved.
const FIND_NS: u64 = 1_000_000_000;

/// The places that say how much memory there is, and when they were found.
#[derive(Debug)]
pub struct Known {
    machine: Option<Machine>,
    found_ns: u64,
}

impl Known {
    /// Nothing is known yet.
    pub const fn new() -> Known {
        Known { machine: None, found_ns: 0 }
    }

    fn levels(&self) -> Vec<Level> {
        self.machine.as_ref().map(|machine| machine.levels(&read)).unwrap_or_default()
    }
}

/// Looks at the machine, if the table's budget follows it and no process has looked for `pause_ns`.
pub fn look(table: &Table<'_>, known: Option<&mut Known>, pause_ns: u64) {
    let now = now_ns();
    if !table.is_due(now, pause_ns) {
        return;
    }
    let mut none = Known::new();
    let known = known.unwrap_or(&mut none);
    if now.saturating_sub(known.found_ns) > FIND_NS {
        *known = find(now);
    }
    let mut levels = known.levels();
    if levels.is_empty() {
        let _room = room();
        *known = find(now);
        levels = known.levels();
    }
    table.look(&levels, now);
}

/// Looks for the places that say how much memory there is.
fn find(now_ns: u64) -> Known {
    // Without room the cgroups would seem to have no limits.
    let _room = room();
    Known { machine: Some(Machine::here(&read)), found_ns: now_ns }
}

/// Room for descriptors, if the program has opened as many files as it may.
fn room() -> Option<Room> {
    if read(Path::new("/proc/meminfo")).is_some() { None } else { Room::make().ok() }
}

/// The text of a file, read without the C library, whose functions the program may have replaced.
fn read(path: &Path) -> Option<String> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut bytes = vec![0; 8 << 10];
    let len = Early::open(&path)?.read_at(&mut bytes, 0);
    bytes.truncate(len);
    String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}
