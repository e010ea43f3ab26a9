//! `setxattrat`, `getxattrat`: the value is behind a structure.

use crate::Direction::{self, In, Out};
use crate::step::{Step, Visit};

const MOST: u32 = 65536;

fn value(visit: &mut Visit, direction: Direction) -> Step {
    let structure = visit.long(4);
    // Later kernels may know a longer structure.
    visit.reads(structure, visit.long(5).min(MOST as usize))?;
    let start = visit.word(structure)?;
    let len = visit.u32(structure.wrapping_add(8))?;
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
