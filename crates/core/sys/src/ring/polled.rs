//! The ring if io_uring is forbidden: libaio or threads for files, and epoll for everything else.
//! Operations on sockets are tried at once, and again when epoll says that the sockets are ready.

use super::aio::Aio;
use super::workers::{Request, Workers};
use super::{Address, Done, IoEngine, Message, Piece};
use crate::fd::Fd;
use crate::thread::now_ns;
use crate::{Result, check};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::RawFd;

/// The name that epoll reports for completions of reads and writes; no descriptor has this number.
const FILES: u64 = u64::MAX;

/// The number of events that one call takes.
const EVENTS: usize = 32;

/// The events that a poll reports: readable, the other side has hung up, an error.
const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// How files are read and written.
enum Files {
    Aio(Aio),
    Workers(Workers),
}

/// The same call for either way.
macro_rules! files {
    ($ring:expr, $files:ident => $call:expr) => {
        match &mut $ring.files {
            Files::Aio($files) => $call,
            Files::Workers($files) => $call,
        }
    };
}

/// A descriptor that is polled.
struct Poll {
    fd: RawFd,
    tag: u64,
    again: bool,
}

/// The operation of a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Receive,
    /// Connect to the address at this place, of this length.
    Connect(*const libc::sockaddr, libc::socklen_t),
}

/// An operation of a socket. Whoever begins one promises that its memory stays valid until its end
/// has been taken, and that nobody else touches the memory, except to read what is sent.
struct Transfer {
    fd: RawFd,
    tag: u64,
    kind: Kind,
    /// The rest of the memory.
    left: VecDeque<libc::iovec>,
    /// Bytes so far.
    bytes: usize,
    whole: bool,
}

/// A ring without io_uring.
pub(super) struct Polled {
    epoll: Fd,
    files: Files,
    /// Completions that were not yet taken.
    ended: VecDeque<Done>,
    polls: Vec<Poll>,
    /// Operations of sockets that were tried and must wait.
    transfers: Vec<Transfer>,
    /// The ends of timeouts, ns, and their tags.
    timers: BinaryHeap<Reverse<(u64, u64)>>,
    /// epoll was called, and some of its events have not been taken.
    looked: bool,
}

// SAFETY: the addresses in the ring point to memory that belongs to the operations until their
// completions have been taken, whichever thread has the ring.
unsafe impl Send for Polled {}

impl Polled {
    /// Makes a ring whose files are read and written by `engine`: libaio or threads. If no thread
    /// may begin, this thread does their work.
    ///
    /// # Errors
    /// The engine is not available, or there are no descriptors left.
    pub(super) fn new(engine: IoEngine, entries: u32, threads: bool) -> Result<Polled> {
        // SAFETY: no memory is touched.
        let make = || unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into();
        let epoll = Fd::open("epoll_create1", make)?;
        let files = match engine {
            IoEngine::Aio => Files::Aio(Aio::new(entries)?),
            _ => Files::Workers(Workers::start(threads)?),
        };
        let mut ring = Polled {
            epoll,
            files,
            ended: VecDeque::new(),
            polls: Vec::new(),
            transfers: Vec::new(),
            timers: BinaryHeap::new(),
            looked: false,
        };
        let event = files!(ring, files => files.event());
        // Each completion is a separate event (EPOLLET), so that the counter need not be read.
        ring.watch(libc::EPOLL_CTL_ADD, event, libc::EPOLLIN | libc::EPOLLET, FILES)?;
        Ok(ring)
    }

    pub(super) fn engine(&self) -> IoEngine {
        match self.files {
            Files::Aio(_) => IoEngine::Aio,
            Files::Workers(_) => IoEngine::Threads,
        }
    }

