//! The pager: memory larger than its frames, in user space.
//!
//! A [`Pager`] has one thread that resolves the faults of its regions, reads and writes the
//! store, and serves requests. `docs/pager.md` tells how; `engine.rs` is where to begin reading.

mod advice;
mod awake;
mod carriers;
mod engine;
mod error;
mod files;
mod fork;
mod frames;
mod heard;
mod held;
mod io;
mod load;
mod look;
mod mailbox;
mod maker;
mod mover;
mod options;
mod pagein;
mod pageout;
mod pool;
mod recorder;
mod removed;
mod requests;
mod spans;
mod sync;
mod table;
mod usage;
mod words;

use engine::Engine;
pub use error::Error;
pub use files::FDATASYNC;
pub(crate) use mailbox::{Mailbox, Request};
pub use options::Options;
use recorder::Recorder;
pub use spans::Spans;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, MutexGuard};
use terapage_stats::{Counters, FILE_NAME, MAGIC, RegionCounters, Shared};
pub(crate) use terapage_store::Error as StoreError;
use terapage_store::Store;
use terapage_sys::fd::Fd;
use terapage_sys::{file, thread};

/// Makes the store of a process: its own, and its children's when it forks.
pub type MakeStore = dyn Fn() -> Result<Box<dyn Store>, Error> + Send + Sync;

/// The most blocks of one range. Block numbers have 32 bits and are shared with static arrays.
pub const BLOCKS_MOST: usize = u32::MAX as usize / 16 * 15;

/// Forks of forks that there may be.
const GENERATIONS: usize = 250;

/// Paged memory. One for a process; it lasts as long.
pub struct Pager {
    engine: *mut Engine,
    mailbox: &'static Mailbox,
    shared: &'static Shared,
    block: usize,
    moves: bool,
    make_store: Box<MakeStore>,
    // Held open, or the counters could not be found.
    stats_file: Fd,
    // What tells the parent that this process, a child of a fork, still lives.
    holds: Vec<Fd>,
    trace: Option<Arc<recorder::Shared>>,
}

// SAFETY: the engine is the pager's thread's, but for a fork, which parks that; the rest is
// shareable.
unsafe impl Send for Pager {}
// SAFETY: as above.
unsafe impl Sync for Pager {}

/// A fork about to happen; the pager stands still.
pub struct Forking {
    hold: Fd,
    asking: MutexGuard<'static, ()>,
    /// The signals that were blocked before.
    signals: thread::Signals,
}

// SAFETY: it is given back by the thread that forked, in the parent and in the child.
unsafe impl Send for Forking {}

fn shared() -> Result<(Fd, &'static Shared), Error> {
    let name = std::ffi::CString::new(FILE_NAME).expect("no zero byte");
    let (fd, at) = file::memory_file(&name, size_of::<Shared>().next_multiple_of(terapage_sys::PAGE))?;
    // SAFETY: mapped just now, large enough, and never unmapped; zeros are valid counters.
    let shared = unsafe { &*at.cast::<Shared>() };
    let counters = &shared.counters;
    counters.pid.store(thread::pid(), Relaxed);
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    counters.started_s.store(now, Relaxed);
    counters.magic.store(MAGIC, SeqCst);
    Ok((fd, shared))
}

impl Pager {
    /// Starts a pager. `make_store` is called now, and in each child of a fork.
    ///
    /// # Errors
    /// No userfaultfd, no io_uring, no store, no trace file.
    pub fn start(options: Options, make_store: Box<MakeStore>) -> Result<Pager, Error> {
        let (stats_file, shared) = shared()?;
        let mailbox = Mailbox::new()?;
        let block = options.block;
        let (path, frames) = (options.trace.clone(), options.frames);
        let mut engine = Engine::new(options, make_store()?, shared, mailbox)?;
        let mut trace = None;
        if let Some(path) = path {
            let (recorder, shared) = Recorder::start(&path, block, frames)?;
            engine.recorder = Some(recorder);
            trace = Some(shared);
        }
        let moves = engine.mover.moves();
        let engine = Box::into_raw(Box::new(engine));
        let pager =
            Pager { engine, mailbox, shared, block, moves, make_store, stats_file, holds: Vec::new(), trace };
        pager.spawn()?;
        Ok(pager)
    }

