//! Opens stores by their settings.

use crate::common::member::directory_of;
use crate::{
    Compressed, Delayed, Encrypted, Error, Faults, Faulty, FileStore, Mirror, Packed, Placement, Spare,
    Store, Striped, Tier, Tiered,
};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use terapage_config::{Settings, StoreSpec, default_store};

/// Terms that are the same for all parts of a store.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Bytes of a slot.
    pub block: usize,
    /// Bytes of the slots into which slots may be split later; those of a slot: they never are.
    pub least: usize,
    /// The bytes that the store reserves at once and never exceeds; `None`: it grows.
    pub limit: Option<u64>,
    /// Whether growing stores leave a part of their disks free.
    pub leaves: bool,
}

/// Opens a store by its URL.
pub type OpenUrl = fn(&str, Terms) -> Result<Box<dyn Store>, Error>;

/// Knowledge about remote stores, by their URLs.
#[derive(Clone, Copy)]
pub struct Elsewhere {
    /// Why the store is impossible, in one line that begins with its name.
    pub check: fn(&str) -> Result<(), String>,
    /// Whether a store that was checked gave no answer, and may come back.
    pub is_absent: fn(&str) -> bool,
    /// Has a line told to the user before the program begins.
    pub warn: fn(String),
    /// The servers behind a checked store, each with a unique name.
    pub servers: fn(&str) -> Vec<String>,
    /// Of a store that is a spare of a mirror: how long a copy does not answer before the spare
    /// replaces it.
    pub spare: fn(&str) -> Option<Duration>,
    /// Opens it.
    pub open: OpenUrl,
    /// Whether the store gets only ciphertext: according to the URL, or, if the second argument is
    /// true, to its place.
    pub wants_cipher: fn(&str, bool) -> bool,
}

/// All kinds of stores that there are.
#[derive(Clone, Copy)]
pub struct Shelf {
    /// Knowledge about remote stores.
    pub elsewhere: Elsewhere,
    /// Faults, for tests: in each store, or in the first copy of each mirror.
    pub faults: Option<Faults>,
}

impl Default for Shelf {
    /// With nothing elsewhere.
    fn default() -> Shelf {
        Shelf {
            elsewhere: Elsewhere {
                check: |url| Err(format!("{url} {}", unknown(url))),
                is_absent: |_| false,
                warn: |_| {},
                servers: |_| Vec::new(),
                spare: |_| None,
                open: |url, _| Err(Error::Unfit { name: url.to_owned(), why: unknown(url) }),
                wants_cipher: |_, _| false,
            },
            faults: None,
        }
    }
}

fn unknown(url: &str) -> String {
    let kind = url.split(':').next().unwrap_or_default();
    format!("cannot be used: stores of kind '{kind}:' are unknown (name a directory on a disk)")
}

impl Shelf {
    /// Opens a store.
    ///
    /// # Errors
    /// The store is not available, or has no room for the limit.
    pub fn open(&self, spec: &StoreSpec, terms: Terms) -> Result<Box<dyn Store>, Error> {
        Ok(match spec {
            StoreSpec::File(path) => {
                let store = FileStore::open(path, terms.block, terms.limit)?;
                Box::new(if terms.leaves { store.leaving_some() } else { store })
            }
            StoreSpec::Mirror(copies) => {
                let spares = copies.iter().filter_map(|copy| Some((copy, self.spare_after(copy)?)));
                let spares =
                    spares.map(|(spare, after)| Ok(Spare { store: self.open(spare, terms)?, after }));
                let spares = spares.collect::<Result<Vec<_>, Error>>()?;
                let copies = copies.iter().filter(|copy| self.spare_after(copy).is_none());
                let copies = copies.map(|copy| self.open(copy, terms));
                let mut copies = copies.collect::<Result<Vec<_>, _>>()?;
                if let Some(faults) = self.faults.filter(|faults| faults.copy != 0) {
                    let bad = copies.remove(0);
                    copies.insert(0, Box::new(Faulty::new(bad, faults, 1)));
                }
                Box::new(Mirror::with_spares(copies, spares, terms.block)?.splitting_to(terms.least))
            }
            StoreSpec::Tier(tiers) => Box::new(Tiered::new(self.open_tiers(tiers, terms)?, terms.block)?),
            StoreSpec::Ram(size) => Box::new(Packed::new(terms.block, size.0, false)?),
            StoreSpec::Encrypted(inner) => {
                let inner = self.with_faults(self.open(inner, terms)?);
                Box::new(Encrypted::new(inner, terms.block)?.splitting_to(terms.least))
            }
            StoreSpec::Compressed(codec, inner) => {
                let unit = inner.unit(terms.block);
                let store = self.open(inner, Terms { block: unit, least: unit, ..terms })?;
                let store = if has_faults(inner) { store } else { self.with_faults(store) };
                Box::new(Compressed::new(store, terms.block, unit, *codec)?)
            }
            StoreSpec::Url(url) => (self.elsewhere.open)(url, terms)?,
        })
    }

    /// Of a spare: how long a copy does not answer before the spare replaces it.
    pub(crate) fn spare_after(&self, spec: &StoreSpec) -> Option<Duration> {
        match spec {
            StoreSpec::Url(url) => (self.elsewhere.spare)(url),
            _ => None,
        }
    }

