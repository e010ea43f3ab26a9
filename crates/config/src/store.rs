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
    /// A mirror, with the same bytes in each of several stores: `mirror:A+B`.
    Mirror(Vec<StoreSpec>),
    /// Only ciphertext of what is kept: `encrypt:STORE`.
    Encrypted(Box<StoreSpec>),
    /// A store elsewhere: `KIND://...`.
    Url(String),
}

/// Knowledge about stores, from a crate that can open them.
pub trait Stores {
    /// Checks that the store can be used.
    ///
    /// # Errors
    /// It cannot. The text says in one line what is wrong and what to do, beginning with the
    /// store's name.
    fn check(&self, store: &StoreSpec) -> Result<(), String>;

    /// Bytes that are free now for all these stores together; `None` if that is not known, or their
    /// size is fixed.
    fn room(&self, stores: &[StoreSpec]) -> Option<u64>;
}

impl StoreSpec {
    /// Reads `PATH`, `file:PATH`, `mirror:A+B`, `encrypt:STORE` or `KIND://...`. The error says in one
    /// line what is wrong.
    pub fn parse(text: &OsStr) -> Result<StoreSpec, String> {
        let bytes = text.as_bytes();
        let path = match bytes.iter().position(|&b| b == b':') {
            Some(at) if is_scheme(&bytes[..at]) => match &bytes[..at] {
                b"file" => &bytes[at + 1..],
                b"mirror" => return mirror(&bytes[at + 1..]),
                b"encrypt" => return inside(&bytes[at + 1..]).map(StoreSpec::encrypted),
                b"far" => return Err("a memory server is named as in valkey://HOST:PORT".to_owned()),
                scheme => {
                    let shown = text.to_string_lossy();
                    let shown = shown.escape_debug();
                    if bytes[at + 1..].starts_with(b"//") {
                        let url = text.to_str().filter(|url| !url.contains(char::is_control));
                        let no = || format!("'{shown}' holds what no address can");
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

    /// The text from which [`parse`](Self::parse) reads this store.
    pub fn to_text(&self) -> OsString {
        match self {
            StoreSpec::File(path) => {
                let mut text = OsString::from("file:");
                text.push(path);
                text
            }
            StoreSpec::Mirror(copies) => {
                let mut text = b"mirror:".to_vec();
                for (i, copy) in copies.iter().enumerate() {
                    if i > 0 {
                        text.push(b'+');
                    }
                    for &byte in copy.to_text().as_bytes() {
                        text.extend(if byte == b'+' { &b"++"[..] } else { std::slice::from_ref(&byte) });
                    }
                }
                OsString::from_vec(text)
            }
            StoreSpec::Encrypted(inner) => prefixed("encrypt:", inner),
            StoreSpec::Url(url) => url.into(),
        }
    }

    /// Whether any of it lies elsewhere.
    pub fn is_far(&self) -> bool {
        match self {
            StoreSpec::File(_) => false,
            StoreSpec::Mirror(copies) => copies.iter().any(StoreSpec::is_far),
            StoreSpec::Encrypted(inner) => inner.is_far(),
            StoreSpec::Url(_) => true,
        }
    }

    /// The same with each URL made into another.
    ///
    /// # Errors
    /// What the map says.
    pub fn map_urls<E>(self, map: &mut impl FnMut(&str) -> Result<String, E>) -> Result<StoreSpec, E> {
        Ok(match self {
            StoreSpec::File(path) => StoreSpec::File(path),
            StoreSpec::Mirror(copies) => {
                let copies = copies.into_iter().map(|copy| copy.map_urls(map));
                StoreSpec::Mirror(copies.collect::<Result<_, E>>()?)
            }
            StoreSpec::Encrypted(inner) => StoreSpec::Encrypted(Box::new(inner.map_urls(map)?)),
            StoreSpec::Url(url) => StoreSpec::Url(map(&url)?),
        })
    }

    /// The same store, with only ciphertext; once is enough.
    pub fn encrypted(self) -> StoreSpec {
        match self {
            StoreSpec::Encrypted(_) => self,
            other => StoreSpec::Encrypted(Box::new(other)),
        }
    }

    /// The paths in the store's name.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            StoreSpec::File(path) => vec![path],
            StoreSpec::Mirror(copies) => copies.iter().flat_map(StoreSpec::paths).collect(),
            StoreSpec::Encrypted(inner) => inner.paths(),
            StoreSpec::Url(_) => Vec::new(),
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
            StoreSpec::Encrypted(inner) => StoreSpec::Encrypted(Box::new(inner.map_paths(map)?)),
            StoreSpec::Url(url) => StoreSpec::Url(url),
        })
    }
}

/// The store in another, as text.
fn inside(bytes: &[u8]) -> Result<StoreSpec, String> {
    if bytes.is_empty() {
        return Err("a store is missing behind the colon, as in encrypt:/mnt/nvme0".to_owned());
    }
    StoreSpec::parse(OsStr::from_bytes(bytes))
}

fn prefixed(prefix: &str, store: &StoreSpec) -> OsString {
    let mut text = OsString::from(prefix);
    text.push(store.to_text());
    text
}

/// Reads `A+B`; a plus sign in a path is written twice.
fn mirror(bytes: &[u8]) -> Result<StoreSpec, String> {
    let (mut copies, mut copy, mut rest) = (Vec::new(), Vec::new(), bytes.iter().peekable());
    while let Some(&byte) = rest.next() {
        if byte != b'+' {
            copy.push(byte);
        } else if rest.next_if_eq(&&b'+').is_some() {
            copy.push(b'+');
        } else {
            copies.push(std::mem::take(&mut copy));
        }
    }
    copies.push(copy);
    if copies.len() < 2 || copies.iter().any(Vec::is_empty) {
        return Err("a mirror needs two stores or more, as in mirror:/mnt/nvme0+/mnt/nvme1".to_owned());
    }
    let copies: Vec<_> =
        copies.iter().map(|copy| StoreSpec::parse(OsStr::from_bytes(copy))).collect::<Result<_, _>>()?;
    if copies.iter().any(|copy| matches!(copy, StoreSpec::Mirror(_))) {
        return Err("a mirror in a mirror is one mirror (write mirror:A+B+C)".to_owned());
    }
    Ok(StoreSpec::Mirror(copies))
}

/// Checks that there is room now for stores of this size.
pub(crate) fn check_room(known: &dyn Stores, stores: &[StoreSpec], size: Size) -> Result<(), Error> {
    match known.room(stores) {
        Some(room) if size.0 > room => {
            let free = Size(room);
            let why =
                format!("{size} is more than the {free} free there (free some, or name another --store)");
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
    fn a_store_may_have_another_in_it() {
        let parse = |text: &str| StoreSpec::parse(OsStr::new(text));
        let file = |path: &str| StoreSpec::File(path.into());
        let encrypted = |inner| StoreSpec::Encrypted(Box::new(inner));
        let mirror = StoreSpec::Mirror(vec![file("/a"), file("/b")]);
        assert_eq!(parse("encrypt:/a"), Ok(encrypted(file("/a"))));
        assert_eq!(parse("encrypt:encrypt:/a"), Ok(encrypted(file("/a"))));
        assert_eq!(parse("encrypt:mirror:/a+/b"), Ok(encrypted(mirror)));
        let copies = vec![encrypted(file("/a")), file("/b")];
        assert_eq!(parse("mirror:encrypt:/a+/b"), Ok(StoreSpec::Mirror(copies)));
        assert!(parse("encrypt:").unwrap_err().contains("a store is missing"));
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
