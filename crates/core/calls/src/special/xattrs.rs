//! `setxattrat`, `getxattrat`: the value is behind a structure.

use crate::Direction::{self, In, Out};
use crate::step::{Step, Visit};

const MOST: u32 = 65536;

fn value(visit: &mut Visit, direction: Direction) -> Step {
    let (structure, structure_len) = (visit.long(4), visit.long(5));
    // Later kernels may know a longer structure.
    if structure_len < 16 {
        return Ok(());
    }
    visit.reads(structure, structure_len.min(MOST as usize))?;
    let start = visit.word(structure, 0)?;
    let len = visit.u32(structure, 8)?;
    visit.touch(start, len.min(MOST) as usize, direction)
}

/// `setxattrat`
pub fn set(visit: &mut Visit) -> Step {
    value(visit, In)
}

/// `getxattrat`
pub fn get(visit: &mut Visit) -> Step {
    value(visit, Out)
}
