//! What one run of a program leaves to the next (`--learn`): for which pages its threads waited, in
//! order. The file is a trace of regions and major faults, whose blocks are pages.

use crate::{Error, Event, Header, Reader, Record, Writer};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

/// The most regions and keys of a file.
const RECORDS_MOST: usize = 64 << 20;

/// What one run leaves to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// The hash of the executable's path ([`Header::hash_of`]).
    pub program: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Whether blocks were split.
    pub split: bool,
    /// The first page and the number of pages of each region, in the order in which they were
    /// added.
    pub regions: Vec<(u32, u32)>,
    /// The pages for which threads waited, numbered through all regions.
    pub keys: Vec<u32>,
}

impl Misses {
    /// Writes the trace.
    ///
    /// # Errors
    /// `out` fails.
    pub fn write_to<W: Write>(&self, out: W) -> io::Result<W> {
        let header = Header {
            block_bytes: self.page_bytes,
            misses_only: true,
            is_split: self.split,
            executable: self.program,
            ..Header::default()
        };
        let mut writer = Writer::new(out, &header)?;
        let page_bytes = u64::from(self.page_bytes);
        let added =
            |&(first, pages)| Event::RegionAdd { start: 0, len: u64::from(pages) * page_bytes, first };
        let missed = |&block| Event::MajorFault { block };
        for event in self.regions.iter().map(added).chain(self.keys.iter().map(missed)) {
            writer.record(&Record { time_us: 0, event })?;
        }
        writer.finish()
    }

    /// Reads a trace of misses; `None` if the trace is complete, but was not written by `--learn`.
    ///
    /// # Errors
    /// The input is no trace, or an incomplete one.
    pub fn read_from(from: impl Read) -> Result<Option<Misses>, Error> {
        let reader = Reader::new(from)?;
        let header = reader.header();
        if !header.misses_only {
            return Ok(None);
        }
        let mut learnt = Misses {
            program: header.executable,
            page_bytes: header.block_bytes,
            split: header.is_split,
            ..Misses::default()
        };
        let page_bytes = u64::from(learnt.page_bytes);
        for record in reader {
            match record?.event {
                Event::RegionAdd { len, first, .. } => {
                    let Ok(pages) = u32::try_from(len / page_bytes) else { return Ok(None) };
                    learnt.regions.push((first, pages));
                }
                Event::MajorFault { block } => learnt.keys.push(block),
                _ => return Ok(None),
            }
            if learnt.regions.len() + learnt.keys.len() > RECORDS_MOST {
                return Ok(None);
            }
        }
        Ok(Some(learnt))
    }

    /// Reads a file; `None` if there is none, or an empty one.
    ///
    /// # Errors
    /// The file cannot be read, or is not one of `--learn`, whole: `InvalidData`.
    pub fn read(path: &Path) -> io::Result<Option<Misses>> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => BufReader::new(opened?),
        };
        if file.fill_buf()?.is_empty() {
            return Ok(None);
        }
        match Misses::read_from(file) {
            Ok(Some(learnt)) => Ok(Some(learnt)),
            Err(Error::Io { cause, .. }) => Err(cause),
            Ok(None) | Err(_) => {
                let why = "is no whole file of --learn of this version (remove it, or name another file)";
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
        }
    }

    /// Replaces the file at once. If the file that is there is another program's, it stays.
    ///
    /// # Errors
    /// The file cannot be written; what was there before stays.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if let Ok(Some(other)) = Misses::read(path)
            && other.program != self.program
        {
            return Ok(());
        }
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".new-{}", std::process::id()));
        let new = Path::new(&new);
        let written =
            File::create(new).and_then(|file| self.write_to(file)).and_then(|_| std::fs::rename(new, path));
        if written.is_err() {
            std::fs::remove_file(new).ok();
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::Misses;
    use crate::{Error, Event, Header, Record, Writer};
    use proptest::prelude::*;

    fn learnt() -> impl Strategy<Value = Misses> {
        let regions = proptest::collection::vec(any::<(u32, u32)>(), 0..4);
        let keys = proptest::collection::vec(any::<u32>(), 0..50);
        (any::<u64>(), 0..31, any::<bool>(), regions, keys).prop_map(
            |(program, page, split, regions, keys)| Misses {
                program,
                page_bytes: 1u32 << page,
                split,
                regions,
                keys,
            },
        )
    }

    fn bytes_of(learnt: &Misses) -> Vec<u8> {
        learnt.write_to(Vec::new()).unwrap()
    }

    proptest! {
        #[test]
        fn a_file_comes_back(learnt in learnt()) {
            prop_assert_eq!(Misses::read_from(&bytes_of(&learnt)[..]).unwrap(), Some(learnt));
        }

        #[test]
        fn a_changed_or_cut_file_is_refused(learnt in learnt(), at in any::<prop::sample::Index>(), bit in 0..8) {
            let mut bytes = bytes_of(&learnt);
            let at = at.index(bytes.len());
            prop_assert!(Misses::read_from(&bytes[..at]).is_err());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(Misses::read_from(&bytes[..]).is_err());
        }
    }

    #[test]
    fn another_trace_and_an_older_file_are_refused() {
        let header = Header { block_bytes: 4096, ..Header::default() };
        let whole = Writer::new(Vec::new(), &header).unwrap().finish().unwrap();
        assert_eq!(Misses::read_from(&whole[..]).unwrap(), None);
        let mut writer = Writer::new(Vec::new(), &Header { misses_only: true, ..header }).unwrap();
        writer.record(&Record { time_us: 0, event: Event::FirstTouch { block: 1 } }).unwrap();
        assert_eq!(Misses::read_from(&writer.finish().unwrap()[..]).unwrap(), None);
        let before = Misses::read_from(&b"TERALRN\x01 and what followed"[..]);
        assert!(matches!(before, Err(Error::Corrupt { offset: 0, .. })), "{before:?}");
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("learnt");
        std::fs::write(&file, "TERALRN\x01 and what followed").unwrap();
        let error = Misses::read(&file).unwrap_err().to_string();
        assert!(error.starts_with("is no whole file of --learn of this version"), "{error}");
        std::fs::write(&file, "").unwrap();
        assert_eq!(Misses::read(&file).unwrap(), None);
    }
}
