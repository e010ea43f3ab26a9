//! Masks of memory nodes; calls that populate memory.

use crate::Direction::{self, In, InOut, Out};
use crate::Outcome;
use crate::step::{Step, Visit};

/// A mask of nodes. The kernel takes one bit less than the length says, in whole words.
fn nodes(visit: &mut Visit, mask: usize, bits: usize, direction: Direction) -> Step {
    let words = visit.long(bits).saturating_sub(1).div_ceil(64);
    // A page of bits at most.
    if words <= 8192 { visit.touch(visit.long(mask), words * 8, direction) } else { Ok(()) }
}

/// `mbind`
pub fn mbind(visit: &mut Visit) -> Step {
    nodes(visit, 3, 4, In)
}

/// `set_mempolicy`
pub fn set_mempolicy(visit: &mut Visit) -> Step {
    nodes(visit, 1, 2, In)
}

/// `get_mempolicy`: with MPOL_F_ADDR, a page may be faulted in to see where it lies.
pub fn get_mempolicy(visit: &mut Visit) -> Step {
    nodes(visit, 1, 2, Out)?;
    if visit.long(4) & 2 != 0 { visit.reads(visit.long(3), 1) } else { Ok(()) }
}

/// `migrate_pages`
pub fn migrate_pages(visit: &mut Visit) -> Step {
    nodes(visit, 2, 1, In)?;
    nodes(visit, 3, 1, In)
}

/// `mincore`: a byte for each page. Here pages have the smallest size.
pub fn mincore(visit: &mut Visit) -> Step {
    visit.writes(visit.long(2), visit.long(1).div_ceil(4096))
}

const POPULATE_READ: u32 = 22;
const POPULATE_WRITE: u32 = 23;

/// `madvise` faults memory in only if it populates.
pub fn madvise(visit: &mut Visit) -> Step {
    match visit.int(2) {
        POPULATE_READ => visit.reads(visit.long(0), visit.long(1)),
        POPULATE_WRITE => visit.changes(visit.long(0), visit.long(1)),
        _ => Ok(()),
    }
}

/// `process_madvise`
pub fn process_madvise(visit: &mut Visit) -> Step {
    let (array, count) = (visit.long(1), visit.long(2));
    match visit.int(3) {
        POPULATE_READ | POPULATE_WRITE => visit.buffers(array, count, InOut),
        _ if count <= 1024 => visit.reads(array, count * 16),
        _ => Ok(()),
    }
}

/// `modify_ldt`
pub fn modify_ldt(visit: &mut Visit) -> Step {
    let (start, len) = (visit.long(1), visit.long(2));
    match visit.int(0) {
        0 | 2 => visit.writes(start, len.min(65536)),
        1 | 0x11 => visit.reads(start, 16),
        _ => Err(Outcome::Unknown),
    }
}
