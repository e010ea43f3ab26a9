//! Programs that trace others (`ptrace`): debuggers, `strace`, `proot`. A trapped call is a signal,
//! and each signal stops a traced process.
//!
//! - A tracer does not see the stops for trapped calls: the hooks of `wait` and its kin let the
//!   process go on, as the tracer let it go on last, and wait again. It sees those for a host's
//!   calls: at the first, when the program is loaded, gdb can set breakpoints.
//! - gdb begins programs by `vfork`. If the child stopped before its exec, its parent, which waits
//!   for the exec, could never let it go on. So the child is traced only from the exec on: no trap
//!   lies between.

use crate::{borrowed, guard, real};
use libc::{c_int, c_long, c_uint, c_void, id_t, idtype_t, pid_t, rusage, siginfo_t};
use std::ffi::CStr;
use std::io::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use terapage_sys::file::Early;
use terapage_sys::hosting::{GUARD_MARK, at_gate, is_traced};
use terapage_sys::trial;

/// Children that borrow the memory and are to be traced from their exec on; 0 is free.
static LATER: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];

/// How the tracer let a process go on last: in one word the process and, in the lower 8 bits, the
/// request. A process may take another's place; then it goes on as the [last](LAST) of all did.
static REQUESTS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
static LAST: AtomicU8 = AtomicU8::new(libc::PTRACE_CONT as u8);

/// Requests that `libc` has for some processors only.
const SYSEMU: c_uint = 31;
const SYSEMU_SINGLESTEP: c_uint = 32;

/// The code of a signal from a filter.
const FROM_FILTER: c_int = 1;

/// Hook of the C library's function, whose variable arguments are passed like others.
///
/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptrace(request: c_uint, pid: pid_t, at: *mut c_void, data: *mut c_void) -> c_long {
    match request {
        libc::PTRACE_TRACEME if is_noted(std::process::id()) => {
            crate::set_errno(libc::EPERM);
            return -1;
        }
        libc::PTRACE_TRACEME if is_later() => return 0,
        libc::PTRACE_CONT | libc::PTRACE_SYSCALL | libc::PTRACE_SINGLESTEP | SYSEMU | SYSEMU_SINGLESTEP => {
            note(pid, request as u8)
        }
        libc::PTRACE_ATTACH | libc::PTRACE_SEIZE => note(pid, libc::PTRACE_CONT as u8),
        _ => {}
    }
    // SAFETY: the caller keeps the contract of `ptrace`.
    unsafe { real::call!(ptrace(request, pid, at, data) or -1) }
}

fn place_of(pid: pid_t) -> &'static AtomicU64 {
    &REQUESTS[pid as usize % REQUESTS.len()]
}

fn note(pid: pid_t, request: u8) {
    place_of(pid).store(u64::from(pid as u32) << 8 | u64::from(request), Relaxed);
    LAST.store(request, Relaxed);
}

fn noted(pid: pid_t) -> u8 {
    let word = place_of(pid).load(Relaxed);
    if word >> 8 == u64::from(pid as u32) { word as u8 } else { LAST.load(Relaxed) }
}

/// Whether a process is traced only from its exec on.
fn is_noted(process: u32) -> bool {
    LATER.iter().any(|place| place.load(Relaxed) == process)
}

/// Notes that the calling process is traced only from its exec on, if it is such a child. One that
/// has a tracer already is refused by the kernel now.
fn is_later() -> bool {
    let me = std::process::id();
    let take = |place: &AtomicU32| place.compare_exchange(0, me, Relaxed, Relaxed).is_ok();
    // SAFETY: the gate is open.
    let has_tracer = || unsafe { is_traced(at_gate) };
    guard::is_active() && borrowed::is_borrower() && !has_tracer() && LATER.iter().any(take)
}

/// The calling process is about to execute a program, by a call at the gate whose memory is there.
/// No trap follows: nobody can undo the tracing, so an exec that fails in a trial is not made, and
/// this is its error.
pub fn executes(number: c_long, arguments: [usize; 6]) -> Option<isize> {
    if !is_noted(std::process::id()) {
        return None;
    }
    // SAFETY: the gate is open, and the program answers for the call. The child has one thread.
    unsafe {
        let refused = trial::refusal(at_gate, number, arguments);
        if refused.is_none() {
            at_gate(libc::SYS_ptrace, [libc::PTRACE_TRACEME as usize, 0, 0, 0, 0, 0]);
            forget(std::process::id());
        }
        refused
    }
}

