//! Stores, as text.

use crate::{Error, Size};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A store, as named by `--store`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSpec {
    /// A directory, an empty file or a block device: `PATH` or `file:PATH`.
    File(PathBuf),
    /// A mirror, which keeps the same bytes in each of several stores: `mirror:A+B`.
    Mirror(Vec<StoreSpec>),
    /// A store that gets only ciphertext: see [`Settings::specs`](crate::Settings::specs).
    Encrypted(Box<StoreSpec>),
    /// A store that gets compressed blocks: see [`Settings::specs`](crate::Settings::specs).
    Compressed(Codec, Box<StoreSpec>),
    /// Several in order, the fastest first: `tier:A+B`.
    Tier(Vec<StoreSpec>),
    /// Memory with this number of bytes, compressed: `ram:SIZE`.
    Ram(Size),
    /// A store elsewhere: `KIND://...`.
    Url(String),
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// LZ4: fast.
    Lz4,
    /// Zstandard, at a level from 1 to 9: smaller, and several times slower.
    Zstd(u8),
}

impl Codec {
    /// The highest level of Zstandard: higher levels need much memory, and more time than a disk.
    pub const LEVEL_MAX: u8 = 9;

    /// Reads `lz4`, `zstd` or `zstd:LEVEL`. The error says in one line what is wrong.
    pub fn parse(text: &str) -> Result<Codec, String> {
        let level = match text.split_once(':').map_or((text, "1"), |(name, level)| (name, level)) {
            ("lz4", _) if text == "lz4" => return Ok(Codec::Lz4),
            ("zstd", level) => level.parse().ok().filter(|level| (1..=Codec::LEVEL_MAX).contains(level)),
            _ => None,
        };
        let shown = text.escape_debug();
        level.map(Codec::Zstd).ok_or_else(|| {
            format!(
                "'{shown}' is not a way to compress (write lz4, zstd, or zstd:LEVEL from 1 to {})",
                Codec::LEVEL_MAX
            )
        })
    }

    /// The text from which [`parse`](Self::parse) reads this value.
    pub fn to_text(self) -> String {
        match self {
            Codec::Lz4 => "lz4".to_owned(),
            Codec::Zstd(level) => format!("zstd:{level}"),
        }
    }
}

/// The least units of compressed blocks: in memory elsewhere, and on disks, where I/O past the page
/// cache needs whole pages; and the most units of a block, unless these are smaller.
const FAR_UNIT: usize = 1024;
const DISK_UNIT: usize = 4096;
const UNITS: usize = 16;

/// Knowledge about stores, from a crate that can open them.
pub trait Stores {
    /// Checks that the store can be used.
    ///
    /// # Errors
    /// It cannot. The text says in one line what is wrong and what to do, and begins with the
    /// store's name.
    fn check(&self, store: &StoreSpec) -> Result<(), String>;

    /// Bytes that are free now for all these stores together; `None` if that is unknown, or if
    /// their size is fixed.
    fn room(&self, stores: &[StoreSpec]) -> Option<u64>;

    /// Whether a remote store gets only ciphertext: according to its URL, or, `by_default`, to its
    /// place.
    fn wants_cipher(&self, _url: &str, _by_default: bool) -> bool {
        false
    }
}

