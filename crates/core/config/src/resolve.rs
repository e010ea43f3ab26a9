//! How defaults are filled in, and what can only be checked when all settings are known.

use crate::output::takes_output;
use crate::value::{MEMORY_MIN, unknown};
use crate::{Budget, Error, Memory, Partial, Settings, Size, StoreSpec, Stores, machine, store};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use terapage_policy::{prefetch, replacement};

/// The values on which defaults depend.
pub(crate) struct Context<'a> {
    /// Knows which stores can be used.
    pub stores: &'a dyn Stores,
    /// Reads the environment.
    pub get: &'a dyn Fn(&str) -> Option<OsString>,
}

/// The given value, or the default.
pub(crate) fn given_or_default<T>(
    given: Option<T>,
    default: impl FnOnce() -> T,
    _: &Context<'_>,
) -> Result<T, Error> {
    Ok(given.unwrap_or_else(default))
}

/// The given value, if there is one: there is no default.
pub(crate) fn as_given<T>(
    given: Option<T>,
    _: impl FnOnce() -> T,
    _: &Context<'_>,
) -> Result<Option<T>, Error> {
    Ok(given)
}

/// The budget.
pub(crate) fn budget(
    given: Option<Memory>,
    default: impl FnOnce() -> Memory,
    _: &Context<'_>,
) -> Result<Budget, Error> {
    let fixed = |size| Budget { size, is_auto: false };
    match given.unwrap_or_else(default) {
        Memory::Bytes(size) => Ok(fixed(size)),
        Memory::Percent(percent) => share_of_machine(percent).map(fixed),
        Memory::Auto => share_of_machine(100.0).map(|size| Budget { size, is_auto: true }),
    }
}

/// The given stores, or the first directory that can be a store.
pub(crate) fn stores(
    given: Option<Vec<StoreSpec>>,
    _: impl FnOnce() -> Vec<StoreSpec>,
    context: &Context<'_>,
) -> Result<Vec<StoreSpec>, Error> {
    match given {
        Some(stores) if !stores.is_empty() => Ok(stores),
        _ => Ok(vec![store::default_store(context.stores, &context.get)?]),
    }
}

