//! The directories in which a store may lie.

use crate::common::member::{directory_of, takes_direct_io};
use crate::{Error, Shelf};
use rustix::fs::{Access, access, stat, statfs, statvfs};
use std::path::{Path, PathBuf};
use terapage_config::{StoreSpec, Stores};

/// File systems whose files are memory: tmpfs, ramfs, hugetlbfs.
const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
const OVERLAY: u64 = 0x794c_7630;

impl Stores for Shelf {
    fn check(&self, store: &StoreSpec) -> Result<(), String> {
        match store {
            StoreSpec::File(path) => check_path(path),
            StoreSpec::Mirror(inner) => {
                self.check_copies(inner)?;
                self.are_apart(inner)
            }
            StoreSpec::Tier(inner) => inner.iter().try_for_each(|store| self.check(store)),
            StoreSpec::Ram(_) => Ok(()),
            StoreSpec::Encrypted(inner) | StoreSpec::Compressed(_, inner) => self.check(inner),
            StoreSpec::Url(url) => (self.elsewhere.check)(url),
        }
    }

    fn room(&self, stores: &[StoreSpec]) -> Option<u64> {
        let (mut room, mut seen) = (0_u64, Vec::new());
        for mut store in stores {
            while let StoreSpec::Encrypted(inner) | StoreSpec::Compressed(_, inner) = store {
                store = inner;
            }
            let more = match store {
                StoreSpec::File(path) => match free(path)? {
                    // Several may share a file system.
                    (device, _) if seen.contains(&device) => 0,
                    (device, free) => {
                        seen.push(device);
                        free
                    }
                },
                StoreSpec::Mirror(inner) | StoreSpec::Tier(inner) => room_of_each(inner)?,
                StoreSpec::Encrypted(_)
                | StoreSpec::Compressed(..)
                | StoreSpec::Ram(_)
                | StoreSpec::Url(_) => return None,
            };
            room = room.saturating_add(more);
        }
        Some(room)
    }

    fn wants_cipher(&self, url: &str, by_default: bool) -> bool {
        (self.elsewhere.wants_cipher)(url, by_default)
    }
}

impl Shelf {
    /// A copy whose server gives no answer may be filled later, if there is another, or a spare.
    fn check_copies(&self, copies: &[StoreSpec]) -> Result<(), String> {
        let (mut there, mut spares, mut absent) = (0, 0, Vec::new());
        for copy in copies {
            let is_spare = self.spare_after(copy).is_some();
            match self.check(copy) {
                Ok(()) if is_spare => spares += 1,
                Err(why) if is_spare && copy.urls().iter().any(|url| (self.elsewhere.is_absent)(url)) => {
                    (self.elsewhere.warn)(format!("{why}: it is a spare, which is not needed now"));
                }
                Ok(()) => there += 1,
                Err(why) if copy.urls().iter().any(|url| (self.elsewhere.is_absent)(url)) => absent.push(why),
                Err(why) => return Err(why),
            }
        }
        let all = there + absent.len();
        if all == 0 {
            return Err("mirror: all copies are spares (leave spare= out of one)".to_owned());
        }
        if there + spares == 0 {
            return absent.into_iter().next().map_or(Ok(()), Err);
        }
        let begins = match there {
            0 => "its spare, which takes a copy's place at once".to_owned(),
            _ => format!("{there} of {all} copies, and fills the missing copy when it answers"),
        };
        for why in absent {
            (self.elsewhere.warn)(format!("{why}: the program begins with {begins}"));
        }
        Ok(())
    }

    /// Two copies on one server would be lost together.
    fn are_apart(&self, copies: &[StoreSpec]) -> Result<(), String> {
        let mut known: Vec<(String, &str)> = Vec::new();
        for copy in copies {
            let mut urls = copy.urls();
            urls.sort_unstable();
            for url in &urls {
                let servers = (self.elsewhere.servers)(url);
                let other = known.iter().find(|(server, _)| servers.contains(server));
                if let Some((_, other)) = other {
                    let names = format!("{} and {}", without_user(other), without_user(url));
                    return Err(format!(
                        "{names} are one server, which gives a mirror no second copy (name another)"
                    ));
                }
            }
            let of = |url| (self.elsewhere.servers)(url).into_iter().map(move |server| (server, url));
            known.extend(urls.into_iter().flat_map(of));
        }
        Ok(())
    }
}

/// A URL in the form for messages.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return String::new() };
    let rest = rest.split('?').next().unwrap_or_default();
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    format!("{scheme}://{place}")
}

/// Bytes that each of several stores can take; the stores may share file systems.
fn room_of_each(stores: &[StoreSpec]) -> Option<u64> {
    let mut systems: Vec<(u64, u64, u64)> = Vec::new();
    for path in stores.iter().flat_map(StoreSpec::paths) {
        let (device, free) = free(path)?;
        match systems.iter_mut().find(|(known, ..)| *known == device) {
            Some((_, _, copies)) => *copies += 1,
            None => systems.push((device, free, 1)),
        }
    }
    systems.into_iter().map(|(_, free, copies)| free / copies).min()
}

/// The file system for the bytes of a path, and the free bytes there. `None` for a device, whose
/// size is fixed.
fn free(path: &Path) -> Option<(u64, u64)> {
    if !path.is_dir() && !path.is_file() {
        return None;
    }
    let device = stat(path).map_or(0, |found| found.st_dev);
    let free = statvfs(path).map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize));
    Some((device, free))
}

