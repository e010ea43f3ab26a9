//! The pager of this process, started when it is first needed, and the address space that it pages.
//!
//! Locks, in the order in which they are taken: `STARTING`, `SYNC`, the small heap,
//! [`Process::ranges`], [`Process::pager`]. A fork takes them all. Nobody who holds one touches
//! paged memory but the small heap's own.

use crate::options::{Options, for_pager};
use crate::space::Space;
use crate::{Error, Result, fork, heap, mapping::Mapping};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use terapage_pager::Pager;
use terapage_stats::Snapshot;
use terapage_sys::fd::Room;
use terapage_sys::{last, memory, userfaultfd};

/// Address space set aside where nothing says otherwise, and the least that will do.
const ADDRESS_SPACE: usize = 1 << 40;
pub(crate) const ADDRESS_SPACE_MIN: usize = 64 << 20;

/// Bytes that leave memory in one request.
const DONE_WITH: usize = 4 << 20;

/// What is where in the address space.
pub(crate) struct Ranges {
    pub space: Space,
    /// Large allocations: the bytes that were asked for, by address.
    pub large: BTreeMap<usize, usize>,
    /// Mapped files, by address.
    pub mappings: BTreeMap<usize, Arc<Mapping>>,
}

pub(crate) struct Process {
    pub start: usize,
    pub len: usize,
    pub block: usize,
    /// One bit for every 16 bytes: whether an allocation of the small heap begins there that the
    /// heap itself cannot tell. Never unmapped.
    pub medium_bits: usize,
    /// Whether any range was ever said to be touched in no order.
    pub advised: AtomicBool,
    pub ranges: Mutex<Ranges>,
    pub pager: RwLock<Pager>,
}

/// At load, before the program has threads: a fork that goes on while another thread makes the
/// first use is to know of it.
// SAFETY: the loader calls what this section holds, as functions of this type, once.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    // What fails here is told by the first use.
    fork::register().ok();
    last::open(|| {
        // A fork takes the lock, too: no child keeps the raised limit.
        let _starting = lock(&STARTING);
        let _room = Room::make();
        last::look().unwrap_or(false)
    });
}

static PROCESS: OnceLock<Process> = OnceLock::new();
pub(crate) static STARTING: Mutex<()> = Mutex::new(());

/// Locks; a panic elsewhere changes nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the pager. Without it the first use does, with the options of the environment.
///
/// # Errors
/// [`Error::Started`] after the first use; settings that cannot be; no userfaultfd or io_uring; no
/// store.
pub fn init(options: &Options) -> Result<()> {
    let _starting = lock(&STARTING);
    if PROCESS.get().is_some() {
        return Err(Error::Started);
    }
    start(options).map(|_| ())
}

/// The process's pager, started if need be.
pub(crate) fn process() -> Result<&'static Process> {
    if let Some(process) = PROCESS.get() {
        return Ok(process);
    }
    let _starting = lock(&STARTING);
    match PROCESS.get() {
        Some(process) => Ok(process),
        None => start(&Options::default()),
    }
}

/// The process's pager, if it has been started.
pub(crate) fn started() -> Option<&'static Process> {
    PROCESS.get()
}

fn start(options: &Options) -> Result<&'static Process> {
    let settings = options.settings()?;
    if memory::is_locked_when_mapped()? {
        let why = "the process locks all that it maps (mlockall with MCL_FUTURE), and paged memory cannot be locked";
        return Err(Error::Argument(why.to_owned()));
    }
    let for_pager = for_pager(&settings);
    let block = for_pager.block;
    let open = terapage_store::Shelf::default().opener(&settings, block);
    let pager = Pager::start(for_pager, Box::new(move || Ok(open()?)))?;
    let most = terapage_pager::BLOCKS_MOST.saturating_mul(block);
    let (start, len) = reserve(options.address_space.unwrap_or(ADDRESS_SPACE).min(most))?;
    pager.add(start, len, 0)?;
    let medium_bits = memory::reserve(len / 128)? as usize;
    heap::open(start, len)?;
    fork::register()?;
    // The program may give up what it takes to make a userfaultfd, and its children need one each.
    userfaultfd::keep_device();
    let ranges =
        Ranges { space: Space::new(start, len, block), large: BTreeMap::new(), mappings: BTreeMap::new() };
    let process = Process {
        start,
        len,
        block,
        medium_bits,
        advised: AtomicBool::new(false),
        ranges: Mutex::new(ranges),
        pager: RwLock::new(pager),
    };
    Ok(PROCESS.get_or_init(|| process))
}

