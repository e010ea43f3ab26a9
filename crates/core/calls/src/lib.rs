//! A table of the system calls of Linux 5.13 to 7.2, on x86-64 and 64-bit Arm: which memory each
//! call touches.
//!
//! With user-mode-only userfaultfd, a fault inside the kernel is not handed to the pager: the call
//! fails with EFAULT. So what a call touches must be resident before the call is made, and must
//! stay until the call has ended. [`visit`] names it: each range, whether the kernel reads or
//! writes it, and whether the kernel touches it after the call as well.
//!
//! # How a call is served
//! The caller implements [`Memory`]. [`visit`] announces ranges to [`Memory::range`], and reads
//! memory by [`Memory::read`] if ranges depend on it: an array of buffers, a length behind a
//! pointer, a text that ends with a NUL. What is read has always been announced before, so the
//! caller has already made it resident. Bad memory is no error here: what cannot be read is left to
//! the kernel, which gives the program the EFAULT that is due.
//!
//! What is announced is never less than what the kernel touches, and may be more: a directory
//! buffer is announced whole, a file name up to the end of its page. So the caller makes resident
//! what it pages, and ignores the rest of a range. The program may change memory between [`visit`]
//! and the call: such a call may get EFAULT.
//!
//! # What is no memory here
//! - Addresses that name memory without touching it: `mmap`, `munmap`, `mprotect`, `mremap`,
//!   `shmat`, `madvise` (except if it populates).
//! - What the kernel touches without a call: frames of signals, and the list of robust futexes at
//!   the end of a thread (its head is announced).
//! - What `rt_sigreturn` reads on the stack. `restart_syscall` goes on with an earlier call, whose
//!   memory must still be resident.
//! - Another process's memory; `/proc/self/mem`.
//!
//! Answers other than [`Outcome::Known`] say what a caller does instead: see [`Outcome`].
//!
//! # The table
//! `table/` has a row for each call, by subject. `special/` serves calls whose ranges depend on a
//! command (`ioctl`, `fcntl`, `prctl`, `keyctl`) or on memory (`readv`, `sendmsg`, `execve`).
//! A row also says whether a host traps the call, and who serves it ([`Hosted`]).
//! Tests compare each row with the kernel's own signatures, and the lengths with what the running
//! kernel does at the end of mapped memory.
//!
//! Nothing here allocates, locks or makes a system call, so all of it may run in a signal handler.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod hosted;
mod index;
mod row;
mod special;
mod step;
mod table;
#[cfg(test)]
mod tests;

pub use hosted::{By, Hook, Hosted, Service, When};
pub use index::{END, Machine, Row, hosted, known, name, nested, pieces, pointers, rows, waits};
use step::Visit;

/// What the kernel does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The kernel reads it.
    In,
    /// The kernel writes it, or a part of it.
    Out,
    /// The kernel reads and writes it.
    InOut,
}

/// Memory that a call touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its address, which is not 0 and need not be valid.
    pub start: usize,
    /// Its length in bytes, which is not 0; the end is not beyond the last address.
    pub len: usize,
    /// What the kernel does with it.
    pub direction: Direction,
    /// The kernel touches it after the call as well, until another call says otherwise.
    pub kept: bool,
}

/// Whether, and how, a call can be made in pieces of its buffer. The sum of the pieces' results is
/// then the call's result, on regular files and streams of bytes. On sockets that keep messages
/// apart, terminals and devices it is not: there a call stays whole. Others may see one piece
/// before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// Only whole.
    Whole,
    /// In pieces of the buffer in this argument; the next argument is its length.
    Bytes(u8),
    /// In pieces of the array of `iovec` in this argument; the next argument is its length.
    Vector(u8),
    /// In pieces of the arrays of `iovec` in these two arguments, whose bytes are copied from one
    /// to the other; the next arguments are the lengths of the arrays.
    Vectors(u8, u8),
}

/// What [`visit`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Each range has been announced.
    Known,
    /// Each range has been announced, and some are kept.
    Kept,
    /// The kernel would touch memory after the call, at times that nobody knows, or would hold on
    /// to the pages: the caller refuses the call.
    Asynchronous,
    /// What the table knows of the call has been announced. But it is a command of a device, and
    /// its memory may point to more, which a driver knows: the caller refuses the call if it must
    /// not meet an absent page, or makes it and risks EFAULT.
    Partly,
    /// The table does not know the call, or its command: the caller refuses it, or makes everything
    /// resident.
    Unknown,
    /// [`Memory::range`] gave `false`.
    Stopped,
}

/// The memory of the process that makes a call.
pub trait Memory {
    /// A range that the call touches: what the caller pages of it must now become resident and stay
    /// so. The caller may read the range for that, and never writes: the program may have memory
    /// that cannot be written there. `false` ends the visit.
    fn range(&mut self, range: Range) -> bool;

    /// Copies announced memory. Gives `false`, and does not fail, if it cannot be read.
    fn read(&mut self, at: usize, into: &mut [u8]) -> bool;

    /// Whether this process is meant by a number of a process.
    fn is_self(&mut self, pid: i32) -> bool;
}

/// Announces the memory that a call touches.
pub fn visit(number: usize, arguments: &[usize; 6], memory: &mut dyn Memory) -> Outcome {
    let Some(row) = index::find(number) else { return Outcome::Unknown };
    let mut visit = Visit::new(arguments, memory);
    match row.visit(&mut visit) {
        Ok(()) if visit.kept => Outcome::Kept,
        Ok(()) => Outcome::Known,
        Err(outcome) => outcome,
    }
}
