//! One file or device of a store.
//!
//! The bytes of a store lie in a file without a name: in the named directory, or beside the named
//! regular file. The kernel frees them with the last descriptor, however the process ends. The
//! named file stays empty. So nothing remains after SIGKILL, and programs that name the same file
//! do not disturb each other.

use super::{mounts, signature};
use crate::{EXTENT, Error};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::fd::RawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use terapage_sys::file::{self, Opened};

/// Bytes by which a file grows: its present size, within these bounds. If a program has many
/// children, each needs little.
const STEPS: [u64; 2] = [8 << 20, 64 << 20];

/// The next step of a file with this number of bytes.
pub(crate) fn step(has: u64) -> u64 {
    has.clamp(STEPS[0], STEPS[1])
}

/// The file system has no such call.
const EOPNOTSUPP: i32 = 95;

/// Another process uses the device exclusively.
const EBUSY: i32 = 16;

/// Some kernels say so of a mounted device instead, which nobody may write to.
const EPERM: i32 = 1;

/// No file can be made though the directory exists, as in /proc.
const ENOENT: i32 = 2;

/// No space on the disk; a quota is used up; the process may not make a file this large.
const FULL: [ErrorKind; 3] = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];

/// The kind of a path that was given as a store.
enum Kind {
    /// A directory.
    Directory,
    /// An empty file, in this directory.
    File(PathBuf),
    /// A block device.
    Device,
}

/// One file or device, and the part of it that is in use.
pub(crate) struct Member {
    opened: Opened,
    path: PathBuf,
    /// Bytes that can be written.
    allocated: u64,
    /// Bytes that are assigned to extents.
    used: u64,
    /// The size of a device; `None` for a file, which grows.
    device: Option<u64>,
    full: Option<Why>,
    /// Whether it leaves a part of the disk free.
    leaves: bool,
}

/// Why it cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// There is no space.
    Space,
    /// By a quota or a limit of the process.
    Limit,
    /// The remaining space is left to others.
    Left,
}

/// A disk's size divided by this is left free, unless the size of the store is given.
const LEFT_PART: u64 = 10;

/// No more than these bytes are left free: on a large disk a tenth would be more than others need.
const LEFT_MOST: u64 = 4 << 30;

/// Whether a file system of `size` bytes, of which `free` are free, has `more` bytes for a store
/// that leaves some free.
fn has_to_spare(size: u64, free: u64, more: u64) -> bool {
    free >= more.saturating_add((size / LEFT_PART).min(LEFT_MOST))
}

impl Kind {
    fn of(path: &Path) -> Result<Kind, Error> {
        let unfit = |why: &str| Error::Unfit { name: path.display().to_string(), why: why.to_owned() };
        let found = match std::fs::metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let quoted = path.display();
                return Err(unfit(&format!(
                    "does not exist (make a directory: mkdir {quoted}; or an empty file: touch {quoted})"
                )));
            }
            Err(error) => {
                return Err(unfit(&format!("cannot be used: {error} (name a directory on a disk)")));
            }
        };
        match found.file_type() {
            kind if kind.is_dir() => Ok(Kind::Directory),
            kind if kind.is_block_device() => {
                no_signature(path).map(|()| Kind::Device).map_err(|why| unfit(&why))
            }
            kind if kind.is_file() => {
                directory_of_file(path, &found).map(Kind::File).map_err(|why| unfit(&why))
            }
            _ => Err(unfit("is no directory, regular file or block device (name a directory on a disk)")),
        }
    }
}

/// The directory of an empty file, if it is on the same file system.
fn directory_of_file(path: &Path, found: &Metadata) -> Result<PathBuf, String> {
    if found.len() > 0 {
        return Err(format!(
            "holds {} bytes, perhaps somebody's data (name a directory, or an empty file)",
            found.len()
        ));
    }
    let whole = path.canonicalize().map_err(|error| format!("cannot be used: {error}"))?;
    let directory = whole.parent().unwrap_or(Path::new("/")).to_owned();
    match std::fs::metadata(&directory) {
        Ok(parent) if parent.dev() == found.dev() => Ok(directory),
        _ => Err("is a mount itself (name a directory on that file system)".to_owned()),
    }
}

