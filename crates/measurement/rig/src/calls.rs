//! Ways to submit reads to the kernel, several in one call. Each way counts its own calls.

use anyhow::{Context, ensure};
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

/// A read: its place, and the part of the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The part of the buffer.
    pub slot: usize,
    /// The place on the device, bytes.
    pub offset: u64,
}

/// Calls to the kernel so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls that submit reads.
    pub submit: u64,
    /// Calls that wait for completions.
    pub wait: u64,
}

/// Memory for reads.
pub struct Parts {
    start: *mut u8,
    block: usize,
    count: usize,
}

/// Alignment for direct I/O.
const ALIGNMENT: usize = 4096;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

impl Parts {
    /// Memory for `count` reads of `block` bytes.
    ///
    /// # Errors
    /// No memory is available.
    pub fn new(block: usize, count: usize) -> anyhow::Result<Parts> {
        Parts::aligned(block, count, ALIGNMENT)
    }

    /// The same in huge pages. Memory of single pages may or may not be contiguous, and a driver
    /// needs more instructions if it is not.
    ///
    /// # Errors
    /// No memory is available.
    pub fn huge(block: usize, count: usize) -> anyhow::Result<Parts> {
        Parts::aligned(block, count, HUGE)
    }

    fn aligned(block: usize, count: usize, alignment: usize) -> anyhow::Result<Parts> {
        let bytes = (block * count).next_multiple_of(alignment).max(alignment);
        let mut start = ptr::null_mut();
        // SAFETY: `start` is ours to write to, and the alignment is a power of two.
        let error = unsafe { libc::posix_memalign(&mut start, alignment, bytes) };
        ensure!(error == 0, "no memory for {bytes} bytes of buffers");
        if alignment >= HUGE {
            // SAFETY: the memory belongs to this value, and consists of whole pages.
            let answer = unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
            ensure!(answer == 0, "huge pages: {}", io::Error::last_os_error());
        }
        // SAFETY: the memory was just allocated. It is touched now rather than during the
        // measurement.
        unsafe { ptr::write_bytes(start.cast::<u8>(), 1, bytes) };
        Ok(Parts { start: start.cast(), block, count })
    }

    /// All of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory has this length, was written as a whole when it was allocated, and is
        // borrowed like `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.block * self.count) }
    }

    /// The beginning of a part.
    fn at(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.count);
        // SAFETY: the part is inside the memory.
        unsafe { self.start.add(slot * self.block) }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // SAFETY: the memory came from posix_memalign, and no read is in flight: a [`Way`] waits on
        // drop for its reads before its parts are dropped.
        unsafe { libc::free(self.start.cast()) };
    }
}

/// A way.
#[allow(clippy::large_enum_variant, reason = "there are few, and they live long")]
pub enum Way {
    /// pread: one read at a time, each in one call.
    Pread {
        /// The device or file.
        file: File,
        /// The destination of its bytes.
        parts: Parts,
        /// Reads that have ended, but were not reported yet.
        done: Vec<usize>,
        /// Calls so far.
        calls: Calls,
    },
    /// No read, but a sleep of a known length, to find the effect of the measurement itself.
    Sleep {
        /// How long.
        each: Duration,
        /// Reads that have ended, but were not reported yet.
        done: Vec<usize>,
        /// Calls so far.
        calls: Calls,
    },
    /// libaio's calls.
    Aio(Aio),
    /// io_uring.
    Ring(Ring),
}

impl Way {
    /// Submits reads, all in one call if the way can do that.
    ///
    /// # Errors
    /// The kernel refuses the reads, or accepts only a part of them.
    pub fn submit(&mut self, reads: &[Read]) -> anyhow::Result<()> {
        match self {
            Way::Pread { file, parts, done, calls } => {
                for read in reads {
                    let count = loop {
                        calls.submit += 1;
                        // SAFETY: the part has this length, and has no other user.
                        let count = unsafe {
                            let (at, offset) = (parts.at(read.slot).cast(), read.offset as i64);
                            libc::pread(file.as_raw_fd(), at, parts.block, offset)
                        };
                        match io::Error::last_os_error() {
                            error if count < 0 && error.kind() == io::ErrorKind::Interrupted => {}
                            error if count < 0 => return Err(error.into()),
                            _ => break count,
                        }
                    };
                    ensure!(count as usize == parts.block, "a short read of {count} bytes");
                    done.push(read.slot);
                }
                Ok(())
            }
            Way::Sleep { each, done, calls } => {
                for read in reads {
                    sleep_until(now_ns() + each.as_nanos() as u64);
                    calls.submit += 1;
                    done.push(read.slot);
                }
                Ok(())
            }
            Way::Aio(aio) => aio.submit(reads),
            Way::Ring(ring) => ring.submit(reads),
        }
    }