    fn spawn(&self) -> Result<(), Error> {
        struct Owned(*mut Engine);
        // SAFETY: the thread is the one user of the engine, but for a fork.
        unsafe impl Send for Owned {}
        let engine = Owned(self.engine);
        let ready = Arc::new(AtomicU32::new(0));
        let is_ready = ready.clone();
        thread::spawn(c"terapage", move || {
            let engine = engine;
            // SAFETY: never freed, and used by nobody else while this thread is not parked.
            unsafe { (*engine.0).prepare() };
            is_ready.store(1, SeqCst);
            thread::wake(&is_ready);
            // SAFETY: as above.
            unsafe { (*engine.0).run() }
        })?;
        // The thread opens files. A program that closes all that it did not open, as children of a
        // fork do at once, would close them before they are known as the pager's.
        while ready.load(SeqCst) == 0 {
            thread::wait(&ready, 0);
        }
        Ok(())
    }

    /// Whether frames are moved (`UFFDIO_MOVE`), not copied.
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// Bytes of a block.
    pub fn block(&self) -> usize {
        self.block
    }

    /// The counters.
    pub fn counters(&self) -> &'static Counters {
        &self.shared.counters
    }

    /// The counters of a region.
    pub fn region(&self, region: usize) -> &'static RegionCounters {
        &self.shared.regions[region]
    }

    /// The descriptor through which others read the counters.
    pub fn stats_file(&self) -> &Fd {
        &self.stats_file
    }

    /// Pages a range of private, anonymous, writable memory from now on, with what the first `held`
    /// bytes of it hold; beyond them it was never touched.
    ///
    /// # Errors
    /// The kernel does not let the range be registered, or has no memory for the books of its
    /// blocks.
    pub fn add(&self, start: usize, len: usize, held: usize) -> Result<(), Error> {
        self.add_around(start, len, held, &[])
    }

    /// The same, but for ranges in it, from and to, ascending, on blocks' edges, that are not
    /// paged: as if they had been [released](Self::release). What lies from `held` to the next of
    /// them was never touched; beyond that are reservations, which do not count as released.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_around(
        &self,
        start: usize,
        len: usize,
        held: usize,
        loose: &[(usize, usize)],
    ) -> Result<(), Error> {
        self.mailbox.ask(Request::Add { start, len, held, loose })
    }

    /// The range reads as zeros from now on.
    ///
    /// # Errors
    /// The range is not all paged.
    pub fn discard(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask(Request::Discard { start, len })
    }

    /// The range gets its bytes and is paged no more, until [`restore`](Self::restore).
    ///
    /// # Errors
    /// The range is not all paged; or the process may have no more mappings: it is paged as before.
    pub fn release(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask(Request::Release { start, len })
    }

    /// The range, released before, has been mapped afresh and is paged again.
    ///
    /// # Errors
    /// The range is not all paged or released, or the kernel does not let it be registered.
    pub fn restore(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask(Request::Restore { start, len })
    }

    /// The range will be touched soon.
    ///
    /// # Errors
    /// The range is not all paged.
    pub fn will_need(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask(Request::WillNeed { start, len })
    }

    /// The parts of a range of whole blocks that are paged and not known to be zero: from, to.
    ///
    /// # Errors
    /// The range is not all paged.
    pub fn touched(&self, start: usize, len: usize) -> Result<Vec<(usize, usize)>, Error> {
        // Not on the asker's stack, which may be paged: the pager's thread cannot wait for itself.
        let mut parts = Box::new(Vec::new());
        self.mailbox.ask(Request::Touched { start, len, parts: &raw mut *parts })?;
        Ok(*parts)
    }

    /// Ends the trace, if there is one: what happened until now is in the file when this returns,
    /// what comes is not recorded. To be called before the process ends; takes five seconds at
    /// most.
    ///
    /// # Errors
    /// The file did not take all of the trace, or not in time. What it took can be read.
    pub fn finish_trace(&self) -> Result<(), Error> {
        let Some(trace) = &self.trace else { return Ok(()) };
        trace.begin_end();
        self.mailbox.ask(Request::FinishTrace)?;
        trace.wait_end()
    }

    /// The process is about to end and touches no paged memory any more: its store gives back what
    /// lies elsewhere, as in another machine's memory. A process that is killed does not come to
    /// it.
    ///
    /// # Errors
    /// None.
    pub fn close_stores(&self) -> Result<(), Error> {
        self.mailbox.ask(Request::CloseStores)
    }

    /// How often the pager has waited for the trace to be written; 0 without one.
    pub fn trace_stalls(&self) -> u64 {
        self.trace.as_ref().map_or(0, |trace| trace.stalls())
    }

    /// A fork is near: what is touched from now on, and what is there, stays there for the child,
    /// as far as the budget allows, so that it can be touched there before there is a pager. Each
    /// call is followed by [`before_fork`](Self::before_fork).
    ///
    /// # Errors
    /// None.
    pub fn hold(&self) -> Result<(), Error> {
        self.mailbox.ask(Request::Hold)
    }

    /// Whether the child of a fork could have a pager: each generation reads the stores of all
    /// before it, which have numbers.
    pub fn may_fork(&self) -> bool {
        self.holds.len() < GENERATIONS
    }

    /// Before a fork: the pager stands still from here to one of the next two, but for faults of
    /// the calling thread; signals wait. The caller holds no paged memory's lock that the pager
    /// could want.
    ///
    /// # Errors
    /// No pipe for the child can be had: the pager goes on.
    pub fn before_fork(&self) -> Result<Forking, Error> {
        // A signal would let the thread go on before a fault of its is served to the end.
        let signals = thread::block_signals();
        let asking = self.mailbox.lock();
        self.mailbox.stop_pager(&asking);
        // SAFETY: the thread is parked.
        match unsafe { (*self.engine).freeze() } {
            Ok(hold) => Ok(Forking { hold, asking, signals }),
            Err(error) => {
                self.mailbox.unpark();
                drop(asking);
                thread::restore_signals(&signals);
                Err(error)
            }
        }
    }

    /// After the fork, in the parent, whether or not it succeeded.
    pub fn after_fork_in_parent(&self, forking: Forking) {
        let Forking { hold, asking, signals } = forking;
        drop(hold);
        self.mailbox.unpark();
        drop(asking);
        thread::restore_signals(&signals);
    }

    /// After the fork, in the child, before anything touches paged memory.
    ///
    /// # Errors
    /// The child has no pager, and may not use paged memory: something has touched that too early,
    /// there have been too many generations of forks, or no userfaultfd, io_uring, store or thread
    /// is to be had.
    pub fn after_fork_in_child(&mut self, forking: Forking) -> Result<(), Error> {
        let (stats_file, shared) = shared()?;
        let mailbox = Mailbox::new()?;
        let store = (self.make_store)()?;
        // SAFETY: the child has one thread, this one.
        unsafe { (*self.engine).begin_child(store, shared, mailbox)? };
        self.mailbox = mailbox;
        self.shared = shared;
        self.stats_file = stats_file;
        self.trace = None;
        let Forking { hold, asking, signals } = forking;
        drop(asking);
        self.holds.push(hold);
        // Others, too, may have had the last of what the limits allow (EAGAIN), for a moment: those
        // that ended in the parent count until they are gone.
        let mut patience = 1000;
        while let Err(error) = self.spawn() {
            if patience == 0 || !error.is_for_now() {
                return Err(error);
            }
            patience -= 1;
            thread::sleep_ms(1);
        }
        thread::restore_signals(&signals);
        Ok(())
    }
}
