//! The settings of one layer (flags, variables, a file), and how layers are combined.

use crate::{Codec, Error, Heap, Io, Placement, Settings, Size, StoreSpec, Stores, machine, store};
use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The least budget, bytes.
const MEMORY_MIN: Size = Size(1 << 20);
/// The least and the greatest block, bytes.
const BLOCK_MIN: Size = Size(4 << 10);
const BLOCK_MAX: Size = Size(2 << 20);
/// The most threads of the pager.
const THREADS_MAX: u32 = 64;

/// The names of a setting: in the configuration file (the flag is the same with `--` in front) and
/// in the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The TOML key.
    pub name: &'static str,
    /// The environment variable.
    pub variable: &'static str,
}

macro_rules! keys {
    ($($name:literal $variable:literal,)*) => {
        /// The names of all settings.
        pub const KEYS: &[Key] = &[$(Key { name: $name, variable: $variable },)*];
    };
}

keys! {
    "memory" "TERAPAGE_MEMORY",
    "per-process" "TERAPAGE_PER_PROCESS",
    "store" "TERAPAGE_STORE",
    "placement" "TERAPAGE_PLACEMENT",
    "encrypt" "TERAPAGE_ENCRYPT",
    "compress" "TERAPAGE_COMPRESS",
    "store-size" "TERAPAGE_STORE_SIZE",
    "overcommit" "TERAPAGE_OVERCOMMIT",
    "block" "TERAPAGE_BLOCK",
    "policy" "TERAPAGE_POLICY",
    "prefetch" "TERAPAGE_PREFETCH",
    "threads" "TERAPAGE_THREADS",
    "io" "TERAPAGE_IO",
    "heap" "TERAPAGE_HEAP",
    "verify" "TERAPAGE_VERIFY",
    "stats" "TERAPAGE_STATS",
    "trace" "TERAPAGE_TRACE",
    "verbose" "TERAPAGE_VERBOSE",
}

/// A budget, as asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// Bytes.
    Bytes(Size),
    /// A share of the memory of the machine, or of the container, in percent.
    Percent(f64),
}

/// Settings of which any may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Partial {
    /// Bytes of frames.
    pub memory: Option<Memory>,
    /// Whether each process has the whole budget.
    pub per_process: Option<bool>,
    /// Stores.
    pub stores: Option<Vec<StoreSpec>>,
    /// How blocks are spread over the stores.
    pub placement: Option<Placement>,
    /// Whether stores get only ciphertext; without it, those do where others may read blocks.
    pub encrypt: Option<bool>,
    /// How blocks are compressed on their way to stores; `Some(None)` is `off`.
    pub compress: Option<Option<Codec>>,
    /// Bytes that the store may take; `Some(None)` is `auto`.
    pub store_size: Option<Option<Size>>,
    /// Whether the program may have more memory than the store could hold.
    pub overcommit: Option<bool>,
    /// Bytes of a block; `Some(None)` is `auto`.
    pub block: Option<Option<Size>>,
    /// Replacement policy.
    pub policy: Option<String>,
    /// Prefetch policy.
    pub prefetch: Option<String>,
    /// Threads of the pager.
    pub threads: Option<u32>,
    /// How stores are read and written.
    pub io: Option<Io>,
    /// Which allocations are paged.
    pub heap: Option<Heap>,
    /// Whether bytes that are read are checked.
    pub verify: Option<bool>,
    /// The file for the counters, at the end.
    pub stats: Option<PathBuf>,
    /// The file for the block references.
    pub trace: Option<PathBuf>,
    /// Whether to say what happens.
    pub verbose: Option<bool>,
}