/// Address space, aligned for blocks of any size: `len` bytes, or half of it, and so on.
fn reserve(len: usize) -> Result<(usize, usize)> {
    let align = 2 << 20;
    let mut len = len / align * align;
    loop {
        match memory::reserve(len + align) {
            Ok(at) => return Ok(((at as usize).next_multiple_of(align), len)),
            Err(error) if len / 2 < ADDRESS_SPACE_MIN => return Err(error.into()),
            Err(_) => len = len / 2 / align * align,
        }
    }
}

/// What the pager has done so far; `None` before it was started.
pub fn stats() -> Option<Snapshot> {
    started().map(|process| process.pager().counters().snapshot())
}

impl Process {
    pub fn pager(&self) -> RwLockReadGuard<'_, Pager> {
        self.pager.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an address is in the address space set aside.
    pub fn has(&self, at: usize) -> bool {
        at.wrapping_sub(self.start) < self.len
    }

    /// A range of at least `len` bytes that begins at a multiple of `align` and reads as zeros.
    pub fn take(&self, len: usize, align: usize) -> Result<usize> {
        let mut ranges = lock(&self.ranges);
        let size = ranges.space.round(len).ok_or(Error::Room(len))?;
        ranges.space.take(size, align).ok_or(Error::Room(len))
    }

    /// Gives back a range that [`take`](Self::take) gave.
    pub fn put(&self, at: usize, len: usize) -> Result<()> {
        let size = lock(&self.ranges).space.round(len).ok_or(Error::Room(len))?;
        // Its address comes back only when its bytes have gone.
        let pager = self.pager();
        if self.advised.load(Relaxed) {
            pager.set_random(at, size, false)?;
        }
        pager.discard(at, size)?;
        // The order of the locks.
        drop(pager);
        lock(&self.ranges).space.put(at, size);
        Ok(())
    }
}

/// How the program is going to use a range. No advice changes a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be touched soon: as much as a quarter of the budget is read now.
    WillNeed,
    /// It will not be touched soon: its frames are the first to be used for something else.
    DoneWith,
    /// It will be touched in order. That is what the pager expects: it undoes [`Advice::Random`].
    Sequential,
    /// It will be touched in no order: nothing is read ahead.
    Random,
}

/// Gives advice about the blocks that `len` bytes at `at` lie in; [`Advice::DoneWith`] those that
/// lie in them.
///
/// # Errors
/// The range is not memory of Terapage's.
pub fn advise(at: *const u8, len: usize, advice: Advice) -> Result<()> {
    let at = at as usize;
    let outside = || Error::Argument(format!("{len} bytes at {at:#x} are not all memory of Terapage's"));
    let process = started().ok_or_else(outside)?;
    let end = at.checked_add(len).filter(|&end| process.has(at) && end <= process.start + process.len);
    let end = end.ok_or_else(outside)?;
    let block = process.block;
    let (first, last) = match advice {
        Advice::DoneWith => (at.next_multiple_of(block), end / block * block),
        _ => (at / block * block, end.next_multiple_of(block)),
    };
    if len == 0 {
        return Ok(());
    }
    if !lock(&process.ranges).space.is_taken(at, len) {
        return Err(outside());
    }
    if first >= last {
        return Ok(());
    }
    let (pager, size) = (process.pager(), last - first);
    match advice {
        Advice::WillNeed => pager.will_need(first, size)?,
        // In parts: faults are served in between.
        Advice::DoneWith => {
            for part in (first..last).step_by(DONE_WITH) {
                pager.done_with(part, DONE_WITH.min(last - part))?;
            }
        }
        Advice::Sequential => pager.set_random(first, size, false)?,
        Advice::Random => {
            process.advised.store(true, Relaxed);
            pager.set_random(first, size, true)?
        }
    }
    Ok(())
}
