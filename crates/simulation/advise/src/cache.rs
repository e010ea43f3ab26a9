//! The measurements of a store are kept for later: `$XDG_CACHE_HOME/terapage/`, or
//! `~/.cache/terapage/`.

use crate::child::busy;
use crate::costs::Costs;
use crate::device::Device;
use serde::{Deserialize, Serialize};
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Measurements older than this are repeated, since devices and kernels change.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Measurements that cannot be trusted are kept for this time, for further questions on a machine
/// that is still busy, where new ones would be no better.
const KEPT_WHILE_BUSY: Duration = Duration::from_secs(3600);

/// The layout of the file.
const VERSION: u32 = 6;

/// A store, and the costs of the pager's work with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    version: u32,
    /// The store's path.
    pub store: PathBuf,
    /// Its device.
    pub device: Device,
    /// Costs, one entry per block size, ascending.
    pub costs: Vec<Costs>,
    /// Why the costs cannot be trusted, and are not kept beyond a busy hour.
    pub trouble: Vec<String>,
}

impl Measured {
    /// New measurements.
    pub fn new(store: &Path, device: Device, costs: Vec<Costs>, trouble: Vec<String>) -> Measured {
        Measured { version: VERSION, store: store.to_owned(), device, costs, trouble }
    }

    /// Returns the measurements of a store, with costs for all of `blocks`; `None` if there are
    /// none, if they are too old, or if they cannot be trusted and the machine is no longer busy.
    pub fn load(store: &Path, blocks: &[u64]) -> Option<Measured> {
        Measured::load_from(&cache()?, store, blocks, busy().is_some())
    }

    fn load_from(cache: &Path, store: &Path, blocks: &[u64], is_busy: bool) -> Option<Measured> {
        let file = file(cache, store);
        let age =
            SystemTime::now().duration_since(fs::metadata(&file).ok()?.modified().ok()?).unwrap_or_default();
        let known: Measured = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
        let has = |block: &u64| known.costs.iter().any(|costs| costs.block_bytes == *block);
        let is_fresh = match known.trouble.is_empty() {
            true => age < KEPT,
            false => is_busy && age < KEPT_WHILE_BUSY,
        };
        (is_fresh && known.version == VERSION && known.store == store && blocks.iter().all(has))
            .then_some(known)
    }

    /// Keeps the measurements.
    ///
    /// # Errors
    /// The file system's errors. They have no other effect.
    pub fn save(&self) -> io::Result<()> {
        self.save_in(&cache().ok_or_else(|| io::Error::other("there is no home directory"))?)
    }

    /// Keeps the measurements below a directory that is used as the user's cache.
    ///
    /// # Errors
    /// The file system's errors. They have no other effect.
    pub fn save_in(&self, cache: &Path) -> io::Result<()> {
        let file = file(cache, &self.store);
        let directory = file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        // The file is replaced as a whole, since other processes may be reading it.
        let mut part = tempfile::NamedTempFile::new_in(directory)?;
        serde_json::to_writer_pretty(&mut part, self)?;
        part.persist(file)?;
        Ok(())
    }

    /// Costs for blocks of `block_bytes`.
    pub fn costs_for(&self, block_bytes: u64) -> Option<Costs> {
        if let Some(costs) = self.costs.iter().find(|costs| costs.block_bytes == block_bytes) {
            return Some(costs.clone());
        }
        Some(Costs::between(self.costs.first()?, self.costs.last()?, block_bytes))
    }
}

/// The user's directory for what can be had again.
fn cache() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))
}

/// The file of a store's measurements.
fn file(cache: &Path, store: &Path) -> PathBuf {
    let name: String =
        store.to_string_lossy().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    cache.join("terapage").join(format!("store{name}.json"))
}

#[cfg(test)]
mod tests {
    use super::Measured;
    use crate::costs::Costs;
    use crate::device::Device;
    use std::path::Path;

    fn costs() -> Costs {
        Costs {
            block_bytes: 16 << 10,
            minor_us: 12.0,
            demand_us: 90.0,
            first_us: 6.0,
            native_us: 8.0,
            fresh_us: 3.0,
            recycled_us: 1.0,
            read_bytes_s: 1e9,
            write_bytes_s: 1e9,
            device_bytes_s: (1e9, 1e9),
            block_cpu_us: 2.0,
            wake_us: 0.0,
        }
    }

    #[test]
    fn costs_that_cannot_be_trusted_serve_a_busy_machine_alone() {
        let cache = tempfile::tempdir().unwrap();
        let store = Path::new("/some/store");
        let load = |is_busy| Measured::load_from(cache.path(), store, &[16 << 10], is_busy);
        assert!(load(true).is_none());
        let measured = |trouble: &[&str]| {
            let trouble = trouble.iter().map(|&why| why.to_owned()).collect();
            Measured::new(store, Device::stated("d", 69.0, 1e9, 1e9), vec![costs()], trouble)
        };
        measured(&["they never settled"]).save_in(cache.path()).unwrap();
        assert!(load(false).is_none());
        assert_eq!(load(true).unwrap().trouble, ["they never settled"]);
        // What can be trusted is kept, however busy the machine is.
        measured(&[]).save_in(cache.path()).unwrap();
        assert!(load(false).is_some() && load(true).is_some());
        assert!(Measured::load_from(cache.path(), store, &[64 << 10], true).is_none());
    }
}
