//! Tries an exec in a process of its own, which has this one's memory meanwhile: whether it would
//! fail. That process is traced, so it stops behind its exec, before it runs an instruction of the
//! program, and is ended there.

use crate::machine;

/// What makes system calls.
type Call = unsafe fn(i64, [usize; 6]) -> isize;

struct Trial {
    call: Call,
    number: i64,
    arguments: [usize; 6],
}

/// Bytes of a set of signals.
const SET: usize = size_of::<u64>();

/// Words of the stack on which the other process makes its calls.
const STACK: usize = 1024;

fn set(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The kernel's error of an exec, with the number and arguments of its call. `None` if it would
/// succeed, or cannot be tried.
///
/// # Safety
/// `call` makes system calls. The calling process has one thread.
pub unsafe fn refusal(call: Call, number: i64, arguments: [usize; 6]) -> Option<isize> {
    let (all, child, now) = (u64::MAX, set(libc::SIGCHLD), [0_u64; 2]);
    let (mut before, mut pending, mut status) = (0_u64, 0_u64, 0);
    let mut stack = [0_u64; STACK];
    let trial = Trial { call, number, arguments };
    let top = stack.as_mut_ptr_range().end as usize & !15;
    // SAFETY: there is room for the answers; the stack and the trial stay until the other process,
    // which alone uses them, has ended or executed a program.
    unsafe {
        let block =
            [libc::SIG_SETMASK as usize, &raw const all as usize, &raw mut before as usize, SET, 0, 0];
        call(libc::SYS_rt_sigprocmask, block);
        call(libc::SYS_rt_sigpending, [&raw mut pending as usize, SET, 0, 0, 0, 0]);
        let process =
            machine::begin_process(libc::CLONE_VM as usize, top, attempt, &raw const trial as usize);
        if process > 0 {
            status = end(call, process as usize);
            // It has stopped, of which the program must not hear.
            if pending & child == 0 {
                let wait = [&raw const child as usize, 0, now.as_ptr() as usize, SET, 0, 0];
                call(libc::SYS_rt_sigtimedwait, wait);
            }
        }
        let unblock = [libc::SIG_SETMASK as usize, &raw const before as usize, 0, SET, 0, 0];
        call(libc::SYS_rt_sigprocmask, unblock);
    }
    let errno = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 0 };
    (errno != 0).then_some(-(errno as isize))
}

/// Waits until the other process has ended, and ends it once it has executed the program. Returns
/// its status.
///
/// # Safety
/// `call` makes system calls.
unsafe fn end(call: Call, process: usize) -> i32 {
    let mut status = 0;
    loop {
        let wait = [process, &raw mut status as usize, libc::__WALL as usize, 0, 0, 0];
        // SAFETY: there is room for the status.
        let answer = unsafe { call(libc::SYS_wait4, wait) };
        if answer == -(libc::EINTR as isize) {
            continue;
        }
        if answer < 0 || !libc::WIFSTOPPED(status) {
            return status;
        }
        // SAFETY: the process is this one's child.
        unsafe {
            if libc::WSTOPSIG(status) == libc::SIGSTOP {
                // Somebody has stopped the whole group.
                call(libc::SYS_ptrace, [libc::PTRACE_CONT as usize, process, 0, 0, 0, 0]);
            } else {
                call(libc::SYS_kill, [process, libc::SIGKILL as usize, 0, 0, 0, 0]);
            }
        }
    }
}

/// What the other process does. It ends with the error of the exec, or with 0.
///
/// # Safety
/// The trial stays meanwhile.
unsafe extern "C" fn attempt(trial: usize) -> ! {
    // SAFETY: the caller has the trial; the kernel reads the set.
    unsafe {
        let Trial { call, number, arguments } = *(trial as *const Trial);
        let others = !set(libc::SIGTRAP);
        let block = [libc::SIG_SETMASK as usize, &raw const others as usize, 0, SET, 0, 0];
        // It must not go on without its tracer.
        let bind = [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0, 0, 0];
        let is_traced = call(libc::SYS_prctl, bind) == 0
            && call(libc::SYS_rt_sigprocmask, block) == 0
            && call(libc::SYS_ptrace, [libc::PTRACE_TRACEME as usize, 0, 0, 0, 0, 0]) == 0;
        let answer = if is_traced { call(number, arguments) } else { 0 };
        loop {
            call(libc::SYS_exit, [-answer as usize, 0, 0, 0, 0, 0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ptr::null;

    unsafe fn call(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> isize {
        // SAFETY: the caller answers for the call.
        let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) } as isize;
        // SAFETY: `errno` is the thread's.
        if answer == -1 { unsafe { -(*libc::__errno_location() as isize) } } else { answer }
    }

    fn refused(path: &CStr) -> Option<isize> {
        let arguments = [path.as_ptr(), null()];
        let given = [path.as_ptr() as usize, arguments.as_ptr() as usize, 0, 0, 0, 0];
        // SAFETY: the arguments are texts.
        unsafe { refusal(call, libc::SYS_execve, given) }
    }

    #[test]
    fn an_exec_that_would_fail_is_refused() {
        for _ in 0..20 {
            assert_eq!(refused(c"/nowhere/program"), Some(-(libc::ENOENT as isize)));
            assert_eq!(refused(c"/dev/null"), Some(-(libc::EACCES as isize)));
            assert_eq!(refused(c"/bin/true"), None);
        }
    }
}