    /// Waits until at least `least` reads complete, at most until `until` (of [`now_ns`]), and
    /// returns their slots.
    ///
    /// # Errors
    /// A read has failed.
    pub fn reap(&mut self, least: usize, until: Option<u64>, ended: &mut Vec<usize>) -> anyhow::Result<()> {
        match self {
            Way::Pread { done, .. } | Way::Sleep { done, .. } => ended.append(done),
            Way::Aio(aio) => aio.reap(least, until, ended)?,
            Way::Ring(ring) => ring.reap(least, until, ended)?,
        }
        Ok(())
    }

    /// Calls so far.
    pub fn calls(&self) -> Calls {
        match self {
            Way::Pread { calls, .. } | Way::Sleep { calls, .. } => *calls,
            Way::Aio(aio) => aio.calls,
            Way::Ring(ring) => ring.calls,
        }
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// Sleeps until a time of [`now_ns`].
pub fn sleep_until(ns: u64) {
    let time = timespec(ns);
    // SAFETY: `time` lives through the call; nothing is written.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, ptr::null_mut()) }
        == libc::EINTR
    {}
}

/// linux/aio_abi.h: `struct iocb`, for little-endian machines.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Control {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    other: i64,
}

const _: () = assert!(size_of::<Control>() == 64 && size_of::<Event>() == 32);

const IOCB_CMD_PREAD: u16 = 0;

/// libaio, through its three system calls.
pub struct Aio {
    file: File,
    parts: Parts,
    context: libc::c_ulong,
    controls: Vec<Control>,
    events: Vec<Event>,
    in_flight: usize,
    calls: Calls,
}

impl Aio {
    /// For as many reads at once as there are parts.
    ///
    /// # Errors
    /// The kernel has no place for them.
    pub fn new(file: File, parts: Parts) -> anyhow::Result<Aio> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: `context` is 0, as required, and can be written.
        let answer = unsafe { libc::syscall(libc::SYS_io_setup, parts.count as u32, &raw mut context) };
        ensure!(answer == 0, "io_setup: {}", io::Error::last_os_error());
        let (controls, events) = (vec![Control::default(); parts.count], vec![Event::default(); parts.count]);
        Ok(Aio { file, parts, context, controls, events, in_flight: 0, calls: Calls::default() })
    }

    fn submit(&mut self, reads: &[Read]) -> anyhow::Result<()> {
        let mut pointers: Vec<*mut Control> = Vec::with_capacity(reads.len());
        for read in reads {
            let buffer = self.parts.at(read.slot) as u64;
            let control = &mut self.controls[read.slot];
            *control = Control {
                data: read.slot as u64,
                opcode: IOCB_CMD_PREAD,
                file: self.file.as_raw_fd() as u32,
                buffer,
                bytes: self.parts.block as u64,
                offset: read.offset as i64,
                ..Control::default()
            };
            pointers.push(control);
        }
        self.calls.submit += 1;
        // SAFETY: the control blocks and the parts that they name live until the completion of the
        // reads is seen.
        let taken = unsafe {
            libc::syscall(libc::SYS_io_submit, self.context, pointers.len() as i64, pointers.as_ptr())
        };
        ensure!(taken >= 0, "io_submit: {}", io::Error::last_os_error());
        self.in_flight += taken as usize;
        ensure!(taken as usize == reads.len(), "io_submit took {taken} of {} I/Os", reads.len());
        Ok(())
    }

    fn reap(&mut self, least: usize, until: Option<u64>, ended: &mut Vec<usize>) -> anyhow::Result<()> {
        let least = least.min(self.in_flight);
        let left = until.map(|until| timespec(until.saturating_sub(now_ns())));
        let timeout = left.as_ref().map_or(ptr::null(), |left| &raw const *left);
        self.calls.wait += 1;
        // SAFETY: the events can be written, and their number is given; the time lives through the
        // call.
        let count = unsafe {
            let (most, events) = (self.events.len() as i64, self.events.as_mut_ptr());
            libc::syscall(libc::SYS_io_getevents, self.context, least as i64, most, events, timeout)
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            ensure!(error.kind() == io::ErrorKind::Interrupted, "io_getevents: {error}");
            return Ok(());
        }
        self.in_flight -= count as usize;
        for event in &self.events[..count as usize] {
            check(event.result, self.parts.block)?;
            ended.push(event.data as usize);
        }
        Ok(())
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context belongs to this value; the call waits for reads in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// Checks the result of a read.
fn check(result: i64, block: usize) -> anyhow::Result<()> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result as i32).into());
    }
    ensure!(result as usize == block, "a short read of {result} bytes");
    Ok(())
}

/// The time that the kernel's polling thread waits before it sleeps, ms.
const POLL_IDLE_MS: u32 = 50;

