//! Guarded mode: paging without any right.
//!
//! Everybody may have a userfaultfd that sees the faults of programs, but not those inside the
//! kernel: a system call that meets an absent page fails with EFAULT. So no call may meet one. A
//! seccomp filter ([filter]) traps the calls whose pointers lie in the arena, and those whose
//! memory may point there. The handler ([trap]) pins what the call touches
//! ([pins](terapage_pager::pins)), touches it, and makes the call at an address that the filter
//! lets pass ([gate]).
//!
//! The filter survives each exec. So it traps only calls whose pointers lie where the kernel puts
//! nothing by itself, and calls from code that lies where only the libraries of guarded programs do
//! ([layout]). What is executed without this library has neither, and runs as natively.

mod cancel;
mod copy;
mod filter;
mod gate;
mod hosts;
mod layout;
mod machine;
mod masks;
mod pieces;
#[cfg(not(target_env = "musl"))]
mod tracing;
mod trap;
mod vectors;

pub use copy::is_paged;
#[cfg(target_env = "musl")]
pub use filter::in_arena;
pub use hosts::forks;
#[cfg(target_env = "musl")]
pub use hosts::{
    terapage_hosted_copy, terapage_hosted_forget, terapage_hosted_guards, terapage_hosted_pin,
    terapage_hosted_thread, terapage_hosted_unpin,
};
pub use layout::{executing, stays};
#[cfg(all(target_arch = "x86_64", not(target_env = "musl")))]
pub use tracing::forget as forget_traced;
pub use trap::forget_ended;

#[cfg(target_env = "musl")]
use crate::paged;
use crate::{adopted, hosted};
use libc::{c_int, c_long, ssize_t};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_pager::pins::Pins;
use terapage_sys::userfaultfd;
use terapage_sys::{page_bytes, thread};

/// Where the arena lies in guarded mode.
pub use terapage_sys::hosting::GUARDED as ARENA;

/// Where the code of guarded programs lies: their libraries (see [layout]), the files that a host
/// loads, and code that the program makes in paged memory.
pub const CODE: Range<usize> = terapage_sys::machine::CODE_FROM..ARENA.end;

/// The answer of PR_GET_SECCOMP for a process with a filter.
const FILTERED: c_long = 2;

/// Slots for the pins of calls at the same time.
const SLOTS: usize = 2048;

static ON: AtomicBool = AtomicBool::new(false);
static ACTIVE: AtomicBool = AtomicBool::new(false);
static PINS: OnceLock<Pins> = OnceLock::new();

/// Whether the memory of this process is paged in guarded mode.
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Whether the filter is in force, perhaps by a process that this one descends from.
pub fn is_active() -> bool {
    ACTIVE.load(Relaxed)
}

/// The pins of the process, in guarded mode.
pub fn pins() -> Option<&'static Pins> {
    PINS.get()
}

/// The first step of the library: if a process that this one descends from has set the filter, the
/// handler must be there before any call is trapped.
pub fn arrive() {
    // SAFETY: no memory is touched.
    let mode = unsafe {
        libc::syscall(libc::SYS_prctl, i64::from(libc::PR_GET_SECCOMP), 0_i64, 0_i64, 0_i64, 0_i64)
    };
    if mode != FILTERED || !gate::open() {
        return;
    }
    let before = trap::open();
    if trap::is_trapped() {
        gate::use_it();
        thread::leaves_open(libc::SIGSYS);
        ACTIVE.store(true, Relaxed);
    } else {
        trap::close(&before);
        gate::close();
    }
}

/// Begins, before the process has read its settings: `is_paged` is whether its memory should be
/// paged. A process is guarded if it was executed with the [layout] of guarded programs, or is a
/// host of which that is asked.
pub fn begin(is_paged: bool) {
    if !layout::begin() || !is_paged {
        return;
    }
    if adopted::is_beginning() {
        if !begin_adopted() {
            adopted::give_up_if_beginning("the addresses for guarded memory are in use");
        }
        return;
    }
    if !is_active() {
        if !gate::open() {
            return;
        }
        let before = trap::open();
        if let Err(error) = filter::install() {
            trap::close(&before);
            gate::close();
            thread::say(&format!("terapage: system calls cannot be guarded: {error}\n"));
            return;
        }
        gate::use_it();
        thread::leaves_open(libc::SIGSYS);
        ACTIVE.store(true, Relaxed);
    }
    turn_on();
}

