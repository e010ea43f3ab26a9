//! The filter: which system calls arrive in the handler instead of the kernel.
//!
//! Numbers are compared first: the kernel remembers which calls always pass, and does not run the
//! filter for them. Only the upper halves of pointers are compared.
//!
//! The filter survives each exec, so executed programs without this library have it, too. For them
//! all calls pass: they have no memory at the addresses of the arena, and no code at those from
//! which calls are trapped whatever their pointers are.

use super::machine::{self, IO_PGETEVENTS};
use super::{ARENA, CODE, gate};
use std::ops::Range;
use terapage_sys::seccomp::{
    self, ALLOW, FROM, IS, PLACE, PLACE_LOW, SET_FILTER, Step, Steps, argument, branch, give, load,
};

/// The mark of a signal of this filter.
pub use terapage_sys::hosting::GUARD_MARK as MARK;

const TRAP: u32 = seccomp::trap(MARK);

/// When a call is trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Never,
    /// If one of these arguments (bits) lies in the arena.
    Pointers(u8),
    /// The same, or if this argument is not 0 and the call comes from a guarded program's code.
    Given(u8, u8),
    /// If the call comes from a guarded program's code.
    Always,
    /// The same, or if one of these arguments (bits) lies in the arena.
    Nested(u8),
    /// If one of these arguments (bits) lies in the arena, or if the call is not for a standard
    /// stream and comes from a guarded program's code.
    ToFiles(u8),
}

/// All arguments.
const ALL: u8 = 0x3f;

/// When a call of this number is trapped.
fn when(number: usize) -> When {
    let pointers = terapage_calls::pointers(number);
    match number as i64 {
        // The child continues behind the instruction, on another stack or with other memory. What
        // the C library passes lies in descriptors of threads, which are not paged.
        number if machine::begins(number) => When::Never,
        libc::SYS_set_robust_list | libc::SYS_set_tid_address | libc::SYS_rseq => When::Never,
        // Only filters and maps of the process have memory that points to memory.
        libc::SYS_prctl => When::Pointers(pointers.unwrap_or(0)),
        // Programs get no ring and no context: only the library uses these.
        libc::SYS_io_uring_enter
        | libc::SYS_io_uring_register
        | libc::SYS_io_submit
        | libc::SYS_io_getevents
        | IO_PGETEVENTS
        | libc::SYS_io_destroy
        | libc::SYS_io_cancel => When::Never,
        libc::SYS_io_uring_setup | libc::SYS_io_setup => When::Always,
        // So the loader writes its messages, before there is a handler. Hooks serve the program's.
        libc::SYS_writev => When::ToFiles(pointers.unwrap_or(ALL)),
        // A blocked or replaced SIGSYS would let the kernel end the process.
        libc::SYS_rt_sigaction | libc::SYS_rt_sigsuspend | libc::SYS_sigaltstack => {
            When::Nested(pointers.unwrap_or(ALL))
        }
        libc::SYS_rt_sigprocmask => When::Given(pointers.unwrap_or(0), 1),
        libc::SYS_ppoll => When::Given(pointers.unwrap_or(0), 3),
        libc::SYS_pselect6 => When::Given(pointers.unwrap_or(0), 5),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => When::Given(pointers.unwrap_or(0), 4),
        _ if terapage_calls::nested(number) => When::Nested(pointers.unwrap_or(ALL)),
        _ => match pointers {
            Some(0) => When::Never,
            Some(pointers) => When::Pointers(pointers),
            None => When::Pointers(ALL),
        },
    }
}

/// Traps the call, unless it comes from the gate.
fn trap() -> [Step; 6] {
    [
        load(PLACE),
        branch(IS, (gate::PLACE >> 32) as u32, 0, 2),
        load(PLACE_LOW),
        branch(IS, gate::PLACE as u32, 1, 0),
        give(TRAP),
        give(ALLOW),
    ]
}

/// Lets calls pass that do not come from the code of guarded programs.
const FROM_CODE: [Step; 4] = [
    load(PLACE),
    branch(FROM, (CODE.start >> 32) as u32, 0, 1),
    branch(FROM, (CODE.end >> 32) as u32, 0, 1),
    give(ALLOW),
];

/// The steps at which a call of a kind ends.
fn ends(when: When) -> Vec<Step> {
    let mut steps = Vec::new();
    let (pointers, given) = match when {
        When::Never => return vec![give(ALLOW)],
        When::Always => return [&FROM_CODE[..], &trap()].concat(),
        When::Nested(pointers) => {
            push_tests(&mut steps, pointers, 3 * pointers.count_ones() as usize + FROM_CODE.len());
            return [&steps[..], &FROM_CODE, &trap()].concat();
        }
        When::ToFiles(pointers) => {
            let files = [load(argument(0)), branch(FROM, 3, 1, 0), give(ALLOW)];
            let others = files.len() + FROM_CODE.len();
            push_tests(&mut steps, pointers, 3 * pointers.count_ones() as usize + others);
            return [&steps[..], &files, &FROM_CODE, &trap()].concat();
        }
        When::Pointers(pointers) => (pointers, None),
        When::Given(pointers, given) => (pointers, Some(given)),
    };
    // The number of steps before the steps that trap.
    let given_steps = if given.is_some() { 4 + FROM_CODE.len() } else { 0 };
    let total = 3 * pointers.count_ones() as usize + given_steps + 1;
    push_tests(&mut steps, pointers, total);
    if let Some(given) = given {
        let begins = total - FROM_CODE.len();
        for half in [0, 4] {
            steps.push(load(argument(given) + half));
            let ahead = (begins - steps.len() - 1) as u8;
            steps.push(branch(IS, 0, 0, ahead));
        }
    }
    steps.push(give(ALLOW));
    if given.is_some() {
        steps.extend(FROM_CODE);
    }
    debug_assert_eq!(steps.len(), total);
    steps.extend(trap());
    steps
}

