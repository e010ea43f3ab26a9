//! The settings as they are used: what follows from them, and why they are refused.

use crate::{Partial, Settings, Size, StoreSpec, Stores, value};
use std::ffi::OsString;
use std::path::PathBuf;

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

/// Bytes of a block where compressed memory is a store, unless another size is given.
const SMALL_BLOCK: usize = 4 << 10;

/// One pager for so many processors: it can keep up with the faults of so many.
const PROCESSORS_A_PAGER: usize = 4;
/// The least of the budget for each of several pagers: bytes, and blocks. Chosen, not measured.
const LEAST_OF_PAGER: u64 = 4 << 20;
const LEAST_BLOCKS_OF_PAGER: u64 = 32;

impl Settings {
    /// The stores over which blocks are spread, with encryption and compression around those that
    /// have them. `known` tells which servers get only ciphertext.
    pub fn specs(&self, known: &dyn Stores) -> Vec<StoreSpec> {
        self.stores.iter().map(|store| self.dressed(store.clone(), known)).collect()
    }

    /// A store with encryption and compression around it, as these settings say.
    fn dressed(&self, store: StoreSpec, known: &dyn Stores) -> StoreSpec {
        let wants = |url: &str| known.wants_cipher(url, self.encrypt.is_none());
        let store = store.with_ram(self.auto_ram());
        let store = match self.encrypt {
            Some(true) => store.encrypted(),
            _ => store.encrypted_where(&wants),
        };
        match self.compress {
            Some(codec) => store.compressed(codec),
            None => store,
        }
    }

    /// Bytes of a block. Compressed memory gives small ones as fast as large ones, and each brings
    /// less that is not needed.
    pub fn block_bytes(&self) -> usize {
        let default = if self.ram().0 > 0 { SMALL_BLOCK } else { crate::DEFAULT_BLOCK };
        self.block.map_or(default, |size| size.0 as usize)
    }

    /// Whether blocks may be divided: a size that is given holds for the whole run.
    pub fn divides(&self) -> bool {
        self.block.is_none()
    }

    /// Bytes of the smallest blocks that there may be: those of blocks that are divided.
    pub fn least_block_bytes(&self) -> usize {
        let block = self.block_bytes();
        if self.divides() { block.min(crate::DIVIDED_BLOCK) } else { block }
    }

    /// What `ram:auto` takes at most: a third of the budget.
    fn auto_ram(&self) -> Size {
        Size(self.memory.0 / 3)
    }

    /// Bytes of the budget that stores in memory take at most.
    pub fn ram(&self) -> Size {
        Size(self.stores.iter().map(|store| store.ram_bytes(self.auto_ram())).sum())
    }

    /// Pagers of each process: as many as are asked for; with `auto`, one for each four of
    /// `processors`, if nothing [forbids](Self::one_pager_because) several, and each gets enough of
    /// the budget.
    pub fn pagers_of_process(&self, processors: usize) -> usize {
        let most = self.pagers.map_or(processors / PROCESSORS_A_PAGER, |pagers| pagers as usize);
        if self.one_pager_because().is_some() {
            return 1;
        }
        let enough = (self.memory.0 / self.least_of_pager().0) as usize;
        most.min(value::PAGERS_MAX as usize).min(enough).max(1)
    }

    /// The least of the budget that makes a pager of its own worth while.
    fn least_of_pager(&self) -> Size {
        Size((LEAST_OF_PAGER).max(LEAST_BLOCKS_OF_PAGER * self.block_bytes() as u64))
    }

