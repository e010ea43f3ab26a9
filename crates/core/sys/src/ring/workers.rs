//! Threads that read and write, for rings without an asynchronous way to files.

use super::{Done, Piece};
use crate::fd::Fd;
use crate::{Result, thread};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The number of threads: as many requests as a disk should have at once.
const COUNT: usize = 8;

/// A read or a write.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub write: bool,
    pub fd: RawFd,
    pub pieces: *const Piece,
    pub count: usize,
    pub offset: u64,
    pub tag: u64,
}

// SAFETY: the code that makes a request promises that the pieces and their memory have no other
// user until the completion has been taken, whichever thread executes the request.
unsafe impl Send for Request {}

impl Request {
    /// Carries the request out, in the calling thread.
    pub(super) fn carry_out(&self) -> Done {
        let call = if self.write { libc::SYS_pwritev2 } else { libc::SYS_preadv2 };
        // The offset is in one word on 64-bit machines; the next is its upper half elsewhere.
        let (at, count, offset, upper, flags) = (self.pieces, self.count, self.offset as i64, 0_i64, 0_i64);
        loop {
            // SAFETY: the code that made the request promised that the array of pieces and their
            // memory are valid, and have no other user, until the completion has been taken.
            let answer = unsafe { libc::syscall(call, i64::from(self.fd), at, count, offset, upper, flags) };
            let result = match answer {
                0.. => answer as i32,
                _ => -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            };
            if result != -libc::EINTR {
                return Done { tag: self.tag, result, more: false, flags: 0 };
            }
        }
    }
}

#[derive(Default)]
struct Queue {
    todo: VecDeque<Request>,
    done: VecDeque<Done>,
    /// Requests that a thread has taken but not completed.
    at_work: usize,
    /// The ring's thread sleeps, and wants to be woken at the next end.
    asleep: bool,
    ended: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    event: Fd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of a thread. It allocates nothing: the ring's thread has made room for the
    /// completions.
    fn run(&self) {
        let mut queue = self.lock();
        loop {
            if queue.ended {
                return;
            }
            let Some(request) = queue.todo.pop_front() else {
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.at_work += 1;
            drop(queue);
            let done = request.carry_out();
            queue = self.lock();
            queue.at_work -= 1;
            queue.done.push_back(done);
            if std::mem::take(&mut queue.asleep) {
                self.event.signal();
            }
        }
    }
}

/// The threads and their queue. Without threads, requests are executed when they are submitted.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: usize,
    /// The process that owns these threads: a forked child has none of them.
    process: u64,
    /// Pushed, and not yet submitted.
    pushed: Vec<Request>,
}

impl Workers {
    /// Starts the threads, if they may begin, or as many as the user may have.
    ///
    /// # Errors
    /// There is no descriptor for the event.
    pub(super) fn start(may_begin: bool) -> Result<Workers> {
        let shared = Arc::new(Shared { queue: Mutex::default(), work: Condvar::new(), event: Fd::event()? });
        let mut threads = 0;
        while may_begin && threads < COUNT {
            let shared = shared.clone();
            if thread::spawn_quiet(c"terapage-io", move || shared.run()).is_err() {
                break;
            }
            threads += 1;
        }
        Ok(Workers { shared, threads, process: thread::pid(), pushed: Vec::new() })
    }

    /// Becomes readable if something has ended after [`may_sleep`](Self::may_sleep).
    pub(super) fn event(&self) -> RawFd {
        self.shared.event.raw()
    }

    pub(super) fn push(&mut self, request: Request) {
        self.pushed.push(request);
    }

    pub(super) fn has_unsubmitted(&self) -> bool {
        !self.pushed.is_empty()
    }

    /// Submits the pushed requests.
    pub(super) fn submit(&mut self, ended: &mut VecDeque<Done>) {
        if self.pushed.is_empty() {
            return;
        }
        if self.threads == 0 {
            ended.extend(self.pushed.drain(..).map(|request| request.carry_out()));
            return;
        }
        let mut queue = self.shared.lock();
        let count = self.pushed.len();
        queue.todo.extend(self.pushed.drain(..));
        let room = queue.todo.len() + queue.at_work;
        queue.done.reserve(room);
        drop(queue);
        for _ in 0..count.min(self.threads) {
            self.shared.work.notify_one();
        }
    }

    /// Takes the completions.
    pub(super) fn reap(&mut self, ended: &mut VecDeque<Done>) {
        if self.threads > 0 {
            ended.extend(self.shared.lock().done.drain(..));
        }
    }

    pub(super) fn has_done(&self) -> bool {
        self.threads > 0 && !self.shared.lock().done.is_empty()
    }

    /// Before the ring's thread sleeps: asks to be woken. Returns whether it may sleep: false if a
    /// request has ended.
    pub(super) fn may_sleep(&self) -> bool {
        if self.threads == 0 {
            return true;
        }
        let mut queue = self.shared.lock();
        queue.asleep = queue.done.is_empty();
        queue.asleep
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // In the child of a fork there are no threads, and the lock may remain taken for ever.
        if self.process == thread::pid() {
            self.shared.lock().ended = true;
            self.shared.work.notify_all();
        }
    }
}