impl StoreSpec {
    /// Reads `PATH`, `file:PATH`, `mirror:A+B`, `tier:A+B`, `ram:SIZE` or `KIND://...`. The error
    /// says in one line what is wrong.
    pub fn parse(text: &OsStr) -> Result<StoreSpec, String> {
        let bytes = text.as_bytes();
        let path = match bytes.iter().position(|&b| b == b':') {
            Some(at) if is_scheme(&bytes[..at]) => match &bytes[..at] {
                b"file" => &bytes[at + 1..],
                b"mirror" => return mirror(&bytes[at + 1..]),
                b"tier" => return tier(&bytes[at + 1..]),
                b"ram" => return ram(&text.to_string_lossy()[at + 1..]),
                b"far" => return Err("a memory server is named as in valkey://HOST:PORT".to_owned()),
                scheme => {
                    let shown = text.to_string_lossy();
                    let shown = shown.escape_debug();
                    if bytes[at + 1..].starts_with(b"//") {
                        let url = text.to_str().filter(|url| !url.contains(char::is_control));
                        let no = || format!("'{shown}' holds characters that no address has");
                        return url.map(|url| StoreSpec::Url(url.to_owned())).ok_or_else(no);
                    }
                    let scheme = String::from_utf8_lossy(scheme);
                    return Err(format!(
                        "stores of kind '{scheme}:' are unknown (for a path write file:{shown})"
                    ));
                }
            },
            _ => bytes,
        };
        if path.is_empty() {
            return Err("the path is empty (name a directory, an empty file or a block device)".to_owned());
        }
        Ok(StoreSpec::File(OsStr::from_bytes(path).into()))
    }

    /// The text from which [`parse`](Self::parse) reads this store, without encryption and
    /// compression.
    pub fn to_text(&self) -> OsString {
        match self {
            StoreSpec::File(path) => {
                let mut text = OsString::from("file:");
                text.push(path);
                text
            }
            StoreSpec::Mirror(copies) => joined("mirror:", copies),
            StoreSpec::Tier(tiers) => joined("tier:", tiers),
            StoreSpec::Ram(size) => format!("ram:{}", size.0).into(),
            StoreSpec::Encrypted(inner) | StoreSpec::Compressed(_, inner) => inner.to_text(),
            StoreSpec::Url(url) => url.into(),
        }
    }

    /// Whether a part of the store is remote.
    pub fn is_far(&self) -> bool {
        match self {
            StoreSpec::File(_) | StoreSpec::Ram(_) => false,
            StoreSpec::Mirror(parts) | StoreSpec::Tier(parts) => parts.iter().any(StoreSpec::is_far),
            StoreSpec::Encrypted(inner) | StoreSpec::Compressed(_, inner) => inner.is_far(),
            StoreSpec::Url(_) => true,
        }
    }

    /// The URLs in the store's name.
    pub fn urls(&self) -> Vec<&str> {
        match self {
            StoreSpec::File(_) | StoreSpec::Ram(_) => Vec::new(),
            StoreSpec::Mirror(parts) | StoreSpec::Tier(parts) => {
                parts.iter().flat_map(StoreSpec::urls).collect()
            }
            StoreSpec::Encrypted(inner) | StoreSpec::Compressed(_, inner) => inner.urls(),
            StoreSpec::Url(url) => vec![url],
        }
    }

    /// The same store with each URL replaced.
    ///
    /// # Errors
    /// An error of the map.
    pub fn map_urls<E>(self, map: &mut impl FnMut(&str) -> Result<String, E>) -> Result<StoreSpec, E> {
        let mut all = |parts: Vec<StoreSpec>| -> Result<Vec<StoreSpec>, E> {
            parts.into_iter().map(|part| part.map_urls(map)).collect()
        };
        Ok(match self {
            StoreSpec::File(_) | StoreSpec::Ram(_) => self,
            StoreSpec::Mirror(copies) => StoreSpec::Mirror(all(copies)?),
            StoreSpec::Tier(tiers) => StoreSpec::Tier(all(tiers)?),
            StoreSpec::Encrypted(inner) => StoreSpec::Encrypted(Box::new(inner.map_urls(map)?)),
            StoreSpec::Compressed(codec, inner) => {
                StoreSpec::Compressed(codec, Box::new(inner.map_urls(map)?))
            }
            StoreSpec::Url(url) => StoreSpec::Url(map(&url)?),
        })
    }

