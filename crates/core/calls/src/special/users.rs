//! Capabilities, and attributes of security modules.

use crate::Direction::{self, In, InOut, Out};
use crate::step::{Step, Visit};

/// Two structures of three words each; the first version had one.
fn data(visit: &mut Visit, direction: Direction) -> Step {
    let version = visit.u32(visit.long(0), 0)?;
    visit.touch(visit.long(1), if version == 0x1998_0330 { 12 } else { 24 }, direction)
}

/// `capget`
pub fn capget(visit: &mut Visit) -> Step {
    data(visit, Out)
}

/// `capset`
pub fn capset(visit: &mut Visit) -> Step {
    data(visit, In)
}

/// As many bytes as the length behind a pointer says.
fn by_length(visit: &mut Visit, buffer: usize, len: usize, direction: Direction) -> Step {
    if visit.long(buffer) == 0 {
        return Ok(());
    }
    let len = visit.u32(visit.long(len), 0)?;
    visit.touch(visit.long(buffer), len as usize, direction)
}

/// `lsm_get_self_attr`
pub fn lsm_get(visit: &mut Visit) -> Step {
    by_length(visit, 1, 2, InOut)
}

/// `lsm_list_modules`
pub fn lsm_list(visit: &mut Visit) -> Step {
    by_length(visit, 0, 1, Out)
}
