//! Low numbers that the pager has for a moment.
//!
//! The kernel opens a file under the lowest free number. The pager moves the descriptor up, or
//! reads the file and closes it, and for a moment it has a number that a program may close without
//! having opened it (`closefrom`, loops of `close`) or may take (`dup2`). If the program then opens
//! a file under that number, the pager would read that file, and close it.
//!
//! So each thread that opens something for the pager says so as long as it has a low number
//! ([`Opening`]), and the hooks of the functions that close by number first make sure that the
//! number is the program's ([`is_programs`]): it is, if it is open at a moment when no thread has
//! said so. (What is open stays open until the program closes it.) They wait for such threads,
//! which wait for nobody: the pager's own threads open files, too.

use crate::thread::{Internal, is_internal, own_name, pause};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// The number of threads that are opening something, in the lower half, and how often one has
/// begun.
static STATE: AtomicU64 = AtomicU64::new(0);
const BEGUN: u64 = 1 << 32;
const ACTIVE: u64 = BEGUN - 1;

/// The process whose hooks ask; 0 if there are no hooks. A child of `vfork` uses this memory, but
/// has descriptors of its own, and can be killed at any moment.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The thread that forks, while the pager is parked; 0 for none. A thread that is opening something
/// may wait for the pager.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Whether the program has forbidden itself system calls: perhaps the one by which a hook asks.
static FILTERED: AtomicBool = AtomicBool::new(false);

/// From now on the hooks of this process ask. Also called in the child of a fork, whose parent's
/// threads are gone.
pub fn is_asked() {
    STATE.store(0, SeqCst);
    FORKS.store(0, SeqCst);
    PROCESS.store(std::process::id(), SeqCst);
}

/// The calling thread forks, or no longer does.
pub fn forks(does: bool) {
    FORKS.store(if does { own_name() } else { 0 }, SeqCst);
}

/// The program sets a filter for system calls.
pub fn is_filtered() {
    FILTERED.store(true, Relaxed);
}

/// Whether hooks ask.
pub fn may_ask() -> bool {
    PROCESS.load(Relaxed) != 0 && !FILTERED.load(Relaxed)
}

/// While this value lives, the calling thread may have a descriptor with a low number. The thread
/// runs no signal handler meanwhile: a handler could close by number, and would wait for itself.
pub struct Opening(Option<Internal>);

impl Opening {
    /// Begins. May be nested.
    pub fn begin() -> Opening {
        let is_asked = PROCESS.load(SeqCst) == std::process::id();
        Opening(is_asked.then(|| {
            let internal = Internal::enter();
            STATE.fetch_add(BEGUN | 1, SeqCst);
            internal
        }))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.0.is_some() {
            STATE.fetch_sub(1, SeqCst);
        }
    }
}

/// Whether a number is open, and not by the pager. It does not wait, and says yes, in a thread that
/// works for the pager, since that knows what it closes: `works` is whether the thread holds a lock
/// for which one that opens something could wait.
pub fn is_programs(number: RawFd, works: impl Fn() -> bool) -> bool {
    if !may_ask() {
        return true;
    }
    loop {
        let before = STATE.load(SeqCst);
        if before & ACTIVE == 0 {
            let is_programs = is_open(number) && !crate::fd::is_ours(number);
            if STATE.load(SeqCst) == before {
                return is_programs;
            }
        } else if is_internal(own_name()) || FORKS.load(SeqCst) == own_name() || works() {
            return true;
        }
        pause().ok();
    }
}

fn is_open(number: RawFd) -> bool {
    // SAFETY: no memory is touched.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, i64::from(number), libc::F_GETFD, 0_i64) };
    flags >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EBADF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_programs_only_if_nobody_is_opening() {
        let null = || crate::shared::make(c"opening", 1).unwrap();
        assert!(is_programs(-1, || false), "nobody asks");
        is_asked();
        assert!(!is_programs(-1, || false));
        let opening = Opening::begin();
        assert!(is_programs(-1, || false), "a thread that works for the pager knows what it closes");
        let file = null();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let seen = std::thread::spawn(move || is_programs(number, || false));
        crate::thread::sleep_ms(20);
        assert!(!seen.is_finished(), "it waits");
        drop(file);
        drop(opening);
        assert!(!seen.join().unwrap(), "what was open for a moment is not the program's");
        PROCESS.store(0, SeqCst);
    }
}