impl Partial {
    /// Sets the setting that is called `name` in the configuration file, from a text. The error
    /// says in one line what is wrong with the text.
    ///
    /// # Panics
    /// If `name` is not in [`KEYS`].
    pub fn set(&mut self, name: &str, text: &OsStr) -> Result<(), String> {
        if name == "store" {
            self.stores = Some(store::split(text)?).filter(|stores| !stores.is_empty());
            return Ok(());
        }
        if text.is_empty() {
            return Err("it is empty".to_owned());
        }
        match name {
            "stats" => self.stats = Some(text.into()),
            "trace" => self.trace = Some(text.into()),
            _ => {
                let text = text.to_str().ok_or("it is not UTF-8")?;
                // A message is one line, so texts that would break the line are refused and not
                // quoted.
                if name != "policy" && name != "prefetch" && text.contains(char::is_control) {
                    return Err("it contains a control character".to_owned());
                }
                match name {
                    "memory" => self.memory = Some(memory(text)?),
                    "per-process" => self.per_process = Some(boolean(text)?),
                    "placement" => self.placement = Some(placement(text)?),
                    "store-size" => self.store_size = Some(auto_or(text, store_size)?),
                    "overcommit" => self.overcommit = Some(boolean(text)?),
                    "block" => self.block = Some(auto_or(text, block)?),
                    "policy" => self.policy = Some(text.to_owned()),
                    "prefetch" => self.prefetch = Some(text.to_owned()),
                    "threads" => self.threads = Some(threads(text)?),
                    "io" => self.io = Some(io(text)?),
                    "heap" => self.heap = Some(heap(text)?),
                    "encrypt" => self.encrypt = Some(boolean(text)?),
                    "compress" => self.compress = Some(codec(text)?),
                    "verify" => self.verify = Some(boolean(text)?),
                    "verbose" => self.verbose = Some(boolean(text)?),
                    _ => panic!("no setting is called {name}"),
                }
            }
        }
        Ok(())
    }

    /// Adds a store to the stores set so far, as read by [`StoreSpec::parse`].
    pub fn add_store(&mut self, text: &OsStr) -> Result<(), String> {
        self.stores.get_or_insert_default().push(StoreSpec::parse(text)?);
        Ok(())
    }

    /// Reads the `TERAPAGE_*` variables; an empty one counts as absent.
    pub fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Partial, Error> {
        let mut partial = Partial::default();
        for key in KEYS {
            if let Some(text) = get(key.variable).filter(|text| !text.is_empty()) {
                let error = |why| Error::Value { name: key.variable.to_owned(), why };
                partial.set(key.name, &text).map_err(error)?;
            }
        }
        Ok(partial)
    }

    /// This layer, with the settings that it lacks taken from `lower`.
    pub fn or(self, lower: Partial) -> Partial {
        Partial {
            memory: self.memory.or(lower.memory),
            per_process: self.per_process.or(lower.per_process),
            stores: self.stores.or(lower.stores),
            placement: self.placement.or(lower.placement),
            encrypt: self.encrypt.or(lower.encrypt),
            compress: self.compress.or(lower.compress),
            store_size: self.store_size.or(lower.store_size),
            overcommit: self.overcommit.or(lower.overcommit),
            block: self.block.or(lower.block),
            policy: self.policy.or(lower.policy),
            prefetch: self.prefetch.or(lower.prefetch),
            threads: self.threads.or(lower.threads),
            io: self.io.or(lower.io),
            heap: self.heap.or(lower.heap),
            verify: self.verify.or(lower.verify),
            stats: self.stats.or(lower.stats),
            trace: self.trace.or(lower.trace),
            verbose: self.verbose.or(lower.verbose),
        }
    }

