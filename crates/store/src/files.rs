//! Local SSDs: nameless files in directories, or block devices, past the page cache.

use crate::{EXTENT, Error, Store};
use std::path::{Path, PathBuf};
use terapage_sys::file::{self, Opened};
use terapage_sys::ring::{Piece, Ring};

/// Bytes that a file is grown by.
const STEP: u64 = 64 << 20;

/// How extents spread over several files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Fill one, then the next.
    Simple,
    /// Take turns.
    RoundRobin,
}

/// The file system has no such call.
const EOPNOTSUPP: i32 = 95;

struct Member {
    opened: Opened,
    path: PathBuf,
    /// Bytes that can be written.
    allocated: u64,
    /// Bytes given to extents.
    used: u64,
    /// The size of a device; `None` for a file, which grows.
    device: Option<u64>,
    full: bool,
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
    /// A store of slots of `block` bytes over `paths`: directories, block devices, or files that
    /// do not exist yet. With `limit` its bytes are taken at once, and are all that it ever takes.
    ///
    /// # Errors
    /// A path that cannot be opened, written, or is something else; no room for `limit`.
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
        let gib = (self.extents.len() * EXTENT) as f64 / (1u64 << 30) as f64;
        let why = format!("no space left after {gib:.2} GiB; free some, or give --store another place");
        Err(Error::Full { name: self.name(), why })
    }

    fn locate(&self, slot: u32) -> (i32, u64) {
        let byte = slot as usize * self.block;
        let (member, offset) = self.extents[byte / EXTENT];
        (self.members[usize::from(member)].opened.fd.raw(), offset + (byte % EXTENT) as u64)
    }
}

impl Member {
    fn open(path: &Path) -> Result<Member, Error> {
        use std::os::unix::fs::FileTypeExt;
        let name = || path.display().to_string();
        let system = |source| Error::System { name: name(), source };
        let kind = std::fs::metadata(path).ok();
        let (opened, device) = match kind {
            Some(kind) if kind.is_dir() => (file::nameless(path).map_err(system)?, None),
            Some(kind) if kind.file_type().is_block_device() => {
                let opened = file::existing_or_new(path, true).map_err(system)?;
                let size = file::size(&opened.fd).map_err(system)?;
                (opened, Some(size))
            }
            Some(_) => {
                return Err(Error::Unfit {
                    name: name(),
                    why: "it exists, and would be overwritten; give a directory, a block device or a new file's name",
                });
            }
            None => {
                let opened = file::existing_or_new(path, false).map_err(system)?;
                // The file goes with its descriptor, however the process ends.
                std::fs::remove_file(path).ok();
                (opened, None)
            }
        };
        Ok(Member {
            opened,
            path: path.to_owned(),
            allocated: device.unwrap_or(0),
            used: 0,
            device,
            full: false,
        })
    }

    /// Room for one more extent, if there is any.
    fn take(&mut self) -> Result<Option<u64>, Error> {
        let extent = EXTENT as u64;
        if self.used + extent > self.allocated {
            if self.device.is_some() || self.full {
                return Ok(None);
            }
            // As much as there is room for, in ever smaller steps.
            let mut step = STEP;
            loop {
                match file::allocate(&self.opened.fd, self.allocated, step) {
                    Ok(()) => break,
                    // Without the call, room is found out by writing.
                    Err(error) if error.errno() == EOPNOTSUPP => break,
                    Err(error) if error.source.kind() == std::io::ErrorKind::StorageFull => {
                        step /= 2;
                        if step < extent {
                            self.full = true;
                            return Ok(None);
                        }
                    }
                    Err(source) => {
                        return Err(Error::System { name: self.path.display().to_string(), source });
                    }
                }
            }
            self.allocated += step;
        }
        let offset = self.used;
        self.used += extent;
        Ok(Some(offset))
    }
}

impl Store for Files {
    fn name(&self) -> String {
        let names: Vec<_> = self.members.iter().map(|member| member.path.display().to_string()).collect();
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
        self.add_extent()?;
        for _ in 1..STEP as usize / EXTENT {
            if self.add_extent().is_err() {
                break;
            }
        }
        Ok(())
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
