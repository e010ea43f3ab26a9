//! The pager of this process, which starts at the first use, and its paged address space.
//!
//! The locks, in the order in which they are taken: `STARTING`, `SYNC`, the small heap,
//! [`Process::ranges`], [`Process::pages`]. A fork takes them all. A thread that holds a lock
//! touches no paged memory except the small heap's.

use crate::options::{Options, for_pager};
use crate::pages::{self, Pages};
use crate::space::Space;
use crate::{Error, Result, fork, heap, mapping::Mapping};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use terapage_pager::{Pager, owner::Owner};
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
    /// `None` under `terapage run`, whose pager has the addresses.
    pub space: Option<Space>,
    /// Large allocations: the requested bytes, by address.
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
    /// The pager of `terapage run`, if it is used.
    pub owner: Option<&'static Owner>,
    pub ranges: Mutex<Ranges>,
    pub pages: RwLock<Pages>,
    /// A store is remote, and keeps blocks that are not freed.
    pub is_far: bool,
}

/// Called at load, before the program has threads: a fork during another thread's first use must
/// know of that use.
// SAFETY: the loader calls the entries of this section once, as functions of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

unsafe extern "C" {
    /// Like `atexit`, but the function receives the status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    /// The action of `exit` on streams after all functions were called.
    fn fcloseall() -> c_int;
}

/// The end of the process: remote blocks are freed. A thread that touches paged memory from here on
/// waits, and does not keep the process from ending.
extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    let Some(process) = started().filter(|process| process.is_far && process.owner.is_none()) else { return };
    // SAFETY: this function was among the first to be registered, so it is called among the last;
    // streams are closed before the stores are, because their memory may be paged.
    unsafe { fcloseall() };
    if let Pages::Own(pager) = &*process.pages() {
        pager.close_stores().ok();
    }
    // SAFETY: ends the process.
    unsafe { libc::syscall(libc::SYS_exit_group, i64::from(status)) };
}