    /// Memory passes on blocks that do not compress: there is another store after it.
    fn open_tiers(&self, tiers: &[StoreSpec], terms: Terms) -> Result<Vec<Tier>, Error> {
        let open = |(index, tier): (usize, &StoreSpec)| {
            Ok(match tier {
                StoreSpec::Ram(size) if index + 1 < tiers.len() => {
                    Tier { store: Box::new(Packed::new(terms.block, size.0, true)?), choosy: true }
                }
                other => Tier { store: self.open(other, terms)?, choosy: false },
            })
        };
        tiers.iter().enumerate().map(open).collect()
    }

    /// Opens several stores as one, with its faults.
    fn open_all(
        &self,
        specs: &[StoreSpec],
        placement: Placement,
        terms: Terms,
    ) -> Result<Box<dyn Store>, Error> {
        let store = self.open_right(specs, placement, terms)?;
        let inside = specs.iter().all(has_faults);
        Ok(if inside { store } else { self.with_faults(store) })
    }

    /// A store with its faults: if it changes the bytes, the faults lie below it.
    fn with_faults(&self, store: Box<dyn Store>) -> Box<dyn Store> {
        let Some(faults) = self.faults.filter(|faults| faults.copy == 0) else { return store };
        let store: Box<dyn Store> = match faults.operations {
            0 => store,
            most => Box::new(Delayed::limited(store, most)),
        };
        Box::new(Faulty::new(store, faults, 1))
    }

    fn open_right(
        &self,
        specs: &[StoreSpec],
        placement: Placement,
        terms: Terms,
    ) -> Result<Box<dyn Store>, Error> {
        if let [spec] = specs {
            return self.open(spec, terms);
        }
        let each = Terms { limit: None, ..terms };
        let stores = specs.iter().map(|spec| self.open(spec, each)).collect::<Result<_, _>>()?;
        Ok(Box::new(Striped::new(stores, placement, terms.block, terms.limit)?))
    }

    /// Makes a function that opens the stores of a process in blocks of `block` bytes, and later
    /// those of its forked children. A device belongs only to the parent; children keep their
    /// blocks in the directories of its other stores, or in the default one.
    pub fn opener(
        self,
        settings: &Settings,
        block: usize,
    ) -> impl Fn() -> Result<Box<dyn Store>, Error> + Send + Sync + use<> {
        let placement = match settings.placement {
            terapage_config::Placement::RoundRobin => Placement::RoundRobin,
            terapage_config::Placement::Simple => Placement::Simple,
        };
        let terms = Terms {
            block,
            least: settings.least_block_bytes().min(block),
            limit: settings.store_size.bytes.map(|size| size.0),
            leaves: settings.store_size.bytes.is_none(),
        };
        let specs = settings.specs(&self);
        let encrypt = specs.iter().any(is_encrypted);
        let compress = settings.compress;
        let for_children: Vec<_> = specs.iter().filter_map(of_child).collect();
        let first = AtomicBool::new(true);
        move || {
            if first.swap(false, Relaxed) {
                return self.open_all(&specs, placement, terms);
            }
            let mut specs = for_children.clone();
            if specs.is_empty() {
                let store = default_store(&self, &|_: &str| None).ok();
                let store = store.map(|store| if encrypt { store.encrypted() } else { store });
                specs.extend(store.map(|store| match compress {
                    Some(codec) => store.compressed(codec),
                    None => store,
                }));
            }
            self.open_all(&specs, placement, terms)
        }
    }
}

fn is_encrypted(spec: &StoreSpec) -> bool {
    match spec {
        StoreSpec::Encrypted(_) => true,
        StoreSpec::Compressed(_, inner) => is_encrypted(inner),
        StoreSpec::Tier(tiers) => tiers.iter().any(is_encrypted),
        _ => false,
    }
}

/// Whether the code that opens the store adds faults to it.
fn has_faults(spec: &StoreSpec) -> bool {
    match spec {
        StoreSpec::Encrypted(_) | StoreSpec::Compressed(..) => true,
        StoreSpec::Tier(tiers) => tiers.iter().any(has_faults),
        _ => false,
    }
}

/// The store of forked children for a store of their parent.
fn of_child(spec: &StoreSpec) -> Option<StoreSpec> {
    match spec {
        StoreSpec::File(path) => Some(StoreSpec::File(directory_of(path).ok().flatten()?)),
        StoreSpec::Mirror(copies) => {
            let mut copies: Vec<_> = copies.iter().filter_map(of_child).collect();
            if copies.len() > 1 { Some(StoreSpec::Mirror(copies)) } else { copies.pop() }
        }
        StoreSpec::Tier(tiers) => {
            let mut tiers: Vec<_> = tiers.iter().filter_map(of_child).collect();
            // Memory alone would become full: the default store replaces it.
            tiers.iter().any(|tier| !matches!(tier, StoreSpec::Ram(_))).then_some(())?;
            if tiers.len() > 1 { Some(StoreSpec::Tier(tiers)) } else { tiers.pop() }
        }
        StoreSpec::Ram(size) => Some(StoreSpec::Ram(*size)),
        StoreSpec::Encrypted(inner) => Some(StoreSpec::Encrypted(Box::new(of_child(inner)?))),
        StoreSpec::Compressed(codec, inner) => {
            Some(StoreSpec::Compressed(*codec, Box::new(of_child(inner)?)))
        }
        StoreSpec::Url(url) => Some(StoreSpec::Url(url.clone())),
    }
}
