//! Ways to read and write a file, each in its plain form, as in a program whose data are in a file.
//! After Midorikawa, Tan 2013, Figures 1 to 4, who used a modified tool that is not published.
//!
//! Every place of the file has a word that follows from its offset; writes write the same words,
//! and reads are compared.

use crate::workload::Pass;
use crate::workload::fio_raw::{self, Engine};
use anyhow::{Context, ensure};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, ptr, slice};
use terapage_figures::SplitMix;
use terapage_rig::calls;
use terapage_rig::device::Device;

/// The size of the pieces in which the file is made, bytes.
const PIECE: usize = 1 << 20;

/// Alignment of buffers for direct I/O.
const ALIGNMENT: usize = 4096;

/// Bytes that are written to a small file. At several GiB/s they take a tenth of a second, which is
/// the shortest time that means something.
const WRITTEN_MOST: u64 = 512 << 20;

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;

/// The most requests in flight of the method `io-uring`.
const DEPTH: usize = 16;

/// The most bytes of buffers of all requests in flight: they count against the memory limit of the
/// run, which is 64 MiB in a first impression. 16 MiB in flight are more than any device needs to
/// reach its rate.
const IN_FLIGHT_MOST: u64 = 16 << 20;

/// The requests in flight of `io-uring` with blocks of this size.
pub fn depth(block: u64) -> usize {
    ((IN_FLIGHT_MOST / block) as usize).clamp(1, DEPTH)
}

/// Options.
#[derive(Debug, clap::Args)]
pub struct Raw {
    /// The file, which is made again if it has another size.
    #[arg(long)]
    pub file: PathBuf,
    /// Its bytes.
    #[arg(long)]
    pub bytes: u64,
    /// The method of reading and writing.
    #[arg(long)]
    pub method: Method,
    /// The order, and the direction.
    #[arg(long)]
    pub pattern: Order,
    /// Bytes of each read or write.
    #[arg(long, value_parser = bytes_of)]
    pub block: u64,
    /// The duration, milliseconds.
    #[arg(long, default_value_t = 1000)]
    pub milliseconds: u64,
    /// The maximum number of passes over the file. By default reads make as many as there is time
    /// for; writes, which wear the device, make as many as write 512 MiB, and at least two.
    #[arg(long)]
    laps: Option<u64>,
    /// Seed of random places.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn bytes_of(text: &str) -> Result<u64, String> {
    let terapage_config::Size(bytes) = text.parse().map_err(|error| format!("{error}"))?;
    let fits = bytes >= 4096 && bytes % 4096 == 0 && bytes <= 64 << 20;
    fits.then_some(bytes).ok_or_else(|| "a multiple of 4 KiB up to 64 MiB is needed".into())
}

/// A way to read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// pread and pwrite, through the page cache.
    Rw,
    /// Copies to and from a mapping.
    Mmap,
    /// The same, and msync(MS_SYNC) of the range after each write.
    Msync,
    /// The same with MS_ASYNC.
    MsyncAsync,
    /// The same with sync_file_range, which begins to write the range.
    SyncFileRange,
    /// pread and pwrite past the page cache.
    Direct,
    /// io_uring past the page cache, 16 requests in flight, but at most 16 MiB.
    IoUring,
    /// fio's psync.
    FioPsync,
    /// fio's mmap.
    FioMmap,
    /// fio's io_uring, past the page cache, with as many requests in flight.
    FioIoUring,
}

impl Method {
    /// Whether the method bypasses the page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, Method::Direct | Method::IoUring | Method::FioIoUring)
    }

    /// fio's engine for the method, if it has one.
    fn engine_of_fio(self) -> Option<Engine> {
        match self {
            Method::FioPsync => Some(Engine::Psync),
            Method::FioMmap => Some(Engine::Mmap),
            Method::FioIoUring => Some(Engine::IoUring),
            _ => None,
        }
    }
}

/// The direction and the order of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// Reads in order.
    SequentialRead,
    /// Writes in order.
    SequentialWrite,
    /// Reads at random places.
    RandomRead,
    /// Writes at random places.
    RandomWrite,
}

impl Order {
    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Order::SequentialWrite | Order::RandomWrite)
    }

    fn is_random(self) -> bool {
        matches!(self, Order::RandomRead | Order::RandomWrite)
    }

    /// fio's `rw`.
    pub fn name_of_fio(self) -> &'static str {
        match self {
            Order::SequentialRead => "read",
            Order::SequentialWrite => "write",
            Order::RandomRead => "randread",
            Order::RandomWrite => "randwrite",
        }
    }
}