    /// Why a process has one pager, whatever is asked for.
    pub fn one_pager_because(&self) -> Option<&'static str> {
        if self.trace.is_some() {
            return Some("--trace records one pager");
        }
        if !self.overcommit {
            return Some("--overcommit no counts the room of one store");
        }
        let many = self.stores.iter().all(StoreSpec::is_of_directories);
        (!many).then_some(
            "a store that is not in directories (a device, a file, ram:, a server) serves one pager",
        )
    }

    /// Why so many pagers as were asked for cannot be had.
    pub(crate) fn check_pagers(&self) -> Result<(), String> {
        let Some(asked) = self.pagers.filter(|&asked| asked > 1) else { return Ok(()) };
        if let Some(why) = self.one_pager_because() {
            return Err(format!("{asked} pagers cannot be had: {why} (leave --pagers out)"));
        }
        let least = Size(u64::from(asked) * self.least_of_pager().0);
        if self.memory < least {
            let has = self.memory;
            return Err(format!(
                "{asked} pagers need {least}, and there are {has} (raise --memory or lower --pagers)"
            ));
        }
        Ok(())
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
    use crate::store::tests::AnyStore;
    use crate::{Codec, Heap, Io, Placement, SETTINGS};
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
            proptest::option::of(((1u64 << 20)..1 << 62).prop_map(Size)).prop_map(StoreSpec::Ram),
            proptest::collection::vec(leaf.clone(), 2..4).prop_map(StoreSpec::Tier),
            proptest::collection::vec(leaf, 2..4).prop_map(StoreSpec::Mirror),
        ]
    }

    prop_compose! {
        fn settings()(
            memory in (1u64 << 20)..1 << 62,
            stores in proptest::collection::vec(store(), 1..5),
            placement in select(Placement::ALL),
            store_size in proptest::option::of(((1u64 << 20)..1 << 62).prop_map(Size)),
            block in proptest::option::of((12u32..=21).prop_map(|shift| Size(1 << shift))),
            names in ("[^\x00]{1,9}", "[^\x00]{1,9}"),
            threads in 1u32..=64,
            (heap, io) in (select(Heap::ALL), select(Io::ALL)),
            pagers in proptest::option::of(1u32..=8),
            switches in any::<[bool; 4]>(),
            encrypt in any::<Option<bool>>(),
            files in (proptest::option::of(path()), proptest::option::of(path())),
            compress in proptest::option::of(codec()),
        ) -> Settings {
            // A setting that is added is varied by what its entry says: tests/table.rs.
            #[allow(clippy::needless_update)]
            let settings = Settings {
                memory: Size(memory), stores, placement, store_size, block, compress,
                policy: names.0, prefetch: names.1, threads, pagers, io, heap,
                verify: switches[0], verbose: switches[1], encrypt, per_process: switches[2],
                overcommit: switches[3],
                stats: files.0, trace: files.1,
                ..Settings::from_variables(&AnyStore, |_| None).unwrap()
            };
            settings
        }
    }

    proptest! {
        #[test]
        fn variables_carry_all_settings(settings in settings()) {
            let variables: HashMap<_, _> = settings.to_variables().into_iter().collect();
            prop_assert!(variables.keys().all(|name| SETTINGS.iter().any(|setting| setting.variable == *name)));
            let read = Settings::from_variables(&AnyStore, |name| variables.get(name).cloned());
            prop_assert_eq!(read.unwrap(), settings);
        }

        #[test]
        fn any_text_is_taken_or_refused_in_one_line(at in 0..SETTINGS.len(), text in proptest::collection::vec(1u8.., 0..60)) {
            let text = OsString::from_vec(text);
            if let Err(error) = Settings::from_variables(&AnyStore, |name| (name == SETTINGS[at].variable).then(|| text.clone())) {
                prop_assert!(!error.to_string().contains('\n'), "{}", error);
            }
        }
    }

    fn with(variables: &[(&str, &str)]) -> Settings {
        let get = |name: &str| variables.iter().find(|has| has.0 == name).map(|has| has.1.into());
        Settings::from_variables(&AnyStore, get).unwrap()
    }

    #[test]
    fn pagers_follow_the_processors_the_store_and_the_budget() {
        let place = tempfile::tempdir().unwrap();
        let store = ("TERAPAGE_STORE", place.path().to_str().unwrap());
        let of = |more: &[(&str, &str)], processors| {
            with(&[&[store], more].concat()).pagers_of_process(processors)
        };
        let (memory, auto) = (("TERAPAGE_MEMORY", "1G"), ("TERAPAGE_PAGERS", "auto"));
        assert_eq!([1, 2, 7, 8, 16, 64].map(|count| of(&[memory, auto], count)), [1, 1, 1, 2, 4, 8]);
        assert_eq!(of(&[memory, ("TERAPAGE_PAGERS", "3")], 2), 3);
        assert_eq!(of(&[("TERAPAGE_MEMORY", "13M"), auto], 64), 3, "4 MiB each");
        assert_eq!(of(&[memory], 64), 1, "the default");
        assert_eq!(of(&[memory, auto, ("TERAPAGE_TRACE", "/x")], 64), 1);
        assert_eq!(of(&[memory, auto, ("TERAPAGE_OVERCOMMIT", "no")], 64), 1);
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        for store in [file.to_str().unwrap(), "valkey://localhost", "tier:ram:16M+/tmp"] {
            let settings = with(&[memory, ("TERAPAGE_STORE", store), ("TERAPAGE_PAGERS", "2")]);
            assert_eq!(settings.pagers_of_process(64), 1, "{store}");
            let why = settings.check_pagers().unwrap_err();
            assert!(why.contains("serves one pager") && !why.contains('\n'), "{why}");
        }
        let why = with(&[store, ("TERAPAGE_MEMORY", "6M"), ("TERAPAGE_PAGERS", "2")]).check_pagers();
        assert!(why.unwrap_err().contains("2 pagers need"));
    }

    #[test]
    fn absent_variables_get_defaults() {
        let settings = Settings::from_variables(&AnyStore, |_| None).unwrap();
        assert_eq!((&*settings.policy, &*settings.prefetch, settings.block), ("auto", "auto", None));
        assert_eq!(settings.memory.0, crate::memory_bytes().unwrap() / 2);
    }
}