/// Checks that blocks can be kept there: in a writable directory that is not in memory, or beside
/// an empty file in one; or on a block device.
fn check_path(path: &Path) -> Result<(), String> {
    let no = |why: &str| format!("{} {why}", path.display());
    let directory = directory_of(path).map_err(|error| match error {
        Error::Unfit { why, .. } => no(&why),
        other => no(&other.to_string()),
    })?;
    let denied = |at: &Path, error| match at == path {
        true => no(&format!("cannot be written: {error} (name another --store)")),
        false => no(&format!(
            "is in a directory that cannot be written, {}: {error} (name another --store)",
            at.display()
        )),
    };
    if let Some(directory) = directory {
        access(&directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| denied(&directory, error))?;
        if in_memory(&directory) {
            return Err(no("lies in memory (tmpfs), so it saves no memory (name a directory on a disk)"));
        }
    } else {
        access(path, Access::READ_OK | Access::WRITE_OK).map_err(|error| denied(path, error))?;
    }
    // The path is opened as for use, and closed: otherwise the program would meet the error only
    // after it has grown.
    takes_direct_io(path).map(drop).map_err(|error| match error {
        Error::Unfit { why, .. } => no(&why),
        Error::System { source, .. } => no(&format!("cannot be opened: {source} (name another --store)")),
        other => no(&other.to_string()),
    })
}

/// Whether bytes written under `path` stay in memory. An overlay counts by its upper layer, if this
/// process can see that.
fn in_memory(path: &Path) -> bool {
    let kind = |path: &Path| statfs(path).map(|found| found.f_type as u64);
    match kind(path) {
        Ok(OVERLAY) => {
            upper_layer(path).is_some_and(|upper| kind(&upper).is_ok_and(|k| IN_MEMORY.contains(&k)))
        }
        Ok(found) => IN_MEMORY.contains(&found),
        Err(_) => false,
    }
}

/// The directory that receives writes to the overlay of `path`.
fn upper_layer(path: &Path) -> Option<PathBuf> {
    let device = stat(path).ok()?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&*device))?;
    let options = line.split(' ').next_back()?;
    options.split(',').find_map(|option| option.strip_prefix("upperdir=")).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terapage_config::default_store;

    fn check(path: &str) -> Result<(), String> {
        Shelf::default().check(&StoreSpec::File(path.into()))
    }

    #[test]
    fn memory_is_no_store() {
        if in_memory(Path::new("/dev/shm")) {
            let error = check("/dev/shm").unwrap_err();
            assert!(error.contains("tmpfs") && !error.contains('\n'), "{error}");
        } else {
            println!("SKIPPED: /dev/shm is no tmpfs here");
        }
        assert!(check("/nonexistent").is_err());
        assert!(check("/dev/null").is_err());
        assert_eq!(
            check("/proc").unwrap_err(),
            "/proc is on a file system that cannot hold a store (name a directory on a disk)"
        );
    }

    #[test]
    fn each_copy_of_a_mirror_is_checked() {
        let place = tempfile::tempdir().unwrap();
        let mirror =
            |other: &str| StoreSpec::Mirror([place.path().into(), other.into()].map(StoreSpec::File).into());
        let why = Shelf::default().check(&mirror("/nonexistent")).unwrap_err();
        assert!(why.starts_with("/nonexistent does not exist"), "{why}");
        if !in_memory(place.path()) {
            Shelf::default().check(&mirror(place.path().to_str().unwrap())).unwrap();
        }
    }

    #[test]
    fn two_copies_on_one_server_are_refused() {
        let servers = |url: &str| match url {
            "kv://u:secret@a?x=1" | "kv://b" => vec!["1".to_owned()],
            "kv://cluster" => vec!["2".to_owned(), "1".to_owned()],
            other => vec![other.to_owned()],
        };
        let elsewhere = crate::Elsewhere { check: |_| Ok(()), servers, ..Shelf::default().elsewhere };
        let shelf = Shelf { elsewhere, ..Shelf::default() };
        let url = |url: &str| StoreSpec::Url(url.to_owned());
        let mirror = |one: &str, other: &str| {
            shelf.check(&StoreSpec::Mirror(vec![url(one), StoreSpec::Encrypted(Box::new(url(other)))]))
        };
        mirror("kv://a", "kv://b").unwrap();
        let why = mirror("kv://u:secret@a?x=1", "kv://b").unwrap_err();
        assert!(why.starts_with("kv://a and kv://b are one server") && !why.contains('\n'), "{why}");
        assert!(mirror("kv://b", "kv://cluster").is_err());
    }

    #[test]
    fn what_lies_elsewhere_needs_somebody_who_knows_it() {
        let why = Shelf::default().check(&StoreSpec::Url("nfs://host/x".to_owned())).unwrap_err();
        assert!(why.contains("'nfs:'") && !why.contains('\n'), "{why}");
    }

    #[test]
    fn the_default_store_passes_over_memory() {
        let get = |name: &str| (name == "TMPDIR").then(|| "/dev/shm".into());
        match default_store(&Shelf::default(), &get) {
            Ok(store) => assert!(store.paths().iter().all(|path| !in_memory(path)), "{store:?}"),
            Err(error) => println!("SKIPPED: {error}"),
        }
    }
}
