//! The mailbox: requests of the program's threads to the pager's thread, one at a time, and their
//! answers.
//!
//! A request is a closure over the engine, which the pager's thread calls while the requesting
//! thread waits. The request owns all that it uses. It lies, like its answer, in the pager's own
//! memory, because the requesting thread's stack and the program's objects may be paged, and the
//! pager's thread cannot wait for itself.

use crate::engine::Engine;
use crate::error::Error;
use crate::sync::{Cell, Guard, Mutex, Word, recover, wait, wake};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terapage_sys::fd::Fd;
use terapage_sys::thread;

/// Nobody asks.
const IDLE: u32 = 0;
/// A request waits for the pager's thread, or is being served.
const POSTED: u32 = 1;
/// The request was served; the requesting thread takes the answer.
const ANSWERED: u32 = 2;
/// The pager's thread is to park.
const PARKING: u32 = 3;
/// The pager's thread is parked.
const PARKED: u32 = 4;

/// Work for the pager's thread.
trait Serve {
    fn serve(&mut self, engine: &mut Engine);
}

/// A request until it is served, and then its answer.
struct Asked<F, T> {
    request: Option<F>,
    answer: Option<Result<T, Error>>,
}

impl<T, F: FnOnce(&mut Engine) -> Result<T, Error>> Serve for Asked<F, T> {
    fn serve(&mut self, engine: &mut Engine) {
        self.answer = self.request.take().map(|request| request(engine));
    }
}

/// Holds one request at a time for the pager's thread.
pub(crate) struct Mailbox {
    pub event: Fd,
    asking: Mutex<()>,
    state: Word,
    /// The request for whose answer a thread waits.
    posted: Cell<Option<NonNull<dyn Serve>>>,
    /// The engine, and the pager's thread, while that thread asks for something itself; else 0.
    lent: Cell<Option<NonNull<Engine>>>,
    lent_to: Word,
    /// The thread whose faults are served while the pager is parked.
    forker: Word,
    /// The number of answered requests, and the time that their threads waited, ns. No thread waits
    /// on these words, so they are plain atomics for model checkers, too.
    asked: [AtomicU64; 2],
}

// SAFETY: `state` decides which thread uses `posted` and the object behind it: the pager's while it
// is POSTED, otherwise the requesting thread, which holds `asking`. Requests and answers are Send.
unsafe impl Sync for Mailbox {}
// SAFETY: a mailbox owns what it points to: requests and answers, which are Send.
unsafe impl Send for Mailbox {}

