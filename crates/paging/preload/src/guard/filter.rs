//! The filter: which system calls arrive in the handler instead of the kernel.
//!
//! Numbers are compared first: the kernel remembers which calls always pass, and does not run the
//! filter for them. Only the upper halves of pointers are compared.

use super::{ARENA, gate};
use terapage_sys::seccomp::{
    self, ALLOW, FROM, IS, PLACE, PLACE_LOW, SET_FILTER, Step, Steps, argument, branch, give, load,
};

/// The mark of a signal of this filter.
pub const MARK: u16 = 0x7e4b;

/// `io_pgetevents`, for which the libc crate has no name.
const IO_PGETEVENTS: i64 = 333;

const TRAP: u32 = seccomp::trap(MARK);

/// When a call is trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Never,
    /// If one of these arguments (bits) lies in the arena.
    Pointers(u8),
    /// The same, or if this argument is not 0.
    Given(u8, u8),
    Always,
}

/// When a call of this number is trapped.
fn when(number: usize) -> When {
    let pointers = terapage_calls::pointers(number);
    match number as i64 {
        // The child continues behind the instruction, on another stack or with other memory. What
        // the C library passes lies in descriptors of threads, which are not paged.
        libc::SYS_clone
        | libc::SYS_clone3
        | libc::SYS_fork
        | libc::SYS_vfork
        | libc::SYS_set_robust_list
        | libc::SYS_set_tid_address
        | libc::SYS_rseq => When::Never,
        // Only filters and maps of the process have memory that points to memory.
        libc::SYS_prctl => When::Pointers(pointers.unwrap_or(0)),
        // The library calls these often. Its hooks serve the program's.
        libc::SYS_madvise | libc::SYS_mlock | libc::SYS_mlock2 => When::Never,
        // Programs get no ring and no context: only the library uses these.
        libc::SYS_io_uring_enter
        | libc::SYS_io_uring_register
        | libc::SYS_io_submit
        | libc::SYS_io_getevents
        | IO_PGETEVENTS
        | libc::SYS_io_destroy
        | libc::SYS_io_cancel => When::Never,
        libc::SYS_io_uring_setup | libc::SYS_io_setup => When::Always,
        // A blocked or replaced SIGSYS would let the kernel end the process.
        libc::SYS_rt_sigaction | libc::SYS_rt_sigsuspend | libc::SYS_sigaltstack => When::Always,
        libc::SYS_rt_sigprocmask => When::Given(pointers.unwrap_or(0), 1),
        libc::SYS_ppoll => When::Given(pointers.unwrap_or(0), 3),
        libc::SYS_pselect6 => When::Given(pointers.unwrap_or(0), 5),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => When::Given(pointers.unwrap_or(0), 4),
        _ if terapage_calls::nested(number) => When::Always,
        _ => match pointers {
            Some(0) => When::Never,
            Some(pointers) => When::Pointers(pointers),
            None => When::Pointers(0x3f),
        },
    }
}

/// The steps at which a call of a kind ends.
fn ends(when: When) -> Vec<Step> {
    // Traps the call, unless it comes from the gate.
    let trap = [
        load(PLACE),
        branch(IS, (gate::PLACE >> 32) as u32, 0, 2),
        load(PLACE_LOW),
        branch(IS, gate::PLACE as u32, 1, 0),
        give(TRAP),
        give(ALLOW),
    ];
    let mut steps = Vec::new();
    let (pointers, given) = match when {
        When::Never => return vec![give(ALLOW)],
        When::Always => return trap.to_vec(),
        When::Pointers(pointers) => (pointers, None),
        When::Given(pointers, given) => (pointers, Some(given)),
    };
    let arguments: Vec<u8> = (0..6).filter(|index| pointers >> index & 1 != 0).collect();
    // The number of steps before the steps that trap.
    let total = 3 * arguments.len() + 4 * usize::from(given.is_some()) + 1;
    for index in arguments {
        steps.push(load(argument(index) + 4));
        steps.push(branch(FROM, (ARENA.start >> 32) as u32, 0, 1));
        let ahead = (total - steps.len() - 1) as u8;
        steps.push(branch(FROM, (ARENA.end >> 32) as u32, 0, ahead));
    }
    if let Some(given) = given {
        for half in [0, 4] {
            steps.push(load(argument(given) + half));
            let ahead = (total - steps.len() - 1) as u8;
            steps.push(branch(IS, 0, 0, ahead));
        }
    }
    steps.push(give(ALLOW));
    debug_assert_eq!(steps.len(), total);
    steps.extend(trap);
    steps
}