impl Partial {
    /// Fills in the defaults, and checks what can only be checked now: the policies must exist, and
    /// `stores` must accept the stores. Paths become absolute. `get` reads the environment, for the
    /// default store.
    pub fn resolve(
        self,
        stores: &dyn Stores,
        get: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, Error> {
        let mut settings = self.with_defaults(stores, &get)?.settled();
        one_of("policy", &settings.policy, replacement::NAMES)?;
        one_of("prefetch", &settings.prefetch, prefetch::NAMES)?;
        for store in &settings.stores {
            stores.check(store).map_err(|why| Error::Value { name: "store".to_owned(), why })?;
        }
        let specs = settings.stores.into_iter();
        let mut whole = |path: PathBuf| absolute("store", &path);
        settings.stores = specs.map(|spec| spec.map_paths(&mut whole)).collect::<Result<_, _>>()?;
        check_ram(&settings)?;
        if let Some(block) = settings.block {
            check_block(settings.memory.size, block)?;
            check_units(&settings, block)?;
        }
        if let Some(size) = settings.store_size.bytes {
            store::check_room(stores, &settings.specs(stores), size)?;
        }
        let files =
            [("stats", &mut settings.stats), ("trace", &mut settings.trace), ("learn", &mut settings.learn)];
        for (name, file) in files {
            if let Some(path) = file {
                *path = absolute(name, path)?;
                // Such a file is refused now, not after the program has done its work.
                if let Err(why) = takes_output(path) {
                    let why = format!("{} {why}", path.display());
                    return Err(Error::Value { name: name.to_owned(), why });
                }
            }
        }
        if let Some(path) = settings.stats.as_ref().filter(|path| settings.trace.as_ref() == Some(path)) {
            let why = format!("{} is the file for the trace, too (name another file)", path.display());
            return Err(Error::Value { name: "stats".to_owned(), why });
        }
        let others = [("counters", &settings.stats), ("trace", &settings.trace)];
        let shared = |path: &PathBuf| others.iter().find(|(_, other)| other.as_ref() == Some(path));
        if let Some((path, (of, _))) = settings.learn.as_ref().and_then(|path| Some((path, shared(path)?))) {
            let why = format!("{} is the file for the {of}, too (name another file)", path.display());
            return Err(Error::Value { name: "learn".to_owned(), why });
        }
        Ok(settings)
    }
}

fn share_of_machine(percent: f64) -> Result<Size, Error> {
    let no = |why: String| Error::Value { name: "memory".to_owned(), why };
    let machine = machine::memory_bytes().ok_or_else(|| {
        no("this machine's memory is unknown (give the budget in bytes, as in 4G)".to_owned())
    })?;
    let size = Size((machine as f64 * percent / 100.0) as u64);
    if size < MEMORY_MIN {
        let all = Size(machine);
        return Err(no(format!("{percent}% of {all} is {size}, less than the minimum of {MEMORY_MIN}")));
    }
    Ok(size)
}

/// The least blocks of a budget.
const FRAMES_MIN: u64 = 8;

/// Checks that a budget of `memory` has enough blocks of `block` bytes.
///
/// # Errors
/// The budget is too small; the text is one line.
pub fn check_block(memory: Size, block: Size) -> Result<(), Error> {
    if memory.0 / block.0 >= FRAMES_MIN {
        return Ok(());
    }
    let why =
        format!("{memory} holds fewer than {FRAMES_MIN} blocks of {block} (raise --memory or lower --block)");
    Err(Error::Value { name: "memory".to_owned(), why })
}

/// Refuses blocks that are too small to be compressed.
fn check_units(settings: &Settings, block: Size) -> Result<(), Error> {
    let least = settings.least_to_compress() as u64;
    if block.0 >= least {
        return Ok(());
    }
    let why = format!(
        "{block} cannot be compressed on a disk, whose pages are as large (write {}K or more, or \
         leave --compress out)",
        least >> 10
    );
    Err(Error::Value { name: "block".to_owned(), why })
}

/// Refuses stores in memory that leave too little of the budget for frames, or that stand where
/// they are never full.
fn check_ram(settings: &Settings) -> Result<(), Error> {
    let no = |why: String| Err(Error::Value { name: "store".to_owned(), why });
    let ram = settings.ram();
    if ram.0 > settings.memory.size.0 / 4 * 3 {
        let budget = settings.memory.size;
        return no(format!(
            "{ram} in memory leave less than a quarter of the budget of {budget} (raise --memory \
             or lower ram:)"
        ));
    }
    if ram.0 > 0 && settings.stores.len() > 1 {
        return no("a store in memory can only stand before others, as in tier:ram:2G+/mnt/nvme0".to_owned());
    }
    Ok(())
}

fn absolute(name: &str, path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path)
        .map_err(|e| Error::Value { name: name.to_owned(), why: format!("{}: {e}", path.display()) })
}