/// Adds tests of arguments (bits): if one lies in the arena, the call ends at the step `trapped`.
fn push_tests(steps: &mut Vec<Step>, pointers: u8, trapped: usize) {
    for index in bits(pointers) {
        steps.push(load(argument(index) + 4));
        steps.push(branch(FROM, (ARENA.start >> 32) as u32, 0, 1));
        let ahead = (trapped - steps.len() - 1) as u8;
        steps.push(branch(FROM, (ARENA.end >> 32) as u32, 0, ahead));
    }
}

fn bits(set: u8) -> impl Iterator<Item = u8> {
    (0..6).filter(move |index| set >> index & 1 != 0)
}

/// The same for a program's own ranges, in a filter beside the first one. Executed programs without
/// this library have memory there, too, so only calls from guarded programs' code are trapped.
fn ends_within(when: When, ranges: &[Range<usize>]) -> Vec<Step> {
    let pointers = match when {
        When::Pointers(pointers) | When::Given(pointers, _) => pointers,
        // The first filter traps those calls.
        When::Never | When::Always | When::Nested(_) | When::ToFiles(_) => 0,
    };
    let mut tests = Vec::new();
    for index in bits(pointers) {
        tests.extend(ranges.iter().map(|range| within(index, range)));
    }
    let total = tests.iter().map(Vec::len).sum::<usize>() + 1;
    let mut steps = Vec::new();
    for test in tests {
        steps.extend(test);
        if let Some(last) = steps.len().checked_sub(1) {
            steps[last] = steps[last].or_skip((total - steps.len()) as u8);
        }
    }
    steps.push(give(ALLOW));
    if total > 1 {
        steps.extend(FROM_CODE);
        steps.extend(trap());
    }
    steps
}

/// A test of an argument: if it lies in the range, the last step does not hold.
fn within(index: u8, range: &Range<usize>) -> Vec<Step> {
    let halves = |at: usize| ((at >> 32) as u32, at as u32);
    let ((high, low), (last_high, last_low)) = (halves(range.start), halves(range.end - 1));
    match last_low.checked_add(1).filter(|_| high == last_high) {
        Some(end) => vec![
            load(argument(index) + 4),
            branch(IS, high, 0, 3),
            load(argument(index)),
            branch(FROM, low, 0, 1),
            branch(FROM, end, 0, 0),
        ],
        // More than what lies in the range, but rarely.
        None => {
            vec![load(argument(index) + 4), branch(FROM, high, 0, 1), branch(FROM, last_high + 1, 0, 0)]
        }
    }
}

/// The filter whose calls end as `ends` says.
fn steps(ends: impl Fn(When) -> Vec<Step>) -> Vec<Step> {
    seccomp::by_number(terapage_calls::END, when, ends)
}

/// Sets the filter for all threads of the process and for what it executes. Without a right, the
/// process first gives up that programs which it executes gain rights.
pub fn install() -> std::io::Result<()> {
    // SAFETY: no memory is touched.
    let set = unsafe {
        let [yes, no] = [1_i64, 0];
        libc::syscall(libc::SYS_prctl, i64::from(libc::PR_SET_NO_NEW_PRIVS), yes, no, no, no)
    };
    if set != 0 {
        return Err(std::io::Error::last_os_error());
    }
    set_filter(&steps(ends))
}

/// The steps of the filter for pointers into the arena, which a host sets for an adopted program.
#[cfg(target_env = "musl")]
pub fn in_arena() -> Vec<Step> {
    steps(ends)
}

/// The most ranges of [`install_within`].
pub const RANGES: usize = 4;

/// Adds a filter that traps calls whose pointers lie in these ranges, [`RANGES`] at most.
pub fn install_within(ranges: &[Range<usize>]) -> std::io::Result<()> {
    set_filter(&steps(|when| ends_within(when, ranges)))
}

