//! The settings as the program uses them, what follows from them, and why they are refused.

use crate::{Budget, Partial, Settings, Size, StoreSpec, Stores};
use rustix::param::page_size;
use std::ffi::OsString;
use std::path::PathBuf;

/// The reasons for refusing settings. Each message is one line.
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

/// Bytes of a block if compressed memory is one of the stores, unless another size is given.
const SMALL_BLOCK: usize = 4 << 10;

impl Settings {
    /// The stores over which blocks are spread, with encryption and compression added where the
    /// settings ask for them. `known` says which servers get only ciphertext.
    pub fn specs(&self, known: &dyn Stores) -> Vec<StoreSpec> {
        self.stores.iter().map(|store| self.dressed(store.clone(), known)).collect()
    }

    /// A store with the encryption and compression of these settings.
    fn dressed(&self, store: StoreSpec, known: &dyn Stores) -> StoreSpec {
        let wants = |url: &str| known.wants_cipher(url, self.encrypt.is_none());
        let store = match self.encrypt {
            Some(true) => store.encrypted(),
            _ => store.encrypted_where(&wants),
        };
        match self.compress {
            Some(codec) => store.compressed(codec),
            None => store,
        }
    }

    /// Bytes of a block. Compressed memory returns small blocks as fast as large blocks, and each
    /// small block brings fewer unneeded bytes.
    pub fn block_bytes(&self) -> usize {
        let default = if self.ram().0 > 0 { SMALL_BLOCK } else { crate::DEFAULT_BLOCK };
        self.block.map_or(default.max(page_size()).max(self.least_to_compress()), |size| size.0 as usize)
    }

    /// Bytes of the smallest blocks that all stores can compress; 0: nothing is compressed.
    pub(crate) fn least_to_compress(&self) -> usize {
        let units = self.stores.iter().filter(|_| self.compress.is_some()).map(|store| store.unit(0));
        2 * units.max().unwrap_or(0)
    }

    /// Whether blocks may be split: a given size holds for the whole run.
    pub fn splits(&self) -> bool {
        self.block.is_none()
    }

    /// Bytes of the smallest possible blocks: after a split, if blocks may be split.
    pub fn least_block_bytes(&self) -> usize {
        let block = self.block_bytes();
        if self.splits() { block.min(crate::SPLIT_BLOCK.max(page_size())) } else { block }
    }

    /// Only a shared budget follows the free memory: with `auto`, each process that has a budget of
    /// its own has half of the memory.
    #[must_use]
    pub fn settled(mut self) -> Settings {
        if self.per_process && self.memory.is_auto {
            self.memory = Budget { size: Size(self.memory.size.0 / 2), is_auto: false };
        }
        self
    }

    /// The most bytes of the budget that stores in memory use.
    pub fn ram(&self) -> Size {
        Size(self.stores.iter().map(|store| store.ram_bytes()).sum())
    }

    /// Reads the variables of [`to_variables`](Self::to_variables). A variable that is missing or
    /// empty means the default.
    ///
    /// The names of policies, and whether stores can be used, are not checked here.
    pub fn from_variables(
        stores: &dyn Stores,
        get: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, Error> {
        Ok(Partial::from_variables(&get)?.with_defaults(stores, &get)?.settled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::AnyStore;
    use crate::{Codec, Heap, Io, Placement, SETTINGS, StoreSize};
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
            ((1u64 << 20)..1 << 62).prop_map(|bytes| StoreSpec::Ram(Size(bytes))),
            proptest::collection::vec(leaf.clone(), 2..4).prop_map(StoreSpec::Tier),
            proptest::collection::vec(leaf, 2..4).prop_map(StoreSpec::Mirror),
        ]
    }

    prop_compose! {
        fn settings()(
            memory in (1u64 << 20)..1 << 62,
            stores in proptest::collection::vec(store(), 1..5),
            placement in select(Placement::ALL),
            bytes in proptest::option::of(((1u64 << 20)..1 << 62).prop_map(Size)),
            block in proptest::option::of((12u32..=21).prop_map(|shift| Size(1 << shift))),
            names in ("[^\x00]{1,9}", "[^\x00]{1,9}"),
            (heap, io) in (select(Heap::ALL), select(Io::ALL)),
            switches in any::<[bool; 4]>(),
            encrypt in any::<Option<bool>>(),
            files in (proptest::option::of(path()), proptest::option::of(path())),
            compress in proptest::option::of(codec()),
        ) -> Settings {
            // tests/table.rs varies settings that are added later, by their entries.
            #[allow(clippy::needless_update)]
            let settings = Settings {
                memory: Budget { size: Size(memory), is_auto: false }, stores, placement, block, compress,
                store_size: StoreSize { bytes, strict: switches[3] },
                policy: names.0, prefetch: names.1, io, heap,
                verify: switches[0], verbose: switches[1], encrypt, per_process: switches[2],
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

    #[test]
    fn absent_variables_get_defaults() {
        let settings = Settings::from_variables(&AnyStore, |_| None).unwrap();
        assert_eq!((&*settings.policy, &*settings.prefetch, settings.block), ("auto", "auto", None));
        let all = crate::memory_bytes().unwrap();
        assert_eq!((settings.memory.size.0, settings.memory.is_auto), (all, true));
    }
}
