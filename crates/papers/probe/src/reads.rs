//! Whole reads with a given number in flight, each submitted by a separate system call, as fio
//! does.

use crate::{Error, last, median, tenth};
use io_uring::{IoUring, opcode, types};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::fs::{File, OpenOptions};
use std::io::{Error as IoError, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use terapage_sys::memory;
use terapage_sys::thread::used_ns;

/// How reads are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// `io_submit` and `io_getevents`.
    Libaio,
    /// `io_uring_enter`, with interrupts.
    IoUring,
}

impl Interface {
    /// The interface's name.
    pub fn name(self) -> &'static str {
        match self {
            Interface::Libaio => "libaio",
            Interface::IoUring => "io_uring",
        }
    }
}

/// Random reads at one depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reads {
    /// The interface that submitted them.
    pub interface: Interface,
    /// Reads under way at the same time.
    pub depth: u32,
    /// Reads a second.
    pub iops: f64,
    /// Processor time of the thread for a read, us.
    pub thread_us: f64,
    /// Calls that waited for results, for a read.
    pub waits: f64,
    /// The median time from before a read's submission until its completion was seen, us.
    pub latency_us: f64,
    /// The time that a tenth of the reads did not exceed, us.
    pub latency_fast_us: f64,
}

/// The most reads under way.
const DEPTH_MAX: usize = 128;

/// A read that is in flight, or the place for one.
#[derive(Clone, Copy)]
struct Place {
    address: usize,
    since: Instant,
}

/// An engine that submits single reads and waits for results.
trait Engine {
    /// Submits a read of `len` bytes at `offset` of the file into `address`; the result carries
    /// `tag`.
    fn submit(&mut self, tag: u64, address: usize, len: usize, offset: u64) -> Result<(), Error>;

    /// Waits for at least one result. The tags are appended to `done`.
    fn wait(&mut self, done: &mut Vec<u64>) -> Result<(), Error>;
}

/// Reads `len` bytes at a time at random places of a file for `time`, past the page cache, with
/// `depth` reads under way.
///
/// # Errors
/// The file cannot be opened for direct I/O, or a read fails.
pub fn read_at_random(
    path: &Path,
    interface: Interface,
    depth: u32,
    len: usize,
    time: Duration,
    seed: u64,
) -> Result<Reads, Error> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    let file = opened.map_err(|cause| Error { doing: "opening the file for direct reads", cause })?;
    match interface {
        Interface::Libaio => measure(&mut Libaio::new(&file)?, &file, interface, depth, len, time, seed),
        Interface::IoUring => measure(&mut Uring::new(&file)?, &file, interface, depth, len, time, seed),
    }
}

fn measure(
    engine: &mut impl Engine,
    file: &File,
    interface: Interface,
    depth: u32,
    len: usize,
    time: Duration,
    seed: u64,
) -> Result<Reads, Error> {
    let size = file.metadata().map_err(|cause| Error { doing: "reading the file's size", cause })?.len();
    let count = (size / len as u64).max(1);
    let depth = (depth as usize).clamp(1, DEPTH_MAX);
    let memory = memory::reserve(depth * len).map_err(|error| Error {
        doing: "memory for the reads",
        cause: IoError::from_raw_os_error(error.errno()),
    })?;
    let mut rng = StdRng::seed_from_u64(seed);
    let begin = Instant::now();
    let mut places: Vec<Place> =
        (0..depth).map(|at| Place { address: memory as usize + at * len, since: begin }).collect();
    let mut free: Vec<u64> = (0..depth as u64).collect();
    let mut latencies_us = Vec::with_capacity(1 << 20);
    let (mut reads, mut waits, mut under_way) = (0_u64, 0_u64, 0_usize);
    let before_ns = used_ns();
    let mut elapsed = Duration::ZERO;
    while elapsed < time {
        while let Some(tag) = free.pop() {
            let place = &mut places[tag as usize];
            place.since = Instant::now();
            engine.submit(tag, place.address, len, rng.random_range(0..count) * len as u64)?;
            under_way += 1;
        }
        engine.wait(&mut free)?;
        waits += 1;
        reads += free.len() as u64;
        under_way -= free.len();
        if latencies_us.len() + free.len() <= latencies_us.capacity() {
            let took = |&tag: &u64| places[tag as usize].since.elapsed().as_nanos() as f64 / 1e3;
            latencies_us.extend(free.iter().map(took));
        }
        elapsed = begin.elapsed();
    }
    let used_us = (used_ns() - before_ns) as f64 / 1e3;
    while under_way > 0 {
        free.clear();
        engine.wait(&mut free)?;
        under_way -= free.len();
    }
    // SAFETY: the memory was reserved above, and no read is under way.
    unsafe { libc::munmap(memory.cast(), depth * len) };
    Ok(Reads {
        interface,
        depth: depth as u32,
        iops: reads as f64 / elapsed.as_secs_f64(),
        thread_us: used_us / reads.max(1) as f64,
        waits: waits as f64 / reads.max(1) as f64,
        latency_us: median(latencies_us.iter().copied()),
        latency_fast_us: tenth(latencies_us),
    })
}

