//! Where a store may lie.

use crate::{Error, Placement, Settings, Size, StorePath};
use rustix::fs::{Access, access, stat, statfs, statvfs};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_store::Files;

/// File systems whose files are memory: tmpfs, ramfs, hugetlbfs.
const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
const OVERLAY: u64 = 0x794c_7630;

impl StorePath {
    /// Reads `file:PATH` or `PATH`. The error says what is wrong in one line.
    pub fn parse(text: &OsStr) -> Result<StorePath, String> {
        let bytes = text.as_bytes();
        let path = match bytes.iter().position(|&b| b == b':') {
            Some(at) if is_scheme(&bytes[..at]) => match &bytes[..at] {
                b"file" => &bytes[at + 1..],
                b"far" => return Err("far memory is not there yet (name a directory on a disk)".to_owned()),
                scheme => {
                    let scheme = String::from_utf8_lossy(scheme);
                    let path = text.to_string_lossy();
                    let path = path.escape_debug();
                    return Err(format!(
                        "stores of kind '{scheme}:' are unknown (for a path write file:{path})"
                    ));
                }
            },
            _ => bytes,
        };
        if path.is_empty() {
            return Err("the path is empty (name a directory, an empty file or a block device)".to_owned());
        }
        Ok(StorePath(OsStr::from_bytes(path).into()))
    }

    /// Checks that blocks can be kept there: in a directory, or beside an empty file, that can be
    /// written and does not lie in memory; or on a block device.
    pub fn check(&self) -> Result<(), Error> {
        let no =
            |why: &str| Error::Value { name: "store".to_owned(), why: format!("{} {why}", self.0.display()) };
        let directory = terapage_store::directory_of(&self.0).map_err(|error| match error {
            terapage_store::Error::Unfit { why, .. } => no(&why),
            other => no(&other.to_string()),
        })?;
        let denied = |at: &Path, error| match at == self.0 {
            true => no(&format!("cannot be written: {error} (name another --store)")),
            false => no(&format!(
                "is in a directory that cannot be written, {}: {error} (name another --store)",
                at.display()
            )),
        };
        let Some(directory) = directory else {
            return access(&self.0, Access::READ_OK | Access::WRITE_OK)
                .map_err(|error| denied(&self.0, error));
        };
        access(&directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| denied(&directory, error))?;
        if in_memory(&directory) {
            return Err(no("lies in memory (tmpfs), which saves none (name a directory on a disk)"));
        }
        // It is opened as for use, and closed: the program is not to find out when it has grown.
        terapage_store::takes_direct_io(&self.0).map(drop).map_err(|error| match error {
            terapage_store::Error::Unfit { why, .. } => no(&why),
            terapage_store::Error::System { source, .. } => {
                no(&format!("cannot be opened: {source} (name another --store)"))
            }
            other => no(&other.to_string()),
        })
    }
}

/// Refuses a store size for which the stores' file systems have no room now.
pub(crate) fn check_room(stores: &[StorePath], size: Size) -> Result<(), Error> {
    let (mut room, mut seen) = (0_u64, Vec::new());
    for store in stores {
        if !store.0.is_dir() && !store.0.is_file() {
            // A device has the size that it has.
            return Ok(());
        }
        // Several may share a file system.
        let device = stat(&store.0).map_or(0, |found| found.st_dev);
        if !seen.contains(&device) {
            seen.push(device);
            let free = statvfs(&store.0).map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize));
            room = room.saturating_add(free);
        }
    }
    if size.0 <= room {
        return Ok(());
    }
    let why =
        format!("{size} is more than the {} free there (free some, or name another --store)", Size(room));
    Err(Error::Value { name: "store-size".to_owned(), why })
}

/// A word before a colon that is not part of a path.
fn is_scheme(word: &[u8]) -> bool {
    word.first().is_some_and(u8::is_ascii_lowercase)
        && word.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-".contains(b))
}

/// Whether what is written under `path` stays in memory. An overlay counts by its upper
/// layer, where this process can see that.
pub fn in_memory(path: &Path) -> bool {
    let kind = |path: &Path| statfs(path).map(|found| found.f_type as u64);
    match kind(path) {
        Ok(OVERLAY) => {
            upper_layer(path).is_some_and(|upper| kind(&upper).is_ok_and(|k| IN_MEMORY.contains(&k)))
        }
        Ok(found) => IN_MEMORY.contains(&found),
        Err(_) => false,
    }
}

/// The directory that takes what is written to the overlay which `path` lies on.
fn upper_layer(path: &Path) -> Option<PathBuf> {
    let device = stat(path).ok()?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&*device))?;
    let options = line.split(' ').next_back()?;
    options.split(',').find_map(|option| option.strip_prefix("upperdir=")).map(PathBuf::from)
}

