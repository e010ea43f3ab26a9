//! A file that the program maps to read: passes over all of it, and words at random places.
//!
//! The words are those that [`crate::workload`] writes into a buffer, so each that is read is
//! compared.

use crate::workload::raw::{self, Meter};
use crate::workload::{FIRST, OwnCounters, Pass, add, read_at_random, sum_of, word};
use anyhow::{Context, ensure};
use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, ptr, slice};
use terapage_figures::SplitMix;

/// The passes after the first that are timed together: the part of a cycle that stays in memory
/// takes some passes to settle.
const AGAIN: u64 = 3;

/// Options.
#[derive(Debug, clap::Args)]
pub struct Mapped {
    /// The file, which is made again if it has another size.
    #[arg(long)]
    file: PathBuf,
    /// Its bytes.
    #[arg(long)]
    bytes: u64,
    /// The order in which words are read.
    #[arg(long)]
    pattern: Pattern,
    /// Leaves the file in the page cache, as far as there is room; otherwise it begins on disk.
    #[arg(long)]
    cached: bool,
    /// Tells the kernel that the places will be random (MADV_RANDOM).
    #[arg(long)]
    advice: bool,
    /// The time of the reads at random places, milliseconds.
    #[arg(long, default_value_t = 3000)]
    milliseconds: u64,
    /// The seed of these places.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The order of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pattern {
    /// From end to end: a first pass, and several more.
    Sequential,
    /// At random places, once a pass has filled the memory.
    Random,
}

/// The words of a file, mapped to read.
struct Mapping {
    start: *const u64,
    words: usize,
}

impl Mapping {
    fn new(path: &Path, bytes: u64) -> anyhow::Result<Mapping> {
        let (file, words) = (File::open(path)?, usize::try_from(bytes / 8)?);
        ensure!(words > 0 && file.metadata()?.len() >= bytes, "{bytes} bytes cannot be mapped");
        let len = words * 8;
        // SAFETY: a new mapping at a place of the kernel's choice overlaps no memory in use.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        ensure!(start != libc::MAP_FAILED, "mmap failed: {}", io::Error::last_os_error());
        Ok(Mapping { start: start.cast(), words })
    }

    fn words(&self) -> &[u64] {
        // SAFETY: the mapping has `words` words, aligned to a page; the file is long enough, and
        // the lab, whose file it is, changes no complete file.
        unsafe { slice::from_raw_parts(self.start, self.words) }
    }

    fn advise_random(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping; the advice changes no bytes.
        match unsafe { libc::madvise(self.start.cast_mut().cast(), self.words * 8, libc::MADV_RANDOM) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, with this length, and has no references any
        // longer.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.words * 8) };
    }
}

/// The bytes of the file from an offset on, which is a multiple of 8.
fn fill(bytes: &mut [u8], offset: u64) {
    for (at, place) in bytes.chunks_mut(8).enumerate() {
        let value = word(FIRST, offset as usize / 8 + at).to_ne_bytes();
        place.copy_from_slice(&value[..place.len()]);
    }
}

/// The sum of the words, read one after the other and compared with what it must be.
fn sum(words: &[u64]) -> anyhow::Result<u64> {
    let (found, expected) = (black_box(add(words)), sum_of(FIRST, 0, words.len()));
    ensure!(found == expected, "the words add up to {found:#018x} instead of {expected:#018x}");
    Ok(found)
}

impl Mapped {
    /// Makes the file if it is missing, brings the page cache into a known state, and measures.
    ///
    /// # Errors
    /// A call fails, or a word is not the one that was written.
    pub fn run(self) -> anyhow::Result<()> {
        let name = || self.file.display().to_string();
        raw::make(&self.file, self.bytes, fill).with_context(name)?;
        raw::settle(&self.file, self.cached).with_context(name)?;
        let mapping = Mapping::new(&self.file, self.bytes).with_context(name)?;
        let timed = Timed { counters: OwnCounters::open(), meter: Meter::new(&self.file) };
        let words = mapping.words();
        let bytes = words.len() as u64 * 8;
        if self.pattern == Pattern::Sequential {
            timed.pass("first, MiB/s", || Ok((bytes, None, Some(sum(words)?))))?;
            return timed.pass("again, MiB/s", || {
                let mut found = 0;
                for _ in 0..AGAIN {
                    found = sum(words)?;
                }
                Ok((AGAIN * bytes, None, Some(found)))
            });
        }
        sum(words)?;
        if self.advice {
            mapping.advise_random()?;
        }
        timed.pass("random, 1/s", || {
            let end = Instant::now() + Duration::from_millis(self.milliseconds);
            let done = read_at_random(words, SplitMix(self.seed), u64::MAX, end)?;
            Ok((done * 8, Some(done as f64), None))
        })
    }
}

/// Times passes, and counts what the pager and the device move for them.
struct Timed {
    counters: OwnCounters,
    meter: Meter,
}

impl Timed {
    /// Prints a pass. Its work gives its bytes, its operations, if these count, and its result, if
    /// that must be the same for all contenders.
    fn pass(
        &self,
        name: &str,
        work: impl FnOnce() -> anyhow::Result<(u64, Option<f64>, Option<u64>)>,
    ) -> anyhow::Result<()> {
        let (before, count) = (self.counters.in_and_out(), self.meter.now());
        let start = Instant::now();
        let (bytes, operations, found) = work()?;
        let seconds = start.elapsed().as_secs_f64();
        let after = self.counters.in_and_out();
        let more = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_sub(b?));
        // Of single words the device moves hundreds of times their bytes.
        let device_bytes = self.meter.since(&count, false).filter(|_| operations.is_none());
        let pass = Pass {
            pass: name.into(),
            seconds,
            bytes,
            threads: 1,
            page_in_bytes: more(after.0, before.0),
            page_out_bytes: more(after.1, before.1),
            device_bytes,
            check: found.map(|sum| format!("{sum:016x}")),
            operations,
            ..Pass::default()
        };
        println!("{}", serde_json::to_string(&pass)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Mapping, fill, raw, sum};
    use crate::workload::{FIRST, word};
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_mapped_file_has_the_words_of_a_buffer_and_a_wrong_one_is_noticed() {
        let file = tempfile::Builder::new().tempfile_in("/var/tmp").expect("a file");
        // The last piece is no whole page.
        let bytes = (1 << 20) + 24;
        raw::make(file.path(), bytes, fill).expect("it is made");
        let mapping = Mapping::new(file.path(), bytes).expect("it is mapped");
        mapping.advise_random().expect("advice");
        let words = mapping.words();
        assert_eq!(words.len() as u64, bytes / 8);
        assert!(words.iter().enumerate().all(|(i, found)| *found == word(FIRST, i)));
        assert!(sum(words).is_ok());
        drop(mapping);
        file.as_file().write_all_at(b"x", bytes - 1).expect("a byte");
        let mapping = Mapping::new(file.path(), bytes).expect("it is mapped");
        assert!(sum(mapping.words()).is_err());
        assert!(Mapping::new(file.path(), bytes + 8).is_err(), "a mapping beyond the end");
    }
}
