//! The pager as the program sees it: it starts the engine's thread, and sends requests to it.

use crate::engine::Engine;
use crate::error::Error;
use crate::mailbox::Mailbox;
use crate::options::Options;
use crate::sync::Guard;
use crate::trace::{self, Recorder};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terapage_stats::{Counters, FILE_NAME, MAGIC, REGIONS, RegionCounters, Shared, Snapshot};
use terapage_store::Store;
use terapage_sys::fd::Fd;
use terapage_sys::{file, thread};
use terapage_trace::Misses;

/// Makes a store of this process, and those of its forked children.
pub type MakeStore = dyn Fn() -> Result<Box<dyn Store>, Error> + Send + Sync;

/// The most generations of forks.
const GENERATIONS: usize = 250;

/// Paged memory. A process has one `Pager`, and it lasts as long as the process.
pub struct Pager {
    engine: *mut Engine,
    pub(crate) mailbox: &'static Mailbox,
    pub(crate) block: usize,
    moves: bool,
    // Ends of pipes that tell the ancestors that this process, the child of a fork, still lives.
    lifelines: Vec<Fd>,
    trace: Option<Arc<trace::Shared>>,
    counted: &'static Shared,
    begins: Option<fn(&'static Shared)>,
    make_store: Box<MakeStore>,
    // Kept open so that other processes find the counters.
    stats_file: Fd,
}

// SAFETY: only the pager's thread uses the engine, or the forking thread while that is parked; the
// rest can be shared.
unsafe impl Send for Pager {}
// SAFETY: through a shared reference, threads only read, and post requests, which the mailbox takes
// one at a time.
unsafe impl Sync for Pager {}

/// A fork that is about to happen; the pager is parked.
pub struct Forking {
    lifeline: Fd,
    asking: Guard<'static, ()>,
    /// The signals that were already blocked.
    signals: thread::Signals,
}

// SAFETY: the thread that forked returns it, in the parent and in the child.
unsafe impl Send for Forking {}

/// Makes the memory file of the counters.
fn shared() -> Result<(Fd, &'static Shared), Error> {
    let name = std::ffi::CString::new(FILE_NAME).expect("no zero byte");
    let (fd, at) = file::memory_file(&name, size_of::<Shared>())?;
    // SAFETY: the memory was mapped just now, is large enough, and is never unmapped; zeros are
    // valid counters.
    let shared: &'static Shared = unsafe { &*at.cast::<Shared>() };
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
    /// A userfaultfd, an io_uring, the store or the trace file cannot be made.
    pub fn start(options: Options, make_store: Box<MakeStore>) -> Result<Pager, Error> {
        let (stats_file, counted) = shared()?;
        let (begins, block) = (options.begins, options.block);
        begins.into_iter().for_each(|begins| begins(counted));
        let mailbox = Mailbox::new()?;
        let (path, frames) = (options.trace.clone(), options.frames);
        let mut engine = Engine::new(options, make_store()?, counted, mailbox)?;
        let mut trace = None;
        if let Some(path) = path {
            let (recorder, shared) = Recorder::start(&path, block, frames)?;
            engine.recorder = Some(recorder);
            trace = Some(shared);
        }
        let moves = engine.mover.moves();
        let engine = Box::into_raw(Box::new(engine));
        let lifelines = Vec::new();
        let pager = Pager {
            engine,
            mailbox,
            block,
            moves,
            lifelines,
            trace,
            counted,
            begins,
            make_store,
            stats_file,
        };
        pager.spawn()?;
        Ok(pager)
    }

    /// Starts the pager's thread.
    fn spawn(&self) -> Result<(), Error> {
        struct Owned(*mut Engine);
        // SAFETY: this thread is the only user of the engine, except during a fork, which parks it.
        unsafe impl Send for Owned {}
        let engine = Owned(self.engine);
        let ready = Arc::new(AtomicU32::new(0));
        let is_ready = ready.clone();
        thread::spawn(c"terapage", move || {
            let engine = engine;
            // SAFETY: the engine is not freed before it has ended, and has no other user while this
            // thread is not parked.
            unsafe { (*engine.0).prepare() };
            is_ready.store(1, SeqCst);
            thread::wake(&is_ready);
            // SAFETY: the engine is freed only below, and this thread has it alone unless parked.
            let over = unsafe { (*engine.0).run() };
            // SAFETY: the engine has ended: nobody asks it for anything any more.
            unsafe { Box::from_raw(engine.0) }.close();
            over();
        })?;
        // The thread opens descriptors. Forked children often close all descriptors that they did
        // not open, and would close these before they are known as the pager's.
        while ready.load(SeqCst) == 0 {
            thread::wait(&ready, 0);
        }
        Ok(())
    }

    /// Whether frames are moved (`UFFDIO_MOVE`), not copied.
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// Bytes of a block, as the pager began: requested ranges begin and end at their boundaries.
    pub fn block(&self) -> usize {
        self.block
    }

    /// The counters.
    pub fn counters(&self) -> &'static Counters {
        &self.counted.counters
    }