extern "C" fn at_load() {
    pages::find();
    // SAFETY: the function lives as long as the process.
    unsafe { on_exit(at_exit, std::ptr::null_mut()) };
    // The first use reports failures of this step.
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
    let owner = pages::owner();
    let (pages, start, len, block, space) = match owner {
        Some(owner) => {
            let (mut start, mut len) = (0, 0);
            (owner.whole)(&mut start, &mut len);
            (Pages::Owner(owner), start, len, (owner.block)(), None)
        }
        None => {
            let for_pager = for_pager(&settings);
            let block = for_pager.block;
            let least = settings.least_block_bytes();
            let open = terapage_far::shelf().opener(&settings, block);
            let pager = Pager::start(for_pager, Box::new(move || Ok(open()?)))?;
            let most = terapage_pager::BLOCKS_MOST.saturating_mul(least);
            let (start, len) = reserve(options.address_space.unwrap_or(ADDRESS_SPACE).min(most))?;
            pager.add(start, len, 0)?;
            (Pages::Own(pager), start, len, block, Some(Space::new(start, len, block)))
        }
    };
    let medium_bits = memory::reserve(len.div_ceil(128).next_multiple_of(8))? as usize;
    heap::open(start, len)?;
    fork::register()?;
    // The program may give up the right to make a userfaultfd, and each of its children needs one.
    userfaultfd::keep_device();
    let ranges = Ranges { space, large: BTreeMap::new(), mappings: BTreeMap::new() };
    let process = Process {
        start,
        len,
        block,
        medium_bits,
        advised: AtomicBool::new(false),
        owner,
        ranges: Mutex::new(ranges),
        pages: RwLock::new(pages),
        is_far: settings.stores.iter().any(|store| store.is_far()),
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
    started().map(|process| process.pages().snapshot())
}

/// Sets the budget to this number of bytes: at most that with which the pager began. The excess
/// leaves memory within moments. Starts the pager if nothing has started it yet. A forked child
/// begins with the parent's budget, and is independent of the parent's from then on.
///
/// # Errors
/// The budget exceeds that, or has fewer than 8 blocks; or the pager is that of `terapage run`,
/// where all processes share one budget.
pub fn set_budget(bytes: u64) -> Result<()> {
    match &*process()?.pages() {
        Pages::Own(pager) => Ok(pager.set_budget(usize::try_from(bytes).unwrap_or(usize::MAX))?),
        Pages::Owner(_) => Err(Error::OfRun),
    }
}

impl Process {
    pub fn pages(&self) -> RwLockReadGuard<'_, Pages> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an address is in the reserved address space.
    pub fn has(&self, at: usize) -> bool {
        at.wrapping_sub(self.start) < self.len
    }

    /// `len` rounded up to whole blocks, at least one.
    ///
    /// # Errors
    /// The length exceeds the address space.
    pub fn round(&self, len: usize) -> Result<usize> {
        len.max(1).checked_next_multiple_of(self.block).ok_or(Error::Room(len))
    }

    /// Takes a range of at least `len` bytes that begins at a multiple of `align` and reads as
    /// zeros.
    pub fn take(&self, len: usize, align: usize) -> Result<usize> {
        let size = self.round(len)?;
        let at = match self.owner {
            None => lock(&self.ranges).space.as_mut().and_then(|space| space.take(size, align)),
            Some(owner) => Some((owner.take)(size, align)).filter(|&at| at != 0),
        };
        at.ok_or(Error::Room(len))
    }

    /// Lengthens a range of `len` bytes (whole blocks) by `more` in place. Returns whether that was
    /// possible.
    pub fn extend(&self, ranges: &mut Ranges, at: usize, len: usize, more: usize) -> bool {
        ranges.space.as_mut().is_some_and(|space| space.extend(at, len, more))
    }

    /// Whether all of a range of these addresses is in use.
    pub fn is_taken(&self, ranges: &Ranges, at: usize, len: usize) -> bool {
        match (&ranges.space, self.owner) {
            (Some(space), _) => space.is_taken(at, len),
            (None, owner) => owner.is_some_and(|owner| (owner.is_used)(at, len)),
        }
    }

    /// Returns a range of [`take`](Self::take).
    pub fn put(&self, at: usize, len: usize) -> Result<()> {
        let size = self.round(len)?;
        // The addresses can be used again only after the bytes are dropped.
        let pages = self.pages();
        if self.advised.load(Relaxed) {
            pages.set_random(at, size, false)?;
        }
        match &*pages {
            Pages::Owner(owner) => {
                (owner.give)(at, size);
                return Ok(());
            }
            Pages::Own(pager) => pager.discard(at, size)?,
        }
        // Needed for the order of the locks.
        drop(pages);
        if let Some(space) = &mut lock(&self.ranges).space {
            space.put(at, size);
        }
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
    /// The range will be touched in order, which is the pager's default assumption: undoes
    /// [`Advice::Random`].
    Sequential,
    /// The range will be touched in random order: nothing is read ahead.
    Random,
}

/// Gives advice about all blocks that overlap `len` bytes at `at`; [`Advice::DoneWith`] concerns
/// only blocks that lie completely in the range.
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
    if !process.is_taken(&lock(&process.ranges), at, len) {
        return Err(outside());
    }
    if first >= last {
        return Ok(());
    }
    let (pages, size) = (process.pages(), last - first);
    match advice {
        Advice::WillNeed => pages.will_need(first, size)?,
        // In parts, so that faults are served in between.
        Advice::DoneWith => {
            for part in (first..last).step_by(DONE_WITH) {
                pages.done_with(part, DONE_WITH.min(last - part))?;
            }
        }
        Advice::Sequential => pages.set_random(first, size, false)?,
        Advice::Random => {
            process.advised.store(true, Relaxed);
            pages.set_random(first, size, true)?
        }
    }
    Ok(())
}