/// The filter.
fn steps() -> Vec<Step> {
    seccomp::by_number(terapage_calls::END, when, ends)
}

/// Sets the filter for all threads of the process and for what it executes. Without a right, the
/// process first gives up that programs which it executes gain rights.
pub fn install() -> std::io::Result<()> {
    let steps = steps();
    let all = Steps { len: steps.len() as u16, first: steps.as_ptr() };
    const ALL_THREADS: i64 = 1;
    // SAFETY: the kernel copies the steps; the handler of the signal is there.
    unsafe {
        if libc::syscall(libc::SYS_prctl, i64::from(libc::PR_SET_NO_NEW_PRIVS), 1_i64, 0_i64, 0_i64, 0_i64)
            != 0
            || libc::syscall(libc::SYS_seccomp, SET_FILTER, ALL_THREADS, &raw const all) != 0
        {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps: &[Step], number: i64, place: usize, arguments: &[usize]) -> u32 {
        seccomp::answer(steps, number, place, arguments)
    }

    const CODE: usize = 0x7f12_3456_7000;
    const STACK: usize = 0x7ffc_0000_0000;
    const INSIDE: usize = ARENA.start + 4096;

    #[test]
    fn pointers_into_the_arena_are_trapped_except_at_the_gate() {
        let steps = steps();
        assert!(steps.len() < seccomp::STEPS_MOST, "{} steps", steps.len());
        for at in [INSIDE, ARENA.start, ARENA.end - 1] {
            assert_eq!(run(&steps, libc::SYS_read, CODE, &[3, at, 8]), TRAP);
            assert_eq!(run(&steps, libc::SYS_read, gate::PLACE, &[3, at, 8]), ALLOW);
            assert_eq!(run(&steps, libc::SYS_futex, CODE, &[at, 0]), TRAP);
        }
        for at in [0, STACK, ARENA.start - 1, ARENA.end] {
            assert_eq!(run(&steps, libc::SYS_read, CODE, &[3, at, 8]), ALLOW);
        }
        assert_eq!(run(&steps, libc::SYS_read, CODE, &[INSIDE, STACK, INSIDE]), ALLOW);
    }

    #[test]
    fn memory_that_points_to_memory_is_always_trapped() {
        let steps = steps();
        for number in [
            libc::SYS_readv,
            libc::SYS_writev,
            libc::SYS_sendmsg,
            libc::SYS_execve,
            libc::SYS_ioctl,
            libc::SYS_rt_sigaction,
        ] {
            assert_eq!(run(&steps, number, CODE, &[3, STACK]), TRAP);
            assert_eq!(run(&steps, number, gate::PLACE, &[3, INSIDE]), ALLOW);
        }
        assert_eq!(run(&steps, libc::SYS_rt_sigprocmask, CODE, &[0, STACK, 0]), TRAP);
        assert_eq!(run(&steps, libc::SYS_rt_sigprocmask, CODE, &[0, 0, STACK]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_rt_sigprocmask, CODE, &[0, 0, INSIDE]), TRAP);
        assert_eq!(run(&steps, libc::SYS_ppoll, CODE, &[STACK, 1, 0, 0]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_ppoll, CODE, &[STACK, 1, 0, STACK]), TRAP);
    }

    /// Each call is decided as by its row alone.
    #[test]
    fn every_number_is_found() {
        let steps = steps();
        for number in 0..terapage_calls::END + 50 {
            let when = when(number);
            for index in 0..6 {
                let mut arguments = [0; 6];
                arguments[index] = INSIDE;
                let trapped = match when {
                    When::Never => false,
                    When::Always => true,
                    When::Pointers(pointers) => pointers >> index & 1 != 0,
                    When::Given(pointers, given) => pointers >> index & 1 != 0 || usize::from(given) == index,
                };
                let expected = if trapped { TRAP } else { ALLOW };
                assert_eq!(run(&steps, number as i64, CODE, &arguments), expected, "{number} {index}");
            }
        }
    }
}