    /// Changes what epoll waits for.
    fn watch(&self, change: i32, fd: RawFd, events: i32, name: u64) -> Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: name };
        // SAFETY: the event is valid; the kernel copies it.
        let done = unsafe { libc::epoll_ctl(self.epoll.raw(), change, fd, &raw mut event) };
        check("epoll_ctl", done.into()).map(|_| ())
    }

    fn end(&mut self, tag: u64, result: i32) {
        self.ended.push_back(Done { tag, result, more: false, flags: 0 });
    }

    /// Registers `fd` with epoll: for one event, except for a poll that continues.
    fn arm(&mut self, fd: RawFd) {
        let mut events = 0;
        for transfer in self.transfers.iter().filter(|transfer| transfer.fd == fd) {
            events |= match transfer.kind {
                Kind::Receive => libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLONESHOT,
                Kind::Send | Kind::Connect(..) => libc::EPOLLOUT | libc::EPOLLONESHOT,
            };
        }
        for poll in self.polls.iter().filter(|poll| poll.fd == fd) {
            events |= libc::EPOLLIN | if poll.again { libc::EPOLLET } else { libc::EPOLLONESHOT };
        }
        if events == 0 {
            return;
        }
        // epoll forgets closed descriptors, so the ring cannot know whether epoll still has this
        // one.
        let name = fd as u64;
        let armed = match self.watch(libc::EPOLL_CTL_MOD, fd, events, name) {
            Err(error) if error.errno() == libc::ENOENT => self.watch(libc::EPOLL_CTL_ADD, fd, events, name),
            other => other,
        };
        if let Err(error) = armed {
            self.end_all(fd, -error.errno());
        }
    }

    /// Ends all that waits on `fd`.
    fn end_all(&mut self, fd: RawFd, result: i32) {
        let polls = self.polls.extract_if(.., |poll| poll.fd == fd).map(|poll| poll.tag);
        let transfers = self.transfers.extract_if(.., |transfer| transfer.fd == fd).map(|one| one.tag);
        let tags: Vec<u64> = polls.chain(transfers).collect();
        tags.into_iter().for_each(|tag| self.end(tag, result));
    }

    /// `fd` is ready: completes polls, and tries waiting transfers again.
    fn ready(&mut self, fd: RawFd, events: u32) {
        let result = (events & READABLE) as i32;
        let mut waits = false;
        if result != 0 {
            for poll in self.polls.iter().filter(|poll| poll.fd == fd) {
                self.ended.push_back(Done { tag: poll.tag, result, more: poll.again, flags: 0 });
            }
            self.polls.retain(|poll| poll.fd != fd || poll.again);
        }
        let mut transfers = std::mem::take(&mut self.transfers);
        transfers.retain_mut(|transfer| {
            if transfer.fd != fd {
                return true;
            }
            match transfer.attempt() {
                Some(result) => {
                    self.end(transfer.tag, result);
                    false
                }
                None => {
                    waits = true;
                    true
                }
            }
        });
        self.transfers = transfers;
        if waits {
            self.arm(fd);
        }
    }

    /// Tries an operation of a socket, and waits if it cannot complete at once.
    fn begin(&mut self, mut transfer: Transfer) {
        match transfer.attempt() {
            Some(result) => self.end(transfer.tag, result),
            None => {
                let fd = transfer.fd;
                self.transfers.push(transfer);
                self.arm(fd);
            }
        }
    }

    /// Completes the timeouts whose time has come. Returns the nanoseconds until the next one.
    fn expire_timers(&mut self) -> Option<u64> {
        loop {
            let Reverse((until_ns, tag)) = *self.timers.peek()?;
            let left_ns = until_ns.saturating_sub(now_ns());
            if left_ns > 0 {
                return Some(left_ns);
            }
            self.timers.pop();
            self.end(tag, -libc::ETIME);
        }
    }

    /// Takes the events of epoll, and waits for them up to `timeout_ms`; -1 is for ever.
    fn look(&mut self, timeout_ms: i32) -> Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let (at, most) = (events.as_mut_ptr(), EVENTS as i32);
        // (A system call, since the program may replace the C library's function.) SAFETY: there is
        // room for this number of events; no signal mask is given.
        let got = unsafe {
            libc::syscall(libc::SYS_epoll_pwait, self.epoll.raw(), at, most, timeout_ms, 0_usize, 8_usize)
        };
        let got = match check("epoll_pwait", got) {
            Ok(got) => got as usize,
            Err(error) if error.errno() == libc::EINTR => 0,
            Err(error) => return Err(error),
        };
        for event in &events[..got] {
            let (name, events) = (event.u64, event.events);
            if name != FILES {
                self.ready(name as RawFd, events);
            }
        }
        files!(self, files => files.reap(&mut self.ended));
        Ok(())
    }

    pub(super) unsafe fn read(&mut self, fd: RawFd, pieces: &[Piece], offset: u64, tag: u64) -> Result<()> {
        let (pieces, count) = (pieces.as_ptr(), pieces.len());
        let request = Request { write: false, fd, pieces, count, offset, tag };
        files!(self, files => files.push(request));
        Ok(())
    }

    pub(super) unsafe fn write(&mut self, fd: RawFd, pieces: &[Piece], offset: u64, tag: u64) -> Result<()> {
        let (pieces, count) = (pieces.as_ptr(), pieces.len());
        let request = Request { write: true, fd, pieces, count, offset, tag };
        files!(self, files => files.push(request));
        Ok(())
    }

    pub(super) unsafe fn send(&mut self, fd: RawFd, piece: Piece, whole: bool, tag: u64) -> Result<()> {
        self.begin(Transfer { fd, tag, kind: Kind::Send, left: [piece.0].into(), bytes: 0, whole });
        Ok(())
    }

    pub(super) unsafe fn recv(&mut self, fd: RawFd, piece: Piece, whole: bool, tag: u64) -> Result<()> {
        self.begin(Transfer { fd, tag, kind: Kind::Receive, left: [piece.0].into(), bytes: 0, whole });
        Ok(())
    }

    pub(super) unsafe fn send_message(
        &mut self,
        fd: RawFd,
        message: &Message,
        whole: bool,
        tag: u64,
    ) -> Result<()> {
        // SAFETY: the message's array stays valid until the end of the operation.
        let left = unsafe { message.vectors() };
        self.begin(Transfer { fd, tag, kind: Kind::Send, left, bytes: 0, whole });
        Ok(())
    }

    pub(super) unsafe fn recv_message(
        &mut self,
        fd: RawFd,
        message: &mut Message,
        whole: bool,
        tag: u64,
    ) -> Result<()> {
        // SAFETY: the message's array stays valid until the end of the operation.
        let left = unsafe { message.vectors() };
        self.begin(Transfer { fd, tag, kind: Kind::Receive, left, bytes: 0, whole });
        Ok(())
    }

    pub(super) unsafe fn connect(&mut self, fd: RawFd, address: &Address, tag: u64) -> Result<()> {
        // SAFETY: no memory is touched.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        // SAFETY: no memory is touched.
        unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
        let kind = Kind::Connect((&raw const address.storage).cast(), address.len);
        self.begin(Transfer { fd, tag, kind, left: VecDeque::new(), bytes: 0, whole: false });
        Ok(())
    }

    pub(super) fn timeout(&mut self, ns: u64, tag: u64) -> Result<()> {
        self.timers.push(Reverse((now_ns().saturating_add(ns), tag)));
        Ok(())
    }

    pub(super) fn cancel(&mut self, of: u64, tag: u64) -> Result<()> {
        let before = (self.polls.len(), self.transfers.len(), self.timers.len());
        self.polls.retain(|poll| poll.tag != of);
        self.transfers.retain(|transfer| transfer.tag != of);
        self.timers.retain(|Reverse((_, timer))| *timer != of);
        if before == (self.polls.len(), self.transfers.len(), self.timers.len()) {
            // The operation has already ended, or is a read or a write, which will end.
            self.end(tag, -libc::ENOENT);
        } else {
            self.end(of, -libc::ECANCELED);
            self.end(tag, 0);
        }
        Ok(())
    }

    pub(super) fn poll(&mut self, fd: RawFd, again: bool, tag: u64) -> Result<()> {
        self.polls.push(Poll { fd, tag, again });
        self.arm(fd);
        Ok(())
    }

    pub(super) fn enter(&mut self, wanted: u32) -> Result<()> {
        loop {
            match &mut self.files {
                Files::Aio(aio) => aio.submit(&mut self.ended),
                Files::Workers(workers) => workers.submit(&mut self.ended),
            }
            files!(self, files => files.reap(&mut self.ended));
            let next_ns = self.expire_timers();
            let waits = self.ended.len() < wanted as usize && self.may_sleep();
            let timeout_ms = match next_ns {
                _ if !waits => 0,
                // The context was full: it has room again once an operation has ended, or soon.
                _ if self.has_unsubmitted() => 1,
                None => -1,
                Some(ns) => ns.div_ceil(1_000_000).min(1 << 20) as i32,
            };
            self.look(timeout_ms)?;
            self.looked = true;
            if self.ended.len() >= wanted as usize {
                return Ok(());
            }
        }
    }

    /// Whether nothing has completed yet, and the next completion of a read or write will be
    /// reported.
    fn may_sleep(&self) -> bool {
        match &self.files {
            Files::Aio(_) => true,
            Files::Workers(workers) => workers.may_sleep(),
        }
    }

    pub(super) fn has_unsubmitted(&self) -> bool {
        match &self.files {
            Files::Aio(aio) => aio.has_unsubmitted(),
            Files::Workers(workers) => workers.has_unsubmitted(),
        }
    }

    pub(super) fn has_done(&mut self) -> bool {
        !self.ended.is_empty() || files!(self, files => files.has_done())
    }

    pub(super) fn done(&mut self) -> Option<Done> {
        if let Some(done) = self.ended.pop_front() {
            return Some(done);
        }
        // Faults are noticed between other work, too, as io_uring's events are.
        if !std::mem::take(&mut self.looked) {
            self.expire_timers();
            // The error occurs again, and is reported, when the thread waits.
            self.look(0).ok();
        }
        self.ended.pop_front()
    }
}

