//! The programs that are measured, each run in a separate process.
//!
//! They are written like plain C: one buffer from `malloc` (or a mapped file), touched word by
//! word. Each pass ends with one line of JSON on standard output, a [`Pass`].

pub mod bonnie;
pub mod fio;
pub mod fio_raw;
pub mod kernels;
pub mod likwid;
pub mod load;
pub mod mapped;
pub mod raw;
pub mod temporal;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io, ptr, slice, thread};
use terapage_figures::SplitMix;
use terapage_stats::{Counters, FILE_NAME, MAGIC};

/// A workload and its options.
#[derive(Debug, clap::Subcommand)]
pub enum Workload {
    /// Passes over the buffer several times, in order.
    Scan {
        /// Bytes of the buffer.
        #[arg(long)]
        bytes: u64,
        /// Threads of the passes that use several.
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// Maps this file instead of allocating.
        #[arg(long)]
        map: Option<PathBuf>,
    },
    /// Reads words of the buffer at random.
    Random {
        /// Bytes of the buffer.
        #[arg(long)]
        bytes: u64,
        /// Reads of each pass.
        #[arg(long)]
        reads: u64,
        /// Seconds after which a pass ends early.
        #[arg(long)]
        seconds: f64,
        /// The numbers of threads, one pass for each.
        #[arg(long, value_delimiter = ',')]
        threads: Vec<usize>,
        /// The seed of the places that are read.
        #[arg(long)]
        seed: u64,
        /// Maps this file instead of allocating.
        #[arg(long)]
        map: Option<PathBuf>,
    },
    /// Measures single reads at random places, and classifies those that waited for a block.
    Waits {
        /// Bytes of the buffer.
        #[arg(long)]
        bytes: u64,
        /// Seconds of reading.
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// The seed of the places that are read.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Maps this file instead of allocating.
        #[arg(long)]
        map: Option<PathBuf>,
    },
    /// Reads a word at each multiple of a stride, over the whole buffer.
    Stride {
        /// Bytes of the buffer.
        #[arg(long)]
        bytes: u64,
        /// The distance between words, bytes.
        #[arg(long, value_parser = stride_of)]
        stride: u64,
        /// The number of seconds after which it stops early.
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Maps this file instead of allocating.
        #[arg(long)]
        map: Option<PathBuf>,
    },
    /// Shows the speed of the device.
    Device(Device),
    /// Reads or writes a file.
    Raw(crate::workload::raw::Raw),
    /// Reads a file through a mapping.
    Mapped(crate::workload::mapped::Mapped),
    /// Copy, scale, add and triad over three arrays.
    Arrays(crate::workload::kernels::Arrays),
    /// A stencil over a plane.
    Stencil(crate::workload::kernels::Stencil),
    /// Jacobi's iteration for Poisson's equation.
    Poisson(crate::workload::kernels::Poisson),
    /// A stencil of 7 points, several steps a pass.
    Temporal(crate::workload::temporal::Temporal),
    /// Bonnie++.
    Bonnie(crate::workload::bonnie::Bonnie),
    /// Reads at random places at a fixed rate, or as fast as possible.
    Stack(crate::workload::load::Load),
    /// likwid-bench's triad, as a cross-check.
    Likwid(crate::workload::likwid::Likwid),
}

/// The speed of the device itself, by fio.
#[derive(Debug, clap::Args)]
pub struct Device {
    /// The file to write and read.
    #[arg(long)]
    file: PathBuf,
    /// Its bytes.
    #[arg(long)]
    bytes: u64,
    /// Reads at random places, with this number in flight, instead of sequential passes.
    #[arg(long, value_delimiter = ',')]
    threads: Vec<u32>,
    /// Bytes of such a read.
    #[arg(long, default_value_t = 65536)]
    block: u64,
    /// Seconds of such a pass.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

/// One pass over the buffer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pass {
    /// Its name.
    pub pass: String,
    /// The duration, seconds.
    pub seconds: f64,
    /// Bytes that were read and written; in `random` 8 for each read.
    pub bytes: u64,
    /// Threads that took part.
    pub threads: usize,
    /// Bytes that the pager read meanwhile, if there is a pager.
    pub page_in_bytes: Option<u64>,
    /// Bytes that the pager wrote meanwhile.
    pub page_out_bytes: Option<u64>,
    /// Bytes that the device read and wrote for the pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<u64>,
    /// Operations with floating-point numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<f64>,
    /// The result, if it must be the same for all contenders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// Operations, for passes that count these instead of bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<f64>,
}

