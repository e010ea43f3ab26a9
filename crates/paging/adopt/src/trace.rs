//! `ptrace`: threads of another process that are stopped, and their registers.

use std::ffi::c_long;
use std::io;
use std::time::{Duration, Instant};

pub type Registers = libc::user_regs_struct;

/// How a thread has stopped, or that it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// By a request of this process's, or by a signal that stops processes; the signal.
    Request(i32),
    /// A thread was made.
    Clone,
    /// A signal is about to be delivered.
    Signal(i32),
    Ended,
}

/// A request that takes two words.
///
/// # Safety
/// The words are those that the request needs.
unsafe fn request(kind: impl Into<i64>, thread: u32, at: usize, data: usize) -> io::Result<c_long> {
    // SAFETY: the caller passes the words.
    let answer = unsafe { libc::ptrace(kind.into() as _, thread as libc::pid_t, at, data) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Attaches to a thread, which goes on, and asks it to stop.
pub fn seize(thread: u32) -> io::Result<()> {
    // SAFETY: these requests read no memory.
    unsafe {
        request(libc::PTRACE_SEIZE, thread, 0, 0)?;
        request(libc::PTRACE_INTERRUPT, thread, 0, 0)?;
    }
    Ok(())
}

/// Asks an attached thread to stop.
pub fn interrupt(thread: u32) -> io::Result<()> {
    // SAFETY: the request reads no memory.
    unsafe { request(libc::PTRACE_INTERRUPT, thread, 0, 0) }.map(drop)
}

/// Detaches from a stopped thread, which goes on, with a signal or 0.
pub fn detach(thread: u32, signal: i32) -> io::Result<()> {
    // SAFETY: the request reads no memory.
    unsafe { request(libc::PTRACE_DETACH, thread, 0, signal as usize) }.map(drop)
}

/// Lets a stopped thread go on, with a signal or 0.
pub fn go_on(thread: u32, signal: i32) -> io::Result<()> {
    // SAFETY: the request reads no memory.
    unsafe { request(libc::PTRACE_CONT, thread, 0, signal as usize) }.map(drop)
}

/// Lets a stopped thread execute one instruction.
pub fn step(thread: u32) -> io::Result<()> {
    // SAFETY: the request reads no memory.
    unsafe { request(libc::PTRACE_SINGLESTEP, thread, 0, 0) }.map(drop)
}

/// Whether a thread that a stopped thread makes is attached, too.
pub fn follow_threads(thread: u32, follows: bool) -> io::Result<()> {
    let options = if follows { libc::PTRACE_O_TRACECLONE } else { 0 };
    // SAFETY: the request reads no memory.
    unsafe { request(libc::PTRACE_SETOPTIONS, thread, 0, options as usize) }.map(drop)
}

/// The number of the thread that was made.
pub fn made(thread: u32) -> io::Result<u32> {
    let mut number: libc::c_ulong = 0;
    // SAFETY: the request writes a word.
    unsafe { request(libc::PTRACE_GETEVENTMSG, thread, 0, &raw mut number as usize) }?;
    Ok(number as u32)
}

/// The registers of a stopped thread.
pub fn registers(thread: u32) -> io::Result<Registers> {
    // SAFETY: registers are plain data, for which zeros are a value, and have room for the answer.
    unsafe {
        let mut registers: Registers = std::mem::zeroed();
        request(libc::PTRACE_GETREGS, thread, 0, &raw mut registers as usize)?;
        Ok(registers)
    }
}

/// Sets the registers of a stopped thread.
pub fn set_registers(thread: u32, registers: &Registers) -> io::Result<()> {
    // SAFETY: the request reads the registers.
    unsafe { request(libc::PTRACE_SETREGS, thread, 0, std::ptr::from_ref(registers) as usize) }.map(drop)
}

/// Where a stopped thread's `struct rseq` lies; 0 if it has none.
pub fn sequences(thread: u32) -> io::Result<u64> {
    /// `PTRACE_GET_RSEQ_CONFIGURATION`, which fills a `struct ptrace_rseq_configuration`.
    const GET: u32 = 0x420f;
    let mut configuration = [0_u64; 3];
    // SAFETY: the request writes no more bytes than there is room for.
    unsafe {
        request(GET, thread, size_of_val(&configuration), &raw mut configuration as usize)?;
    }
    Ok(configuration[0])
}

/// The signals that a stopped thread blocks.
pub fn blocked(thread: u32) -> io::Result<u64> {
    let mut set = 0_u64;
    // SAFETY: the request writes as many bytes.
    unsafe { request(libc::PTRACE_GETSIGMASK, thread, size_of::<u64>(), &raw mut set as usize) }?;
    Ok(set)
}

/// Sets the signals that a stopped thread blocks.
pub fn block(thread: u32, set: u64) -> io::Result<()> {
    // SAFETY: the request reads as many bytes.
    unsafe { request(libc::PTRACE_SETSIGMASK, thread, size_of::<u64>(), &raw const set as usize) }.map(drop)
}

/// How an attached thread has stopped, if it has.
pub fn look(thread: u32) -> io::Result<Option<Stop>> {
    let mut status = 0;
    // SAFETY: the call writes a status.
    let found =
        unsafe { libc::waitpid(thread as libc::pid_t, &raw mut status, libc::__WALL | libc::WNOHANG) };
    match found {
        0 => Ok(None),
        found if found < 0 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(Some(Stop::Ended)),
            error => Err(error),
        },
        _ => Ok(Some(stop_of(status))),
    }
}

fn stop_of(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended;
    }
    match status >> 16 {
        libc::PTRACE_EVENT_STOP => Stop::Request(libc::WSTOPSIG(status)),
        libc::PTRACE_EVENT_CLONE => Stop::Clone,
        _ => Stop::Signal(libc::WSTOPSIG(status)),
    }
}

/// Waits until an attached thread has stopped.
///
/// # Errors
/// The time is over.
pub fn wait(thread: u32, most: Duration) -> io::Result<Stop> {
    let until = Instant::now() + most;
    let mut pause = Duration::from_micros(5);
    loop {
        if let Some(stop) = look(thread)? {
            return Ok(stop);
        }
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        rest(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
    }
}

/// Waits until an attached thread stops, or the time is over. A stop sends SIGCHLD; where that is
/// ignored, or another thread takes it, the time passes.
pub fn rest(most: Duration) {
    let most = libc::timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos().into() };
    // SAFETY: sets are plain data, for which zeros are a value; the calls change and read this one.
    unsafe {
        let mut stops: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut stops, libc::SIGCHLD);
        libc::sigtimedwait(&raw const stops, std::ptr::null_mut(), &raw const most);
    }
}
