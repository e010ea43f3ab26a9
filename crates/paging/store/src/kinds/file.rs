//! A local SSD: one file or device, past the page cache.

use crate::common::extents::{extents_of, extents_to_add, room_for_numbers, used_up};
use crate::common::member::{Member, Why};
use crate::{Below, BelowMut, EXTENT, Ended, Error, Notes, Op, OpKind, Store, StoreRing};
use std::path::Path;
use terapage_sys::ring::Done;

/// One file or device.
pub struct FileStore {
    member: Member,
    extents: usize,
    block: usize,
    limit: Option<u64>,
    /// Bytes of each operation under way.
    under_way: Notes<usize>,
}

impl FileStore {
    /// A store of slots of `block` bytes at `path`: a directory, an empty file, or a block device
    /// (`docs/configuration.md`). With `limit` its bytes are reserved at once, and the store never
    /// takes more.
    ///
    /// # Errors
    /// The path is something else, or cannot be opened or written; or there is no room for `limit`.
    pub fn open(path: &Path, block: usize, limit: Option<u64>) -> Result<FileStore, Error> {
        let member = Member::open(path)?;
        let mut store = FileStore { member, extents: 0, block, limit, under_way: Notes::default() };
        if let Some(limit) = limit {
            for _ in 0..extents_of(limit) {
                store.add_extent()?;
            }
        }
        Ok(store)
    }

    /// The same store, which leaves a tenth of the disk free, or 4 GiB if that is less.
    pub fn leaving_some(mut self) -> FileStore {
        self.member.leave_some();
        self
    }

    fn add_extent(&mut self) -> Result<(), Error> {
        room_for_numbers(self.extents, self.block, || self.name())?;
        match self.member.take()? {
            // Extents follow one another.
            Some(offset) => {
                debug_assert_eq!(offset, (self.extents * EXTENT) as u64);
                self.extents += 1;
                Ok(())
            }
            None => Err(full(self.name(), self.extents, self.member.why_full())),
        }
    }
}

/// There is no room after this number of extents.
fn full(name: String, extents: usize, why: Why) -> Error {
    let mib = (extents * EXTENT) >> 20;
    let why = match why {
        Why::Left => format!(
            "after {mib} MiB less than a tenth of the disk and less than 4 GiB would be free; free \
             some, use another --store, or set --store-size"
        ),
        Why::Limit => format!(
            "at most {mib} MiB are allowed (by a quota, or the limit on the size of files: ulimit \
             -f)"
        ),
        Why::Space => format!("no space left after {mib} MiB; free some, or use another --store"),
    };
    Error::Full { name, why }
}

impl Store for FileStore {
    fn name(&self) -> String {
        self.member.name()
    }

    fn slots(&self) -> u32 {
        (self.extents * (EXTENT / self.block)) as u32
    }

    fn grow(&mut self) -> Result<(), Error> {
        if let Some(limit) = self.limit {
            return Err(used_up(self.name(), limit));
        }
        let more = extents_to_add(self.extents);
        self.add_extent()?;
        for _ in 1..more {
            if self.add_extent().is_err() {
                break;
            }
        }
        Ok(())
    }

    fn below(&self) -> Below<'_> {
        Below::Nothing
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Nothing
    }

    fn joins(&self, slot: u32) -> bool {
        slot > 0 && slot < self.slots()
    }

    fn may_split(&self, more: usize) -> bool {
        room_for_numbers(self.extents, self.block / more, || self.name()).is_ok()
    }

    fn split(&mut self, more: usize) {
        self.block /= more;
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        let (fd, offset) = (self.member.raw(), u64::from(op.slot) * self.block as u64);
        // SAFETY: the operation ends when the ring returns its completion: until then the caller
        // keeps the pieces and their memory.
        let begun = unsafe {
            match op.kind {
                OpKind::Read => ring.read(fd, op.pieces, offset, u64::from(op.id)),
                OpKind::Write => ring.write(fd, op.pieces, offset, u64::from(op.id)),
            }
        };
        match begun {
            Ok(()) => self.under_way.put(op.id, op.bytes()),
            Err(error) => ended.push(Ended::unbegun(op.id, &error)),
        }
    }

    fn event(&mut self, _ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        let id = done.tag as u32;
        let wanted = self.under_way.take(id).expect("an operation under way");
        ended.push(Ended::by_result(id, done.result, wanted));
    }

    fn inherit(&mut self) -> Result<(), Error> {
        self.under_way.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Rig;

    const BLOCK: usize = 1 << 20;

    #[test]
    fn extents_of_one_file_lie_together() {
        let place = tempfile::tempdir().unwrap();
        let store = FileStore::open(place.path(), BLOCK, Some(3 * EXTENT as u64)).unwrap();
        let edges: Vec<_> = (0..8).step_by(2).map(|slot| store.joins(slot)).collect();
        assert_eq!(edges, [false, true, true, false], "none is before the first, and there is no fourth");
    }

    #[test]
    fn slots_that_are_split_have_the_parts_of_their_bytes() {
        let place = tempfile::tempdir().unwrap();
        let store = FileStore::open(place.path(), BLOCK, Some(2 * EXTENT as u64)).unwrap();
        let Some(mut rig) = Rig::new(store, BLOCK) else { return };
        rig.memory()[..BLOCK / 2].fill(1);
        rig.memory()[BLOCK / 2..].fill(2);
        rig.operate(OpKind::Write, 3, BLOCK).unwrap();
        assert!(rig.store.may_split(2));
        rig.store.split(2);
        assert_eq!(rig.store.slots(), 8);
        for (slot, byte) in [(6, 1), (7, 2)] {
            rig.memory().fill(0);
            rig.operate(OpKind::Read, slot, BLOCK / 2).unwrap();
            assert!(rig.memory()[..BLOCK / 2].iter().all(|&found| found == byte), "slot {slot}");
        }
    }

    #[test]
    fn one_operation_goes_across_the_edge_of_extents_that_lie_together() {
        let place = tempfile::tempdir().unwrap();
        let store = FileStore::open(place.path(), BLOCK, Some(2 * EXTENT as u64)).unwrap();
        let Some(mut rig) = Rig::new(store, EXTENT) else { return };
        rig.memory()[..BLOCK].fill(1);
        rig.memory()[BLOCK..].fill(2);
        rig.operate(OpKind::Write, 1, EXTENT).unwrap();
        for (slot, byte) in [(1, 1), (2, 2)] {
            rig.memory().fill(0);
            rig.operate(OpKind::Read, slot, BLOCK).unwrap();
            assert!(rig.memory()[..BLOCK].iter().all(|&found| found == byte), "slot {slot}");
        }
    }
}