/// A line of output that is not a pass.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// A remark.
    Note(String),
    /// A line of another program's output, unchanged.
    Raw(String),
}

impl Said {
    /// Prints it.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn print(&self) -> anyhow::Result<()> {
        use std::io::Write;
        Ok(writeln!(io::stdout(), "{}", serde_json::to_string(self)?)?)
    }
}

/// After the first write, word `i` is `FIRST + i * STEP`; each read-modify-write adds `ADDED`.
const FIRST: u64 = 0x5eed_0000_0000_0001;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const ADDED: u64 = 0x0123_4567_89ab_cdef;

fn word(base: u64, i: usize) -> u64 {
    base.wrapping_add((i as u64).wrapping_mul(STEP))
}

/// The sum of the words `from..from + count`.
fn sum_of(base: u64, from: usize, count: usize) -> u64 {
    let n = count as u128;
    let pairs = (n * n.saturating_sub(1) / 2) as u64;
    word(base, from).wrapping_mul(count as u64).wrapping_add(pairs.wrapping_mul(STEP))
}

impl Workload {
    /// Runs the workload and prints its passes.
    ///
    /// # Errors
    /// There is not enough memory, or a word differs from the written value.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Workload::Scan { bytes, threads, map } => scan(bytes, threads.max(1), map),
            Workload::Random { bytes, reads, seconds, threads, seed, map } => {
                random(bytes, reads, seconds, &threads, seed, map)
            }
            Workload::Waits { bytes, seconds, seed, map } => waits(bytes, seconds, seed, map),
            Workload::Stride { bytes, stride, seconds, map } => strided(bytes, stride, seconds, map),
            Workload::Raw(raw) => raw.run(),
            Workload::Mapped(mapped) => mapped.run(),
            Workload::Arrays(arrays) => arrays.run(),
            Workload::Stencil(stencil) => stencil.run(),
            Workload::Poisson(poisson) => poisson.run(),
            Workload::Temporal(temporal) => temporal.run(),
            Workload::Bonnie(bonnie) => bonnie.run(),
            Workload::Stack(load) => load.run(),
            Workload::Likwid(likwid) => likwid.run(),
            Workload::Device(Device { file, bytes, threads, block, seconds }) => {
                crate::workload::fio::device(&file, bytes, &threads, block, seconds)
            }
        }
    }
}

/// Memory of the program: from `malloc`, or a mapped file.
pub struct Buffer {
    start: *mut u64,
    words: usize,
    mapped: bool,
}

impl Buffer {
    fn allocate(words: usize) -> anyhow::Result<Buffer> {
        // SAFETY: malloc may be called with any size; the result is checked.
        let start = unsafe { libc::malloc(words * 8) }.cast::<u64>();
        ensure!(!start.is_null(), "malloc of {} bytes failed", words * 8);
        Ok(Buffer { start, words, mapped: false })
    }