/// Refuses a device that has a file system or the like. An unreadable device is refused when it is
/// opened.
fn no_signature(path: &Path) -> Result<(), String> {
    let Ok(mut device) = File::open(path) else { return Ok(()) };
    let size = device.seek(SeekFrom::End(0)).unwrap_or(0);
    match signature::found(size, |bytes, offset| device.read_at(bytes, offset).unwrap_or(0)) {
        None => Ok(()),
        Some(what) => Err(match mounts::place_of(path) {
            Some(place) => format!(
                "has {what}, mounted at {place} (name another device, or a \
                                    directory)"
            ),
            None => {
                format!(
                    "has {what}, not mounted, which would be lost (name another device, or a \
                         directory)"
                )
            }
        }),
    }
}

/// The directory for the bytes of a store, if `path` is a directory or an empty file; `None` for a
/// device.
///
/// # Errors
/// The path cannot be a store.
pub(crate) fn directory_of(path: &Path) -> Result<Option<PathBuf>, Error> {
    Ok(match Kind::of(path)? {
        Kind::Directory => Some(path.to_owned()),
        Kind::File(directory) => Some(directory),
        Kind::Device => None,
    })
}

/// Whether I/O of a store at `path` bypasses the page cache: the path is opened as for use, and
/// closed.
///
/// # Errors
/// The path cannot be a store.
pub fn takes_direct_io(path: &Path) -> Result<bool, Error> {
    Ok(Member::open(path)?.opened.direct)
}

impl Member {
    pub(crate) fn open(path: &Path) -> Result<Member, Error> {
        let system = |source| Error::System { name: path.display().to_string(), source };
        let no_file = |error: terapage_sys::Error| match error.errno() {
            ENOENT => {
                let why =
                    "is on a file system that cannot hold a store (name a directory on a disk)".to_owned();
                Error::Unfit { name: path.display().to_string(), why }
            }
            _ => system(error),
        };
        let (opened, device) = match Kind::of(path)? {
            Kind::Directory => (file::nameless(path).map_err(no_file)?, None),
            Kind::File(directory) => (file::nameless(&directory).map_err(no_file)?, None),
            Kind::Device => {
                let opened = file::device(path).map_err(|error| match error.errno() {
                    number if number == EBUSY || number == EPERM && mounts::place_of(path).is_some() => {
                        let why = "is in use: mounted, or used by another process (name another --store)"
                            .to_owned();
                        Error::Unfit { name: path.display().to_string(), why }
                    }
                    _ => system(error),
                })?;
                let size = file::size(&opened.fd).map_err(system)?;
                (opened, Some(size))
            }
        };
        Ok(Member {
            opened,
            path: path.to_owned(),
            allocated: device.unwrap_or(0),
            used: 0,
            device,
            full: None,
            leaves: false,
        })
    }

    /// Its name in messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Why it cannot grow any further.
    pub(crate) fn why_full(&self) -> Why {
        self.full.unwrap_or(Why::Space)
    }

    /// From now on it leaves a part of the disk free.
    pub(crate) fn leave_some(&mut self) {
        self.leaves = true;
    }

    /// Whether `more` bytes leave enough to others. A file system that cannot be queried counts as
    /// having enough.
    fn may_have(&self, more: u64) -> bool {
        let Ok(system) = rustix::fs::fstatvfs(self.opened.fd.file()) else { return true };
        let [size, free] =
            [system.f_blocks, system.f_bavail].map(|blocks| blocks.saturating_mul(system.f_frsize));
        !self.leaves || has_to_spare(size, free, more)
    }

    /// The descriptor's number.
    pub(crate) fn raw(&self) -> RawFd {
        self.opened.fd.raw()
    }

