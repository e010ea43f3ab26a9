//! The pager of this process, which starts at the first use, and the address space that it pages.
//!
//! Locks, in the order in which they are taken: `STARTING`, `SYNC`, the small heap,
//! [`Process::ranges`], [`Process::pager`]. A fork takes them all. A thread that holds one touches
//! no paged memory except the small heap's.

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

/// The default bytes of reserved address space.
const ADDRESS_SPACE: usize = 1 << 40;
/// The least bytes of reserved address space.
pub(crate) const ADDRESS_SPACE_MIN: usize = 64 << 20;

/// The most bytes that leave memory in one request.
const DONE_WITH: usize = 4 << 20;

/// The use of the address space.
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
    /// One bit for every 16 bytes: whether a medium allocation of the small heap begins there,
    /// which the heap itself cannot tell. Never unmapped.
    pub medium_bits: usize,
    /// Whether the program ever said that a range is touched in random order.
    pub advised: AtomicBool,
    pub ranges: Mutex<Ranges>,
    pub pager: RwLock<Pager>,
}

/// Called at load, before the program has threads: a fork during another thread's first use must
/// know of that use.
// SAFETY: the loader calls the entries of this section once, as functions of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    // The first use reports what fails here.
    fork::register().ok();
    last::open(|| {
        // A fork takes the lock, too, so no child gets the raised limit.
        let _starting = lock(&STARTING);
        let _room = Room::make();
        last::look().unwrap_or(false)
    });
}

static PROCESS: OnceLock<Process> = OnceLock::new();
pub(crate) static STARTING: Mutex<()> = Mutex::new(());

/// Takes a lock, even if another thread has panicked while it held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the pager. Otherwise the first use starts it, with the options of the environment.
///
/// # Errors
/// [`Error::Started`] after the first use; a setting is invalid; a userfaultfd, an io_uring or the
/// store cannot be made.
pub fn init(options: &Options) -> Result<()> {
    let _starting = lock(&STARTING);
    if PROCESS.get().is_some() {
        return Err(Error::Started);
    }
    start(options).map(|_| ())
}

/// The process's pager, started if necessary.
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

/// The process's pager, if it was started.
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
    let open = terapage_far::shelf().opener(&settings, block);
    let pager = Pager::start(for_pager, Box::new(move || Ok(open()?)))?;
    let most = terapage_pager::BLOCKS_MOST.saturating_mul(block);
    let (start, len) = reserve(options.address_space.unwrap_or(ADDRESS_SPACE).min(most))?;
    pager.add(start, len, 0)?;
    let medium_bits = memory::reserve(len / 128)? as usize;
    heap::open(start, len)?;
    fork::register()?;
    // The program may give up the right to make a userfaultfd, and each of its children needs one.
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

/// Reserves address space, aligned for blocks of any size: `len` bytes, or half of that, and so on.
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

/// The pager's counters; `None` before it was started.
pub fn stats() -> Option<Snapshot> {
    started().map(|process| process.pager().counters().snapshot())
}

impl Process {
    pub fn pager(&self) -> RwLockReadGuard<'_, Pager> {
        self.pager.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an address is in the reserved address space.
    pub fn has(&self, at: usize) -> bool {
        at.wrapping_sub(self.start) < self.len
    }

    /// Takes a range of at least `len` bytes that begins at a multiple of `align` and reads as
    /// zeros.
    pub fn take(&self, len: usize, align: usize) -> Result<usize> {
        let mut ranges = lock(&self.ranges);
        let size = ranges.space.round(len).ok_or(Error::Room(len))?;
        ranges.space.take(size, align).ok_or(Error::Room(len))
    }

    /// Gives back a range of [`take`](Self::take).
    pub fn put(&self, at: usize, len: usize) -> Result<()> {
        let size = lock(&self.ranges).space.round(len).ok_or(Error::Room(len))?;
        // The addresses can be used again only after the bytes are dropped.
        let pager = self.pager();
        if self.advised.load(Relaxed) {
            pager.set_random(at, size, false)?;
        }
        pager.discard(at, size)?;
        // Needed for the order of the locks.
        drop(pager);
        lock(&self.ranges).space.put(at, size);
        Ok(())
    }
}

/// How the program is going to use a range. No advice changes a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The range will be touched soon: up to a quarter of the budget is read now.
    WillNeed,
    /// The range will not be touched soon: its frames are evicted first.
    DoneWith,
    /// The range will be touched in order, which is what the pager expects: undoes
    /// [`Advice::Random`].
    Sequential,
    /// The range will be touched in random order: nothing is read ahead.
    Random,
}

/// Gives advice about all blocks that contain any of `len` bytes at `at`; [`Advice::DoneWith`]
/// concerns only blocks that lie completely in the range.
///
/// # Errors
/// The range is not memory of Terapage.
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
        // In parts, so that faults are served in between.
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
