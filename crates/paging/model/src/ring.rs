//! io_uring, and the disk behind it.

use crate::machine::{Canary, bells, choose, has, point, trouble, with};
use crate::memory;
use crate::{Result, page_bytes};

/// A piece of memory.
#[derive(Clone, Copy)]
pub struct Piece {
    at: usize,
    len: usize,
}

impl Piece {
    /// `len` bytes at `at`.
    pub fn new(at: usize, len: usize) -> Self {
        Piece { at, len }
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address.
    pub fn at(&self) -> usize {
        self.at
    }
}

/// The end of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The tag that the operation was given when it began.
    pub tag: u64,
    /// Bytes transferred or events, or a negative error number.
    pub result: i32,
    /// Whether this is an event of a poll that continues.
    pub more: bool,
    /// The completion's flags: none here.
    pub flags: u32,
}

impl Done {
    /// Whether a poll of a pipe's reading end found that the other end is no longer open anywhere.
    pub fn is_hang_up(&self) -> bool {
        self.result >= 0
    }
}

/// The target of an operation.
#[derive(Clone, Copy)]
pub(crate) enum Medium {
    /// A simulated disk.
    Store(usize),
    /// A real file, by its simulated number; only for reading.
    File(i32),
    /// No target: a timeout.
    Time,
}

/// A read or write of a store.
pub(crate) struct Operation {
    pub medium: Medium,
    pub offset: usize,
    pub pieces: Vec<Piece>,
    pub write: bool,
    pub tag: u64,
}

/// A poll of a descriptor.
pub(crate) struct Poll {
    /// The ring that polls.
    pub ring: usize,
    pub fd: i32,
    pub tag: u64,
    pub again: bool,
    /// Whether there is an event that the poll has not reported.
    pub pending: bool,
}

/// The panic by which the pager's thread ends after the program has ended.
struct Ended;

/// The address of a socket: there are none here.
pub struct Address;

/// A message to a socket: there are none here.
pub struct Message;

/// How a ring reads and writes: only in one way here.
#[derive(Clone, Copy, Debug)]
pub enum IoEngine {
    /// The simulated one.
    Uring,
}

impl IoEngine {
    /// Its number among the counters.
    pub fn number(self) -> u64 {
        1
    }
}

/// A submission and a completion queue.
pub struct Ring {
    number: usize,
    operations: Vec<Operation>,
    polls: Vec<Poll>,
}

