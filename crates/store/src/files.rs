//! Local SSDs: one or more files or devices, past the page cache.

use crate::member::{Member, step};
use crate::{EXTENT, Error, Store};
use std::path::PathBuf;
use terapage_sys::ring::{Piece, Ring};

/// How extents spread over several files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Fill one, then the next.
    Simple,
    /// Take turns.
    RoundRobin,
}

/// One or more files or devices, as one store.
pub struct Files {
    members: Vec<Member>,
    /// For each extent, its member and where it lies there.
    extents: Vec<(u16, u64)>,
    placement: Placement,
    next: usize,
    block: usize,
    limit: Option<u64>,
}

impl Files {
    /// A store of slots of `block` bytes over `paths`: directories, empty files, or block devices
    /// (`docs/configuration.md`). With `limit` its bytes are taken at once, and are all that it
    /// ever takes.
    ///
    /// # Errors
    /// A path that is something else, or cannot be opened or written; no room for `limit`.
    pub fn open(
        paths: &[PathBuf],
        placement: Placement,
        block: usize,
        limit: Option<u64>,
    ) -> Result<Files, Error> {
        let members = paths.iter().map(|path| Member::open(path)).collect::<Result<Vec<_>, _>>()?;
        let mut files = Files { members, extents: Vec::new(), placement, next: 0, block, limit };
        if let Some(limit) = limit {
            while (files.extents.len() * EXTENT) as u64 + (EXTENT as u64) <= limit.max(EXTENT as u64) {
                files.add_extent()?;
            }
        }
        Ok(files)
    }

    fn add_extent(&mut self) -> Result<(), Error> {
        let mib = (self.extents.len() * EXTENT) >> 20;
        // Slots have numbers of 32 bits, of which one says that there is none.
        if (self.extents.len() + 1) * (EXTENT / self.block) >= u32::MAX as usize {
            let why =
                format!("no more than {mib} MiB can be used in blocks of this size; make --block larger");
            return Err(Error::Full { name: self.name(), why });
        }
        for _ in 0..self.members.len() {
            let index = self.next;
            match self.members[index].take()? {
                Some(offset) => {
                    self.extents.push((index as u16, offset));
                    if self.placement == Placement::RoundRobin {
                        self.next = (index + 1) % self.members.len();
                    }
                    return Ok(());
                }
                None => self.next = (index + 1) % self.members.len(),
            }
        }
        let why = match self.members.iter().any(Member::is_limited) {
            true => {
                format!(
                    "no more than {mib} MiB is allowed (by a quota, or the limit on the size of files: ulimit -f)"
                )
            }
            false => format!("no space left after {mib} MiB; free some, or give --store another place"),
        };
        Err(Error::Full { name: self.name(), why })
    }

    fn locate(&self, slot: u32) -> (i32, u64) {
        let byte = slot as usize * self.block;
        let (member, offset) = self.extents[byte / EXTENT];
        (self.members[usize::from(member)].raw(), offset + (byte % EXTENT) as u64)
    }
}

impl Store for Files {
    fn name(&self) -> String {
        let names: Vec<_> = self.members.iter().map(|member| member.name()).collect();
        names.join(", ")
    }

    fn slots(&self) -> u32 {
        (self.extents.len() * (EXTENT / self.block)) as u32
    }

    fn grow(&mut self) -> Result<(), Error> {
        if let Some(limit) = self.limit {
            let why = format!("all of --store-size ({} MiB) is in use", limit >> 20);
            return Err(Error::Full { name: self.name(), why });
        }
        let more = step((self.extents.len() * EXTENT) as u64) as usize / EXTENT;
        self.add_extent()?;
        for _ in 1..more {
            if self.add_extent().is_err() {
                break;
            }
        }
        Ok(())
    }

    fn goes_on(&self, slot: u32) -> bool {
        let extent = slot as usize * self.block / EXTENT;
        let Some(before) = extent.checked_sub(1) else { return false };
        let (Some(&(member, offset)), Some(&next)) = (self.extents.get(before), self.extents.get(extent))
        else {
            return false;
        };
        next == (member, offset + EXTENT as u64)
    }

    unsafe fn read(
        &mut self,
        ring: &mut Ring,
        slot: u32,
        pieces: &[Piece],
        tag: u64,
    ) -> terapage_sys::Result<()> {
        let (fd, offset) = self.locate(slot);
        // SAFETY: the caller's promise.
        unsafe { ring.read(fd, pieces, offset, tag) }
    }

    unsafe fn write(
        &mut self,
        ring: &mut Ring,
        slot: u32,
        pieces: &[Piece],
        tag: u64,
    ) -> terapage_sys::Result<()> {
        let (fd, offset) = self.locate(slot);
        // SAFETY: the caller's promise.
        unsafe { ring.write(fd, pieces, offset, tag) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 1 << 20;

    fn store(places: usize, placement: Placement, extents: u64) -> (Files, Vec<tempfile::TempDir>) {
        let places: Vec<_> = (0..places).map(|_| tempfile::tempdir().unwrap()).collect();
        let paths: Vec<_> = places.iter().map(|place| place.path().to_owned()).collect();
        (Files::open(&paths, placement, BLOCK, Some(extents * EXTENT as u64)).unwrap(), places)
    }

    #[test]
    fn extents_of_one_file_lie_together_and_those_of_two_do_not() {
        let edges = |store: &Files| (0..8).step_by(2).map(|slot| store.goes_on(slot)).collect::<Vec<_>>();
        let (one, _places) = store(1, Placement::Simple, 3);
        assert_eq!(
            edges(&one),
            [false, true, true, false],
            "none is before the first, and there is no fourth"
        );
        let (turns, _places) = store(2, Placement::RoundRobin, 4);
        assert_eq!(edges(&turns), [false; 4]);
    }

    #[test]
    fn one_operation_goes_across_the_edge_of_extents_that_lie_together() {
        let mut ring = match Ring::new(8) {
            Ok(ring) => ring,
            Err(error) => return eprintln!("SKIPPED: no io_uring: {error}"),
        };
        let end = |ring: &mut Ring| {
            ring.enter(1).unwrap();
            ring.done().unwrap().result
        };
        let (mut store, _places) = store(1, Placement::Simple, 2);
        let at = terapage_sys::memory::reserve(EXTENT).unwrap() as usize;
        // SAFETY: mapped just now, and this test's alone.
        let memory = unsafe { terapage_sys::memory::bytes(at, EXTENT) };
        let pieces = [Piece::new(at, EXTENT)];
        memory[..BLOCK].fill(1);
        memory[BLOCK..].fill(2);
        // SAFETY: the pieces and their memory stay until the end is taken.
        unsafe { store.write(&mut ring, 1, &pieces, 7) }.unwrap();
        assert_eq!(end(&mut ring), EXTENT as i32);
        for (slot, byte) in [(1, 1), (2, 2)] {
            memory.fill(0);
            // SAFETY: as above.
            unsafe { store.read(&mut ring, slot, &[Piece::new(at, BLOCK)], 7) }.unwrap();
            assert_eq!(end(&mut ring), BLOCK as i32);
            assert!(memory[..BLOCK].iter().all(|&found| found == byte), "slot {slot}");
        }
    }
}
