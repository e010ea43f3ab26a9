//! The way into a program that is already running: `terapage adopt`.
//!
//! 1. What would keep the program waiting is done while it runs ([`room`]).
//! 2. All threads of the program are stopped ([`threads`]): none is inside a system call then, and
//!    calls that were interrupted begin again.
//! 3. One of them makes system calls for this process ([`remote`]): these map the host, a static
//!    executable that contains the paging library, and begin a thread in it ([`host`]).
//! 4. The host makes its pager, and sets its filter of system calls for all threads (crate `host`:
//!    `adopted.rs`). Until then everything can be undone ([`undo`]).
//! 5. The program's threads run again. The host's thread takes over the memory meanwhile.
//!
//! docs/rescue.md describes it for users.
#![cfg(target_arch = "x86_64")]

mod end;
mod host;
mod image;
mod kept;
mod memory;
mod passed;
mod policy;
mod process;
mod remote;
mod rights;
mod room;
mod threads;
mod trace;
mod undo;

pub use end::Ending;
use end::Handle;
use host::Start;
use memory::Mapping;
use process::Process;
use std::ffi::CString;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use terapage_sys::adoption::{Orders, State};
use threads::{Host, Threads};

/// Why a program cannot be adopted, in words that follow its number and a colon.
pub type Why = String;

/// Why a program was not adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It goes on as it was.
    Refused(Why),
    /// It has ended meanwhile.
    Ended(Ending),
}

/// What is to be done.
pub struct Wish<'a> {
    /// The process.
    pub pid: u32,
    /// The host for musl.
    pub host: &'a Path,
    /// The settings: texts of the form `NAME=value`.
    pub settings: &'a [CString],
    /// The table in which the processes of a job lease their memory, if there is one.
    pub table: Option<Table<'a>>,
    /// For tests: whether the program is guarded although there is the right to page.
    pub guards: bool,
    /// For tests: the number of a step that fails.
    pub fault: Option<usize>,
}

/// A descriptor that is passed to the program.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// The setting that names the descriptor, from its number in the program.
    pub setting: &'a dyn Fn(i32) -> CString,
}

/// A program that was adopted, and whose memory is being taken over.
pub struct Adopted {
    process: Process,
    handle: Option<Handle>,
    report: usize,
    /// Whether it is paged without the right to handle the kernel's faults: its calls are guarded.
    pub is_guarded: bool,
    /// How long its threads were stopped.
    pub pause: Duration,
}

/// What has become of an adopted program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Its memory is being taken over, or was.
    Runs(Progress),
    /// It has executed another program.
    Executed,
    /// It has ended.
    Ended(Ending),
}

/// How far the host is in taking over the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are to be taken over.
    pub all_bytes: u64,
    /// Bytes of them that were.
    pub done_bytes: u64,
    /// Whether that is all.
    pub is_done: bool,
}

/// How often an adoption is tried while threads are busy, and the time between.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(5);

/// Adopts a program.
///
/// # Errors
/// Why that is impossible: the program goes on as it was, or has ended.
pub fn adopt(wish: &Wish) -> Result<Adopted, Failure> {
    // A thread has none, and is refused.
    let handle = Handle::of(wish.pid).ok();
    let busy = || {
        let tried = attempt(wish);
        match &tried {
            Err(why) if why == threads::BUSY => {
                std::thread::sleep(PAUSE);
                None
            }
            _ => Some(tried),
        }
    };
    let tried = std::iter::repeat_with(busy).take(TRIES).flatten().next();
    match tried.unwrap_or_else(|| Err(threads::BUSY.into())) {
        Ok(Entered { process, report, is_guarded, pause }) => {
            Ok(Adopted { process, handle, report, is_guarded, pause })
        }
        Err(why) => Err(ending(handle.as_ref()).map_or(Failure::Refused(why), Failure::Ended)),
    }
}

/// How the process has ended, if it has.
fn ending(handle: Option<&Handle>) -> Option<Ending> {
    handle.and_then(Handle::ending)
}

/// A program into which the host has come.
struct Entered {
    process: Process,
    report: usize,
    is_guarded: bool,
    pause: Duration,
}

/// Tries to adopt a program once.
fn attempt(wish: &Wish) -> Result<Entered, Why> {
    let process = Process::find(wish.pid)?;
    process.check()?;
    let image = image::Image::read(wish.host)?;
    let urgent = policy::Policy::urgent(0);
    let first = room::make(&process);
    let began = Instant::now();
    let mut threads = Threads::stop(&process)?;
    let before = match undo::Before::note(&process, &threads) {
        Ok(before) => before,
        Err(why) => {
            threads.let_go(&process, false);
            return Err(why);
        }
    };
    let entered = enter(&process, &mut threads, &before.memory, &image, wish);
    let (host, is_guarded) = match entered {
        Ok(entered) => entered,
        Err(why) => {
            undo::undo(&process, &mut threads, &before);
            threads.let_go(&process, false);
            return Err(why);
        }
    };
    threads.let_go(&process, true);
    let pause = first + began.elapsed();
    let report = host.report;
    host.let_go();
    drop(urgent);
    Ok(Entered { process, report, is_guarded, pause })
}

/// Brings in the host, up to the point from which there is no way back. Returns its thread, and
/// whether the program is guarded.
fn enter(
    process: &Process,
    threads: &mut Threads,
    memory: &[Mapping],
    image: &image::Image,
    wish: &Wish,
) -> Result<(Host, bool), Why> {
    if memory.iter().any(|mapping| mapping.name.starts_with("/[aio]")) {
        return Err("it has asynchronous I/O (io_setup), which may use its memory at any time".into());
    }
    let instruction = remote::instruction(process, memory)?;
    let mut remote = remote::Remote::begin(process, threads.chosen(process)?, instruction, wish.fault)?;
    let choose = |is_guarded: bool, scratch: usize| {
        let stacks = match is_guarded {
            true => threads.guarded_stacks(process, instruction, scratch)?,
            false => threads.stacks(),
        };
        Ok(Orders { is_go: process.is_go(), ..memory::choose(memory, &stacks, is_guarded)? })
    };
    let start = Start::make(&mut remote, image, wish, choose)?;
    let thread = start.begin(&mut remote)?;
    remote.end()?;
    let host = threads.await_host(process, thread, start.report)?;
    Ok((host, start.is_guarded))
}

impl Adopted {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// How far the host is.
    pub fn look(&self) -> Look {
        let Some(report) = host::Seen::read(&self.process, self.report) else {
            return ending(self.handle.as_ref()).map_or(Look::Executed, Look::Ended);
        };
        let is_done = report.state == State::Done as u32;
        Look::Runs(Progress { all_bytes: report.all_bytes, done_bytes: report.done_bytes, is_done })
    }
}
