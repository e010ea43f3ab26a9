//! `bpf`. Lengths of keys and values are those of a map, which only the kernel knows, so commands
//! that have any are unknown, and so is loading of programs.

use crate::Outcome;
use crate::step::{Step, Visit};

/// `bpf`, by its command.
pub fn visit(visit: &mut Visit) -> Step {
    let (attributes, len) = (visit.long(1), visit.int(2));
    visit.changes(attributes, len.min(65536) as usize)?;
    match visit.int(0) {
        // OBJ_PIN, OBJ_GET
        6 | 7 if len >= 8 => {
            let path = visit.word(attributes, 0)?;
            visit.text(path, 4096)
        }
        // PROG_ATTACH, PROG_DETACH; *_GET_NEXT_ID, *_GET_FD_BY_ID; MAP_FREEZE; of links;
        // ENABLE_STATS, ITER_CREATE, LINK_DETACH, PROG_BIND_MAP
        6..=9 | 11..=14 | 19 | 22 | 23 | 30..=35 => Ok(()),
        _ => Err(Outcome::Unknown),
    }
}