/// Memory for blocks, aligned for direct I/O.
pub struct Buffer {
    start: *mut u8,
    bytes: usize,
}

impl Buffer {
    /// Of `bytes` bytes, zeros.
    ///
    /// # Errors
    /// No memory is available.
    pub fn new(bytes: usize) -> anyhow::Result<Buffer> {
        Buffer::aligned(bytes, bytes, ALIGNMENT)
    }

    /// A buffer in huge pages, if the machine has some: with single pages, which mostly lie
    /// scattered, a device may need twice as long.
    ///
    /// # Errors
    /// No memory is available.
    pub fn huge(bytes: usize) -> anyhow::Result<Buffer> {
        Buffer::aligned(bytes, bytes.next_multiple_of(HUGE), HUGE)
    }

    fn aligned(bytes: usize, all: usize, alignment: usize) -> anyhow::Result<Buffer> {
        let mut start = ptr::null_mut();
        // SAFETY: `start` may be written to; the alignment is a power of two.
        let answer = unsafe { libc::posix_memalign(&mut start, alignment, all) };
        ensure!(answer == 0, "no memory of {all} bytes");
        if alignment >= HUGE {
            // SAFETY: the range belongs to this buffer, in whole pages. The call is advice: an
            // error changes nothing.
            unsafe { libc::madvise(start, all, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: the memory is at least `bytes` long and ours alone.
        unsafe { ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
        Ok(Buffer { start: start.cast(), bytes })
    }

    /// Its bytes.
    pub fn slice(&mut self) -> &mut [u8] {
        // SAFETY: `start` is the start of `bytes` initialised bytes, which have no other reference
        // while the buffer is borrowed.
        unsafe { slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the memory came from posix_memalign, and has no references any longer.
        unsafe { libc::free(self.start.cast()) };
    }
}

/// The word that belongs at a place of the file.
fn word(offset: u64) -> u64 {
    (offset ^ 0x5eed_0000_0000_0001).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn fill(block: &mut [u8], offset: u64) {
    for (at, place) in block.chunks_exact_mut(8).enumerate() {
        place.copy_from_slice(&word(offset + at as u64 * 8).to_ne_bytes());
    }
}

/// Whether the ends of a block have the words that belong there: comparing the whole block would be
/// measured too.
pub fn is_right(block: &[u8], offset: u64) -> bool {
    let at = |from: usize| u64::from_ne_bytes(block[from..from + 8].try_into().unwrap_or_default());
    let last = block.len() - 8;
    at(0) == word(offset) && at(last) == word(offset + last as u64)
}

fn check(block: &[u8], offset: u64) -> anyhow::Result<()> {
    ensure!(is_right(block, offset), "byte {offset} of the file holds something else than was written");
    Ok(())
}

impl Raw {
    /// The maximum number of passes over the file.
    pub fn laps(&self) -> Option<u64> {
        let of_writes = || (WRITTEN_MOST / self.bytes.max(1)).max(2);
        self.laps.or_else(|| self.pattern.writes().then(of_writes))
    }

    /// Makes the file if it is missing, brings the page cache into a known state, and measures.
    ///
    /// # Errors
    /// A call fails, or the bytes read are not those that were written.
    pub fn run(self) -> anyhow::Result<()> {
        ensure!(self.bytes >= self.block, "the file is smaller than a block");
        let bytes = self.bytes / self.block * self.block;
        make(&self.file, self.bytes, fill).with_context(|| self.file.display().to_string())?;
        settle(&self.file, !self.method.is_direct()).with_context(|| self.file.display().to_string())?;
        let meter = Meter::new(&self.file);
        if let Some(engine) = self.method.engine_of_fio() {
            return fio_raw::run(&self, engine, bytes, &meter);
        }
        let mut way = Way::open(&self)?;
        let mut places = Places::new(bytes, self.block, self.pattern.is_random(), self.seed, self.laps());
        let limit = Duration::from_millis(self.milliseconds);
        let before = meter.now();
        let start = Instant::now();
        let done = match self.method {
            Method::IoUring => way.ring(&mut places, self.pattern.writes(), limit)?,
            _ => {
                let mut done = 0;
                while let Some(offset) = places.next().filter(|_| start.elapsed() < limit) {
                    way.one(offset, self.pattern.writes())?;
                    done += self.block;
                }
                done
            }
        };
        self.say("io", start.elapsed(), done, meter.since(&before, self.pattern.writes()))?;
        if self.pattern.writes() {
            way.sync()?;
            self.say("with-sync", start.elapsed(), done, meter.since(&before, true))?;
            // Not from the page cache.
            settle(&self.file, false)?;
            verify(&self.file, bytes, self.block)?;
        }
        Ok(())
    }

    fn say(&self, pass: &str, time: Duration, bytes: u64, device_bytes: Option<u64>) -> anyhow::Result<()> {
        let seconds = time.as_secs_f64();
        let pass = Pass { pass: pass.into(), seconds, bytes, threads: 1, device_bytes, ..Pass::default() };
        println!("{}", serde_json::to_string(&pass)?);
        Ok(())
    }
}

/// Makes the file, complete and on disk, unless it already exists with this size. The file reaches
/// that size only when its last bytes are written. `fill` gives the bytes from an offset on.
pub fn make(path: &Path, bytes: u64, fill: fn(&mut [u8], u64)) -> anyhow::Result<()> {
    if fs::metadata(path).is_ok_and(|known| known.len() == bytes) {
        return Ok(());
    }
    let file = open_direct(path, true)?;
    let mut buffer = Buffer::new(PIECE)?;
    let mut offset = 0;
    while offset < bytes {
        let count = PIECE.min((bytes - offset) as usize);
        fill(&mut buffer.slice()[..count], offset);
        // The length of the last piece may not suit direct I/O.
        let whole = count.next_multiple_of(ALIGNMENT);
        file.write_all_at(&buffer.slice()[..whole], offset)?;
        offset += count as u64;
    }
    file.set_len(bytes)?;
    file.sync_all()?;
    Ok(())
}

/// Opens the file past the page cache if the file system supports that.
fn open_direct(path: &Path, make: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(make).truncate(make);
    match options.clone().custom_flags(libc::O_DIRECT).open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => options.open(path),
        other => other,
    }
}

/// Writes everything to disk and empties the page cache; then, if `warm`, reads as much into it as
/// there is room for.
pub fn settle(path: &Path, warm: bool) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_data()?;
    // SAFETY: the descriptor is open for the call; no memory is passed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if warm {
        let mut piece = vec![0; PIECE];
        let mut offset = 0;
        loop {
            match file.read_at(&mut piece, offset)? {
                0 => break,
                count => offset += count as u64,
            }
        }
    }
    Ok(())
}

/// Compares some blocks of the file after it was written.
fn verify(path: &Path, bytes: u64, block: u64) -> anyhow::Result<()> {
    let file = File::open(path)?;
    let mut piece = vec![0; block as usize];
    for offset in Places::new(bytes, block, true, 99, Some(1)).take(16) {
        file.read_exact_at(&mut piece, offset)?;
        check(&piece, offset)?;
    }
    Ok(())
}

/// The offsets of blocks: in order and repeatedly, or at random places.
pub struct Places {
    blocks: u64,
    block: u64,
    next: u64,
    /// The total number.
    end: u64,
    numbers: Option<SplitMix>,
}

impl Places {
    /// Of a file of `bytes` bytes.
    pub fn new(bytes: u64, block: u64, random: bool, seed: u64, laps: Option<u64>) -> Places {
        let blocks = bytes / block;
        let end = laps.map_or(u64::MAX, |laps| blocks.saturating_mul(laps));
        Places { blocks, block, next: 0, end, numbers: random.then_some(SplitMix(seed)) }
    }
}

impl Iterator for Places {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.next == self.end {
            return None;
        }
        let place = match &mut self.numbers {
            Some(numbers) => numbers.below(self.blocks),
            None => self.next % self.blocks,
        };
        self.next += 1;
        Some(place * self.block)
    }
}

/// A file opened for a method.
struct Way {
    method: Method,
    file: File,
    map: Option<(*mut u8, usize)>,
    buffer: Buffer,
    block: usize,
}

impl Way {
    fn open(raw: &Raw) -> anyhow::Result<Way> {
        let file = match raw.method.is_direct() {
            true => open_direct(&raw.file, false)?,
            false => OpenOptions::new().read(true).write(true).open(&raw.file)?,
        };
        let mapped =
            matches!(raw.method, Method::Mmap | Method::Msync | Method::MsyncAsync | Method::SyncFileRange);
        let map = match mapped {
            true => Some((map(&file, raw.bytes as usize)?, raw.bytes as usize)),
            false => None,
        };
        let block = raw.block as usize;
        let count = if raw.method == Method::IoUring { depth(raw.block) } else { 1 };
        let buffer = match raw.method.is_direct() {
            true => Buffer::huge(block * count)?,
            false => Buffer::new(block * count)?,
        };
        Ok(Way { method: raw.method, file, map, buffer, block })
    }

    /// One read or write.
    fn one(&mut self, offset: u64, write: bool) -> anyhow::Result<()> {
        let buffer = self.buffer.slice();
        if write {
            // Only the ends of its pages are compared; the rest stays unchanged.
            mark(buffer, offset);
        }
        match self.map {
            None if write => self.file.write_all_at(buffer, offset)?,
            None => self.file.read_exact_at(buffer, offset)?,
            Some((start, bytes)) => {
                ensure!(offset as usize + buffer.len() <= bytes, "a place beyond the mapping");
                // SAFETY: offset and length are inside the mapping, which lives as long as `self`,
                // and the buffer is another's memory.
                unsafe {
                    let place = start.add(offset as usize);
                    match write {
                        true => ptr::copy_nonoverlapping(buffer.as_ptr(), place, buffer.len()),
                        false => ptr::copy_nonoverlapping(place, buffer.as_mut_ptr(), buffer.len()),
                    }
                }
                if write {
                    self.push(offset)?;
                }
            }
        }
        if !write {
            check(self.buffer.slice(), offset)?;
        }
        Ok(())
    }

    /// The method's action after a write to the mapping.
    fn push(&self, offset: u64) -> io::Result<()> {
        let Some((start, _)) = self.map else { return Ok(()) };
        let sync = |flags| {
            // SAFETY: the range is inside the mapping; blocks begin at multiples of a page.
            unsafe { libc::msync(start.add(offset as usize).cast(), self.block, flags) }
        };
        let answer = match self.method {
            Method::Msync => sync(libc::MS_SYNC),
            Method::MsyncAsync => sync(libc::MS_ASYNC),
            // SAFETY: the descriptor is open for the call; no memory is passed.
            Method::SyncFileRange => unsafe {
                libc::sync_file_range(
                    self.file.as_raw_fd(),
                    offset as i64,
                    self.block as i64,
                    libc::SYNC_FILE_RANGE_WRITE,
                )
            },
            _ => 0,
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Everything on disk.
    fn sync(&self) -> io::Result<()> {
        if let Some((start, bytes)) = self.map {
            // SAFETY: this is the whole mapping.
            if unsafe { libc::msync(start.cast(), bytes, libc::MS_SYNC) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        self.file.sync_data()
    }

    /// All places by io_uring, [`depth`] at a time; returns the number of transferred bytes.
    fn ring(&mut self, places: &mut Places, write: bool, limit: Duration) -> anyhow::Result<u64> {
        use io_uring::{opcode, types};
        let depth = depth(self.block as u64);
        let mut ring = calls::ring(depth as u32).context("io_uring")?;
        let file = types::Fd(self.file.as_raw_fd());
        let (start, block) = (Instant::now(), self.block);
        let (mut free, mut offsets): (Vec<usize>, Vec<u64>) = ((0..depth).collect(), vec![0; depth]);
        let mut done = 0;
        loop {
            while let Some(slot) = free.pop() {
                let Some(offset) = places.next().filter(|_| start.elapsed() < limit) else {
                    free.push(slot);
                    break;
                };
                offsets[slot] = offset;
                let part = &mut self.buffer.slice()[slot * block..(slot + 1) * block];
                let entry = match write {
                    true => {
                        mark(part, offset);
                        opcode::Write::new(file, part.as_ptr(), block as u32).offset(offset).build()
                    }
                    false => opcode::Read::new(file, part.as_mut_ptr(), block as u32).offset(offset).build(),
                };
                // SAFETY: the part of the buffer does not move until its completion is seen below,
                // and no other request uses it.
                unsafe { ring.submission().push(&entry.user_data(slot as u64)) }
                    .context("io_uring is full")?;
            }
            if free.len() == depth {
                return Ok(done);
            }
            ring.submit_and_wait(1)?;
            for end in ring.completion() {
                let slot = end.user_data() as usize;
                ensure!(end.result() >= 0, "{}", io::Error::from_raw_os_error(-end.result()));
                ensure!(end.result() as usize == block, "a short transfer of {} bytes", end.result());
                if !write {
                    check(&self.buffer.slice()[slot * block..(slot + 1) * block], offsets[slot])?;
                }
                done += block as u64;
                free.push(slot);
            }
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Some((start, bytes)) = self.map {
            // SAFETY: the mapping belongs to this value, with this length, and has no references
            // any longer.
            unsafe { libc::munmap(start.cast(), bytes) };
        }
    }
}

/// Writes the words that [`check`] expects into each page of a block, for any size of its blocks.
fn mark(block: &mut [u8], offset: u64) {
    for (at, page) in block.chunks_exact_mut(ALIGNMENT).enumerate() {
        let offset = offset + (at * ALIGNMENT) as u64;
        let last = page.len() - 8;
        page[..8].copy_from_slice(&word(offset).to_ne_bytes());
        page[last..].copy_from_slice(&word(offset + last as u64).to_ne_bytes());
    }
}

fn map(file: &File, bytes: usize) -> anyhow::Result<*mut u8> {
    // SAFETY: a new mapping at a place of the kernel's choice overlaps no memory in use; the file
    // is long enough, and nobody makes it shorter meanwhile.
    let start = unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    ensure!(start != libc::MAP_FAILED, "mmap failed: {}", io::Error::last_os_error());
    Ok(start.cast())
}

/// The bytes that the device moves: reads by this process's count, writes by the device's.
pub struct Meter {
    device: Option<Device>,
}

/// Counts at one time, bytes.
#[derive(Clone, Copy, Default)]
pub struct Count {
    own_read: Option<u64>,
    device_read: u64,
    device_written: Option<u64>,
}

impl Meter {
    /// The meter of the device on which a file lies.
    pub fn new(path: &Path) -> Meter {
        Meter { device: Device::of(path) }
    }

    /// The present counts.
    pub fn now(&self) -> Count {
        let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let own = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok());
        let moved = self.device.as_ref().and_then(Device::moved);
        Count {
            own_read: own,
            device_read: moved.map_or(0, |moved| moved.read_bytes),
            device_written: moved.map(|moved| moved.written_bytes),
        }
    }

    /// Bytes that were read, or written, since then.
    pub fn since(&self, before: &Count, writes: bool) -> Option<u64> {
        let now = self.now();
        let (one, other) = match writes {
            true => (now.device_written, before.device_written),
            false => (now.own_read, before.own_read),
        };
        Some(one?.saturating_sub(other?))
    }

    /// The same for a child: its reads are the device's.
    pub fn since_by_child(&self, before: &Count, writes: bool) -> Option<u64> {
        match writes {
            true => self.since(before, true),
            false => self.device.as_ref().map(|_| self.now().device_read.saturating_sub(before.device_read)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Places, check, depth, fill, mark, word};
    use crate::experiment::Experiment;
    use std::collections::HashSet;

    /// With more requests in flight, their buffers alone would exceed the memory limit, and the run
    /// would be killed.
    #[test]
    fn requests_in_flight_fit_into_the_memory_of_every_cell() {
        let (_, whole) = Experiment::find("raw").expect("it is shipped");
        for experiment in [whole.clone().quick(), whole] {
            for cell in experiment.cells() {
                let memory = experiment.sizes_of(&cell).expect("sizes")["memory"];
                let terapage_config::Size(block) = cell["block"].parse().expect("a size");
                let buffers = block * depth(block) as u64;
                assert!(buffers <= memory / 2, "{buffers} bytes of {memory} at {cell:?}");
            }
        }
        assert_eq!((depth(4096), depth(1 << 20), depth(4 << 20), depth(64 << 20)), (16, 16, 4, 1));
    }

    #[test]
    fn places_are_whole_blocks_inside_the_file() {
        let all: Vec<u64> = Places::new(1 << 20, 4096, false, 1, Some(1)).collect();
        assert_eq!((all.len(), all[0], all[255]), (256, 0, 255 * 4096));
        let random: Vec<u64> = Places::new(1 << 20, 65536, true, 1, Some(1)).collect();
        assert_eq!(random.len(), 16);
        let laps: Vec<u64> = Places::new(8192, 4096, false, 1, Some(2)).collect();
        assert_eq!(laps, [0, 4096, 0, 4096]);
        assert_eq!(Places::new(8192, 4096, false, 1, None).nth(101), Some(4096));
        assert!(random.iter().all(|place| place % 65536 == 0 && *place < 1 << 20));
        let places: HashSet<_> = Places::new(1 << 24, 4096, true, 2, Some(1)).collect();
        assert!(places.len() > 1000, "{}", places.len());
    }

    #[test]
    fn a_block_from_another_place_is_noticed() {
        let mut block = vec![0; 8192];
        fill(&mut block, 4096);
        assert!(check(&block, 4096).is_ok() && check(&block, 0).is_err());
        mark(&mut block, 12288);
        assert!(check(&block, 12288).is_ok() && check(&block, 4096).is_err());
        assert!(check(&block[4096..], 16384).is_ok(), "a smaller block of what was written");
        block[8191] ^= 1;
        assert!(check(&block, 12288).is_err());
        assert_ne!(word(0), word(8));
    }
}