impl Ring {
    /// A ring.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn with(_wish: Option<IoEngine>, _entries: u32, _threads: bool) -> Result<Ring> {
        let number = with(|machine| {
            machine.rings += 1;
            machine.rings
        });
        Ok(Ring { number, operations: Vec::new(), polls: Vec::new() })
    }

    /// The engine.
    pub fn engine(&self) -> IoEngine {
        IoEngine::Uring
    }

    pub(crate) fn push(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    /// Begins to read from a file.
    ///
    /// # Errors
    /// None; the real function has some.
    ///
    /// # Safety
    /// The pieces' memory stays valid and untouched until the completion has been taken.
    pub unsafe fn read(&mut self, fd: i32, pieces: &[Piece], offset: u64, tag: u64) -> Result<()> {
        let (medium, offset) = (Medium::File(fd), offset as usize);
        self.push(Operation { medium, offset, pieces: pieces.to_vec(), write: false, tag });
        Ok(())
    }

    /// There are no such files here.
    ///
    /// # Errors
    /// None.
    ///
    /// # Safety
    /// It does nothing.
    ///
    /// # Panics
    /// Always.
    pub unsafe fn write(&mut self, _: i32, _: &[Piece], _: u64, _: u64) -> Result<()> {
        unreachable!("files are only read here")
    }

    /// There are no sockets here.
    ///
    /// # Errors
    /// None.
    ///
    /// # Safety
    /// It does nothing.
    ///
    /// # Panics
    /// Always.
    pub unsafe fn send(&mut self, _: i32, _: Piece, _: bool, _: u64) -> Result<()> {
        unreachable!("there are no sockets here")
    }

    /// There are no sockets here.
    ///
    /// # Errors
    /// None.
    ///
    /// # Safety
    /// It does nothing.
    ///
    /// # Panics
    /// Always.
    pub unsafe fn recv(&mut self, _: i32, _: Piece, _: bool, _: u64) -> Result<()> {
        unreachable!("there are no sockets here")
    }

    /// There are no sockets here.
    ///
    /// # Errors
    /// None.
    ///
    /// # Safety
    /// It does nothing.
    ///
    /// # Panics
    /// Always.
    pub unsafe fn send_message(&mut self, _: i32, _: &Message, _: bool, _: u64) -> Result<()> {
        unreachable!("there are no sockets here")
    }

    /// There are no sockets here.
    ///
    /// # Errors
    /// None.
    ///
    /// # Safety
    /// It does nothing.
    ///
    /// # Panics
    /// Always.
    pub unsafe fn recv_message(&mut self, _: i32, _: &mut Message, _: bool, _: u64) -> Result<()> {
        unreachable!("there are no sockets here")
    }

    /// There are no sockets here.
    ///
    /// # Errors
    /// None.
    ///
    /// # Safety
    /// It does nothing.
    ///
    /// # Panics
    /// Always.
    pub unsafe fn connect(&mut self, _: i32, _: &Address, _: u64) -> Result<()> {
        unreachable!("there are no sockets here")
    }

    /// Ends at some time, when the disk's thread reaches it.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn timeout(&mut self, _ns: u64, tag: u64) -> Result<()> {
        self.push(Operation { medium: Medium::Time, offset: 0, pieces: Vec::new(), write: false, tag });
        Ok(())
    }

    /// Nothing is cancelled here.
    ///
    /// # Errors
    /// None.
    ///
    /// # Panics
    /// Always.
    pub fn cancel(&mut self, _of: u64, _tag: u64) -> Result<()> {
        unreachable!("nothing is cancelled here")
    }

    /// Polls `fd` until it becomes readable or hangs up: once, or, if `again`, each time.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn poll(&mut self, fd: i32, again: bool, tag: u64) -> Result<()> {
        self.polls.push(Poll { ring: self.number, fd, tag, again, pending: false });
        Ok(())
    }

    /// Submits the pushed operations, and waits until `wanted` operations have ended; or does
    /// nothing.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn enter(&mut self, wanted: u32) -> Result<()> {
        point();
        if trouble(2) {
            return Ok(());
        }
        with(|machine| {
            machine.operations.extend(self.operations.drain(..).map(|one| (self.number, one)));
            for mut poll in self.polls.drain(..) {
                poll.pending = machine.readable(poll.fd);
                machine.polls.push(poll);
            }
        });
        let bells = bells();
        bells.operations.ring();
        if wanted > 0 {
            let ended = || with(|machine| machine.has_ended(self.number));
            bells.ends.wait_until(|| ended() || with(|machine| machine.ending));
            if !ended() {
                std::panic::resume_unwind(Box::new(Ended));
            }
        }
        Ok(())
    }

    /// Whether an operation was pushed but not yet submitted.
    pub fn has_unsubmitted(&self) -> bool {
        !self.operations.is_empty() || !self.polls.is_empty()
    }

    /// Whether a completion waits to be taken.
    pub fn has_done(&mut self) -> bool {
        point();
        with(|machine| machine.has_ended(self.number))
    }

    /// Takes a completion, if there is one.
    pub fn done(&mut self) -> Option<Done> {
        point();
        let stays = !trouble(1);
        let polls_first = choose(2) == 0;
        with(|machine| {
            let pending = machine.polls.iter().position(|poll| poll.pending && poll.ring == self.number);
            let ended = machine.ends.iter().position(|end| end.0 == self.number);
            match pending {
                Some(index) if polls_first || ended.is_none() => {
                    let poll = &mut machine.polls[index];
                    poll.pending = false;
                    let more = poll.again && stays;
                    let done = Done { tag: poll.tag, result: 1, more, flags: 0 };
                    if !more {
                        machine.polls.swap_remove(index);
                    }
                    Some(done)
                }
                _ => machine.ends.remove(ended?).map(|(_, done)| done),
            }
        })
    }
}