    /// The same store, which gets only ciphertext; a store is not encrypted twice. Stores in memory
    /// are not encrypted.
    pub fn encrypted(self) -> StoreSpec {
        match self {
            StoreSpec::Encrypted(_) | StoreSpec::Ram(_) => self,
            StoreSpec::Tier(tiers) => StoreSpec::Tier(tiers.into_iter().map(StoreSpec::encrypted).collect()),
            // Ciphertext does not compress.
            StoreSpec::Compressed(codec, inner) => StoreSpec::Compressed(codec, Box::new(inner.encrypted())),
            other => StoreSpec::Encrypted(Box::new(other)),
        }
    }

    /// The same store, with only ciphertext in those parts for one of whose URLs `wants` is true;
    /// for a mirror in all copies, so that each block is encrypted once.
    pub(crate) fn encrypted_where(self, wants: &impl Fn(&str) -> bool) -> StoreSpec {
        match self {
            StoreSpec::Tier(tiers) => {
                StoreSpec::Tier(tiers.into_iter().map(|tier| tier.encrypted_where(wants)).collect())
            }
            StoreSpec::Compressed(codec, inner) => {
                StoreSpec::Compressed(codec, Box::new(inner.encrypted_where(wants)))
            }
            other if other.shows(wants) => other.encrypted(),
            other => other,
        }
    }

    /// Whether plain blocks go to a URL that wants ciphertext.
    fn shows(&self, wants: &impl Fn(&str) -> bool) -> bool {
        match self {
            StoreSpec::File(_) | StoreSpec::Ram(_) | StoreSpec::Encrypted(_) => false,
            StoreSpec::Mirror(parts) | StoreSpec::Tier(parts) => parts.iter().any(|part| part.shows(wants)),
            StoreSpec::Compressed(_, inner) => inner.shows(wants),
            StoreSpec::Url(url) => wants(url),
        }
    }

    /// The same store, with compressed blocks; a store is not compressed twice, and memory already
    /// compresses its blocks.
    pub fn compressed(self, codec: Codec) -> StoreSpec {
        match self {
            StoreSpec::Compressed(..) | StoreSpec::Ram(_) => self,
            StoreSpec::Tier(tiers) => {
                StoreSpec::Tier(tiers.into_iter().map(|tier| tier.compressed(codec)).collect())
            }
            other => StoreSpec::Compressed(codec, Box::new(other)),
        }
    }

    /// Bytes of a unit in which the store keeps compressed blocks of `block` bytes, of which each
    /// needs two or more.
    pub fn unit(&self, block: usize) -> usize {
        (block / UNITS).max(if self.paths().is_empty() { FAR_UNIT } else { DISK_UNIT })
    }

    /// Bytes of memory that the store uses.
    pub(crate) fn ram_bytes(&self) -> u64 {
        match self {
            StoreSpec::Ram(size) => size.0,
            StoreSpec::Tier(tiers) => tiers.iter().map(StoreSpec::ram_bytes).sum(),
            _ => 0,
        }
    }

    /// The paths in the store's name.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            StoreSpec::File(path) => vec![path],
            StoreSpec::Mirror(inner) | StoreSpec::Tier(inner) => {
                inner.iter().flat_map(StoreSpec::paths).collect()
            }
            StoreSpec::Encrypted(inner) | StoreSpec::Compressed(_, inner) => inner.paths(),
            StoreSpec::Ram(_) | StoreSpec::Url(_) => Vec::new(),
        }
    }

    /// The store with each path replaced.
    pub(crate) fn map_paths<E>(
        self,
        map: &mut impl FnMut(PathBuf) -> Result<PathBuf, E>,
    ) -> Result<StoreSpec, E> {
        Ok(match self {
            StoreSpec::File(path) => StoreSpec::File(map(path)?),
            StoreSpec::Mirror(copies) => {
                let copies = copies.into_iter().map(|copy| copy.map_paths(map));
                StoreSpec::Mirror(copies.collect::<Result<_, E>>()?)
            }
            StoreSpec::Tier(tiers) => {
                let tiers = tiers.into_iter().map(|tier| tier.map_paths(map));
                StoreSpec::Tier(tiers.collect::<Result<_, E>>()?)
            }
            StoreSpec::Ram(size) => StoreSpec::Ram(size),
            StoreSpec::Encrypted(inner) => StoreSpec::Encrypted(Box::new(inner.map_paths(map)?)),
            StoreSpec::Compressed(codec, inner) => {
                StoreSpec::Compressed(codec, Box::new(inner.map_paths(map)?))
            }
            StoreSpec::Url(url) => StoreSpec::Url(url),
        })
    }
}

