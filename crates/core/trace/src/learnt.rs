//! What one run of a program leaves to the next (`--learn`): for which pages its threads waited, in
//! order.
//!
//! The file, numbers little-endian: [`Learnt::MAGIC`]; the hash of the executable's path (8 bytes);
//! 1 if blocks were split, else 0 (4); the number of regions (4); their first page and pages (4
//! each); the number of keys (4); the keys (4 each); the hash of all before (8: xxh3, seed 0). A
//! key is the number of a page, counted through all regions in the order in which they were added.

use std::io::{self, Read};
use std::path::Path;
use twox_hash::XxHash3_64;

/// The most bytes of a file: 64 million keys.
const BYTES_MOST: u64 = 256 << 20;

/// What one run leaves to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// The hash of the executable's path.
    pub program: u64,
    /// Whether blocks were split.
    pub split: bool,
    /// The first page and the number of pages of each region, in the order in which they were
    /// added.
    pub regions: Vec<(u32, u32)>,
    /// The pages for which threads waited.
    pub keys: Vec<u32>,
}

impl Learnt {
    /// The first bytes of a file; the last one is the version.
    pub const MAGIC: [u8; 8] = *b"TERALRN\x01";

    /// The hash of an executable's path.
    pub fn program_of(executable: &Path) -> u64 {
        XxHash3_64::oneshot(executable.as_os_str().as_encoded_bytes())
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(40 + 8 * self.regions.len() + 4 * self.keys.len());
        bytes.extend(Self::MAGIC);
        bytes.extend(self.program.to_le_bytes());
        bytes.extend(u32::from(self.split).to_le_bytes());
        bytes.extend((self.regions.len() as u32).to_le_bytes());
        for (first, pages) in &self.regions {
            bytes.extend(first.to_le_bytes());
            bytes.extend(pages.to_le_bytes());
        }
        bytes.extend((self.keys.len() as u32).to_le_bytes());
        self.keys.iter().for_each(|key| bytes.extend(key.to_le_bytes()));
        bytes.extend(XxHash3_64::oneshot(&bytes).to_le_bytes());
        bytes
    }

    /// What `bytes` of a file say; `None` if they are not a whole file.
    pub fn from_bytes(bytes: &[u8]) -> Option<Learnt> {
        let (bytes, hash) = bytes.split_last_chunk()?;
        if XxHash3_64::oneshot(bytes) != u64::from_le_bytes(*hash) {
            return None;
        }
        let (magic, bytes) = bytes.split_first_chunk()?;
        let (program, mut bytes) = bytes.split_first_chunk()?;
        if *magic != Self::MAGIC {
            return None;
        }
        let mut word = || {
            let (word, rest) = bytes.split_first_chunk()?;
            bytes = rest;
            Some(u32::from_le_bytes(*word))
        };
        let split = word()? != 0;
        let regions = word()?;
        let regions = (0..regions).map(|_| Some((word()?, word()?))).collect::<Option<_>>()?;
        let count = word()?;
        let keys = (0..count).map(|_| word()).collect::<Option<_>>()?;
        bytes.is_empty().then(|| Learnt { program: u64::from_le_bytes(*program), split, regions, keys })
    }

    /// Reads a file; `None` if there is none, or an empty one.
    ///
    /// # Errors
    /// The file cannot be read, or is not one of `--learn`, whole: `InvalidData`.
    pub fn read(path: &Path) -> io::Result<Option<Learnt>> {
        let file = match std::fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(BYTES_MOST + 1).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let learnt = if bytes.len() as u64 > BYTES_MOST { None } else { Learnt::from_bytes(&bytes) };
        let why = "is no whole file of --learn (remove it, or name another file)";
        learnt.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// Replaces the file at once. If the file that is there is another program's, it stays.
    ///
    /// # Errors
    /// The file cannot be written; what was there before stays.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if let Ok(Some(other)) = Learnt::read(path)
            && other.program != self.program
        {
            return Ok(());
        }
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".new-{}", std::process::id()));
        let new = Path::new(&new);
        let written = std::fs::write(new, self.to_bytes()).and_then(|()| std::fs::rename(new, path));
        if written.is_err() {
            std::fs::remove_file(new).ok();
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::Learnt;
    use proptest::prelude::*;

    fn learnt() -> impl Strategy<Value = Learnt> {
        let regions = proptest::collection::vec(any::<(u32, u32)>(), 0..4);
        let keys = proptest::collection::vec(any::<u32>(), 0..50);
        (any::<u64>(), any::<bool>(), regions, keys).prop_map(|(program, split, regions, keys)| Learnt {
            program,
            split,
            regions,
            keys,
        })
    }

    proptest! {
        #[test]
        fn a_file_comes_back(learnt in learnt()) {
            prop_assert_eq!(Learnt::from_bytes(&learnt.to_bytes()), Some(learnt));
        }

        #[test]
        fn a_changed_or_cut_file_is_refused(learnt in learnt(), at in any::<prop::sample::Index>(), bit in 0..8) {
            let mut bytes = learnt.to_bytes();
            let at = at.index(bytes.len());
            prop_assert_eq!(Learnt::from_bytes(&bytes[..at]), None);
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(Learnt::from_bytes(&bytes), None);
        }
    }
}