    fn map(path: &PathBuf, words: usize) -> anyhow::Result<Buffer> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("open {}", path.display()))?;
        ensure!(file.metadata()?.len() >= words as u64 * 8, "{} is too short", path.display());
        // SAFETY: a new mapping at a place of the kernel's choice overlaps no memory in use; the
        // file is long enough and stays so.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                words * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        ensure!(start != libc::MAP_FAILED, "mmap failed: {}", io::Error::last_os_error());
        Ok(Buffer { start: start.cast(), words, mapped: true })
    }

    /// One of `bytes` bytes, from `malloc`, or of the file `map`.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(bytes: u64, map: Option<&PathBuf>) -> anyhow::Result<Buffer> {
        let words = usize::try_from(bytes / 8)?;
        match map {
            Some(path) => Buffer::map(path, words),
            None => Buffer::allocate(words),
        }
    }

    /// All words. Every bit pattern is a word, and each workload writes first, so uninitialised
    /// memory of malloc is never read.
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: `start` is the start of `words` words, aligned by malloc or mmap, which have no
        // other reference while the buffer is borrowed.
        unsafe { slice::from_raw_parts_mut(self.start, self.words) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the memory came from the matching call with this length and has no references.
        unsafe {
            if self.mapped {
                libc::munmap(self.start.cast(), self.words * 8);
            } else {
                libc::free(self.start.cast());
            }
        }
    }
}

/// The pager's counters of this process, read from the file that the process holds open.
pub struct OwnCounters(Option<fs::File>);

impl OwnCounters {
    /// The counters of this process, if it is paged.
    pub fn open() -> OwnCounters {
        let wanted = format!("/memfd:{FILE_NAME}");
        let find = || {
            fs::read_dir("/proc/self/fd").ok()?.flatten().find_map(|entry| {
                let target = fs::read_link(entry.path()).ok()?;
                target.to_string_lossy().starts_with(&wanted).then_some(entry.path())
            })
        };
        let counters = OwnCounters(find().and_then(|path| fs::File::open(path).ok()));
        match counters.read(offset_of!(Counters, magic)) {
            Some(MAGIC) => counters,
            _ => OwnCounters(None),
        }
    }

    fn read(&self, offset: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.as_ref()?.read_exact_at(&mut bytes, offset as u64).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// Bytes read from and written to the store so far.
    pub fn in_and_out(&self) -> (Option<u64>, Option<u64>) {
        (self.read(offset_of!(Counters, page_in_bytes)), self.read(offset_of!(Counters, page_out_bytes)))
    }
}

/// Measures passes and prints them.
struct Clock {
    counters: OwnCounters,
}

impl Clock {
    fn pass<R>(&self, pass: &str, bytes: u64, threads: usize, work: impl FnOnce() -> R) -> anyhow::Result<R> {
        let timed = self.start();
        let result = work();
        self.end(timed, pass, bytes, threads)?;
        Ok(result)
    }

    fn start(&self) -> (Instant, (Option<u64>, Option<u64>)) {
        let before = self.counters.in_and_out();
        (Instant::now(), before)
    }

    fn end(
        &self,
        (start, before): (Instant, (Option<u64>, Option<u64>)),
        pass: &str,
        bytes: u64,
        threads: usize,
    ) -> anyhow::Result<()> {
        let seconds = start.elapsed().as_secs_f64();
        let after = self.counters.in_and_out();
        let more = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_sub(b?));
        let pass = Pass {
            pass: pass.to_owned(),
            seconds,
            bytes,
            threads,
            page_in_bytes: more(after.0, before.0),
            page_out_bytes: more(after.1, before.1),
            ..Pass::default()
        };
        println!("{}", serde_json::to_string(&pass)?);
        Ok(())
    }
}

/// Does `work` on equal parts of the words, with a thread for each; `work` gets the part's first
/// index.
fn in_parts<R: Send>(
    words: &mut [u64],
    threads: usize,
    work: impl Fn(usize, &mut [u64]) -> R + Sync,
) -> Vec<R> {
    if threads == 1 {
        return vec![work(0, words)];
    }
    let part = words.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = words
            .chunks_mut(part)
            .enumerate()
            .map(|(i, words)| scope.spawn(move || work(i * part, words)))
            .collect();
        started.into_iter().map(|thread| thread.join().expect("a part's thread does not panic")).collect()
    })
}