/// A child that has borrowed the memory is traced now, or has gone.
pub fn forget(child: u32) {
    for place in &LATER {
        place.compare_exchange(child, 0, Relaxed, Relaxed).ok();
    }
}

/// In the child of a fork, which is no such child.
pub fn in_child() {
    LATER.iter().for_each(|place| place.store(0, Relaxed));
}

/// Whether a traced process is stopped.
fn is_stopped(pid: pid_t) -> bool {
    let (mut path, mut text) = ([0_u8; 32], [0_u8; 128]);
    write!(&mut path[..], "/proc/{pid}/stat\0").ok();
    let file = CStr::from_bytes_until_nul(&path).ok().and_then(Early::open);
    let len = file.map_or(0, |file| file.read_at(&mut text, 0));
    // The name may contain brackets.
    let state = text[..len].iter().rposition(|&byte| byte == b')').and_then(|at| text.get(at + 2));
    matches!(state, Some(b't' | b'T'))
}

/// Lets a traced process go on, if it has stopped for a trapped call.
fn passes_on(pid: pid_t) -> bool {
    // SAFETY: zeros are a valid description, which has room for the answer; `errno` is the
    // thread's.
    unsafe {
        let errno = *libc::__errno_location();
        let mut what: siginfo_t = std::mem::zeroed();
        let got = real::call!(ptrace(libc::PTRACE_GETSIGINFO, pid, null_mut(), (&raw mut what).cast()) or -1);
        if got != 0 {
            // It was killed meanwhile, and its end is reported. Or another thread traces it.
            *libc::__errno_location() = errno;
            return !is_stopped(pid);
        }
        let is_trap = what.si_code == FROM_FILTER && what.si_errno == i32::from(GUARD_MARK);
        if is_trap {
            let signal = libc::SIGSYS as usize as *mut c_void;
            // If that fails, the process has been killed, and its end is reported.
            real::call!(ptrace(noted(pid).into(), pid, null_mut(), signal) or -1);
        }
        *libc::__errno_location() = errno;
        is_trap
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    let mut own = 0;
    let into = if status.is_null() { &raw mut own } else { status };
    loop {
        // SAFETY: the caller keeps the contract of `wait4`.
        let answer = unsafe { real::call!(wait4(pid, into, options, usage) or -1) };
        let is_stop = |status: c_int| status == libc::SIGSYS << 8 | 0x7f;
        // SAFETY: the C library has written the status.
        if !(answer > 0 && is_stop(unsafe { *into }) && passes_on(answer)) {
            return answer;
        }
    }
}

alias! {
    fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t
        = wait4(pid, status, options, null_mut());
    fn wait(status: *mut c_int) -> pid_t = wait4(-1, status, 0, null_mut());
    fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t
        = wait4(-1, status, options, usage);
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waitid(kind: idtype_t, id: id_t, what: *mut siginfo_t, options: c_int) -> c_int {
    loop {
        // SAFETY: the caller keeps the contract of `waitid`; the C library has written the
        // description, whose process is 0 if there is none.
        unsafe {
            let answer = real::call!(waitid(kind, id, what, options) or -1);
            let is_stop = |what: &siginfo_t| {
                what.si_code == libc::CLD_TRAPPED && what.si_pid() > 0 && what.si_status() == libc::SIGSYS
            };
            if !(answer == 0 && !what.is_null() && is_stop(&*what) && passes_on((*what).si_pid())) {
                return answer;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_goes_on_as_it_did_last() {
        note(5, libc::PTRACE_SYSCALL as u8);
        note(6, libc::PTRACE_CONT as u8);
        assert_eq!((noted(5), noted(6)), (libc::PTRACE_SYSCALL as u8, libc::PTRACE_CONT as u8));
        note(5 + REQUESTS.len() as pid_t, libc::PTRACE_SINGLESTEP as u8);
        assert_eq!(noted(5), libc::PTRACE_SINGLESTEP as u8, "as the last of all");
    }
}
