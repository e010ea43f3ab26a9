//! The question that all hooks of memory calls ask: which parts of a range are paged, or will be
//! once the program has grown. These are the parts in the arena and in static arrays.

use crate::arena::{self, ARENA, Arena};
use crate::maps::is_served;
use crate::statics;
use terapage_sys::{memory, page_bytes};

type Parts = Vec<(usize, usize)>;

/// Whether a range contains such a part.
pub fn meets(at: usize, len: usize) -> bool {
    arena::overlaps(at, len) || statics::meets(at, len)
}

/// Whether a range contains such a part, and calls of this thread about it are served.
pub fn concerns(at: usize, len: usize) -> bool {
    arena::overlaps(at, len) || statics::meets(at, len) && is_served()
}

/// These parts of a range.
pub fn parts(from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
    arena::part_of(from, to).into_iter().chain(statics::within(from, to - from))
}

/// Whether a range consists only of such parts.
pub fn is_whole(from: usize, to: usize) -> bool {
    parts(from, to).map(|(from, to)| to - from).sum::<usize>() == to - from
}

/// The rest of a range, which belongs to the kernel: the gaps between its parts.
pub fn others(from: usize, to: usize) -> Parts {
    let mut parts: Parts = parts(from, to).collect();
    parts.sort_unstable();
    between(from, to, &parts)
}

/// The gaps between ascending parts of a range.
pub fn between(from: usize, to: usize, parts: &[(usize, usize)]) -> Parts {
    let starts = std::iter::once(from).chain(parts.iter().map(|&(_, end)| end));
    let ends = parts.iter().map(|&(start, _)| start).chain([to]);
    starts.zip(ends).filter(|(start, end)| start < end).collect()
}

impl Arena {
    /// The parts of a range that are paged now.
    pub fn paged_within(&self, from: usize, to: usize) -> Parts {
        parts(from, to).flat_map(|(from, to)| self.paged_blocks(from, to)).collect()
    }

    /// Stops paging a range by `stop`, part by part. Returns the parts that were paged, for
    /// [`take_back`](Self::take_back).
    ///
    /// # Errors
    /// ENOMEM if the process may have no more mappings; then everything is paged as before.
    fn stop_each(
        &mut self,
        (from, to): (usize, usize),
        stop: fn(&mut Arena, usize, usize) -> terapage_sys::Result<()>,
    ) -> terapage_sys::Result<Parts> {
        let paged = self.paged_within(from, to);
        let stopped = parts(from, to).try_for_each(|(from, to)| stop(self, from, to));
        match stopped {
            Ok(()) => Ok(paged),
            Err(error) => {
                self.take_back(paged);
                Err(error)
            }
        }
    }

    /// Stops paging a range in which the program makes pages special.
    ///
    /// # Errors
    /// As for `stop_each`.
    pub fn release_parts(&mut self, from: usize, to: usize) -> terapage_sys::Result<Parts> {
        self.stop_each((from, to), Arena::release)
    }

    /// Stops paging a range that the program locks. Returns the parts that were not locked before,
    /// for [`unlock_parts`](Self::unlock_parts).
    ///
    /// # Errors
    /// As for `stop_each`.
    pub fn lock_parts(&mut self, from: usize, to: usize) -> terapage_sys::Result<Parts> {
        let new = self.not_locked(from, to);
        for (index, &(from, to)) in new.iter().enumerate() {
            if let Err(error) = self.lock_pages(from, to) {
                self.unlock_parts(&new[..index]);
                return Err(error);
            }
        }
        Ok(new)
    }

    /// The parts of a range that would be locked anew.
    pub fn not_locked(&self, from: usize, to: usize) -> Parts {
        parts(from, to).flat_map(|(from, to)| self.unlocked_within(from, to)).collect()
    }

    /// Pages parts again that the program has locked before.
    pub fn unlock_parts(&mut self, locked: &[(usize, usize)]) {
        locked.iter().for_each(|&(from, to)| self.unlock_pages(from, to));
    }

    /// Stops paging a range until it is returned or mapped again.
    ///
    /// # Errors
    /// As for `stop_each`.
    pub fn keep_parts(&mut self, from: usize, to: usize) -> terapage_sys::Result<Parts> {
        self.stop_each((from, to), Arena::keep)
    }
}

/// Stops paging the parts of a range that the program moves, unmaps or maps over. Returns
/// the parts that were paged; `None` if there are none.
///
/// # Errors
/// ENOMEM if the process may have no more mappings.
pub fn leave(at: usize, len: usize) -> terapage_sys::Result<Option<Parts>> {
    let len = len.next_multiple_of(page_bytes());
    if !at.is_multiple_of(page_bytes()) || !concerns(at, len) {
        return Ok(None);
    }
    ARENA.lock().keep_parts(at, at + len).map(Some)
}

/// Drops the bytes of static arrays that the program unmaps, so that they need not come in first.
/// The kernel must not refuse the call afterwards: there is room for the mappings that it splits.
pub fn drop_before_unmapping(at: usize, len: usize) {
    let len = len.next_multiple_of(page_bytes());
    if at.is_multiple_of(page_bytes()) && statics::meets(at, len) && is_served() {
        let arena = ARENA.lock();
        for (from, to) in statics::within(at, len) {
            let paged = arena.paged_blocks(from, to);
            if memory::has_room_for_mappings(2 * paged.len() + 4) {
                arena.drop_blocks(from, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::between;

    #[test]
    fn the_rest_lies_between_the_parts() {
        assert_eq!(between(0, 9, &[]), [(0, 9)]);
        assert_eq!(between(0, 9, &[(0, 9)]), []);
        assert_eq!(between(0, 9, &[(2, 3), (3, 5), (8, 9)]), [(0, 2), (5, 8)]);
    }
}