    /// The counters of the process and of its regions, and the condition.
    pub fn shared(&self) -> &'static Shared {
        self.counted
    }

    /// The counts until now.
    pub fn snapshot(&self) -> Snapshot {
        self.counters().snapshot()
    }

    /// The counters of a region.
    pub fn region(&self, region: usize) -> &'static RegionCounters {
        &self.counted.regions[region]
    }

    /// The descriptor through which others read the counters.
    pub fn stats_file(&self) -> &Fd {
        &self.stats_file
    }

    /// Pages a range of private, anonymous, writable memory from now on. Its first `filled` bytes
    /// may have contents; the rest was never touched.
    ///
    /// # Errors
    /// The kernel does not let the range be registered, or has no memory for the table of its
    /// blocks.
    pub fn add(&self, start: usize, len: usize, filled: usize) -> Result<(), Error> {
        self.add_around(start, len, filled, &[])
    }

    /// Like [`add`](Self::add), without the ranges `loose` (from, to; ascending, at block
    /// boundaries): they are not paged, as if they had been [released](Self::release). From
    /// `filled` to the next of these ranges, memory was never touched; behind that lie
    /// reservations, which do not count as released.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_around(
        &self,
        start: usize,
        len: usize,
        filled: usize,
        loose: &[(usize, usize)],
    ) -> Result<(), Error> {
        let loose = loose.to_vec();
        self.mailbox.ask(move |engine| engine.add(start, len, filled, &loose))
    }

    /// Drops the bytes of the range: it reads as zeros from now on.
    ///
    /// # Errors
    /// The range is not completely paged.
    pub fn discard(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, Engine::discard)
    }

    /// Drops the bytes of several ranges (from, to) by one request.
    ///
    /// # Errors
    /// The ranges are not all paged.
    pub fn discard_all(&self, ranges: &[(usize, usize)]) -> Result<(), Error> {
        let ranges = ranges.to_vec();
        self.mailbox.ask(move |engine| {
            ranges.iter().try_for_each(|&(from, to)| {
                let (first, end) = engine.blocks_of(from, to - from)?;
                engine.discard(first, end)
            })
        })
    }

    /// Puts all bytes of the range into the program; the range is not paged until
    /// [`restore`](Self::restore).
    ///
    /// # Errors
    /// The range is not completely paged. Or the process may have no more mappings: then the range
    /// is paged as before.
    pub fn release(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, Engine::release)
    }

    /// Pages a range again that was released.
    ///
    /// # Errors
    /// The range is not completely paged or released, or the kernel does not let it be registered.
    pub fn restore(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, Engine::restore)
    }

    /// Says that the range will be touched soon.
    ///
    /// # Errors
    /// The range is not completely paged.
    pub fn will_need(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, Engine::will_need)
    }

    /// Says whether the range will be touched in random order: then nothing in it is read ahead. If
    /// the range is a file that is only read, and has most of the blocks, blocks are split.
    ///
    /// # Errors
    /// The range is not completely paged.
    pub fn set_random(&self, start: usize, len: usize, random: bool) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, move |engine, first, end| engine.set_random(first, end, random))
    }

    /// Says that the range will not be touched soon: its frames are evicted first.
    ///
    /// # Errors
    /// The range is not completely paged.
    pub fn done_with(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, Engine::done_with)
    }

    /// Makes room in the store for this many bytes in all, if it has less.
    ///
    /// # Errors
    /// The store cannot have that much.
    pub fn reserve(&self, bytes: usize) -> Result<(), Error> {
        self.mailbox.ask(move |engine| engine.io.reserve(bytes.div_ceil(engine.block)))
    }

    /// Sets the budget to this number of bytes: at most that of [`Options::frames`]. The excess
    /// leaves memory between faults, soon, but not before this call returns.
    ///
    /// # Errors
    /// The budget exceeds that, or has fewer than 8 blocks, or others share it.
    pub fn set_budget(&self, bytes: usize) -> Result<(), Error> {
        self.mailbox.ask(move |engine| engine.set_budget(bytes))
    }

    /// Splits blocks into pages now, if [`Options::splits`] allows it and nothing prevents it.
    /// Returns whether it did. The pager splits blocks by itself when that pays.
    ///
    /// # Errors
    /// None.
    pub fn split(&self) -> Result<bool, Error> {
        self.mailbox.ask(Engine::split)
    }

    /// The parts of a range of whole blocks that are paged and not known to be zero: from, to.
    ///
    /// # Errors
    /// The range is not completely paged.
    pub fn touched(&self, start: usize, len: usize) -> Result<Vec<(usize, usize)>, Error> {
        self.mailbox.ask_for(start, len, |engine, first, end| Ok(engine.touched(first, end)))
    }

    /// Counts a range separately from now on, as region number `region`: from 1 to less than
    /// [`REGIONS`], not in use.
    ///
    /// # Errors
    /// The range does not consist of whole paged blocks.
    pub fn name_region(&self, region: usize, start: usize, len: usize, name: &str) -> Result<(), Error> {
        assert!((1..REGIONS).contains(&region), "no such region");
        let name = name.to_owned();
        self.mailbox.ask_for(start, len, move |engine, first, end| {
            engine.name(region, first, end, &name);
            Ok(())
        })
    }

    /// Changes the length of a region.
    ///
    /// # Errors
    /// The range does not consist of whole paged blocks.
    pub fn resize_region(&self, region: usize, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, move |engine, first, end| {
            engine.rename(region, first, end);
            Ok(())
        })
    }

    /// Ends a region; its counts are added to those of the part around it.
    ///
    /// # Errors
    /// None. A region that is not in use stays as it is.
    pub fn end_region(&self, region: usize) -> Result<(), Error> {
        self.mailbox.ask(move |engine| {
            engine.table.usage.unname(region);
            Ok(())
        })
    }

    /// Ends the trace, if there is one. When this returns, the file has everything until now;
    /// nothing more is recorded. Call it before the process ends; it takes at most five seconds.
    ///
    /// # Errors
    /// The file did not accept all of the trace, or not in time. The accepted part can be read.
    pub fn finish_trace(&self) -> Result<(), Error> {
        let Some(trace) = &self.trace else { return Ok(()) };
        trace.begin_end();
        self.mailbox.ask(Engine::finish_trace)?;
        trace.wait_end()
    }

    /// Ends the recording of what the program's next run may use ([`Options::learn`]); `None` if
    /// nothing was recorded.
    pub fn finish_learning(&self) -> Option<Misses> {
        self.mailbox.ask(|engine| Ok(engine.finish_learning())).ok().flatten()
    }

    /// Frees what the stores hold elsewhere. The caller must end the process at once: missing
    /// memory no longer comes in, and a thread that touches it waits.
    ///
    /// # Errors
    /// None.
    pub fn close_stores(&self) -> Result<(), Error> {
        self.mailbox.ask(Engine::close_stores)
    }

    /// Tells the stores that the process is about to execute another program (`leaves`), or, after
    /// that, that it stays. Returns whether all have noted that it leaves: call it again until they
    /// have.
    pub fn leaving(&self, leaves: bool) -> bool {
        self.mailbox.ask(move |engine| Ok(engine.io.leaving(leaves))).unwrap_or(true)
    }

    /// Ends the pager: its thread, its store and its userfaultfd. The counters stay. Nothing may be
    /// asked of it afterwards.
    ///
    /// # Errors
    /// Not all ranges were [released](Self::release): then the pager goes on.
    pub fn end(&self) -> Result<(), Error> {
        let ended = Arc::new(AtomicU32::new(0));
        let over = ended.clone();
        self.end_then(move || {
            over.store(1, SeqCst);
            thread::wake(&over);
        })?;
        while ended.load(SeqCst) == 0 {
            thread::wait(&ended, 0);
        }
        Ok(())
    }

    /// Like [`end`](Self::end), but does not wait: the pager's thread itself calls `over` once all
    /// is gone, and then ends. That thread may call this, in [`Options::releases`].
    ///
    /// # Errors
    /// As for [`end`](Self::end).
    pub fn end_then(&self, over: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        self.mailbox.ask(move |engine| engine.end(Box::new(over)))
    }

    /// The number of times that the pager has waited for the trace to be written; 0 without a
    /// trace.
    pub fn trace_stalls(&self) -> u64 {
        self.trace.as_ref().map_or(0, |trace| trace.stalls())
    }

    /// Says that a fork is near: blocks that are in the program, or are touched from now on, stay
    /// there if the budget allows, so that the child can touch them before it has a pager. Each
    /// call is followed by [`before_fork`](Self::before_fork).
    ///
    /// # Errors
    /// None.
    pub fn fork_is_near(&self) -> Result<(), Error> {
        self.mailbox.ask(Engine::fork_is_near)
    }

    /// Whether the child of a fork could have a pager. Each generation reads the stores of all
    /// earlier ones, and the number of stores is limited.
    pub fn may_fork(&self) -> bool {
        self.lifelines.len() < GENERATIONS
    }

    /// Before a fork: parks the pager until [`after_fork_in_parent`](Self::after_fork_in_parent) or
    /// [`after_fork_in_child`](Self::after_fork_in_child). Only faults of the calling thread are
    /// served, and signals wait. The caller must hold no lock that the pager could want.
    ///
    /// # Errors
    /// No pipe for the child can be made: the pager continues.
    pub fn before_fork(&self) -> Result<Forking, Error> {
        self.before_fork_by(Fd::pipe()?)
    }

    /// As [`before_fork`](Self::before_fork), with a pipe that was made before.
    ///
    /// # Errors
    /// A store cannot be shared: the pager continues.
    pub fn before_fork_by(&self, pipe: (Fd, Fd)) -> Result<Forking, Error> {
        // A signal would let the thread continue before its fault is served completely.
        let signals = thread::block_signals();
        let asking = self.mailbox.lock();
        self.mailbox.stop_pager(&asking);
        // SAFETY: the pager's thread is parked.
        match unsafe { (*self.engine).freeze(pipe) } {
            Ok(lifeline) => Ok(Forking { lifeline, asking, signals }),
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
        let Forking { lifeline, asking, signals } = forking;
        drop(lifeline);
        self.mailbox.unpark();
        drop(asking);
        thread::restore_signals(&signals);
    }

    /// After the fork, in the child, before anything touches paged memory.
    ///
    /// # Errors
    /// The child has no pager, and must not use paged memory: something touched paged memory too
    /// early, there were too many generations of forks, or a userfaultfd, an io_uring, the store or
    /// a thread cannot be made.
    pub fn after_fork_in_child(&mut self, forking: Forking) -> Result<(), Error> {
        let Forking { lifeline, asking, signals } = forking;
        let (stats_file, counted) = shared()?;
        self.begins.into_iter().for_each(|begins| begins(counted));
        let store = (self.make_store)()?;
        let mailbox = Mailbox::new()?;
        // SAFETY: this is the child's only thread.
        unsafe { (*self.engine).begin_child(store, counted, mailbox, &lifeline)? };
        drop(asking);
        (self.mailbox, self.counted, self.stats_file) = (mailbox, counted, stats_file);
        self.trace = None;
        self.lifelines.push(lifeline);
        self.spawn_in_child()?;
        thread::restore_signals(&signals);
        Ok(())
    }

    /// In the child: starts the pager's thread. A limit (EAGAIN) may be reached only for a moment:
    /// threads that have ended in the parent count until they are gone.
    fn spawn_in_child(&self) -> Result<(), Error> {
        let mut patience = 1000;
        while let Err(error) = self.spawn() {
            if patience == 0 || !error.is_for_now() {
                return Err(error);
            }
            patience -= 1;
            thread::sleep_ms(1);
        }
        Ok(())
    }
}
