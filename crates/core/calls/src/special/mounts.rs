//! Handles of files, and the newer calls about mounts.

use crate::Outcome;
use crate::step::{Step, Visit};

/// `MAX_HANDLE_SZ`
const HANDLE: u32 = 128;

/// `name_to_handle_at`: the length of the handle comes first. The mount has a number of 64 bits with
/// AT_HANDLE_MNT_ID_UNIQUE.
pub fn name_to_handle(visit: &mut Visit) -> Step {
    let handle = visit.long(2);
    visit.writes(visit.long(3), if visit.int(4) & 1 != 0 { 8 } else { 4 })?;
    visit.changes(handle, 8)?;
    let len = visit.u32(handle, 0)?;
    visit.changes(handle, 8 + len.min(HANDLE) as usize)
}

/// `open_by_handle_at`
pub fn open_by_handle(visit: &mut Visit) -> Step {
    let handle = visit.long(1);
    visit.reads(handle, 8)?;
    let len = visit.u32(handle, 0)?;
    visit.reads(handle, 8 + len.min(HANDLE) as usize)
}

/// `fsconfig`
pub fn fsconfig(visit: &mut Visit) -> Step {
    let value = visit.long(3);
    match visit.int(1) {
        // SET_STRING, SET_BINARY, SET_PATH and SET_PATH_EMPTY
        1 => visit.text(value, 256),
        2 => visit.reads(value, visit.signed(4).min(1 << 20)),
        3 | 4 => visit.text(value, 4096),
        // SET_FLAG, SET_FD, and the commands to create and to reconfigure.
        0 | 5..=8 => Ok(()),
        _ => Err(Outcome::Unknown),
    }
}

/// `statmount`, `listmount`, `listns`: a structure that begins with its length.
pub fn request(visit: &mut Visit) -> Step {
    let request = visit.long(0);
    visit.reads(request, 4)?;
    let len = visit.u32(request, 0)?;
    visit.reads(request, len.min(65536) as usize)
}

/// `sysfs`: a name of a file system is read, or written.
pub fn sysfs(visit: &mut Visit) -> Step {
    match visit.int(0) {
        1 => visit.text(visit.long(1), 4096),
        2 => visit.writes(visit.long(2), 256),
        _ => Ok(()),
    }
}