/// Joins stores with plus signs; a plus sign in a store's own text is doubled.
fn joined(prefix: &str, stores: &[StoreSpec]) -> OsString {
    let mut text = prefix.as_bytes().to_vec();
    for (i, store) in stores.iter().enumerate() {
        if i > 0 {
            text.push(b'+');
        }
        for &byte in store.to_text().as_bytes() {
            text.extend(if byte == b'+' { &b"++"[..] } else { std::slice::from_ref(&byte) });
        }
    }
    OsString::from_vec(text)
}

/// Reads `A+B`; a plus sign in a path is doubled. `None`: there are fewer than two.
fn several(bytes: &[u8]) -> Option<Result<Vec<StoreSpec>, String>> {
    let (mut stores, mut store, mut rest) = (Vec::new(), Vec::new(), bytes.iter().peekable());
    while let Some(&byte) = rest.next() {
        if byte != b'+' {
            store.push(byte);
        } else if rest.next_if_eq(&&b'+').is_some() {
            store.push(b'+');
        } else {
            stores.push(std::mem::take(&mut store));
        }
    }
    stores.push(store);
    if stores.len() < 2 || stores.iter().any(Vec::is_empty) {
        return None;
    }
    Some(stores.iter().map(|store| StoreSpec::parse(OsStr::from_bytes(store))).collect())
}

fn mirror(bytes: &[u8]) -> Result<StoreSpec, String> {
    let few = "a mirror needs two stores or more, as in mirror:/mnt/nvme0+/mnt/nvme1";
    let copies = several(bytes).ok_or(few)??;
    if copies.iter().any(|copy| matches!(copy, StoreSpec::Mirror(_))) {
        return Err("a mirror within a mirror is the same as one mirror (write mirror:A+B+C)".to_owned());
    }
    if copies.iter().any(|copy| copy.ram_bytes() > 0) {
        return Err("a mirror has no copy in memory (write tier:ram:2G+mirror:A++B)".to_owned());
    }
    let is_list = |url: &&str| url.split(':').next().is_some_and(|scheme| scheme.ends_with("+list"));
    if copies.iter().any(|copy| copy.urls().iter().any(is_list)) {
        return Err("a list of servers is no copy of a mirror (name the servers themselves)".to_owned());
    }
    Ok(StoreSpec::Mirror(copies))
}

fn tier(bytes: &[u8]) -> Result<StoreSpec, String> {
    let few = "tiers are two stores or more, the fastest first, as in tier:ram:2G+/mnt/nvme0";
    let tiers = several(bytes).ok_or(few)??;
    if tiers.iter().any(|tier| matches!(tier, StoreSpec::Tier(_))) {
        return Err("tiers within tiers are the same as one list of tiers (write tier:A+B+C)".to_owned());
    }
    Ok(StoreSpec::Tier(tiers))
}

/// The smallest memory that can be a store, bytes.
const RAM_MIN: Size = Size(1 << 20);

fn ram(text: &str) -> Result<StoreSpec, String> {
    let size: Size = text.parse().map_err(|error| format!("{error} (write ram:2G)"))?;
    if size < RAM_MIN {
        return Err(format!("ram:{text} is less than the minimum of {RAM_MIN} (write ram:2G)"));
    }
    Ok(StoreSpec::Ram(size))
}

/// Checks that there is room now for stores of this size.
pub(crate) fn check_room(known: &dyn Stores, stores: &[StoreSpec], size: Size) -> Result<(), Error> {
    match known.room(stores) {
        Some(room) if size.0 > room => {
            let free = Size(room);
            let why = format!(
                "{size} is more than the {free} that are free there (free some, or name \
                         another --store)"
            );
            Err(Error::Value { name: "store-size".to_owned(), why })
        }
        _ => Ok(()),
    }
}