/// A ring for a single thread. Completions are processed when that thread waits for them, like
/// fio's; otherwise each completion would interrupt the thread. Before Linux 6.1 it is a plain
/// ring.
///
/// # Errors
/// The kernel has no io_uring.
pub fn ring(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_coop_taskrun().setup_single_issuer().setup_defer_taskrun();
    match builder.build(entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
        other => other,
    }
}

/// io_uring.
pub struct Ring {
    file: File,
    parts: Parts,
    ring: IoUring,
    /// Whether file and buffers are known to the ring beforehand.
    registered: bool,
    /// Whether a kernel thread takes the reads, without a call.
    polled: bool,
    in_flight: usize,
    calls: Calls,
}

impl Ring {
    /// For as many reads at once as there are parts.
    ///
    /// # Errors
    /// The kernel has no io_uring.
    pub fn new(file: File, parts: Parts, polled: bool, registered: bool) -> anyhow::Result<Ring> {
        let entries = parts.count.next_power_of_two() as u32;
        let ring = match polled {
            true => IoUring::builder().setup_sqpoll(POLL_IDLE_MS).build(entries),
            false => ring(entries),
        };
        let ring = ring.context("io_uring")?;
        if registered {
            let buffers: Vec<libc::iovec> = (0..parts.count)
                .map(|slot| libc::iovec { iov_base: parts.at(slot).cast(), iov_len: parts.block })
                .collect();
            // SAFETY: the parts live as long as the ring, and are freed only after it.
            unsafe { ring.submitter().register_buffers(&buffers) }.context("io_uring's buffers")?;
            ring.submitter().register_files(&[file.as_raw_fd()]).context("io_uring's files")?;
        }
        Ok(Ring { file, parts, ring, registered, polled, in_flight: 0, calls: Calls::default() })
    }

    /// Entries that the submission queue has room for.
    fn room(&mut self) -> usize {
        let queue = self.ring.submission();
        queue.capacity() - queue.len()
    }

    fn submit(&mut self, reads: &[Read]) -> anyhow::Result<()> {
        let block = self.parts.block as u32;
        // The kernel's thread may be late if other threads use its processor.
        while self.polled && self.room() < reads.len() {
            self.calls.submit += 1;
            self.ring.submit()?;
            self.ring.submitter().squeue_wait()?;
        }
        let mut queue = self.ring.submission();
        for read in reads {
            let (at, slot) = (self.parts.at(read.slot), read.slot as u16);
            let entry = match self.registered {
                true => opcode::ReadFixed::new(types::Fixed(0), at, block, slot).offset(read.offset).build(),
                false => {
                    let file = types::Fd(self.file.as_raw_fd());
                    opcode::Read::new(file, at, block).offset(read.offset).build()
                }
            };
            // SAFETY: the part stays at its place until the read's completion is seen, and no other
            // read uses it.
            unsafe { queue.push(&entry.user_data(read.slot as u64)) }.context("io_uring is full")?;
        }
        let wakes = self.polled && queue.need_wakeup();
        drop(queue);
        self.in_flight += reads.len();
        // A polling thread that is awake needs no call.
        self.calls.submit += u64::from(!self.polled || wakes);
        let taken = self.ring.submit()?;
        ensure!(self.polled || taken == reads.len(), "io_uring_enter took {taken} of {} I/Os", reads.len());
        Ok(())
    }

    fn reap(&mut self, least: usize, until: Option<u64>, ended: &mut Vec<usize>) -> anyhow::Result<()> {
        self.take(ended)?;
        if ended.len() >= least.min(self.in_flight + ended.len()) {
            return Ok(());
        }
        self.calls.wait += 1;
        let least = least.min(self.in_flight);
        let waited = match until {
            Some(until) => {
                let left = until.saturating_sub(now_ns());
                let time = types::Timespec::from(Duration::from_nanos(left));
                self.ring.submitter().submit_with_args(least, &types::SubmitArgs::new().timespec(&time))
            }
            None => self.ring.submit_and_wait(least),
        };
        match waited {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => {
                return Err(error.into());
            }
            _ => {}
        }
        self.take(ended)
    }

    /// Returns the reads that have completed.
    fn take(&mut self, ended: &mut Vec<usize>) -> anyhow::Result<()> {
        for end in self.ring.completion() {
            self.in_flight -= 1;
            check(end.result().into(), self.parts.block)?;
            ended.push(end.user_data() as usize);
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel writes to the parts until the last read has ended.
        while self.in_flight > 0 && self.ring.submit_and_wait(1).is_ok() {
            let ended = self.ring.completion().count();
            self.in_flight -= ended;
        }
        if self.in_flight > 0 {
            // The reads cannot be waited for, so the parts are never freed.
            self.parts.start = ptr::null_mut();
        }
    }
}