impl Transfer {
    /// Does as much as is possible without waiting. Returns the result if the transfer has ended.
    fn attempt(&mut self) -> Option<i32> {
        loop {
            let answer = self.call();
            let result = match answer {
                0.. => answer as i32,
                _ => -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            };
            let so_far = self.bytes as i32;
            match (result, self.kind) {
                (code, _) if code == -libc::EINTR => {}
                (0, Kind::Connect(..)) => return Some(0),
                (code, Kind::Connect(..)) if code == -libc::EISCONN => return Some(0),
                (code, Kind::Connect(..)) if [-libc::EINPROGRESS, -libc::EALREADY].contains(&code) => {
                    return None;
                }
                (code, Kind::Connect(..)) => return Some(code),
                (code, _) if code == -libc::EAGAIN => {
                    return (so_far > 0 && !self.whole).then_some(so_far);
                }
                // The bytes that have been transferred are reported first; the error occurs again.
                (code, _) if code < 0 => return Some(if so_far > 0 { so_far } else { code }),
                // The end of the stream, or nothing to transfer.
                (0, _) => return Some(so_far),
                (bytes, _) => {
                    self.skip(bytes as usize);
                    if self.left.is_empty() || !self.whole {
                        return Some(self.bytes as i32);
                    }
                }
            }
        }
    }