/// Whether a word before a colon is a kind of store, not part of a path.
fn is_scheme(word: &[u8]) -> bool {
    word.first().is_some_and(u8::is_ascii_lowercase)
        && word.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-".contains(b))
}

/// The first of `$TMPDIR`, `/var/tmp`, `/tmp` and the current directory that can be a store.
pub fn default_store(
    known: &dyn Stores,
    get: &impl Fn(&str) -> Option<OsString>,
) -> Result<StoreSpec, Error> {
    let mut tried = Vec::new();
    let temporary = get("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let here = std::env::current_dir().ok();
    let fixed = ["/var/tmp", "/tmp"].map(PathBuf::from);
    for directory in temporary.into_iter().chain(fixed).chain(here) {
        let is_directory = directory.is_dir();
        let shown = directory.display().to_string();
        let store = StoreSpec::File(directory);
        if is_directory && known.check(&store).is_ok() {
            return Ok(store);
        }
        tried.push(shown);
    }
    Err(Error::Value {
        name: "store".to_owned(),
        why: format!(
            "none of {} is a writable directory on a disk (name one with --store)",
            tried.join(", ")
        ),
    })
}

/// Joins stores with newlines. A newline or backslash in a path is escaped.
pub(crate) fn join(stores: &[StoreSpec]) -> OsString {
    let mut joined = Vec::new();
    for (i, store) in stores.iter().enumerate() {
        if i > 0 {
            joined.push(b'\n');
        }
        for &byte in store.to_text().as_bytes() {
            match byte {
                b'\n' => joined.extend_from_slice(b"\\n"),
                b'\\' => joined.extend_from_slice(b"\\\\"),
                _ => joined.push(byte),
            }
        }
    }
    OsString::from_vec(joined)
}

/// Splits the text of [`join`]. Empty lines are ignored.
pub(crate) fn split(joined: &OsStr) -> Result<Vec<StoreSpec>, String> {
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
            StoreSpec::parse(OsStr::from_bytes(&path))
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// All directories can be stores, and have room for all.
    pub(crate) struct AnyStore;

    impl Stores for AnyStore {
        fn check(&self, _store: &StoreSpec) -> Result<(), String> {
            Ok(())
        }

        fn room(&self, _stores: &[StoreSpec]) -> Option<u64> {
            None
        }
    }

    #[test]
    fn a_store_is_a_path_or_a_known_kind() {
        let parse = |text: &str| StoreSpec::parse(OsStr::new(text));
        let file = |path: &str| Ok(StoreSpec::File(path.into()));
        assert_eq!(parse("/mnt/fast"), file("/mnt/fast"));
        assert_eq!(parse("file:/mnt/fast"), file("/mnt/fast"));
        assert_eq!(parse("/mnt/a:b"), file("/mnt/a:b"));
        assert_eq!(parse("/mnt/a+b"), file("/mnt/a+b"));
        assert_eq!(parse("valkey://host:1/2"), Ok(StoreSpec::Url("valkey://host:1/2".to_owned())));
        assert!(parse("far:host:1").unwrap_err().contains("valkey://"));
        assert!(parse("nfs:/x").unwrap_err().contains("'nfs:'"));
        assert!(parse("").is_err() && parse("file:").is_err());
    }

    #[test]
    fn a_mirror_is_two_stores_or_more() {
        let parse = |text: &str| StoreSpec::parse(OsStr::new(text));
        let file = |path: &str| StoreSpec::File(path.into());
        assert_eq!(parse("mirror:/a+file:/b"), Ok(StoreSpec::Mirror(vec![file("/a"), file("/b")])));
        assert_eq!(parse("mirror:/a+++/b"), Ok(StoreSpec::Mirror(vec![file("/a+"), file("/b")])));
        for text in ["mirror:", "mirror:/a", "mirror:/a+", "mirror:+/a", "mirror:/a+mirror:/b"] {
            let why = parse(text).unwrap_err();
            assert!(why.contains("mirror") && !why.contains('\n'), "{text}: {why}");
        }
    }

    #[test]
    fn tiers_may_begin_in_memory() {
        let parse = |text: &str| StoreSpec::parse(OsStr::new(text));
        let file = |path: &str| StoreSpec::File(path.into());
        let ram = StoreSpec::Ram(Size(2 << 30));
        let mirror = StoreSpec::Mirror(vec![file("/a"), file("/b")]);
        assert_eq!(parse("tier:ram:2G+/a"), Ok(StoreSpec::Tier(vec![ram.clone(), file("/a")])));
        let both = StoreSpec::Tier(vec![ram, mirror]);
        assert_eq!(parse("tier:ram:2G+mirror:/a++/b"), Ok(both.clone()));
        assert_eq!(StoreSpec::parse(&both.to_text()), Ok(both));
        for text in
            ["tier:", "tier:/a", "tier:/a+tier:/b", "ram:", "ram:x", "ram:auto", "ram:4K", "mirror:/a+ram:1G"]
        {
            let why = parse(text).unwrap_err();
            assert!(!why.contains('\n'), "{text}: {why}");
        }
    }

    #[test]
    fn encryption_is_around_what_leaves_memory_and_compression_around_encryption() {
        let file = |path: &str| StoreSpec::File(path.into());
        let encrypted = |inner| StoreSpec::Encrypted(Box::new(inner));
        let compressed = |inner| StoreSpec::Compressed(Codec::Lz4, Box::new(inner));
        assert_eq!(file("/a").encrypted().encrypted(), encrypted(file("/a")));
        let both = compressed(encrypted(file("/a")));
        assert_eq!(file("/a").encrypted().compressed(Codec::Lz4), both);
        assert_eq!(file("/a").compressed(Codec::Lz4).encrypted(), both);
        let ram = StoreSpec::Ram(Size(2 << 30));
        let tier = StoreSpec::Tier(vec![ram.clone(), file("/a")]);
        let dressed = tier.clone().encrypted().compressed(Codec::Lz4);
        assert_eq!(dressed, StoreSpec::Tier(vec![ram, both]));
        assert_eq!(dressed.to_text(), tier.to_text(), "the settings dress it again");
    }

    #[test]
    fn servers_that_want_it_get_ciphertext() {
        let parse = |text: &str| StoreSpec::parse(OsStr::new(text)).unwrap();
        let far = |url: &str| url.starts_with("valkey:");
        let where_far = |text: &str| parse(text).encrypted_where(&far);
        for text in ["/a", "valkeys://h", "ram:2G"] {
            assert_eq!(where_far(text), parse(text));
        }
        for text in ["valkey://h", "mirror:/a+valkey://h"] {
            assert_eq!(where_far(text), parse(text).encrypted(), "{text}");
        }
        let tiers = [parse("ram:2G"), parse("/a"), parse("valkey://h").encrypted()];
        assert_eq!(where_far("tier:ram:2G+/a+valkey://h"), StoreSpec::Tier(tiers.into()));
        let compressed = parse("valkey://h").compressed(Codec::Lz4);
        assert_eq!(compressed.clone().encrypted_where(&far), compressed.encrypted());
    }

    #[test]
    fn a_store_on_no_disk_is_passed_over() {
        struct OnlyTmp;
        impl Stores for OnlyTmp {
            fn check(&self, store: &StoreSpec) -> Result<(), String> {
                if *store == StoreSpec::File("/tmp".into()) { Ok(()) } else { Err(String::new()) }
            }

            fn room(&self, _stores: &[StoreSpec]) -> Option<u64> {
                None
            }
        }
        assert_eq!(default_store(&OnlyTmp, &|_: &str| None).unwrap(), StoreSpec::File("/tmp".into()));
    }
}
