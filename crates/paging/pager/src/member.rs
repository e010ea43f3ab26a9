//! One pager of a process: it starts the engine's thread, and makes requests of it.

use crate::engine::Engine;
use crate::sync::Guard;
use crate::trace::{self, Recorder};
use crate::{Error, Mailbox, Options};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terapage_stats::Shared;
use terapage_store::Store;
use terapage_sys::fd::Fd;
use terapage_sys::thread;

/// A range to be paged, as [`Member::add`] takes it.
#[derive(Clone, Debug)]
pub(crate) struct Added {
    pub start: usize,
    pub len: usize,
    /// Its first bytes, which may hold something.
    pub held: usize,
    /// Ranges in it that are not paged: from, to.
    pub loose: Vec<(usize, usize)>,
}

/// One pager: an engine and its thread, for a part of the addresses. It lasts as long as the
/// process.
pub(crate) struct Member {
    engine: *mut Engine,
    pub(crate) mailbox: &'static Mailbox,
    pub(crate) block: usize,
    moves: bool,
    // Ends of pipes that tell the ancestors that this process, the child of a fork, still lives.
    holds: Vec<Fd>,
    trace: Option<Arc<trace::Shared>>,
}

// SAFETY: only the pager's thread uses the engine, or the forking thread while that is parked; the
// rest can be shared.
unsafe impl Send for Member {}
// SAFETY: as above.
unsafe impl Sync for Member {}

impl Member {
    /// Starts a pager.
    pub fn start(options: Options, store: Box<dyn Store>, shared: &'static Shared) -> Result<Member, Error> {
        let mailbox = Mailbox::new()?;
        let block = options.block;
        let (path, frames) = (options.trace.clone(), options.frames);
        let mut engine = Engine::new(options, store, shared, mailbox)?;
        let mut trace = None;
        if let Some(path) = path {
            let (recorder, shared) = Recorder::start(&path, block, frames)?;
            engine.recorder = Some(recorder);
            trace = Some(shared);
        }
        let moves = engine.mover.moves();
        let engine = Box::into_raw(Box::new(engine));
        let member = Member { engine, mailbox, block, moves, holds: Vec::new(), trace };
        member.spawn()?;
        Ok(member)
    }

    fn spawn(&self) -> Result<(), Error> {
        struct Owned(*mut Engine);
        // SAFETY: this thread is the only user of the engine, apart from a fork, which parks it.
        unsafe impl Send for Owned {}
        let engine = Owned(self.engine);
        let ready = Arc::new(AtomicU32::new(0));
        let is_ready = ready.clone();
        thread::spawn(c"terapage", move || {
            let engine = engine;
            // SAFETY: the engine is never freed, and nobody else uses it while this thread is not
            // parked.
            unsafe { (*engine.0).prepare() };
            is_ready.store(1, SeqCst);
            thread::wake(&is_ready);
            // SAFETY: as above.
            unsafe { (*engine.0).run() }
        })?;
        // The thread opens descriptors. Children of forks often close all that they did not open,
        // and would close these before they are known as the pager's.
        while ready.load(SeqCst) == 0 {
            thread::wait(&ready, 0);
        }
        Ok(())
    }

    /// Whether frames are moved (`UFFDIO_MOVE`), not copied.
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// Pages ranges from now on, ascending. From the address `reserved` on, they are reservations:
    /// what is not paged there does not count as released.
    pub fn add(&self, ranges: Vec<Added>, reserved: usize) -> Result<(), Error> {
        self.mailbox.ask(move |engine| {
            let released = &engine.counters.released_bytes;
            let mut first = None;
            for Added { start, len, held, loose } in ranges {
                let before = released.load(Relaxed);
                engine.add(start, len, held, &loose)?;
                if start >= reserved {
                    released.store(before, Relaxed);
                }
                if start + len > reserved {
                    first = first.or_else(|| engine.table.block_at(start.max(reserved)));
                }
            }
            engine.table.reserved = first.unwrap_or(engine.table.reserved);
            Ok(())
        })
    }

    /// See `Pager::finish_trace`.
    pub fn finish_trace(&self) -> Result<(), Error> {
        let Some(trace) = &self.trace else { return Ok(()) };
        trace.begin_end();
        self.mailbox.ask(Engine::finish_trace)?;
        trace.wait_end()
    }

    /// See `Pager::leaving`.
    pub fn leaving(&self, leaves: bool) -> bool {
        self.mailbox.ask(move |engine| Ok(engine.io.leaving(leaves))).unwrap_or(true)
    }

    /// How often the pager has waited for the trace to be written; 0 without one.
    pub fn trace_stalls(&self) -> u64 {
        self.trace.as_ref().map_or(0, |trace| trace.stalls())
    }

    /// Forks until now.
    pub fn generations(&self) -> usize {
        self.holds.len()
    }

    /// Parks the pager's thread, until [`unpark`](Self::unpark).
    pub fn park(&self, asking: &Guard<'_, ()>) {
        self.mailbox.stop_pager(asking);
    }

    /// Lets the pager's thread continue.
    pub fn unpark(&self) {
        self.mailbox.unpark();
    }

    /// While the thread is parked, before a fork: the pipe's end that the child is to hold.
    pub fn freeze(&self) -> Result<Fd, Error> {
        // SAFETY: the thread is parked.
        unsafe { (*self.engine).freeze() }
    }

    /// In the child of a fork, in its only thread: takes over the engine's state.
    pub fn begin_child(
        &mut self,
        store: Box<dyn Store>,
        shared: &'static Shared,
        hold: Fd,
    ) -> Result<(), Error> {
        let mailbox = Mailbox::new()?;
        // SAFETY: this is the child's only thread.
        unsafe { (*self.engine).begin_child(store, shared, mailbox)? };
        self.mailbox = mailbox;
        self.trace = None;
        self.holds.push(hold);
        Ok(())
    }

    /// In the child, once [`begin_child`](Self::begin_child) was called for all pagers: starts the
    /// thread. A limit (EAGAIN) may be reached only for a moment: threads that have ended in the
    /// parent count until they are gone.
    pub fn spawn_child(&self) -> Result<(), Error> {
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