/// Runs the pager's thread until the program has ended.
pub fn until_the_end(run: impl FnOnce()) {
    if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
        && !payload.is::<Ended>()
    {
        std::panic::resume_unwind(payload);
    }
}

/// The disk's thread: executes operations in any order, and fails some of them for a while.
pub fn disk() {
    let bells = bells();
    loop {
        bells.operations.wait_until(|| with(|machine| !machine.operations.is_empty() || machine.ending));
        point();
        let count = with(|machine| machine.operations.len());
        if count == 0 {
            return;
        }
        let index = choose(count);
        let (ring, operation) = with(|machine| machine.operations.swap_remove(index));
        let result = transfer(ring, &operation);
        let done = Done { tag: operation.tag, result, more: false, flags: 0 };
        with(|machine| machine.ends.push_back((ring, done)));
        bells.ends.ring();
    }
}

/// Executes one operation of a ring, or fails it, at most three times in a row. Returns its result.
fn transfer(ring: usize, operation: &Operation) -> i32 {
    const EIO: i32 = 5;
    const ETIME: i32 = 62;
    if matches!(operation.medium, Medium::Time) {
        return -ETIME;
    }
    let tag = operation.tag;
    let lost = operation.write && has(Canary::LosesWrites);
    let (mirrored, in_trouble) = with(|machine| (machine.behaviour.mirrored, machine.behaviour.trouble > 0));
    let fails = match operation.medium {
        Medium::Store(disk) if mirrored => in_trouble && disk == 0 && choose(3) == 0,
        _ => trouble(1) && with(|machine| *machine.failures.entry((ring, tag)).or_default() < 3),
    };
    let (mut done, mut result) = (0, 0);
    for piece in &operation.pieces {
        // SAFETY: the pager keeps the pieces for only this operation until its completion.
        let bytes = unsafe { memory::bytes(piece.at, piece.len) };
        with(|machine| {
            if !operation.write {
                for (index, page) in bytes.chunks_exact(page_bytes()).enumerate() {
                    machine.assert_clean(piece.at + index * page_bytes(), page);
                }
            }
            let from = operation.offset + done;
            let store = match operation.medium {
                Medium::Store(store) => store,
                Medium::File(fd) => {
                    result += machine.read_file(fd, bytes, from as u64);
                    if fails {
                        bytes.fill(0xdd);
                    }
                    return;
                }
                Medium::Time => return,
            };
            result += piece.len;
            let slots = &mut machine.slots[store][from..from + piece.len];
            match (operation.write, fails) {
                (true, false) if lost => {}
                (true, false) => slots.copy_from_slice(bytes),
                (false, false) => bytes.copy_from_slice(slots),
                (true, true) => slots.fill(0xdd),
                (false, true) => bytes.fill(0xdd),
            }
        });
        done += piece.len;
        if trouble(1) {
            // The kernel releases a page some time after the end.
            let page = piece.at + choose(piece.len / page_bytes()) * page_bytes();
            let moves = 1 + choose(40) as u32;
            with(|machine| machine.page(page).map(|page| page.busy = moves));
        }
    }
    // A read of wrong bytes reports success. A file's bytes have no hash that would show it.
    let kinds = match operation.medium {
        Medium::Store(_) if !operation.write => 3,
        _ => 2,
    };
    with(|machine| {
        let failures = machine.failures.entry((ring, tag)).or_default();
        *failures = if fails { *failures + 1 } else { 0 };
    });
    match (fails, choose(kinds)) {
        (true, 0) => -EIO,
        (true, 1) => result as i32 / 2,
        _ => result as i32,
    }
}
