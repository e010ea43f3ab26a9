//! The settings themselves.

use crate::{Codec, Partial, Size, StoreSpec, Stores, store};
use std::ffi::OsString;
use std::path::PathBuf;

/// Which allocations are paged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heap {
    /// Every allocation, small objects too.
    All,
    /// Allocations of 128 KiB and more.
    Large,
    /// No allocations; only mmap and static arrays.
    Off,
}

impl Heap {
    /// All values.
    pub const ALL: [Heap; 3] = [Heap::All, Heap::Large, Heap::Off];

    /// The value's name in the setting.
    pub fn name(self) -> &'static str {
        match self {
            Heap::All => "all",
            Heap::Large => "large",
            Heap::Off => "off",
        }
    }
}

/// How stores are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// By io_uring; where that is forbidden, by libaio, and where that cannot be had, by threads.
    Auto,
    /// By io_uring only.
    Uring,
    /// By libaio.
    Aio,
    /// By threads.
    Threads,
}

impl Io {
    /// All values.
    pub const ALL: [Io; 4] = [Io::Auto, Io::Uring, Io::Aio, Io::Threads];

    /// The value's name in the setting.
    pub fn name(self) -> &'static str {
        match self {
            Io::Auto => "auto",
            Io::Uring => "uring",
            Io::Aio => "aio",
            Io::Threads => "threads",
        }
    }
}

/// How blocks are spread over several stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One store is filled, then the next.
    Simple,
    /// The stores take turns.
    RoundRobin,
    /// Each store has all blocks.
    Mirror,
    /// Each block is in the first that takes it when it is written.
    Tier,
}

impl Placement {
    /// All values.
    pub const ALL: [Placement; 4] =
        [Placement::Simple, Placement::RoundRobin, Placement::Mirror, Placement::Tier];

    /// The value's name in the setting.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Simple => "simple",
            Placement::RoundRobin => "round-robin",
            Placement::Mirror => "mirror",
            Placement::Tier => "tier",
        }
    }
}

/// All settings, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of frames: of all processes together.
    pub memory: Size,
    /// Each process has all of these for itself.
    pub per_process: bool,
    /// Stores; never empty.
    pub stores: Vec<StoreSpec>,
    /// How blocks are spread over the stores.
    pub placement: Placement,
    /// All stores get only ciphertext. If not, those do whose texts say so.
    pub encrypt: bool,
    /// How blocks are compressed on their way to all stores.
    pub compress: Option<Codec>,
    /// Bytes that the store may take; `None`: it grows as needed.
    pub store_size: Option<Size>,
    /// The program may have more memory than the store could hold. If not, an allocation that it
    /// could not hold is refused.
    pub overcommit: bool,
    /// Bytes of a block; `None` is `auto`.
    pub block: Option<Size>,
    /// Replacement policy, one of `terapage_policy::replacement::NAMES`.
    pub policy: String,
    /// Prefetch policy, one of `terapage_policy::prefetch::NAMES`.
    pub prefetch: String,
    /// Threads of the pager.
    pub threads: u32,
    /// How stores are read and written.
    pub io: Io,
    /// Which allocations are paged.
    pub heap: Heap,
    /// Whether bytes that come back are checked against the hash taken when they left.
    pub verify: bool,
    /// The file for the counters, at the end, as JSON.
    pub stats: Option<PathBuf>,
    /// The file for the block references.
    pub trace: Option<PathBuf>,
    /// Whether to say on standard error what happens.
    pub verbose: bool,
}

/// Why settings are refused. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting has an invalid value.
    #[error("{name}: {why}")]
    Value {
        /// The setting, by flag, variable, or key and file.
        name: String,
        /// What is wrong and what to do.
        why: String,
    },
    /// The configuration file cannot be read.
    #[error("{}: {cause}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The configuration file is not TOML.
    #[error("{}, line {line}: {why}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The configuration file has an unknown key.
    #[error("{}: unknown key '{key}' (known are {known})", file.display())]
    UnknownKey {
        /// The key.
        key: String,
        /// The file.
        file: PathBuf,
        /// The known keys.
        known: String,
    },
}

