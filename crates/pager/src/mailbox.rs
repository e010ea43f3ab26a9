//! The mailbox: requests of the program's threads to the pager's thread, one at a time, and their
//! answers.

use crate::Error;
use crate::files::Part;
use crate::sync::{Cell, Guard, Mutex, Word, recover, wait, wake};
use std::sync::atomic::Ordering::SeqCst;
use terapage_sys::fd::Fd;
use terapage_sys::thread;

/// What a program can ask for. Ranges begin and end on a block's edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Add {
        start: usize,
        len: usize,
        held: usize,
        /// Parts of the range that are not to be paged; valid until the answer.
        loose: *const [(usize, usize)],
    },
    Discard {
        start: usize,
        len: usize,
    },
    Release {
        start: usize,
        len: usize,
    },
    Restore {
        start: usize,
        len: usize,
    },
    WillNeed {
        start: usize,
        len: usize,
    },
    /// `parts` belongs to the asker, and is valid until the answer.
    Touched {
        start: usize,
        len: usize,
        parts: *mut Vec<(usize, usize)>,
    },
    Order {
        start: usize,
        len: usize,
        random: bool,
    },
    DoneWith {
        start: usize,
        len: usize,
    },
    MapFile {
        start: usize,
        len: usize,
        part: Part,
    },
    UnmapFile {
        start: usize,
        len: usize,
    },
    /// `marks` has one mark for each block, and is valid until the answer.
    Changed {
        start: usize,
        len: usize,
        marks: *mut bool,
    },
    /// `hashes` has one hash for each block, and is valid until the answer.
    Written {
        start: usize,
        len: usize,
        hashes: *const u128,
    },
    /// `name` is valid until the answer.
    Name {
        region: usize,
        start: usize,
        len: usize,
        name: *const str,
    },
    Rename {
        region: usize,
        start: usize,
        len: usize,
    },
    Unname {
        region: usize,
    },
    /// Makes room in the store for this many bytes in all.
    Reserve {
        bytes: usize,
    },
    /// Pages within so many bytes from now on.
    Budget {
        bytes: usize,
    },
    FinishTrace,
    CloseStores,
    /// The process is about to execute another program, or stays after all. `noted`: whether the
    /// stores have all noted that.
    Leaving {
        leaves: bool,
        noted: *mut bool,
    },
    /// A fork is near: no block leaves the program that need not, until the next
    /// [`Park`](Request::Park) is over.
    Hold,
    /// `thread` is the thread whose faults are served while the pager is parked.
    Park {
        thread: u32,
    },
}

const IDLE: u32 = 0;
const POSTED: u32 = 1;
const ANSWERED: u32 = 2;
const PARKED: u32 = 3;

/// Holds one request at a time for the pager's thread, and its answer for the asker.
pub(crate) struct Mailbox {
    pub event: Fd,
    asking: Mutex<()>,
    state: Word,
    request: Cell<Option<Request>>,
    answer: Cell<Option<Result<(), Error>>>,
}

// SAFETY: `state` decides which thread uses `request` and `answer`: the asker, which holds
// `asking`, while it is IDLE or ANSWERED; the pager's thread while it is POSTED.
unsafe impl Sync for Mailbox {}

impl Mailbox {
    pub fn new() -> Result<&'static Mailbox, Error> {
        Ok(Box::leak(Box::new(Mailbox {
            event: Fd::event()?,
            asking: Mutex::new(()),
            state: Word::new(IDLE),
            request: Cell::new(None),
            answer: Cell::new(None),
        })))
    }

    pub fn lock(&self) -> Guard<'_, ()> {
        recover(self.asking.lock())
    }

    /// Posts a request and waits until the state is `until`.
    fn post(&self, request: Request, until: u32) {
        // SAFETY: the asker holds `asking` and the state is IDLE.
        self.request.with_mut(|cell| unsafe { *cell = Some(request) });
        self.state.store(POSTED, SeqCst);
        self.event.signal();
        loop {
            match self.state.load(SeqCst) {
                state if state == until => return,
                state => wait(&self.state, state),
            }
        }
    }

    pub fn ask(&self, request: Request) -> Result<(), Error> {
        // A signal handler that asks while the thread it interrupted asks would wait for itself.
        let signals = thread::block_signals();
        let asking = self.lock();
        self.post(request, ANSWERED);
        // SAFETY: the state is ANSWERED, so the asker uses the cell.
        let answer = self.answer.with_mut(|cell| unsafe { (*cell).take() });
        self.state.store(IDLE, SeqCst);
        drop(asking);
        thread::restore_signals(&signals);
        answer.unwrap_or(Ok(()))
    }

    /// Parks the pager's thread, until [`unpark`](Self::unpark), and waits until it is parked. Only
    /// faults of the caller are still served. The caller holds `asking`.
    pub fn stop_pager(&self, _asking: &Guard<'_, ()>) {
        self.post(Request::Park { thread: thread::id() }, PARKED);
    }

    /// Takes the request that was posted, in the pager's thread.
    pub fn take(&self) -> Option<Request> {
        if self.state.load(SeqCst) != POSTED {
            return None;
        }
        // SAFETY: the state is POSTED, so the pager's thread uses the cell.
        self.request.with_mut(|cell| unsafe { (*cell).take() })
    }

    pub fn answer(&self, answer: Result<(), Error>) {
        // SAFETY: the state is POSTED, so the pager's thread uses the cell.
        self.answer.with_mut(|cell| unsafe { *cell = Some(answer) });
        self.state.store(ANSWERED, SeqCst);
        wake(&self.state);
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
