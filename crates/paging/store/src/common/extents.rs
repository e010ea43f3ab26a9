//! How many extents a store may have, and by how many it grows.

use super::member::step;
use crate::{EXTENT, Error};

/// The number of extents of a store of a given size: at least one.
pub(crate) fn extents_of(limit: u64) -> u64 {
    (limit / EXTENT as u64).max(1)
}

/// The number of extents by which a store with `has` extents grows.
pub(crate) fn extents_to_add(has: usize) -> usize {
    step((has * EXTENT) as u64) as usize / EXTENT
}

/// Refuses an extent whose slots would have no numbers: numbers have 32 bits, and one of them means
/// no slot.
pub(crate) fn room_for_numbers(
    extents: usize,
    block: usize,
    name: impl FnOnce() -> String,
) -> Result<(), Error> {
    if (extents + 1) * (EXTENT / block) < u32::MAX as usize {
        return Ok(());
    }
    let mib = (extents * EXTENT) >> 20;
    let why = format!("no more than {mib} MiB can be used in blocks of this size; make --block larger");
    Err(Error::Full { name: name(), why })
}

/// Everything that a store of a given size may have is in use.
pub(crate) fn used_up(name: String, limit: u64) -> Error {
    Error::Full { name, why: format!("all of --store-size ({} MiB) is in use", limit >> 20) }
}