    /// Takes room for one more extent, if there is any, and returns its offset.
    pub(crate) fn take(&mut self) -> Result<Option<u64>, Error> {
        let extent = EXTENT as u64;
        if self.used + extent > self.allocated {
            if self.device.is_some() || self.full.is_some() {
                return Ok(None);
            }
            // As much as there is room for, in ever smaller steps.
            let mut step = step(self.allocated);
            loop {
                if self.leaves && !self.may_have(step) {
                    step /= 2;
                    if step < extent {
                        self.full = Some(Why::Left);
                        return Ok(None);
                    }
                    continue;
                }
                match file::allocate(&self.opened.fd, self.allocated, step) {
                    Ok(()) => break,
                    // Without the call, room is found out by writing.
                    Err(error) if error.errno() == EOPNOTSUPP => break,
                    Err(error) if FULL.contains(&error.source.kind()) => {
                        let limited = error.source.kind() != ErrorKind::StorageFull;
                        step /= 2;
                        if step < extent {
                            self.full = Some(if limited { Why::Limit } else { Why::Space });
                            return Ok(None);
                        }
                    }
                    Err(source) => return Err(Error::System { name: self.name(), source }),
                }
            }
            self.allocated += step;
        }
        let offset = self.used;
        self.used += extent;
        Ok(Some(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_gives_its_directory_and_stays_empty() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("store");
        std::fs::write(&file, "").unwrap();
        assert_eq!(directory_of(&file).unwrap(), Some(place.path().canonicalize().unwrap()));
        let mut member = Member::open(&file).unwrap();
        assert_eq!(member.take().unwrap(), Some(0));
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 0);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "the bytes lie under no name");
        assert_eq!(member.name(), file.display().to_string());
    }

    /// A child that writes a block must not take the space that its hundred siblings need.
    #[test]
    fn a_small_store_takes_little_and_a_large_one_grows_in_large_steps() {
        let place = tempfile::tempdir().unwrap();
        let mut member = Member::open(place.path()).unwrap();
        let mut seen = Vec::new();
        for _ in 0..(200 << 20) / EXTENT {
            member.take().unwrap().unwrap();
            if seen.last() != Some(&(member.allocated >> 20)) {
                seen.push(member.allocated >> 20);
            }
        }
        assert_eq!(seen, [8, 16, 32, 64, 128, 192, 256]);
    }

    #[test]
    fn a_tenth_of_the_disk_or_4_gib_are_left_to_others() {
        assert!(has_to_spare(1000, 300, 200) && !has_to_spare(1000, 299, 200));
        let (large, left) = (2 << 40, 4 << 30);
        assert!(has_to_spare(large, left + 200, 200) && !has_to_spare(large, left + 199, 200));
        let place = tempfile::tempdir().unwrap();
        let mut member = Member::open(place.path()).unwrap();
        member.leave_some();
        let system = rustix::fs::fstatvfs(member.opened.fd.file()).unwrap();
        if system.f_bavail > system.f_blocks / 5 {
            assert!(member.take().unwrap().is_some());
        }
        assert!(!member.may_have(system.f_bavail.saturating_mul(system.f_frsize)));
    }

    #[test]
    fn a_link_leads_to_the_file() {
        let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("store"), "").unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(other.path().join("store"), &link).unwrap();
        assert_eq!(directory_of(&link).unwrap(), Some(other.path().canonicalize().unwrap()));
    }

    #[test]
    fn other_paths_are_refused_in_one_line() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("data");
        std::fs::write(&file, "somebody's").unwrap();
        let says = |path: &Path, what: &str| {
            let error = Member::open(path).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(what) && !error.contains('\n'), "{error}");
        };
        says(&file, "10 bytes");
        says(&place.path().join("nowhere"), "touch");
        says(&file.join("below"), "cannot be used");
        says(Path::new("/dev/null"), "block device");
        says(Path::new("/proc"), "cannot hold a store");
        assert_eq!(std::fs::read(&file).unwrap(), b"somebody's");
    }
}
