//! libaio: the kernel's older asynchronous reads and writes (`io_setup`, `io_submit`), by system
//! calls. They are asynchronous only if they bypass the page cache; otherwise `io_submit` waits for
//! the disk.

use super::Done;
use super::workers::Request;
use crate::fd::Fd;
use crate::{Error, Result, check, page_bytes, thread};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// `struct io_event`: an end.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    more: i64,
}
const _: () = assert!(size_of::<Event>() == 32);

/// `struct iocb` of linux/aio_abi.h: an operation, on machines whose lower bytes come first.
#[derive(Default)]
#[repr(C)]
struct Iocb {
    tag: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    pieces: u64,
    count: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}
const _: () = assert!(size_of::<Iocb>() == 64 && cfg!(target_endian = "little"));

/// `struct aio_ring` of fs/aio.c, at the address that names the context. Its completions may be
/// taken without a system call, as in fio and QEMU.
#[repr(C)]
struct Header {
    id: u32,
    /// Places for ends.
    places: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_bytes: u32,
}
const MAGIC: u32 = 0xa10a_10a1;

const PREADV: u16 = 7;
const PWRITEV: u16 = 8;
/// An event counter signals completions.
const TELLS_EVENT: u32 = 1;

/// The most operations that one call submits.
const BATCH: usize = 64;
/// The smallest number of operations that a context takes at once.
const LEAST_ENTRIES: u32 = 16;

/// A context of asynchronous operations.
pub(super) struct Aio {
    context: usize,
    /// Whether completions may be taken from memory.
    is_mapped: bool,
    event: Fd,
    /// The process that made the context; a forked child does not have it.
    process: u64,
    pushed: VecDeque<Iocb>,
    under_way: usize,
}

/// Makes a context for `entries` operations.
fn set_up(entries: u32) -> Result<usize> {
    let mut context = 0_usize;
    // SAFETY: the kernel writes the context's name to `context`.
    check("io_setup", unsafe { libc::syscall(libc::SYS_io_setup, entries, &raw mut context) })?;
    Ok(context)
}

fn destroy(context: usize) {
    // SAFETY: the context belongs to this process, and is no longer used.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
}

impl Aio {
    /// Makes a context for `entries` operations at once, or for as many as the machine still has
    /// (`fs.aio-max-nr`).
    ///
    /// # Errors
    /// The kernel does not allow a context, or has none left.
    pub(super) fn new(entries: u32) -> Result<Aio> {
        let mut size = entries.max(LEAST_ENTRIES);
        let context = loop {
            match set_up(size) {
                Err(error) if error.errno() == libc::EAGAIN && size > LEAST_ENTRIES => size /= 2,
                Err(Error { source, .. }) if source.raw_os_error() == Some(libc::EAGAIN) => {
                    let call = "io_setup; the machine has no asynchronous operations left: raise \
                                fs.aio-max-nr, or choose TERAPAGE_IO=threads";
                    return Err(Error { call, source });
                }
                other => break other?,
            }
        };
        let event = Fd::event().inspect_err(|_| destroy(context))?;
        let mut aio = Aio {
            context,
            is_mapped: false,
            event,
            process: thread::pid(),
            pushed: VecDeque::new(),
            under_way: 0,
        };
        let header = aio.header();
        let is_mapped = header.magic == MAGIC && header.incompatible == 0 && header.header_bytes == 32;
        let places = header.places;
        aio.is_mapped = is_mapped;
        if is_mapped {
            let bytes = (32 + places as usize * size_of::<Event>()).next_multiple_of(page_bytes());
            // A forked child has no context, and needs no ring. SAFETY: the range is the ring.
            unsafe { libc::syscall(libc::SYS_madvise, context, bytes, libc::MADV_DONTFORK) };
        }
        Ok(aio)
    }

    fn header(&self) -> &Header {
        // SAFETY: the name of a context is the address of its ring, which the kernel has mapped for
        // this process. The kernel changes only head and tail, which are atomic here.
        unsafe { &*(self.context as *const Header) }
    }

