//! The keys of a pager on a server: `[prefix:]tp:{NNNNNNNNNNNNNNNN.EEEEEE}` for each value, one
//! registry key, and a set of all namespaces.
//!
//! All names are computed and have one length, so that none must be searched for. No key has a time
//! to live: a program that is stopped for a day keeps its blocks.

use std::fmt::Write as _;
use std::io::{Error, Result};

/// A pager's part of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    prefix: String,
    id: u64,
}

impl Namespace {
    /// A new namespace with a unique number.
    ///
    /// # Errors
    /// The kernel provides no random bytes.
    pub fn new(prefix: &str) -> Result<Namespace> {
        Ok(Namespace { prefix: prefix.to_owned(), id: random()? })
    }

    /// The namespace of this number.
    pub fn of(prefix: &str, id: u64) -> Namespace {
        Namespace { prefix: prefix.to_owned(), id }
    }

    /// Its number as in its keys.
    pub fn name(&self) -> String {
        format!("{:016x}", self.id)
    }

    /// The key of a value.
    pub fn value(&self, extent: u32) -> Vec<u8> {
        key(&self.prefix, &format!("{{{:016x}.{extent:06x}}}", self.id))
    }

    /// The key of its description: its holders, and the number of its values.
    pub fn registry(&self) -> Vec<u8> {
        key(&self.prefix, &format!("{{{:016x}}}", self.id))
    }

    /// The key of its removers' lock.
    pub fn sweeper(&self) -> Vec<u8> {
        key(&self.prefix, &format!("sweep:{{{:016x}}}", self.id))
    }
}

/// The key of the set of all namespaces.
pub fn all(prefix: &str) -> Vec<u8> {
    key(prefix, "all")
}

/// The key that says that the server is to be emptied, if it is there.
pub fn drain(prefix: &str) -> Vec<u8> {
    key(prefix, "drain")
}

/// The key that rights are tried on.
pub fn probe(prefix: &str, id: u64) -> Vec<u8> {
    key(prefix, &format!("probe:{id:016x}"))
}

/// A unique number.
pub fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: this number of bytes may be written there. So few bytes come completely or not at
    // all.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == bytes.len() as isize { Ok(u64::from_ne_bytes(bytes)) } else { Err(Error::last_os_error()) }
}

fn key(prefix: &str, rest: &str) -> Vec<u8> {
    let mut key = String::with_capacity(prefix.len() + 40);
    if !prefix.is_empty() {
        write!(key, "{prefix}:").expect("a text takes it");
    }
    write!(key, "tp:{rest}").expect("a text takes it");
    key.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_computed_and_have_one_length() {
        let space = Namespace::of("team1", 0xabc);
        assert_eq!(space.value(0x12), b"team1:tp:{0000000000000abc.000012}");
        assert_eq!(space.value(0xffff).len(), space.value(0).len());
        assert_eq!(space.registry(), b"team1:tp:{0000000000000abc}");
        assert_eq!(Namespace::of("", 1).registry(), b"tp:{0000000000000001}");
        assert_eq!(all("t"), b"t:tp:all");
        assert_ne!(Namespace::new("").unwrap(), Namespace::new("").unwrap());
    }
}