impl Mailbox {
    pub fn new() -> Result<&'static Mailbox, Error> {
        Ok(Box::leak(Box::new(Mailbox {
            event: Fd::event()?,
            asking: Mutex::new(()),
            state: Word::new(IDLE),
            posted: Cell::new(None),
            lent: Cell::new(None),
            lent_to: Word::new(0),
            forker: Word::new(0),
            asked: [const { AtomicU64::new(0) }; 2],
        })))
    }

    pub fn lock(&self) -> Guard<'_, ()> {
        recover(self.asking.lock())
    }

    /// Wakes the pager's thread for the work in `state`, and waits until the state is `until`. The
    /// caller holds `asking`.
    fn post(&self, state: u32, until: u32) {
        self.state.store(state, SeqCst);
        self.event.signal();
        loop {
            match self.state.load(SeqCst) {
                state if state == until => return,
                state => wait(&self.state, state),
            }
        }
    }

    /// Lets the pager's thread call `request`, and waits for the answer.
    pub fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Engine) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        // Only the pager's thread can find its own number here.
        if self.lent_to.load(SeqCst) != 0 && self.lent_to.load(SeqCst) == thread::id() {
            // SAFETY: the engine is lent to this thread, and nobody uses it while the cell has it.
            return self.lent.with_mut(|cell| unsafe {
                let mut engine = (*cell).take().expect("a request of the pager's thread within another");
                let answer = request(engine.as_mut());
                *cell = Some(engine);
                answer
            });
        }
        // If a signal handler made a request during a request of the interrupted thread, it would
        // wait for itself.
        let signals = thread::block_signals();
        let since_ns = thread::now_ns();
        let mut asked = Box::new(Asked { request: Some(request), answer: None });
        let asking = self.lock();
        let posted: NonNull<dyn Serve> = NonNull::from(&mut *asked);
        // SAFETY: the requesting thread holds `asking`, and the state is IDLE.
        self.posted.with_mut(|cell| unsafe { *cell = Some(posted) });
        self.post(POSTED, ANSWERED);
        // SAFETY: the requesting thread holds `asking`, and the state is ANSWERED.
        self.posted.with_mut(|cell| unsafe { *cell = None });
        self.state.store(IDLE, SeqCst);
        let waited_ns = thread::now_ns().saturating_sub(since_ns);
        self.asked[0].fetch_add(1, Relaxed);
        self.asked[1].fetch_add(waited_ns, Relaxed);
        drop(asking);
        let answer = asked.answer.take().expect("the request was served");
        drop(asked);
        thread::restore_signals(&signals);
        answer
    }

    /// In the pager's thread: calls `work`, whose requests are served at once.
    pub fn lend<T>(&self, engine: &mut Engine, work: impl FnOnce() -> T) -> T {
        // SAFETY: only the pager's thread uses this cell.
        self.lent.with_mut(|cell| unsafe { *cell = Some(NonNull::from(engine)) });
        self.lent_to.store(thread::id(), SeqCst);
        let done = work();
        self.lent_to.store(0, SeqCst);
        // SAFETY: as above.
        self.lent.with_mut(|cell| unsafe { *cell = None });
        done
    }

    /// The number of answered requests, and the time that their threads waited, ns.
    pub fn asked(&self) -> [u64; 2] {
        [0, 1].map(|at| self.asked[at].load(Relaxed))
    }

    /// [`ask`](Self::ask)s for a range of addresses, which must be blocks of one region: `serve`
    /// gets the first of them and the one after the last.
    pub fn ask_for<T: Send + 'static>(
        &self,
        start: usize,
        len: usize,
        serve: impl FnOnce(&mut Engine, u32, u32) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.ask(move |engine| {
            let (first, end) = engine.blocks_of(start, len)?;
            serve(engine, first, end)
        })
    }

    /// Parks the pager's thread, until [`unpark`](Self::unpark), and waits until it is parked. Only
    /// faults of the caller are still served. The caller holds `asking`.
    pub fn stop_pager(&self, _asking: &Guard<'_, ()>) {
        self.forker.store(thread::id(), SeqCst);
        self.post(PARKING, PARKED);
    }

    /// In the pager's thread: serves the posted request, if there is one. If the thread must
    /// [`park`](Self::park) instead, returns the thread whose faults are served meanwhile.
    pub fn serve(&self, engine: &mut Engine) -> Option<u32> {
        match self.state.load(SeqCst) {
            POSTED => {
                // SAFETY: the state is POSTED, so this thread uses the cell and the object behind
                // it, which the requesting thread keeps until the answer.
                self.posted.with_mut(|cell| unsafe {
                    if let Some(mut posted) = *cell {
                        posted.as_mut().serve(engine);
                    }
                });
                self.state.store(ANSWERED, SeqCst);
                wake(&self.state);
                None
            }
            PARKING => Some(self.forker.load(SeqCst)),
            _ => None,
        }
    }

    /// Notes that the pager's thread is parked, until [`is_parked`](Self::is_parked) is false.
    pub fn park(&self) {
        self.state.store(PARKED, SeqCst);
        wake(&self.state);
    }

    pub fn is_parked(&self) -> bool {
        self.state.load(SeqCst) == PARKED
    }

    /// Lets the pager's thread continue; the event wakes it.
    pub fn unpark(&self) {
        self.state.store(IDLE, SeqCst);
        self.event.signal();
    }
}