    /// Fills in the defaults, and checks what can only be checked now: the policies' names must be
    /// in `policies` and `prefetches`, and `stores` must accept the stores. Paths become absolute.
    /// `get` reads the environment, for the default store.
    pub fn resolve(
        self,
        policies: &[&str],
        prefetches: &[&str],
        stores: &dyn Stores,
        get: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, Error> {
        let mut settings = self.with_defaults(stores, &get)?;
        one_of("policy", &settings.policy, policies)?;
        one_of("prefetch", &settings.prefetch, prefetches)?;
        for store in &settings.stores {
            stores.check(store).map_err(|why| Error::Value { name: "store".to_owned(), why })?;
        }
        let specs = settings.stores.into_iter();
        let mut whole = |path: PathBuf| absolute("store", &path);
        settings.stores = specs.map(|spec| spec.map_paths(&mut whole)).collect::<Result<_, _>>()?;
        check_ram(&settings)?;
        if let Some(block) = settings.block {
            check_block(settings.frames(), block)?;
        }
        let of_several = matches!(settings.placement, Placement::Mirror | Placement::Tier);
        if of_several && settings.stores.len() < 2 {
            let why = format!("{} needs two stores or more (repeat --store)", settings.placement.name());
            return Err(Error::Value { name: "placement".to_owned(), why });
        }
        if let Some(size) = settings.store_size {
            store::check_room(stores, &settings.specs(), size)?;
        }
        for (name, file) in [("stats", &mut settings.stats), ("trace", &mut settings.trace)] {
            if let Some(path) = file {
                *path = absolute(name, path)?;
                // Refused now, not after the program has done its work.
                if let Err(why) = takes_output(path) {
                    let why = format!("{} {why}", path.display());
                    return Err(Error::Value { name: name.to_owned(), why });
                }
            }
        }
        if let Some(path) = settings.stats.as_ref().filter(|path| settings.trace.as_ref() == Some(path)) {
            let why = format!("{} is to take the trace, too (name another file)", path.display());
            return Err(Error::Value { name: "stats".to_owned(), why });
        }
        Ok(settings)
    }

    /// Fills in the defaults.
    pub(crate) fn with_defaults(
        self,
        known: &dyn Stores,
        get: &impl Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, Error> {
        let memory = match self.memory.unwrap_or(Memory::Percent(50.0)) {
            Memory::Bytes(size) => size,
            Memory::Percent(percent) => share_of_machine(percent)?,
        };
        let stores = match self.stores {
            Some(stores) if !stores.is_empty() => stores,
            _ => vec![store::default_store(known, get)?],
        };
        let by_default = self.encrypt.is_none();
        let wants = |url: &str| known.wants_cipher(url, by_default);
        let stores = stores.into_iter().map(|store| store.encrypted_where(&wants)).collect();
        Ok(Settings {
            memory,
            per_process: self.per_process.unwrap_or(false),
            stores,
            placement: self.placement.unwrap_or(Placement::Simple),
            encrypt: self.encrypt.unwrap_or(false),
            compress: self.compress.flatten(),
            store_size: self.store_size.flatten(),
            overcommit: self.overcommit.unwrap_or(true),
            block: self.block.flatten(),
            policy: self.policy.unwrap_or_else(|| "auto".to_owned()),
            prefetch: self.prefetch.unwrap_or_else(|| "auto".to_owned()),
            threads: self.threads.unwrap_or(1),
            io: self.io.unwrap_or(Io::Auto),
            heap: self.heap.unwrap_or(Heap::All),
            verify: self.verify.unwrap_or(true),
            stats: self.stats,
            trace: self.trace,
            verbose: self.verbose.unwrap_or(false),
        })
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

/// Refuses stores in memory that leave too little of it for frames, or that stand where they are
/// never full.
fn check_ram(settings: &Settings) -> Result<(), Error> {
    let no = |why: String| Err(Error::Value { name: "store".to_owned(), why });
    let ram = settings.ram();
    if ram.0 > settings.memory.0 / 4 * 3 {
        let budget = settings.memory;
        return no(format!(
            "{ram} in memory leave less than a quarter of the budget of {budget} (raise --memory or lower ram:)"
        ));
    }
    if ram.0 > 0 && settings.stores.len() > 1 && settings.placement != Placement::Tier {
        return no("one in memory stands before others only with --placement tier".to_owned());
    }
    Ok(())
}

fn absolute(name: &str, path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path)
        .map_err(|e| Error::Value { name: name.to_owned(), why: format!("{}: {e}", path.display()) })
}

/// Checks that a file can be made or replaced at `path`, or that a pipe there can be written.
/// Anything else at the path is refused: a link, such as `/dev/stdout`, would be removed.
fn takes_output(path: &Path) -> Result<(), String> {
    match std::fs::symlink_metadata(path).map(|found| found.file_type()) {
        Ok(kind) if kind.is_fifo() => return Ok(()),
        // Links in /dev and /proc lead to files that are open already and must not be replaced.
        Ok(kind) if kind.is_symlink() && !["/dev", "/proc"].iter().any(|place| path.starts_with(place)) => {
            let target = path.canonicalize().or_else(|_| std::fs::read_link(path));
            let name =
                target.map_or_else(|_| "another file".to_owned(), |target| target.display().to_string());
            return Err(format!("is a symbolic link (name its target: {name})"));
        }
        Ok(kind) if !kind.is_file() => {
            return Err("exists, and is neither a regular file nor a pipe (name another file)".to_owned());
        }
        _ => {}
    }
    can_be_made(path)
}

/// Checks that a file can be made in the directory of `path`.
///
/// # Errors
/// It cannot; the text is one line, and follows the path.
pub fn can_be_made(path: &Path) -> Result<(), String> {
    let directory = match path.parent() {
        Some(directory) if directory.as_os_str().is_empty() => Path::new("."),
        Some(directory) => directory,
        None => return Err("is no file (name a file)".to_owned()),
    };
    if !directory.is_dir() {
        return Err("is in a directory that does not exist (make it, or name another file)".to_owned());
    }
    access(directory, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("is in a directory that cannot be written: {error} (name another file)"))
}

fn one_of(name: &str, value: &str, names: &[&str]) -> Result<(), Error> {
    if names.contains(&value) {
        return Ok(());
    }
    Err(Error::Value { name: name.to_owned(), why: unknown(value, names) })
}

fn unknown(value: &str, names: &[&str]) -> String {
    format!("'{}' is unknown (one of {})", value.escape_debug(), names.join(", "))
}

fn memory(text: &str) -> Result<Memory, String> {
    if let Some(number) = text.trim().strip_suffix('%') {
        let percent: f64 =
            number.trim().parse().map_err(|_| format!("'{text}' is no percentage (write 50%)"))?;
        // This form of the condition also refuses NaN.
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(format!("'{text}' is not more than 0% and at most 100% (write 50%)"));
        }
        return Ok(Memory::Percent(percent));
    }
    let size = size(text)?;
    if size < MEMORY_MIN {
        return Err(format!("{} is less than the minimum of {MEMORY_MIN} (write 64M, 4G, 50%)", text.trim()));
    }
    Ok(Memory::Bytes(size))
}

fn size(text: &str) -> Result<Size, String> {
    text.parse().map_err(|e: crate::ParseSizeError| e.to_string())
}

fn auto_or(text: &str, read: fn(&str) -> Result<Size, String>) -> Result<Option<Size>, String> {
    if text == "auto" { Ok(None) } else { read(text).map(Some) }
}

fn store_size(text: &str) -> Result<Size, String> {
    let size = size(text)?;
    if size < MEMORY_MIN {
        return Err(format!("{} is less than the minimum of {MEMORY_MIN} (write 100G or auto)", text.trim()));
    }
    Ok(size)
}

fn block(text: &str) -> Result<Size, String> {
    let size = size(text)?;
    if !size.0.is_power_of_two() || size < BLOCK_MIN || size > BLOCK_MAX {
        let range = format!("a power of two from {BLOCK_MIN} to {BLOCK_MAX}");
        return Err(format!("'{text}' is not {range} (write 64K or auto)"));
    }
    Ok(size)
}

fn threads(text: &str) -> Result<u32, String> {
    let threads = text.trim().parse().ok().filter(|n| (1..=THREADS_MAX).contains(n));
    threads.ok_or_else(|| format!("'{text}' is not a number from 1 to {THREADS_MAX}"))
}

fn placement(text: &str) -> Result<Placement, String> {
    let placement = Placement::ALL.into_iter().find(|placement| placement.name() == text);
    placement.ok_or_else(|| unknown(text, &Placement::ALL.map(Placement::name)))
}

fn codec(text: &str) -> Result<Option<Codec>, String> {
    if matches!(text, "off" | "none" | "false" | "no" | "0") {
        Ok(None)
    } else {
        Codec::parse(text).map(Some)
    }
}

fn heap(text: &str) -> Result<Heap, String> {
    let heap = Heap::ALL.into_iter().find(|heap| heap.name() == text);
    heap.ok_or_else(|| unknown(text, &Heap::ALL.map(Heap::name)))
}

fn io(text: &str) -> Result<Io, String> {
    let io = Io::ALL.into_iter().find(|io| io.name() == text);
    io.ok_or_else(|| unknown(text, &Io::ALL.map(Io::name)))
}

fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!("'{text}' is unknown (true or false)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::AnyStore;

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for (name, text) in [
            ("memory", "0"),
            ("memory", "-5M"),
            ("memory", "nan"),
            ("memory", "nan%"),
            ("memory", "0%"),
            ("memory", "101%"),
            ("memory", "-1%"),
            ("memory", "4611686018427387905"),
            ("memory", "1M1"),
            ("memory", ""),
            ("memory", "1023K"),
            ("block", "5000"),
            ("block", "2K"),
            ("block", "4M"),
            ("threads", "0"),
            ("threads", "65"),
            ("threads", "-1"),
            ("io", "posix"),
            ("heap", "small"),
            ("placement", "random"),
            ("compress", "gzip"),
            ("compress", "zstd:10"),
            ("compress", "lz4:1"),
            ("verify", "maybe"),
            ("store-size", "0"),
            ("store", "far:host"),
            ("stats", ""),
        ] {
            let why = Partial::default().set(name, OsStr::new(text)).expect_err(text);
            assert!(!why.is_empty() && !why.contains('\n'), "{name} {text}: {why}");
        }
    }

    #[test]
    fn upper_layers_win_and_defaults_fill_in() {
        let mut upper = Partial::default();
        upper.set("memory", OsStr::new("2M")).unwrap();
        let mut lower = Partial::default();
        lower.set("memory", OsStr::new("3M")).unwrap();
        lower.set("block", OsStr::new("64K")).unwrap();
        let settings = upper.or(lower).resolve(&["auto"], &["auto"], &AnyStore, |_| None).unwrap();
        assert_eq!(settings.memory, Size(2 << 20));
        assert_eq!(settings.block, Some(Size(65536)));
        assert_eq!((settings.threads, settings.verify, settings.heap), (1, true, Heap::All));
        assert_eq!(settings.stores.len(), 1);
    }

    /// Why these files cannot take the counters and the trace.
    fn refused(stats: &Path, trace: &Path) -> String {
        let mut partial = Partial::default();
        partial.set("stats", stats.as_os_str()).unwrap();
        partial.set("trace", trace.as_os_str()).unwrap();
        let why = partial.resolve(&["auto"], &["auto"], &AnyStore, |_| None).unwrap_err().to_string();
        assert!(!why.contains('\n'), "{why}");
        why
    }

    #[test]
    fn counters_and_trace_take_a_file_each() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("same");
        assert!(refused(&file, &file).contains("is to take the trace, too"));
        assert!(refused(&file, &place.path().join("./same")).contains("is to take the trace, too"));
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
        let error =
            partial.resolve(&["auto", "lru"], &["auto"], &AnyStore, |_| None).unwrap_err().to_string();
        assert_eq!(error, "policy: 'best' is unknown (one of auto, lru)");
    }