fn turn_on() {
    copy::begin();
    PINS.get_or_init(|| Pins::new(SLOTS));
    userfaultfd::serve_programs_only();
    ON.store(true, Relaxed);
}

/// Begins in a program that runs already, all of whose threads are stopped. The host sets the
/// filter later, for all threads at once, and then calls [`is_set`]. Returns whether the gate is
/// there.
fn begin_adopted() -> bool {
    if !gate::open() {
        return false;
    }
    gate::use_it();
    thread::leaves_open(libc::SIGSYS);
    turn_on();
    true
}

/// In an adopted program: the filter is in force.
#[cfg(target_env = "musl")]
pub fn is_set() {
    ACTIVE.store(true, Relaxed);
}

/// Touches what calls have pinned in a part of memory that is about to be paged: it is there, and
/// nobody changes mappings meanwhile. The kernel could not bring in a page during such a call.
pub fn bring_pinned(from: usize, to: usize) {
    let Some(pins) = pins() else { return };
    pins.each_within(from, to, |from, to| {
        for page in (from / page_bytes() * page_bytes()..to).step_by(page_bytes()) {
            // SAFETY: the memory is there, and readable.
            unsafe { (page as *const u8).read_volatile() };
        }
    });
}

/// Whether a range has any memory that is paged, or will be. It may be called with any thread
/// pointer.
#[cfg(target_env = "musl")]
pub fn meets(at: usize, len: usize) -> bool {
    paged::meets(at, len)
}

/// Guards calls on static arrays as well, before they are paged. Returns those that are guarded:
/// the largest ones.
pub fn watch(ranges: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.len()));
    ranges.truncate(filter::RANGES);
    if ranges.is_empty() || filter::install_within(&ranges).is_err() { Vec::new() } else { ranges }
}

/// The last step of the library's start, when there is memory.
pub fn end_start() {
    // A host for musl has no unwinder for the program's threads.
    if cfg!(not(target_env = "musl")) && is_active() {
        // This may be the first call of the program's own `malloc`. What that maps now serves the
        // pager's thread later, too, so it must not be paged.
        let _internal = thread::Internal::enter();
        gate::describe();
    }
}

unsafe extern "C" {
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_ASYNCHRONOUS`, for which the libc crate has no name.
const AT_ONCE: c_int = 1;

/// Makes a call of a function of the C library that is a cancellation point, without a trap.
///
/// # Safety
/// The same as for the system call.
#[inline(never)]
pub unsafe fn transfer(number: c_long, arguments: [usize; 6]) -> ssize_t {
    let mut kind = 0;
    let depth = &raw const kind as usize;
    // SAFETY: there is room for the old kind; the caller answers for the call.
    unsafe {
        pthread_setcanceltype(AT_ONCE, &raw mut kind);
        let answer = trap::call(number, arguments, depth, 0);
        pthread_setcanceltype(kind, &raw mut kind);
        if (-4095..0).contains(&answer) {
            crate::set_errno(-answer as c_int);
            return -1;
        }
        answer
    }
}

/// Executes a program without a trap: a tracer that changes calls takes a trapped exec for a
/// successful one. It returns -1 with `errno` if the program goes on.
///
/// # Safety
/// The same as for the system call.
#[inline(never)]
pub unsafe fn execute(number: c_long, arguments: [usize; 6]) -> c_int {
    let [a, b, c, d, e, f] = arguments;
    if !is_active() {
        // SAFETY: the caller answers for the call.
        return unsafe { libc::syscall(number, a, b, c, d, e, f) as c_int };
    }
    let depth = &raw const a as usize;
    // SAFETY: as above.
    let answer = unsafe { trap::execute(number, arguments, depth, 0) };
    crate::set_errno(-answer as c_int);
    -1
}

/// In the child of a fork, which has one thread.
pub fn in_child() {
    trap::in_child();
    masks::in_child();
    #[cfg(not(target_env = "musl"))]
    tracing::in_child();
    if let Some(pins) = pins() {
        let owner = if hosted::is_host() { hosts::forking() } else { thread::own_name() };
        pins.in_child(owner, thread::id() as usize);
    }
}