impl Settings {
    /// The stores over which blocks are spread: with the placement `mirror` or `tier`, one store of
    /// all.
    pub fn specs(&self) -> Vec<StoreSpec> {
        let dressed = |store: StoreSpec| {
            let store = store.with_ram(self.auto_ram());
            let store = if self.encrypt { store.encrypted() } else { store };
            match self.compress {
                Some(codec) => store.compressed(codec),
                None => store,
            }
        };
        self.placed().into_iter().map(dressed).collect()
    }

    /// As they are placed.
    fn placed(&self) -> Vec<StoreSpec> {
        let tiers = |store: &StoreSpec| match store {
            StoreSpec::Tier(tiers) => tiers.clone(),
            other => vec![other.clone()],
        };
        match self.placement {
            Placement::Simple | Placement::RoundRobin => self.stores.clone(),
            Placement::Mirror => vec![StoreSpec::mirror_of(self.stores.clone())],
            Placement::Tier => vec![StoreSpec::Tier(self.stores.iter().flat_map(tiers).collect())],
        }
    }

    /// What `ram:auto` takes: a third of the budget.
    fn auto_ram(&self) -> Size {
        Size(self.memory.0 / 3)
    }

    /// Bytes of the budget that stores in memory take.
    pub fn ram(&self) -> Size {
        Size(self.stores.iter().map(|store| store.ram_bytes(self.auto_ram())).sum())
    }

    /// Bytes of the budget that are frames: all that stores in memory leave.
    pub fn frames(&self) -> Size {
        Size(self.memory.0.saturating_sub(self.ram().0))
    }

    /// The variables that pass these settings to the library in a program. Other variables of
    /// [`KEYS`](crate::KEYS) must be removed.
    pub fn to_variables(&self) -> Vec<(&'static str, OsString)> {
        let size = |size: Option<Size>| size.map_or("auto".into(), |size| size.0.to_string().into());
        let boolean = |on: bool| if on { "1" } else { "0" }.into();
        let mut variables: Vec<(&'static str, OsString)> = vec![
            ("TERAPAGE_MEMORY", self.memory.0.to_string().into()),
            ("TERAPAGE_PER_PROCESS", boolean(self.per_process)),
            ("TERAPAGE_STORE", store::join(&self.stores)),
            ("TERAPAGE_PLACEMENT", self.placement.name().into()),
            ("TERAPAGE_ENCRYPT", boolean(self.encrypt)),
            ("TERAPAGE_COMPRESS", self.compress.map_or("off".into(), |codec| codec.to_text().into())),
            ("TERAPAGE_STORE_SIZE", size(self.store_size)),
            ("TERAPAGE_OVERCOMMIT", boolean(self.overcommit)),
            ("TERAPAGE_BLOCK", size(self.block)),
            ("TERAPAGE_POLICY", self.policy.clone().into()),
            ("TERAPAGE_PREFETCH", self.prefetch.clone().into()),
            ("TERAPAGE_THREADS", self.threads.to_string().into()),
            ("TERAPAGE_IO", self.io.name().into()),
            ("TERAPAGE_HEAP", self.heap.name().into()),
            ("TERAPAGE_VERIFY", boolean(self.verify)),
            ("TERAPAGE_VERBOSE", boolean(self.verbose)),
        ];
        let files = [("TERAPAGE_STATS", &self.stats), ("TERAPAGE_TRACE", &self.trace)];
        variables.extend(files.into_iter().filter_map(|(name, path)| Some((name, path.clone()?.into()))));
        variables
    }