fn one_of(name: &str, value: &str, names: &[&str]) -> Result<(), Error> {
    if names.contains(&value) {
        return Ok(());
    }
    Err(Error::Value { name: name.to_owned(), why: unknown(value, names) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Heap;
    use crate::store::tests::AnyStore;
    use std::ffi::OsStr;

    #[test]
    fn upper_layers_win_and_defaults_fill_in() {
        let mut upper = Partial::default();
        upper.set("memory", OsStr::new("2M")).unwrap();
        let mut lower = Partial::default();
        lower.set("memory", OsStr::new("3M")).unwrap();
        lower.set("block", OsStr::new("64K")).unwrap();
        let settings = upper.or(lower).resolve(&AnyStore, |_| None).unwrap();
        assert_eq!(settings.memory, Budget { size: Size(2 << 20), is_auto: false });
        assert_eq!(settings.block, Some(Size(65536)));
        assert_eq!((settings.verify, settings.heap), (true, Heap::All));
        assert_eq!(settings.stores.len(), 1);
    }

    #[test]
    fn blocks_are_large_enough_to_be_compressed() {
        let settings = |store: &str, block: &str| {
            let mut partial = Partial::default();
            for (name, value) in [("store", store), ("compress", "lz4"), ("block", block)] {
                partial.set(name, OsStr::new(value)).unwrap();
            }
            partial.resolve(&AnyStore, |_| None)
        };
        let refused = |store: &str| settings(store, "4K").unwrap_err().to_string();
        for store in ["/tmp", "mirror:/tmp+/var/tmp", "tier:ram:1M+/tmp", "tier:valkey://host+/tmp"] {
            assert!(refused(store).contains("write 8K or more"), "{store}: {}", refused(store));
            assert_eq!(settings(store, "8K").unwrap().block_bytes(), 8192);
        }
        assert_eq!(settings("valkey://host", "4K").unwrap().block_bytes(), 4096);
        assert_eq!(settings("tier:ram:1M+/tmp", "auto").unwrap().block_bytes(), 8192);
        assert_eq!(settings("tier:ram:1M+valkey://host", "auto").unwrap().block_bytes(), 4096);
        assert_eq!(settings("/tmp", "auto").unwrap().block_bytes(), 16384);
    }

    /// Why these files cannot take the counters and the trace.
    fn refused(stats: &Path, trace: &Path) -> String {
        let mut partial = Partial::default();
        partial.set("stats", stats.as_os_str()).unwrap();
        partial.set("trace", trace.as_os_str()).unwrap();
        let why = partial.resolve(&AnyStore, |_| None).unwrap_err().to_string();
        assert!(!why.contains('\n'), "{why}");
        why
    }

    #[test]
    fn counters_and_trace_take_a_file_each() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("same");
        assert!(refused(&file, &file).contains("is the file for the trace, too"));
        assert!(refused(&file, &place.path().join("./same")).contains("is the file for the trace, too"));
    }

    #[test]
    fn a_link_is_refused_by_what_it_leads_to() {
        let place = tempfile::tempdir().unwrap();
        let (file, link, other) =
            (place.path().join("file"), place.path().join("link"), place.path().join("other"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let wanted = format!("{} is a symbolic link (name its target: {})", link.display(), file.display());
        assert!(refused(&link, &other).contains(&wanted));
        std::fs::write(&file, "").unwrap();
        let real = file.canonicalize().unwrap();
        assert!(refused(&other, &link).contains(&format!("target: {})", real.display())));
        assert!(refused(Path::new("/dev/stdout"), &other).contains("neither a regular file nor a pipe"));
    }

    #[test]
    fn names_of_policies_are_checked() {
        let mut partial = Partial::default();
        partial.set("policy", OsStr::new("best")).unwrap();
        let error = partial.resolve(&AnyStore, |_| None).unwrap_err().to_string();
        assert_eq!(error, format!("policy: 'best' is unknown (one of {})", replacement::NAMES.join(", ")));
    }

    #[test]
    fn stores_in_memory_are_within_the_budget() {
        let resolve = |memory: &str, stores: &str| {
            let mut partial = Partial::default();
            for (name, text) in [("memory", memory), ("store", stores)] {
                partial.set(name, OsStr::new(text)).unwrap();
            }
            partial.resolve(&AnyStore, |_| None)
        };
        let settings = resolve("30M", "tier:ram:10M+/a+/b").unwrap();
        assert_eq!((settings.ram(), settings.block_bytes()), (Size(10 << 20), 4096));
        let file = |path: &str| StoreSpec::File(path.into());
        let ram = StoreSpec::Ram(Size(10 << 20));
        assert_eq!(settings.specs(&AnyStore), [StoreSpec::Tier(vec![ram, file("/a"), file("/b")])]);
        for (stores, says) in [("tier:ram:23M+/a", "less than a quarter"), ("ram:4M\n/a", "tier:ram:")] {
            let error = resolve("30M", stores).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_default_is_all_of_the_machine_at_most_unless_each_process_has_its_own() {
        let all = machine::memory_bytes().unwrap();
        let mut given = Partial::default();
        let settings = given.clone().resolve(&AnyStore, |_| None).unwrap();
        assert_eq!(settings.memory, Budget { size: Size(all), is_auto: true });
        given.set("per-process", OsStr::new("true")).unwrap();
        let settings = given.resolve(&AnyStore, |_| None).unwrap();
        assert_eq!(settings.memory, Budget { size: Size(all / 2), is_auto: false });
    }
}