fn set_filter(steps: &[Step]) -> std::io::Result<()> {
    let all = Steps { len: steps.len() as u16, first: steps.as_ptr() };
    const ALL_THREADS: i64 = 1;
    // SAFETY: the kernel copies the steps; the handler of the signal is there.
    let set = unsafe { libc::syscall(libc::SYS_seccomp, SET_FILTER, ALL_THREADS, &raw const all) };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps: &[Step], number: i64, place: usize, arguments: &[usize]) -> u32 {
        seccomp::answer(steps, number, place, arguments)
    }

    const CODE: usize = super::CODE.start + 0x34_5670;
    /// Code of programs without this library.
    const OTHERS: [usize; 4] = match cfg!(target_arch = "aarch64") {
        true => [0x40_1000, 0xaaaa_aaaa_6000, 0xffff_1234_5000, super::CODE.end],
        false => [0x40_1000, 0x5555_5555_6000, 0x7f12_3456_7000, super::CODE.end],
    };
    const STACK: usize = 0x7ffc_0000_0000;
    const INSIDE: usize = ARENA.start + 4096;

    #[test]
    fn pointers_into_the_arena_are_trapped_except_at_the_gate() {
        let steps = steps(ends);
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
        let steps = steps(ends);
        for number in [
            libc::SYS_readv,
            libc::SYS_writev,
            libc::SYS_sendmsg,
            libc::SYS_execve,
            libc::SYS_ioctl,
            libc::SYS_rt_sigaction,
        ] {
            assert_eq!(run(&steps, number, CODE, &[3, STACK]), TRAP);
            assert_eq!(run(&steps, number, INSIDE, &[3, STACK]), TRAP);
            for code in OTHERS {
                assert_eq!(run(&steps, number, code, &[3, STACK, STACK]), ALLOW);
            }
            assert_eq!(run(&steps, number, gate::PLACE, &[3, INSIDE]), ALLOW);
        }
        for number in [libc::SYS_readv, libc::SYS_ioctl, libc::SYS_rt_sigaction] {
            for code in OTHERS {
                assert_eq!(run(&steps, number, code, &[3, INSIDE, INSIDE]), TRAP);
            }
        }
        assert_eq!(run(&steps, libc::SYS_writev, CODE, &[2, STACK]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_writev, OTHERS[0], &[2, INSIDE]), TRAP);
        assert_eq!(run(&steps, libc::SYS_rt_sigprocmask, CODE, &[0, STACK, 0]), TRAP);
        assert_eq!(run(&steps, libc::SYS_rt_sigprocmask, OTHERS[0], &[0, STACK, 0]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_rt_sigprocmask, OTHERS[3], &[0, STACK, 0]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_rt_sigprocmask, OTHERS[3], &[0, INSIDE, 0]), TRAP);
        assert_eq!(run(&steps, libc::SYS_rt_sigprocmask, CODE, &[0, 0, STACK]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_rt_sigprocmask, CODE, &[0, 0, INSIDE]), TRAP);
        assert_eq!(run(&steps, libc::SYS_ppoll, CODE, &[STACK, 1, 0, 0]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_ppoll, CODE, &[STACK, 1, 0, STACK]), TRAP);
    }

    /// Each call is decided as by its row alone.
    #[test]
    fn every_number_is_found() {
        let steps = steps(ends);
        for number in 0..terapage_calls::END + 50 {
            let when = when(number);
            for index in 0..6 {
                let mut arguments = [0; 6];
                arguments[index] = INSIDE;
                let trapped = match when {
                    When::Never => false,
                    When::Always | When::Nested(_) => true,
                    When::ToFiles(pointers) => index == 0 || pointers >> index & 1 != 0,
                    When::Pointers(pointers) => pointers >> index & 1 != 0,
                    When::Given(pointers, given) => pointers >> index & 1 != 0 || usize::from(given) == index,
                };
                let expected = if trapped { TRAP } else { ALLOW };
                assert_eq!(run(&steps, number as i64, CODE, &arguments), expected, "{number} {index}");
            }
        }
    }

    /// A program's static arrays are trapped from its libraries, and from nowhere else.
    #[test]
    fn ranges_of_the_program_are_trapped() {
        let ranges =
            [0x40_8000..0x90_0000, 0x5555_ffff_0000..0x5556_0001_0000, 0x5600_0000_0000..0x5600_0010_0000];
        let steps = steps(|when| ends_within(when, &ranges));
        assert!(steps.len() < seccomp::STEPS_MOST, "{} steps", steps.len());
        for range in &ranges {
            for at in [range.start, range.end - 1] {
                assert_eq!(run(&steps, libc::SYS_read, CODE, &[3, at, 8]), TRAP);
                assert_eq!(run(&steps, libc::SYS_sendto, CODE, &[3, STACK, 8, 0, at]), TRAP);
                assert_eq!(run(&steps, libc::SYS_read, gate::PLACE, &[3, at, 8]), ALLOW);
                assert_eq!(run(&steps, libc::SYS_read, CODE, &[at, STACK, at]), ALLOW);
                for code in OTHERS {
                    assert_eq!(run(&steps, libc::SYS_read, code, &[3, at, 8]), ALLOW);
                }
            }
        }
        for at in [0, 0x40_7fff, 0x90_0000, STACK, 0x5600_0010_0000, 0x55ff_ffff_ffff, INSIDE] {
            assert_eq!(run(&steps, libc::SYS_read, CODE, &[3, at, 8]), ALLOW);
        }
    }
}