/// A control block of libaio (`struct iocb` of `linux/aio_abi.h`, little endian).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    address: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// A result of libaio (`struct io_event`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

struct Libaio {
    context: libc::c_ulong,
    fd: u32,
    blocks: Vec<Iocb>,
    events: Vec<IoEvent>,
}

impl Libaio {
    fn new(file: &File) -> Result<Libaio, Error> {
        let mut context = 0;
        // SAFETY: the context is written to `context`.
        if unsafe { libc::syscall(libc::SYS_io_setup, DEPTH_MAX, &raw mut context) } != 0 {
            return Err(last("io_setup"));
        }
        let (blocks, events) = (vec![Iocb::default(); DEPTH_MAX], vec![IoEvent::default(); DEPTH_MAX]);
        Ok(Libaio { context, fd: file.as_raw_fd() as u32, blocks, events })
    }
}

impl Drop for Libaio {
    fn drop(&mut self) {
        // SAFETY: the context was made by `new`.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

impl Engine for Libaio {
    fn submit(&mut self, tag: u64, address: usize, len: usize, offset: u64) -> Result<(), Error> {
        let block = &mut self.blocks[tag as usize];
        let (address, len, offset) = (address as u64, len as u64, offset as i64);
        *block = Iocb { data: tag, fd: self.fd, address, len, offset, ..Iocb::default() };
        block.opcode = 0; // IOCB_CMD_PREAD
        let list = [&raw mut *block];
        // SAFETY: the control block and the memory that it names live until the result has arrived.
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_ptr()) };
        if submitted == 1 { Ok(()) } else { Err(last("io_submit")) }
    }

    fn wait(&mut self, done: &mut Vec<u64>) -> Result<(), Error> {
        let (most, none) = (self.events.len(), std::ptr::null::<libc::timespec>());
        let got = loop {
            // SAFETY: there is room for `most` events.
            let got = unsafe {
                libc::syscall(libc::SYS_io_getevents, self.context, 1, most, self.events.as_mut_ptr(), none)
            };
            match usize::try_from(got) {
                Ok(got) => break got,
                Err(_) if IoError::last_os_error().kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(last("io_getevents")),
            }
        };
        for event in &self.events[..got] {
            check(event.result)?;
            done.push(event.data);
        }
        Ok(())
    }
}

struct Uring {
    ring: IoUring,
    fd: types::Fd,
}

impl Uring {
    fn new(file: &File) -> Result<Uring, Error> {
        let ring =
            IoUring::new(DEPTH_MAX as u32).map_err(|cause| Error { doing: "io_uring_setup", cause })?;
        Ok(Uring { ring, fd: types::Fd(file.as_raw_fd()) })
    }
}

impl Engine for Uring {
    fn submit(&mut self, tag: u64, address: usize, len: usize, offset: u64) -> Result<(), Error> {
        let read = opcode::Read::new(self.fd, address as *mut u8, len as u32).offset(offset);
        // SAFETY: the memory lives until the result has arrived.
        let pushed = unsafe { self.ring.submission().push(&read.build().user_data(tag)) };
        pushed
            .map_err(|_| Error { doing: "submitting a read", cause: IoError::other("the ring is full") })?;
        self.ring.submit().map_err(|cause| Error { doing: "io_uring_enter", cause })?;
        Ok(())
    }

    fn wait(&mut self, done: &mut Vec<u64>) -> Result<(), Error> {
        match self.ring.submit_and_wait(1) {
            Err(cause) if cause.kind() != ErrorKind::Interrupted => {
                return Err(Error { doing: "io_uring_enter", cause });
            }
            _ => {}
        }
        for entry in self.ring.completion() {
            check(i64::from(entry.result()))?;
            done.push(entry.user_data());
        }
        Ok(())
    }
}

/// The error in a read's result, if there is one.
fn check(result: i64) -> Result<(), Error> {
    if result > 0 {
        return Ok(());
    }
    let cause = if result == 0 {
        IoError::other("nothing was read")
    } else {
        IoError::from_raw_os_error(-result as i32)
    };
    Err(Error { doing: "reading the file", cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn both_interfaces_read_at_the_depth() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        for interface in [Interface::Libaio, Interface::IoUring] {
            for depth in [1, 8] {
                let time = Duration::from_millis(30);
                let reads = match read_at_random(&path, interface, depth, 8192, time, 1) {
                    Ok(reads) => reads,
                    Err(error) => {
                        println!("SKIPPED: {}: {error}", interface.name());
                        continue;
                    }
                };
                assert_eq!(reads.depth, depth);
                assert!(reads.iops > 0.0 && reads.thread_us > 0.0, "{reads:?}");
                assert!(reads.waits <= 1.0 && reads.latency_fast_us <= reads.latency_us, "{reads:?}");
            }
        }
    }
}
