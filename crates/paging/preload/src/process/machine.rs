//! What the machine has, for a budget that follows it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use terapage_config::Machine;
use terapage_lease::Table;
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
}

/// Looks at the machine, if the table's budget follows it and no process has looked for `pause_ns`.
pub fn look(table: &Table<'_>, known: Option<&mut Known>, pause_ns: u64) {
    let now = now_ns();
    if !table.is_due(now, pause_ns) {
        return;
    }
    let here;
    let machine = match known {
        Some(known) => {
            if now.saturating_sub(known.found_ns) > FIND_NS {
                *known = Known { machine: None, found_ns: now };
            }
            known.machine.get_or_insert_with(|| Machine::here(&read))
        }
        None => {
            here = Machine::here(&read);
            &here
        }
    };
    table.look(&machine.levels(&read), now);
}

/// The text of a file, read without the C library, whose functions the program may have replaced.
fn read(path: &Path) -> Option<String> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut bytes = vec![0; 8 << 10];
    let len = Early::open(&path)?.read_at(&mut bytes, 0);
    bytes.truncate(len);
    String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}