    #[test]
    fn stores_in_memory_are_within_the_budget() {
        let resolve = |memory: &str, stores: &str, placement: &str| {
            let mut partial = Partial::default();
            for (name, text) in [("memory", memory), ("store", stores), ("placement", placement)] {
                partial.set(name, OsStr::new(text)).unwrap();
            }
            partial.resolve(&["auto"], &["auto"], &AnyStore, |_| None)
        };
        let settings = resolve("30M", "ram:auto\n/a\ntier:/b+/c", "tier").unwrap();
        assert_eq!((settings.ram(), settings.frames()), (Size(10 << 20), Size(20 << 20)));
        let file = |path: &str| StoreSpec::File(path.into());
        let ram = StoreSpec::Ram(Some(Size(10 << 20)));
        assert_eq!(settings.specs(), [StoreSpec::Tier(vec![ram, file("/a"), file("/b"), file("/c")])]);
        for (stores, placement, says) in [
            ("tier:ram:23M+/a", "simple", "less than a quarter"),
            ("ram:4M\n/a", "simple", "--placement tier"),
            ("ram:4M", "tier", "two stores"),
        ] {
            let error = resolve("30M", stores, placement).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_default_budget_is_half_of_the_machine() {
        let settings = Partial::default().resolve(&["auto"], &["auto"], &AnyStore, |_| None).unwrap();
        assert_eq!(settings.memory.0, machine::memory_bytes().unwrap() / 2);
    }
}