/// The first of `$TMPDIR`, `/var/tmp`, `/tmp` and the current directory that can be a store.
pub fn default_store(get: &impl Fn(&str) -> Option<OsString>) -> Result<StorePath, Error> {
    let mut tried = Vec::new();
    let temporary = get("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let here = std::env::current_dir().ok();
    let fixed = ["/var/tmp", "/tmp"].map(PathBuf::from);
    for directory in temporary.into_iter().chain(fixed).chain(here) {
        let path = StorePath(directory);
        if path.0.is_dir() && path.check().is_ok() {
            return Ok(path);
        }
        tried.push(path.0.display().to_string());
    }
    Err(Error::Value {
        name: "store".to_owned(),
        why: format!(
            "none of {} is a writable directory on a disk (name one with --store)",
            tried.join(", ")
        ),
    })
}

/// What opens the stores of a process in blocks of `block` bytes, and then those of its forked
/// children: a device is the parent's alone, and they keep their blocks in its other stores'
/// directories, or in the default one.
pub fn opener(
    settings: &Settings,
    block: usize,
) -> impl Fn() -> Result<Files, terapage_store::Error> + Send + Sync + use<> {
    let placement = match settings.placement {
        Placement::Simple => terapage_store::Placement::Simple,
        Placement::RoundRobin => terapage_store::Placement::RoundRobin,
    };
    let paths: Vec<PathBuf> = settings.stores.iter().map(|store| store.0.clone()).collect();
    let limit = settings.store_size.map(|size| size.0);
    let first = AtomicBool::new(true);
    let for_children: Vec<PathBuf> =
        paths.iter().filter_map(|path| terapage_store::directory_of(path).ok().flatten()).collect();
    move || {
        if first.swap(false, Relaxed) {
            return Files::open(&paths, placement, block, limit);
        }
        let mut paths = for_children.clone();
        if paths.is_empty() {
            paths.extend(default_store(&|_: &str| None).ok().map(|store| store.0));
        }
        Files::open(&paths, placement, block, limit)
    }
}

/// Joins stores with newlines; a newline or backslash in a path is escaped.
pub(crate) fn join(stores: &[StorePath]) -> OsString {
    let mut joined = Vec::new();
    for (i, store) in stores.iter().enumerate() {
        if i > 0 {
            joined.push(b'\n');
        }
        joined.extend_from_slice(b"file:");
        for &byte in store.0.as_os_str().as_bytes() {
            match byte {
                b'\n' => joined.extend_from_slice(b"\\n"),
                b'\\' => joined.extend_from_slice(b"\\\\"),
                _ => joined.push(byte),
            }
        }
    }
    OsString::from_vec(joined)
}

/// Takes apart what [`join`] joined; empty lines do not count.
pub(crate) fn split(joined: &OsStr) -> Result<Vec<StorePath>, String> {
    let lines = joined.as_bytes().split(|&b| b == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let mut path = Vec::with_capacity(line.len());
            let mut bytes = line.iter();
            while let Some(&byte) = bytes.next() {
                path.push(match byte {
                    b'\\' => match bytes.next() {
                        Some(b'n') => b'\n',
                        Some(b'\\') => b'\\',
                        _ => return Err("a backslash in a path is written twice".to_owned()),
                    },
                    _ => byte,
                });
            }
            StorePath::parse(OsStr::from_bytes(&path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_path_or_a_known_kind() {
        let parse = |text: &str| StorePath::parse(OsStr::new(text)).map(|path| path.0);
        assert_eq!(parse("/mnt/fast"), Ok("/mnt/fast".into()));
        assert_eq!(parse("file:/mnt/fast"), Ok("/mnt/fast".into()));
        assert_eq!(parse("/mnt/a:b"), Ok("/mnt/a:b".into()));
        assert!(parse("far:host:1").unwrap_err().contains("not there yet"));
        assert!(parse("nfs:/x").unwrap_err().contains("'nfs:'"));
        assert!(parse("").is_err() && parse("file:").is_err());
    }

    #[test]
    fn memory_is_no_store() {
        if in_memory(Path::new("/dev/shm")) {
            let error = StorePath("/dev/shm".into()).check().unwrap_err().to_string();
            assert!(error.contains("tmpfs") && !error.contains('\n'), "{error}");
        } else {
            println!("SKIPPED: /dev/shm is no tmpfs here");
        }
        assert!(StorePath("/nonexistent".into()).check().is_err());
        assert!(StorePath("/dev/null".into()).check().is_err());
        let error = StorePath("/proc".into()).check().unwrap_err().to_string();
        assert_eq!(
            error,
            "store: /proc is on a file system that cannot hold a store (name a directory on a disk)"
        );
    }

    #[test]
    fn the_default_store_passes_over_memory() {
        let get = |name: &str| (name == "TMPDIR").then(|| "/dev/shm".into());
        match default_store(&get) {
            Ok(path) => assert!(!in_memory(&path.0)),
            Err(error) => println!("SKIPPED: {error}"),
        }
    }
}
