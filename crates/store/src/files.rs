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
    /// A store of slots of `block` bytes over `paths`: directories, empty files, or block
    /// devices (`docs/configuration.md`). With `limit` its bytes are taken at once, and are all that it ever takes.
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