    /// One system call.
    fn call(&mut self) -> libc::c_long {
        // SAFETY: a message of all zeros is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.left.make_contiguous().as_mut_ptr();
        message.msg_iovlen = self.left.len() as _;
        let (fd, at) = (self.fd, &raw mut message);
        // SAFETY: the transfer has not ended, so its memory is valid, and nobody else's but to read
        // what is sent.
        unsafe {
            match self.kind {
                Kind::Send => {
                    libc::syscall(libc::SYS_sendmsg, fd, at, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
                }
                Kind::Receive => libc::syscall(libc::SYS_recvmsg, fd, at, libc::MSG_DONTWAIT),
                Kind::Connect(address, len) => libc::syscall(libc::SYS_connect, fd, address, len),
            }
        }
    }

    /// Notes that `bytes` have been transferred.
    fn skip(&mut self, mut bytes: usize) {
        self.bytes += bytes;
        while let Some(first) = self.left.front_mut() {
            if bytes < first.iov_len {
                first.iov_base = first.iov_base.wrapping_byte_add(bytes);
                first.iov_len -= bytes;
                return;
            }
            bytes -= first.iov_len;
            self.left.pop_front();
        }
    }
}

impl Message {
    /// The pieces.
    ///
    /// # Safety
    /// Their array is valid.
    unsafe fn vectors(&self) -> VecDeque<libc::iovec> {
        // SAFETY: the array is valid, and has as many pieces as the message says.
        unsafe { std::slice::from_raw_parts(self.0.msg_iov, self.0.msg_iovlen as _) }
            .iter()
            .copied()
            .collect()
    }
}