    /// Becomes readable when something has ended.
    pub(super) fn event(&self) -> RawFd {
        self.event.raw()
    }

    pub(super) fn push(&mut self, request: Request) {
        let operation = Iocb {
            tag: request.tag,
            opcode: if request.write { PWRITEV } else { PREADV },
            fd: request.fd as u32,
            pieces: request.pieces as u64,
            count: request.count as u64,
            offset: request.offset as i64,
            flags: TELLS_EVENT,
            event: self.event.raw() as u32,
            ..Iocb::default()
        };
        self.pushed.push_back(operation);
    }

    pub(super) fn has_unsubmitted(&self) -> bool {
        !self.pushed.is_empty()
    }

    /// Submits the pushed operations: all of them, unless the context is full.
    pub(super) fn submit(&mut self, ended: &mut VecDeque<Done>) {
        while !self.pushed.is_empty() {
            let mut batch = [std::ptr::null_mut::<Iocb>(); BATCH];
            let count = self.pushed.len().min(BATCH);
            for (place, operation) in batch.iter_mut().zip(&mut self.pushed) {
                *place = operation;
            }
            // SAFETY: the kernel copies the operations during the call; the code that pushed them
            // promised that their pieces and memory stay valid until their completions have been
            // taken.
            let answer = unsafe { libc::syscall(libc::SYS_io_submit, self.context, count, batch.as_ptr()) };
            match check("io_submit", answer) {
                Ok(0) => return,
                Ok(taken) => {
                    self.pushed.drain(..taken as usize);
                    self.under_way += taken as usize;
                }
                Err(error) if error.errno() == libc::EINTR => {}
                // The context is full, or there is no memory for the moment.
                Err(error) if matches!(error.errno(), libc::EAGAIN | libc::ENOMEM) => return,
                // The kernel refuses the first operation: this is its completion.
                Err(error) => {
                    let refused = self.pushed.pop_front().map_or(0, |operation| operation.tag);
                    ended.push_back(Done { tag: refused, result: -error.errno(), more: false, flags: 0 });
                }
            }
        }
    }

    /// Takes the completions.
    pub(super) fn reap(&mut self, ended: &mut VecDeque<Done>) {
        if self.under_way == 0 {
            return;
        }
        let before = ended.len();
        if self.is_mapped {
            self.reap_mapped(ended);
        } else {
            self.reap_by_call(ended);
        }
        self.under_way -= (ended.len() - before).min(self.under_way);
    }

    fn reap_mapped(&self, ended: &mut VecDeque<Done>) {
        let header = self.header();
        let mut head = header.head.load(Relaxed);
        // A completion is written before the tail that includes it.
        let tail = header.tail.load(Acquire);
        while head != tail {
            let at = self.context + 32 + head as usize * size_of::<Event>();
            // SAFETY: `head` is below the number of places, and the kernel does not write to the
            // places between head and tail.
            ended.push_back(done(unsafe { &*(at as *const Event) }));
            head = if head + 1 == header.places { 0 } else { head + 1 };
        }
        // The kernel may use the places from now on.
        header.head.store(head, Release);
    }

    fn reap_by_call(&self, ended: &mut VecDeque<Done>) {
        let mut events = [Event::default(); BATCH];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let at = events.as_mut_ptr();
            // SAFETY: there is room for this number of events, and the call does not wait.
            let got = unsafe {
                libc::syscall(libc::SYS_io_getevents, self.context, 0_i64, BATCH, at, &raw const now)
            };
            let got = usize::try_from(got).unwrap_or(0).min(BATCH);
            ended.extend(events[..got].iter().map(done));
            if got < BATCH {
                return;
            }
        }
    }

    pub(super) fn has_done(&self) -> bool {
        let header = self.header();
        self.under_way > 0 && self.is_mapped && header.head.load(Relaxed) != header.tail.load(Acquire)
    }
}

fn done(event: &Event) -> Done {
    Done { tag: event.data, result: event.result as i32, more: false, flags: 0 }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // A forked child has inherited the name of the context, and not the context.
        if self.process == thread::pid() {
            destroy(self.context);
        }
    }
}
