//! Arrays of buffers, sets of files, and masks of signals behind a pointer.

use crate::Direction::{self, In, Out};
use crate::step::{MOST, Step, Visit};

/// `readv` and its kin.
pub fn read(visit: &mut Visit) -> Step {
    visit.buffers(visit.long(1), visit.long(2), Out)
}

/// `writev` and its kin.
pub fn write(visit: &mut Visit) -> Step {
    visit.buffers(visit.long(1), visit.long(2), In)
}

/// `process_vm_readv`
pub fn process_read(visit: &mut Visit) -> Step {
    process(visit, Out, In)
}

/// `process_vm_writev`
pub fn process_write(visit: &mut Visit) -> Step {
    process(visit, In, Out)
}

/// The second array lies here, and names memory of the other process, which may be this one. The
/// kernel copies as many bytes as both arrays name, and touches no buffer if it refuses an array.
fn process(visit: &mut Visit, here: Direction, there: Direction) -> Step {
    let arrays = [1, 3].map(|at| (visit.long(at), visit.long(at + 1)));
    let mut len = if visit.long(5) == 0 { MOST } else { 0 };
    for (array, count) in arrays {
        if len > 0 {
            len = len.min(visit.total(array, count)?);
        }
    }
    let [(own, own_count), (other, other_count)] = arrays;
    if len > 0 {
        visit.parts(own, own_count, len, here)?;
        if visit.is_self(visit.int(0)) {
            visit.parts(other, other_count, len, there)?;
        }
    }
    Ok(())
}

/// `select`: three sets of bits, in whole words. The kernel takes no more files than the process
/// may have open.
pub fn sets(visit: &mut Visit) -> Step {
    let bytes = visit.signed(0).div_ceil(64) * 8;
    for set in 1..4 {
        visit.changes(visit.long(set), bytes)?;
    }
    Ok(())
}

/// `pselect6`
pub fn sets_and_mask(visit: &mut Visit) -> Step {
    sets(visit)?;
    mask_in_sixth(visit)
}

/// The sixth argument points to a mask of signals and the mask's length, which must be 8.
pub fn mask_in_sixth(visit: &mut Visit) -> Step {
    let pair = visit.long(5);
    if pair == 0 {
        return Ok(());
    }
    let [mask, _] = visit.structure(pair)?;
    visit.reads(mask, 8)
}