fn fill(from: usize, words: &mut [u64]) {
    let mut value = word(FIRST, from);
    for word in words {
        *word = value;
        value = value.wrapping_add(STEP);
    }
}

fn add(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

fn modify(words: &mut [u64]) {
    for word in words {
        *word = word.wrapping_add(ADDED);
    }
}

/// The first place whose word differs from the written one, and the word there.
fn wrong(base: u64, from: usize, words: &[u64]) -> Option<(usize, u64)> {
    let mut expected = word(base, from);
    for (i, word) in words.iter().enumerate() {
        if *word != expected {
            return Some((from + i, *word));
        }
        expected = expected.wrapping_add(STEP);
    }
    None
}

/// Reads everything once and compares the sum.
fn read(words: &mut [u64], base: u64, threads: usize) -> bool {
    let sums = in_parts(words, threads, |from, part| black_box(add(part)) == sum_of(base, from, part.len()));
    sums.into_iter().all(|right| right)
}

fn scan(bytes: u64, threads: usize, map: Option<PathBuf>) -> anyhow::Result<()> {
    let mut buffer = Buffer::new(bytes, map.as_ref())?;
    // Paging begins with the first large allocation, and so do the counters.
    let clock = Clock { counters: OwnCounters::open() };
    let words = buffer.words();
    let bytes = words.len() as u64 * 8;

    clock.pass("write", bytes, 1, || fill(0, words))?;
    for pass in ["read", "read-again"] {
        let right = clock.pass(pass, bytes, 1, || read(words, FIRST, 1))?;
        ensure!(right, "the words of the {pass} pass add up to a wrong sum");
    }
    clock.pass("rmw", 2 * bytes, 1, || modify(words))?;
    let base = FIRST.wrapping_add(ADDED);
    if let Some((i, found)) = clock.pass("read2", bytes, 1, || wrong(base, 0, words))? {
        bail!("word {i} (byte {}) holds {found:#018x} instead of {:#018x}", i * 8, word(base, i));
    }
    let check = || in_parts(words, threads, |from, part| wrong(base, from, part));
    if let Some((i, found)) = clock.pass("read-threads", bytes, threads, check)?.into_iter().flatten().next()
    {
        bail!("word {i} (byte {}) holds {found:#018x} instead of {:#018x}", i * 8, word(base, i));
    }
    if threads > 1 {
        let modify = || in_parts(words, threads, |_, part| modify(part));
        clock.pass("rmw-threads", 2 * bytes, threads, modify)?;
    }
    triad(&clock, buffer)
}

/// STREAM's triad, `a = b + s * c`, over the three thirds of the buffer, a multiple of a page each.
fn triad(clock: &Clock, mut buffer: Buffer) -> anyhow::Result<()> {
    let words = buffer.words();
    let third = words.len() / 3 / 512 * 512;
    if third == 0 {
        return Ok(());
    }
    let (a, rest) = words.split_at_mut(third);
    let (b, c) = rest.split_at_mut(third);
    let c = &mut c[..third];
    let number = |value: f64| value.to_bits();
    b.fill(number(2.0));
    c.fill(number(0.5));
    // The array that is written is paged in first, so four thirds move.
    clock.pass("triad", 4 * 8 * third as u64, 1, || {
        for ((a, b), c) in a.iter_mut().zip(&*b).zip(&*c) {
            *a = number(f64::from_bits(*b) + 3.0 * f64::from_bits(*c));
        }
    })?;
    let expected = number(3.5);
    match a.iter().position(|word| *word != expected) {
        Some(i) => bail!("word {i} of the triad holds {:#018x} instead of {expected:#018x}", a[i]),
        None => Ok(()),
    }
}

fn random(
    bytes: u64,
    reads: u64,
    seconds: f64,
    threads: &[usize],
    seed: u64,
    map: Option<PathBuf>,
) -> anyhow::Result<()> {
    let mut buffer = Buffer::new(bytes, map.as_ref())?;
    // Paging begins with the first large allocation, and so do the counters.
    let clock = Clock { counters: OwnCounters::open() };
    let words = buffer.words();
    let bytes = words.len() as u64 * 8;
    clock.pass("fill", bytes, 1, || fill(0, words))?;
    let words = &*words;
    let limit = Duration::from_secs_f64(seconds);
    for &threads in threads {
        let timed = clock.start();
        let start = timed.0;
        let work = |thread: usize| {
            let places = SplitMix(seed ^ ((threads as u64) << 32) ^ ((thread as u64) << 40));
            read_at_random(words, places, (reads / threads as u64).max(1), start + limit)
        };
        let done: u64 = if threads == 1 {
            work(0)?
        } else {
            thread::scope(|scope| {
                let work = &work;
                let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
                let joined = started.into_iter().map(|thread| thread.join().expect("no reader panics"));
                joined.sum::<anyhow::Result<u64>>()
            })?
        };
        clock.end(timed, &format!("threads-{threads}"), done * 8, threads)?;
    }
    Ok(())
}

/// Reads words at random places, and compares each, until there are enough or the time is over;
/// returns their number.
fn read_at_random(words: &[u64], mut places: SplitMix, most: u64, end: Instant) -> anyhow::Result<u64> {
    let mut done = 0;
    while done < most && (done % 8 != 0 || Instant::now() < end) {
        let i = places.below(words.len() as u64) as usize;
        // SAFETY: a reference to a word of the slice; volatile keeps the read in its place.
        let found = unsafe { ptr::read_volatile(&words[i]) };
        ensure!(
            found == word(FIRST, i),
            "word {i} (byte {}) holds {found:#018x} instead of {:#018x}",
            i * 8,
            word(FIRST, i)
        );
        done += 1;
    }
    Ok(done)
}

/// A read that takes longer than this was served neither by memory nor by a minor fault.
const WAITED: Duration = Duration::from_micros(8);

/// After Teramem, Figure 4: the waiting times of single reads whose block is elsewhere, with
/// percentiles and deviation. Each pass is one of these values.
fn waits(bytes: u64, seconds: f64, seed: u64, map: Option<PathBuf>) -> anyhow::Result<()> {
    let mut buffer = Buffer::new(bytes, map.as_ref())?;
    let words = buffer.words();
    fill(0, words);
    let words = &*words;
    let (limit, start) = (Duration::from_secs_f64(seconds), Instant::now());
    let mut places = SplitMix(seed);
    let mut waits: Vec<f64> = Vec::new();
    let mut reads: u64 = 0;
    while start.elapsed() < limit {
        let i = places.below(words.len() as u64) as usize;
        let begun = Instant::now();
        // SAFETY: a reference to a word of the slice; volatile keeps the read in its place.
        let found = unsafe { ptr::read_volatile(&words[i]) };
        let took = begun.elapsed();
        ensure!(found == word(FIRST, i), "word {i} holds {found:#018x} instead of {:#018x}", word(FIRST, i));
        reads += 1;
        if took > WAITED {
            waits.push(took.as_secs_f64());
        }
    }
    ensure!(!waits.is_empty(), "none of {reads} reads waited for its block");
    for (name, value) in summary(&mut waits) {
        let pass = Pass { pass: name.into(), seconds: value, bytes: 8, threads: 1, ..Pass::default() };
        println!("{}", serde_json::to_string(&pass)?);
    }
    Said::Note(format!("{} of {reads} reads waited", waits.len())).print()
}

/// Percentiles, mean and deviation of some times, which are not none.
fn summary(waits: &mut [f64]) -> [(&'static str, f64); 6] {
    waits.sort_by(f64::total_cmp);
    let at = |per_mille: usize| waits[((waits.len() - 1) * per_mille + 500) / 1000];
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    let squares = waits.iter().map(|wait| (wait - mean).powi(2)).sum::<f64>();
    // A single wait, or equal waits, have no deviation; but a pass must take some time.
    let deviation = (squares / waits.len() as f64).sqrt().max(1e-9);
    [
        ("mean", mean),
        ("p50", at(500)),
        ("p90", at(900)),
        ("p99", at(990)),
        ("p99.9", at(999)),
        ("deviation", deviation),
    ]
}

fn stride_of(text: &str) -> Result<u64, String> {
    let terapage_config::Size(bytes) = text.parse().map_err(|error| format!("{error}"))?;
    (bytes >= 8 && bytes % 8 == 0).then_some(bytes).ok_or_else(|| "a multiple of 8 bytes is needed".into())
}

/// After Teramem, Figure 5: reads the words that lie `stride` apart, then those one word behind
/// them, until the time is over. Accesses that are near in time are far apart in memory.
fn strided(bytes: u64, stride: u64, seconds: f64, map: Option<PathBuf>) -> anyhow::Result<()> {
    let mut buffer = Buffer::new(bytes, map.as_ref())?;
    // Paging begins with the first large allocation, and so do the counters.
    let clock = Clock { counters: OwnCounters::open() };
    let words = buffer.words();
    fill(0, words);
    let words = &*words;
    let (step, limit) = ((stride / 8) as usize, Duration::from_secs_f64(seconds));
    let timed = clock.start();
    let mut done: u64 = 0;
    'all: for first in 0..step {
        for i in (first..words.len()).step_by(step) {
            if done.is_multiple_of(64) && timed.0.elapsed() > limit {
                break 'all;
            }
            // SAFETY: a reference to a word of the slice; volatile keeps the read in its place.
            let found = unsafe { ptr::read_volatile(&words[i]) };
            ensure!(
                found == word(FIRST, i),
                "word {i} holds {found:#018x} instead of {:#018x}",
                word(FIRST, i)
            );
            done += 1;
        }
    }
    clock.end(timed, "stride", done * 8, 1)
}

#[cfg(test)]
mod tests {
    use super::{FIRST, SplitMix, add, fill, in_parts, modify, read, sum_of, wrong};

    #[test]
    fn a_wrong_word_is_found_with_its_place() {
        let mut words = vec![0; 1000];
        fill(0, &mut words);
        assert_eq!(wrong(FIRST, 0, &words), None);
        assert_eq!(add(&words), sum_of(FIRST, 0, 1000));
        words[777] ^= 1;
        assert_eq!(wrong(FIRST, 0, &words), Some((777, words[777])));
        assert!(!read(&mut words, FIRST, 1));
    }

    #[test]
    fn parts_cover_everything_once() {
        for threads in [1, 2, 3, 7] {
            let mut words = vec![0; 1001];
            in_parts(&mut words, threads, fill);
            assert!(read(&mut words, FIRST, threads), "{threads}");
            in_parts(&mut words, threads, |_, part| modify(part));
            assert!(words.iter().enumerate().all(|(i, word)| *word == super::word(FIRST + super::ADDED, i)));
        }
    }

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let mut times: Vec<f64> = (1..=1001).rev().map(f64::from).collect();
        let found = super::summary(&mut times);
        assert_eq!(
            found[..5],
            [("mean", 501.0), ("p50", 501.0), ("p90", 901.0), ("p99", 991.0), ("p99.9", 1000.0)]
        );
        assert!((found[5].1 - 288.96).abs() < 0.01, "{}", found[5].1);
        assert_eq!(super::summary(&mut [2.0])[1], ("p50", 2.0));
    }

    #[test]
    fn random_places_are_inside_and_repeatable() {
        let (mut one, mut other) = (SplitMix(5), SplitMix(5));
        for _ in 0..1000 {
            let place = one.below(17);
            assert!(place < 17);
            assert_eq!(place, other.below(17));
        }
    }
}