    /// Reads the variables of [`to_variables`](Self::to_variables). A variable that is missing or
    /// empty means the default.
    ///
    /// The names of policies, and whether stores can be used, are not checked here.
    pub fn from_variables(
        stores: &dyn Stores,
        get: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, Error> {
        Partial::from_variables(&get)?.with_defaults(stores, &get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KEYS;
    use crate::store::tests::AnyStore;
    use proptest::prelude::*;
    use proptest::sample::select;
    use std::collections::HashMap;
    use std::os::unix::ffi::OsStringExt;

    fn path() -> impl Strategy<Value = PathBuf> {
        prop_oneof![
            "[a-z:/\\\\\n]{1,12}".prop_map(PathBuf::from),
            proptest::collection::vec(1u8.., 1..40).prop_map(|bytes| OsString::from_vec(bytes).into()),
        ]
    }

    fn codec() -> impl Strategy<Value = Codec> {
        prop_oneof![Just(Codec::Lz4), (1..=Codec::LEVEL_MAX).prop_map(Codec::Zstd)]
    }

    fn store() -> impl Strategy<Value = StoreSpec> {
        let leaf = prop_oneof![
            path().prop_map(StoreSpec::File),
            "valkey://[a-z+:/@0-9]{0,20}".prop_map(StoreSpec::Url),
        ];
        prop_oneof![
            leaf.clone(),
            leaf.clone().prop_map(StoreSpec::encrypted),
            (codec(), leaf.clone(), any::<bool>()).prop_map(|(codec, store, encrypt)| {
                if encrypt { store.encrypted().compressed(codec) } else { store.compressed(codec) }
            }),
            proptest::option::of(((1u64 << 20)..1 << 62).prop_map(Size)).prop_map(StoreSpec::Ram),
            proptest::collection::vec(leaf.clone(), 2..4).prop_map(StoreSpec::Tier),
            proptest::collection::vec(leaf, 2..4).prop_map(StoreSpec::Mirror),
        ]
    }

    prop_compose! {
        fn settings()(
            memory in (1u64 << 20)..1 << 62,
            stores in proptest::collection::vec(store(), 1..5),
            placement in select(&Placement::ALL),
            store_size in proptest::option::of(((1u64 << 20)..1 << 62).prop_map(Size)),
            block in proptest::option::of((12u32..=21).prop_map(|shift| Size(1 << shift))),
            names in ("[^\x00]{1,9}", "[^\x00]{1,9}"),
            threads in 1u32..=64,
            (heap, io) in (select(&Heap::ALL), select(&Io::ALL)),
            switches in any::<[bool; 5]>(),
            files in (proptest::option::of(path()), proptest::option::of(path())),
            compress in proptest::option::of(codec()),
        ) -> Settings {
            Settings {
                memory: Size(memory), stores, placement, store_size, block, compress,
                policy: names.0, prefetch: names.1, threads, io, heap,
                verify: switches[0], verbose: switches[1], encrypt: switches[2], per_process: switches[3],
                overcommit: switches[4],
                stats: files.0, trace: files.1,
            }
        }
    }

    proptest! {
        #[test]
        fn variables_carry_all_settings(settings in settings()) {
            let variables: HashMap<_, _> = settings.to_variables().into_iter().collect();
            prop_assert!(variables.keys().all(|name| KEYS.iter().any(|key| key.variable == *name)));
            let read = Settings::from_variables(&AnyStore, |name| variables.get(name).cloned());
            prop_assert_eq!(read.unwrap(), settings);
        }

        #[test]
        fn any_text_is_taken_or_refused_in_one_line(at in 0..KEYS.len(), text in proptest::collection::vec(1u8.., 0..60)) {
            let text = OsString::from_vec(text);
            if let Err(error) = Settings::from_variables(&AnyStore, |name| (name == KEYS[at].variable).then(|| text.clone())) {
                prop_assert!(!error.to_string().contains('\n'), "{}", error);
            }
        }
    }

    #[test]
    fn absent_variables_get_defaults() {
        let settings = Settings::from_variables(&AnyStore, |_| None).unwrap();
        assert_eq!((&*settings.policy, &*settings.prefetch, settings.block), ("auto", "auto", None));
        assert_eq!(settings.memory.0, crate::memory_bytes().unwrap() / 2);
    }
}
