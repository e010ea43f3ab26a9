//! The filter: which system calls arrive in the handler instead of the kernel.
//!
//! Only calls from the program's own code are trapped: from below [`LOW`], where fixed executables
//! lie, and from [`AREA`], where the host puts all other code. The host, its C library and the
//! paging library lie elsewhere, and so does every program that the kernel loads by itself. A
//! process keeps the filter when it executes another program. The filter has no effect there,
//! unless that program is a fixed executable.
//!
//! Numbers are compared first: the kernel remembers which calls always pass, and does not run the
//! filter for them.

use crate::machine;
use crate::raw::{error, is_error, raw};
use std::ops::Range;
use std::sync::OnceLock;
use terapage_calls::{By, Hosted, When};
use terapage_sys::executable;
pub use terapage_sys::hosting::AREA;
use terapage_sys::hosting::GUARDED;
use terapage_sys::seccomp::{
    self, ALLOW, FROM, HAS, IS, KILL, NUMBER, PLACE, PLACE_LOW, SET_FILTER, Step, Steps, argument, branch,
    give, jump, load,
};

/// The addresses of fixed executables.
pub const LOW: Range<usize> = 0..1 << 32;

/// Where the tools of Valgrind lie, and no other program does. The filter survives their exec, but
/// they run without a host.
pub const VALGRIND: Range<usize> = executable::VALGRIND as usize..executable::VALGRIND as usize + (16 << 20);

/// Where paged memory lies whose place the kernel has chosen. Files are hardly as long.
const PAGED: Range<usize> = 1 << 44..machine::ADDRESSES;

/// The mark of a signal of this filter: the program's own filters may send the same signal.
pub const MARK: u16 = 0x7e4a;

/// The most ranges of code whose calls pass the program's own filters.
const RANGES_MOST: usize = 32;

/// What the filter does with a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Passes,
    IsTrapped(When),
    /// The answer is that the kernel does not know the call.
    IsUnknown(When),
}

fn kind(number: usize) -> Kind {
    match terapage_calls::hosted(number) {
        // Filters of their own trap them.
        None | Some(Hosted { when: When::Marked(_), .. }) => Kind::Passes,
        Some(Hosted { when, by: By::Library(_) | By::Host(_) }) => Kind::IsTrapped(when),
        Some(Hosted { when, by: By::Nobody }) => Kind::IsUnknown(when),
    }
}

/// The steps that decide about a call of a kind. `descriptors` is the least number that a
/// descriptor of the pager has.
fn ends(kind: Kind, descriptors: u32) -> Vec<Step> {
    let allow = give(ALLOW);
    let (when, end) = match kind {
        Kind::Passes => return vec![allow],
        Kind::IsTrapped(when) => (when, give(seccomp::trap(MARK))),
        Kind::IsUnknown(when) => (when, give(seccomp::refuse(libc::ENOSYS))),
    };
    // If a condition holds, the next step follows; otherwise the step after it, which allows the
    // call.
    let mut steps = match when {
        When::Always => Vec::new(),
        When::Given(index) => vec![
            load(argument(index)),
            branch(IS, 0, 0, 3),
            load(argument(index) + 4),
            branch(IS, 0, 0, 1),
            allow,
        ],
        When::Descriptor(index) => vec![load(argument(index)), branch(FROM, descriptors, 1, 0), allow],
        When::Address(index) => vec![
            load(argument(index) + 4),
            branch(FROM, (PAGED.start >> 32) as u32, 0, 1),
            branch(FROM, (PAGED.end >> 32) as u32, 0, 1),
            allow,
        ],
        // [`kind`] lets them pass.
        When::Marked(_) => vec![allow],
        When::Has(index, bits) => vec![load(argument(index)), branch(HAS, bits, 1, 0), allow],
        When::Is(index, value) => vec![load(argument(index)), branch(IS, value, 1, 0), allow],
        // Threads, and processes that share the memory for long, are the kernel's business.
        When::Forks => vec![
            load(argument(0)),
            branch(HAS, libc::CLONE_THREAD as u32, 2, 0),
            branch(HAS, libc::CLONE_VM as u32, 0, 2),
            branch(HAS, libc::CLONE_VFORK as u32, 1, 0),
            allow,
        ],
        When::Blocks => vec![
            load(argument(0)),
            branch(IS, libc::SIG_UNBLOCK as u32, 4, 0),
            load(argument(1)),
            branch(IS, 0, 0, 3),
            load(argument(1) + 4),
            branch(IS, 0, 0, 1),
            allow,
        ],
    };
    steps.push(end);
    steps
}

/// Whether a `clone` with these flags makes a process that has a copy of this memory, or has this
/// memory until it executes a program.
pub fn forks(flags: usize) -> bool {
    let has = |flag: i32| flags & flag as usize != 0;
    !has(libc::CLONE_THREAD) && (!has(libc::CLONE_VM) || has(libc::CLONE_VFORK))
}

/// What the filter of guarded mode, which the library sets, leaves to the host: calls from the
/// code below [`LOW`], and what the kernel touches by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guarded {
    Passes,
    IsTrapped,
    /// If the first argument may be paged.
    IsTrappedIfPaged,
}

fn guarded(number: usize) -> Guarded {
    match number as i64 {
        libc::SYS_clone | libc::SYS_io_uring_setup | libc::SYS_io_setup => Guarded::IsTrapped,
        libc::SYS_set_tid_address | libc::SYS_set_robust_list => Guarded::IsTrappedIfPaged,
        // Only filters and maps of the process have memory that points to memory.
        libc::SYS_prctl => Guarded::Passes,
        // The first filter refuses them, and [`has_filter`](terapage_sys::hosting::has_filter)
        // tries that.
        _ if matches!(kind(number), Kind::IsUnknown(_)) => Guarded::Passes,
        _ if terapage_calls::nested(number) => Guarded::IsTrapped,
        _ => Guarded::Passes,
    }
}

fn guarded_ends(kind: Guarded) -> Vec<Step> {
    let paged = [
        load(argument(0) + 4),
        branch(FROM, (GUARDED.start >> 32) as u32, 0, 1),
        branch(FROM, (GUARDED.end >> 32) as u32, 0, 1),
        give(ALLOW),
    ];
    let trap = give(seccomp::trap(MARK));
    match kind {
        Guarded::Passes => vec![give(ALLOW)],
        Guarded::IsTrapped => [&FROM_CODE[..], &[trap]].concat(),
        Guarded::IsTrappedIfPaged => [&paged[..], &FROM_CODE, &[trap]].concat(),
    }
}

/// Lets calls pass that do not come from the program's code.
const FROM_CODE: [Step; 9] = [
    load(PLACE),
    branch(IS, 0, 0, 4),
    load(PLACE_LOW),
    branch(FROM, VALGRIND.start as u32, 0, 5),
    branch(FROM, VALGRIND.end as u32, 4, 0),
    give(ALLOW),
    branch(FROM, (AREA.start >> 32) as u32, 0, 1),
    branch(FROM, (AREA.end >> 32) as u32, 0, 1),
    give(ALLOW),
];

/// Sets the second filter of guarded mode, as [`install`].
///
/// # Errors
/// The kernel's error.
///
/// # Safety
/// The handler of the signal is there.
pub unsafe fn install_guarded() -> Result<(), i32> {
    let steps = seccomp::by_number(terapage_calls::END, guarded, guarded_ends);
    // SAFETY: the caller has set the handler.
    let answer = unsafe { set(0, &steps) };
    if is_error(answer) { Err(-answer as i32) } else { Ok(()) }
}

/// Whether an address lies in the code of the host or of its libraries.
pub fn is_own(at: usize) -> bool {
    OWN_CODE.get().is_none_or(|own| own.iter().any(|code| code.contains(&at)))
}

/// The steps that go on if the call comes from the program's code, and otherwise allow it. `code`
/// is where more of it lies.
fn from_program(code: &[Range<usize>]) -> Vec<Step> {
    let parts: Vec<Range<usize>> = code.iter().flat_map(within_words).collect();
    let (from, to) = ((AREA.start >> 32) as u32, (AREA.end >> 32) as u32);
    // Behind each range, a jump to the end: over the other ranges, and the answer.
    let rest = |index: usize| (parts.len() - index) * RANGE_STEPS + 1;
    let mut steps = vec![
        load(PLACE),
        branch(IS, 0, 0, 4),
        load(PLACE_LOW),
        branch(FROM, VALGRIND.start as u32, 0, 4),
        branch(FROM, VALGRIND.end as u32, 3, 0),
        give(ALLOW),
        branch(FROM, from, 0, 2),
        branch(FROM, to, 1, 0),
        jump(rest(0)),
    ];
    for (index, code) in parts.iter().enumerate() {
        steps.extend([
            load(PLACE),
            branch(IS, (code.start >> 32) as u32, 0, 4),
            load(PLACE_LOW),
            branch(FROM, code.start as u32, 0, 2),
            branch(FROM, ((code.end - 1) as u32).saturating_add(1), 1, 0),
            jump(rest(index + 1)),
        ]);
    }
    steps.push(give(ALLOW));
    steps
}

/// The steps for each range of code.
const RANGE_STEPS: usize = 6;

/// The parts of a range whose addresses have the same upper half.
fn within_words(code: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    const SPAN: usize = 1 << 32;
    let Range { start, end } = *code;
    let ends = (start / SPAN..=(end - 1) / SPAN).map(|word| word * SPAN..(word + 1) * SPAN);
    ends.map(move |word| word.start.max(start)..word.end.min(end))
}

/// The filter. `descriptors` is the least number that a descriptor of the pager has. `code` is
/// where code of the program lies beside the two usual ranges.
fn steps(descriptors: u32, code: &[Range<usize>]) -> Vec<Step> {
    // An adopted program's C library has begun to use `rseq`, and relies on it.
    let kind = |number: usize| match kind(number) {
        Kind::IsUnknown(_) if !code.is_empty() && number as i64 == libc::SYS_rseq => Kind::Passes,
        kind => kind,
    };
    let by_kind = || seccomp::by_number(terapage_calls::END, kind, |kind| ends(kind, descriptors));
    seccomp::by_number(
        terapage_calls::END,
        |number| kind(number) == Kind::Passes,
        |passes| if passes { vec![give(ALLOW)] } else { [from_program(code), by_kind()].concat() },
    )
}

/// The code of the host and its libraries that is present when the program begins.
static OWN_CODE: OnceLock<Vec<Range<usize>>> = OnceLock::new();

/// Whether an address lies in the kernel's vdso.
pub fn is_vdso(at: usize) -> bool {
    VDSO.get().is_some_and(|vdso| vdso.contains(&at))
}

/// The code of the vdso in an adopted program whose calls from there are trapped.
static VDSO: OnceLock<Range<usize>> = OnceLock::new();

/// Notes where the vdso begins.
#[cfg(target_env = "musl")]
pub fn note_vdso(at: usize) {
    /// Bytes of the vdso, and more.
    const MOST: usize = 16 << 10;
    VDSO.set(at..at + MOST).ok();
}

/// Notes where the code of the host and of its libraries lies.
pub fn find_own_code() {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _size: usize, all: *mut libc::c_void) -> i32 {
        // SAFETY: the loader passes a description, and the vector comes from below.
        unsafe {
            let (info, all) = (&*info, &mut *all.cast::<Vec<Range<usize>>>());
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
            let is_code = |header: &&libc::Elf64_Phdr| {
                header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
            };
            for header in headers.iter().filter(is_code) {
                let start = (info.dlpi_addr + header.p_vaddr) as usize;
                all.push(start..start + header.p_memsz as usize);
            }
        }
        0
    }
    let mut all: Vec<Range<usize>> = machine::code_in_area().into_iter().collect();
    // SAFETY: the function is called with the vector, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut all).cast()) };
    OWN_CODE.set(all).ok();
}

/// The steps before one of the program's own filters: the host and its libraries work for the
/// program in its threads, and the program's filter does not know of them. Only calls from exactly
/// this code pass: programs that this one executes are loaded elsewhere, and stay confined.
pub fn before_own() -> Vec<Step> {
    let own = OWN_CODE.get().map(Vec::as_slice).unwrap_or_default();
    own.iter().take(RANGES_MOST).flat_map(pass).collect()
}

/// The steps that let calls from a range pass, which lies within 4 GiB.
fn pass(code: &Range<usize>) -> [Step; 6] {
    let end = if code.end >> 32 == code.start >> 32 { code.end as u32 } else { u32::MAX };
    [
        load(PLACE),
        branch(IS, (code.start >> 32) as u32, 0, 4),
        load(PLACE_LOW),
        branch(FROM, code.start as u32, 0, 2),
        branch(FROM, end, 1, 0),
        give(ALLOW),
    ]
}

/// A filter with the effect of the strict mode.
pub fn strict() -> Vec<Step> {
    let allowed = [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn];
    let mut steps = before_own();
    steps.push(load(NUMBER));
    let count = allowed.len();
    for (index, number) in allowed.into_iter().enumerate() {
        steps.push(branch(IS, number as u32, (count - index) as u8, 0));
    }
    steps.extend([give(KILL), give(ALLOW)]);
    steps
}

/// Sets a filter for the calling thread.
///
/// # Safety
/// The thread can do without the calls that the filter refuses.
pub unsafe fn set(flags: usize, steps: &[Step]) -> isize {
    let Ok(len) = u16::try_from(steps.len()) else { return error(libc::EINVAL) };
    let all = Steps { len, first: steps.as_ptr() };
    // SAFETY: the kernel copies the steps.
    unsafe { raw!(libc::SYS_seccomp, SET_FILTER, flags, &raw const all) }
}

/// Sets the filter for this thread and all its descendants. If the process lacks the right to do
/// so, it first gives up that programs which it executes gain rights.
///
/// # Errors
/// The kernel's error.
///
/// # Safety
/// The handler of the signal is there.
pub unsafe fn install(descriptors: u32) -> Result<(), i32> {
    // SAFETY: the caller has set the handler.
    unsafe { set_for(0, &steps(descriptors, &[])) }
}

/// Reads and writes at the position of a file.
pub const CALLS_AT_POSITION: [i64; 4] = [libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev];

/// The filter of these calls.
fn at_position() -> [Step; AT_POSITION] {
    let mut steps = [give(ALLOW); AT_POSITION];
    let numbers = CALLS_AT_POSITION.map(|number| number as u32);
    let rest = [
        load(NUMBER),
        branch(IS, numbers[0], 4, 0),
        branch(IS, numbers[1], 3, 0),
        branch(IS, numbers[2], 2, 0),
        branch(IS, numbers[3], 1, 0),
        give(ALLOW),
        give(seccomp::trap(MARK)),
    ];
    let parts = [&seccomp::HERE[..], &FROM_CODE, &rest];
    steps.iter_mut().zip(parts.into_iter().flatten()).for_each(|(into, step)| *into = *step);
    steps
}

const AT_POSITION: usize = seccomp::HERE.len() + FROM_CODE.len() + 7;

/// Has the [calls at the position](CALLS_AT_POSITION) of a file trapped: in all threads, or, if the
/// program has set filters for some of them, in the calling one.
///
/// # Errors
/// The kernel's error.
///
/// # Safety
/// As for [`install`].
pub unsafe fn install_at_position() -> Result<(), i32> {
    let steps = at_position();
    // SAFETY: the caller has set the handler.
    unsafe { set_for(ALL_THREADS, &steps).or_else(|_| set_for(0, &steps)) }
}

/// `SECCOMP_FILTER_FLAG_TSYNC`.
const ALL_THREADS: usize = 1;

/// Sets the filter for all threads of the process, whose code lies in `code`, too.
///
/// # Errors
/// As for [`install`]; ESRCH if a thread has another filter; E2BIG if there are too many ranges.
///
/// # Safety
/// As for [`install`].
#[cfg(target_env = "musl")]
pub unsafe fn install_for_all(descriptors: u32, code: &[Range<usize>]) -> Result<(), i32> {
    let steps = steps(descriptors, code);
    if steps.len() > seccomp::STEPS_MOST {
        return Err(libc::E2BIG);
    }
    // SAFETY: the caller has set the handler.
    unsafe { set_for(ALL_THREADS, &steps) }
}

/// Sets the filters of guarded mode in an adopted program, for this thread only: the library's for
/// the arena, and one for its own code, whose pointers may lie in `near`. [`install_for_all`]
/// follows.
///
/// # Errors
/// As for [`install_for_all`].
///
/// # Safety
/// As for [`install`].
#[cfg(target_env = "musl")]
pub unsafe fn install_guarded_first(code: &[Range<usize>], near: &[Range<usize>]) -> Result<(), i32> {
    let near = guarded_steps(code, near);
    if near.len() > seccomp::STEPS_MOST {
        return Err(libc::E2BIG);
    }
    // SAFETY: the caller has set the handler.
    unsafe { set_for(0, &terapage_preload::guard::in_arena()).and_then(|()| set_for(0, &near)) }
}

/// What the filter of an adopted program in guarded mode does with a call, which the library's
/// filter lets pass.
#[cfg(any(target_env = "musl", test))]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Near {
    Passes,
    IsTrapped,
    /// If one of these arguments (bits) lies in the memory that was there before.
    Pointers(u8),
    /// The same of the first argument, or if that lies in the arena.
    Word,
}

#[cfg(any(target_env = "musl", test))]
fn near_kind(number: usize) -> Near {
    /// All arguments.
    const ALL: u8 = 0x3f;
    match (number as i64, guarded(number)) {
        (libc::SYS_rseq, _) | (_, Guarded::IsTrappedIfPaged) => Near::Word,
        (_, Guarded::IsTrapped) => Near::IsTrapped,
        // The other filter refuses them.
        _ if matches!(kind(number), Kind::IsUnknown(When::Always)) => Near::Passes,
        _ => match terapage_calls::pointers(number).unwrap_or(ALL) {
            0 => Near::Passes,
            pointers => Near::Pointers(pointers),
        },
    }
}

/// The filter of an adopted program in guarded mode. If it is too long, the ranges become one.
#[cfg(any(target_env = "musl", test))]
fn guarded_steps(code: &[Range<usize>], near: &[Range<usize>]) -> Vec<Step> {
    let trap = give(seccomp::trap(MARK));
    let steps = |near: &[Range<usize>]| {
        let ends = |kind| match kind {
            Near::Passes => vec![give(ALLOW)],
            Near::IsTrapped => vec![trap],
            Near::Pointers(pointers) => pointers_end(pointers, near),
            Near::Word => pointers_end(1, &[near, &[GUARDED]].concat()),
        };
        let mut all = seccomp::by_number(terapage_calls::END, near_kind, ends);
        // Where the call comes from is asked last, in one place.
        let len = all.len();
        for (at, step) in all.iter_mut().enumerate().filter(|(_, step)| **step == trap) {
            *step = jump(len - at - 1);
        }
        all.extend(from_program(code));
        all.push(trap);
        all
    };
    let all = steps(near);
    match (near.first(), near.last()) {
        (Some(first), Some(last)) if all.len() > seccomp::STEPS_MOST => {
            steps(std::slice::from_ref(&(first.start..last.end)))
        }
        _ => all,
    }
}

/// Traps a call if one of these arguments (bits) lies in one of the ranges.
#[cfg(any(target_env = "musl", test))]
fn pointers_end(pointers: u8, ranges: &[Range<usize>]) -> Vec<Step> {
    let arguments = (0..6).filter(|index| pointers >> index & 1 != 0);
    let tests = arguments.flat_map(|index| ranges.iter().flat_map(move |range| pointer_end(index, range)));
    tests.chain([give(ALLOW)]).collect()
}

/// Traps a call if an argument lies in a range.
#[cfg(any(target_env = "musl", test))]
fn pointer_end(index: u8, range: &Range<usize>) -> Vec<Step> {
    let halves = |at: usize| ((at >> 32) as u32, at as u32);
    let ((first, low), (last, last_low)) = (halves(range.start), halves(range.end - 1));
    let trap = give(seccomp::trap(MARK));
    if first != last {
        // More than what lies in the range, but rarely.
        return vec![
            load(argument(index) + 4),
            branch(FROM, first, 0, 2),
            branch(FROM, last + 1, 1, 0),
            trap,
        ];
    }
    vec![
        load(argument(index) + 4),
        branch(IS, first, 0, 5),
        load(argument(index)),
        branch(FROM, low, 0, 3),
        branch(FROM, last_low, 0, 1),
        branch(IS, last_low, 0, 1),
        trap,
    ]
}

unsafe fn set_for(flags: usize, steps: &[Step]) -> Result<(), i32> {
    // SAFETY: the caller has set the handler.
    unsafe {
        let mut answer = set(flags, steps);
        if answer == error(libc::EACCES) {
            raw!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            answer = set(flags, steps);
        }
        match answer {
            0 => Ok(()),
            _ if is_error(answer) => Err(-answer as i32),
            _ => Err(libc::ESRCH),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps: &[Step], number: i64, place: usize, arguments: &[usize]) -> u32 {
        seccomp::answer(steps, number, place, arguments)
    }

    const TRAP: u32 = seccomp::trap(MARK);
    const CODE: usize = 0x40_1000;

    #[test]
    fn memory_calls_of_the_program_are_trapped_and_those_of_the_host_are_not() {
        let steps = steps(700, &[]);
        assert!(steps.len() < seccomp::STEPS_MOST);
        for place in [CODE, VALGRIND.start - 1, VALGRIND.end, AREA.start, AREA.end - 2] {
            assert_eq!(run(&steps, libc::SYS_mmap, place, &[]), TRAP);
            assert_eq!(run(&at_position(), libc::SYS_read, place, &[]), TRAP);
        }
        let others = [1 << 32, AREA.start - 2, AREA.end, 0x5555_5555_5000, 0x7fff_0000_0000];
        for place in others.into_iter().chain([VALGRIND.start, VALGRIND.end - 1]) {
            assert_eq!(run(&steps, libc::SYS_mmap, place, &[]), ALLOW);
            assert_eq!(run(&at_position(), libc::SYS_read, place, &[]), ALLOW);
        }
        assert_eq!(run(&steps, libc::SYS_read, CODE, &[]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_rseq, CODE, &[]), seccomp::refuse(libc::ENOSYS));
        assert_eq!(run(&steps, libc::SYS_rseq, 1 << 46, &[]), ALLOW);
    }

    #[test]
    fn guarded_programs_calls_with_memory_that_points_to_memory_are_trapped() {
        let steps = seccomp::by_number(terapage_calls::END, guarded, guarded_ends);
        assert!(steps.len() < seccomp::STEPS_MOST);
        const OTHER: usize = 1 << 46;
        const STACK: usize = 0x7ffc_0000_0000;
        for place in [CODE, AREA.start] {
            for number in [libc::SYS_readv, libc::SYS_sendmsg, libc::SYS_sigaltstack, libc::SYS_clone] {
                assert_eq!(run(&steps, number, place, &[3, STACK]), TRAP, "{number}");
                assert_eq!(run(&steps, number, OTHER, &[3, STACK]), ALLOW, "{number}");
            }
            assert_eq!(run(&steps, libc::SYS_io_uring_setup, place, &[8, STACK]), TRAP);
            assert_eq!(run(&steps, libc::SYS_set_tid_address, place, &[GUARDED.start]), TRAP);
            for at in [STACK, GUARDED.start - 1, GUARDED.end] {
                assert_eq!(run(&steps, libc::SYS_set_tid_address, place, &[at]), ALLOW);
            }
            // The library's filter traps these, if a pointer lies in the arena.
            assert_eq!(run(&steps, libc::SYS_read, place, &[3, GUARDED.start, 8]), ALLOW);
            // The other filter refuses them.
            assert_eq!(run(&steps, libc::SYS_clone3, place, &[]), ALLOW);
        }
    }

    #[test]
    fn calls_of_other_code_of_an_adopted_program_are_trapped() {
        let (one, long) = (0x7f12_3456_7000..0x7f12_3456_9000, 0x5555_ffff_f000..0x5556_0000_1000);
        let steps = steps(700, &[one.clone(), long.clone()]);
        let trapped = |place| run(&steps, libc::SYS_mmap, place, &[]) == TRAP;
        for code in [one, long] {
            assert!(trapped(code.start) && trapped(code.end - 1));
            assert!(!trapped(code.start - 1) && !trapped(code.end));
        }
        assert!(trapped(0x5556_0000_0000) && trapped(CODE) && trapped(AREA.start) && !trapped(AREA.end));
        assert_eq!(run(&steps, libc::SYS_rseq, CODE, &[]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_clone3, CODE, &[]), seccomp::refuse(libc::ENOSYS));
        assert_eq!(run(&steps, libc::SYS_read, CODE, &[]), ALLOW);
    }

    #[test]
    fn pointers_of_an_adopted_program_in_guarded_mode_are_trapped() {
        const PLACE: usize = 0x7f12_3456_7000;
        let code: Vec<_> = (0..100).map(|n| PLACE + n * 0x10_0000..PLACE + n * 0x10_0000 + 0x2000).collect();
        let near = [
            0x1234_5000..0x1235_5000,
            0xc0_0000_0000..0xc0_0400_0000,
            0x5555_ffff_f000..0x5556_0000_1000,
            0x7f12_f000_0000..0x7f13_0000_0000,
        ];
        let steps = guarded_steps(&code, &near);
        assert!(steps.len() < seccomp::STEPS_MOST, "{} steps", steps.len());
        const STACK: usize = 0x7ffc_0000_0000;
        for place in [PLACE, PLACE + 99 * 0x10_0000 + 0x1fff, CODE, AREA.start] {
            let answer = |number, arguments: &[usize]| run(&steps, number, place, arguments);
            for at in near.iter().flat_map(|range| [range.start, range.end - 1]) {
                assert_eq!(answer(libc::SYS_read, &[3, at, 8]), TRAP, "{at:x}");
                assert_eq!(answer(libc::SYS_recvfrom, &[3, STACK, 8, 0, 0, at]), TRAP, "{at:x}");
                assert_eq!(answer(libc::SYS_read, &[at, STACK, at]), ALLOW, "{at:x}");
                assert_eq!(answer(libc::SYS_rseq, &[at]), TRAP, "{at:x}");
                assert_eq!(run(&steps, libc::SYS_read, 1 << 46, &[3, at, 8]), ALLOW);
            }
            for at in [0, STACK, 0x1234_4fff, 0x1235_5000, 0xc0_0400_0000, 0x7f13_0000_0000] {
                assert_eq!(answer(libc::SYS_read, &[3, at, 8]), ALLOW, "{at:x}");
                assert_eq!(answer(libc::SYS_set_tid_address, &[at]), ALLOW, "{at:x}");
            }
            assert_eq!(answer(libc::SYS_set_tid_address, &[GUARDED.start]), TRAP);
            for number in [libc::SYS_readv, libc::SYS_clone, libc::SYS_io_uring_setup, libc::SYS_execve] {
                assert_eq!(answer(number, &[3, STACK]), TRAP, "{number}");
            }
            assert_eq!(answer(libc::SYS_getpid, &[]), ALLOW);
            // The other filter refuses it.
            assert_eq!(answer(libc::SYS_clone3, &[near[0].start]), ALLOW);
        }
        // Too much code for more than one range.
        let long: Vec<_> = (0..450).map(|n| PLACE + n * 0x1_0000..PLACE + n * 0x1_0000 + 0x2000).collect();
        let steps = guarded_steps(&long, &near);
        assert!(steps.len() < seccomp::STEPS_MOST, "{} steps", steps.len());
        assert_eq!(run(&steps, libc::SYS_read, PLACE, &[3, near[1].start, 8]), TRAP);
    }

    #[test]
    fn some_calls_are_trapped_by_their_arguments() {
        let steps = steps(700, &[]);
        let trapped = |number, arguments: &[usize]| match run(&steps, number, CODE, arguments) {
            TRAP => true,
            ALLOW => false,
            other => panic!("{other:x}"),
        };
        let [vm, vfork, thread] = [libc::CLONE_VM, libc::CLONE_VFORK, libc::CLONE_THREAD].map(|f| f as usize);
        assert!(trapped(libc::SYS_clone, &[17]) && trapped(libc::SYS_clone, &[vm | vfork | 17]));
        assert!(!trapped(libc::SYS_clone, &[vm | thread]) && !trapped(libc::SYS_clone, &[vm | 17]));
        assert!(!trapped(libc::SYS_close, &[699]) && trapped(libc::SYS_close, &[700]));
        assert!(!trapped(libc::SYS_dup3, &[700, 3]) && trapped(libc::SYS_dup3, &[3, 701]));
        let (block, unblock) = (libc::SIG_BLOCK as usize, libc::SIG_UNBLOCK as usize);
        assert!(trapped(libc::SYS_rt_sigprocmask, &[block, 1 << 32]));
        assert!(trapped(libc::SYS_rt_sigprocmask, &[block, 8]));
        assert!(!trapped(libc::SYS_rt_sigprocmask, &[unblock, 8]));
        assert!(!trapped(libc::SYS_rt_sigprocmask, &[block, 0]));
        assert!(trapped(libc::SYS_ppoll, &[0, 0, 0, 1 << 40]) && !trapped(libc::SYS_ppoll, &[1, 1, 1, 0]));
        let at = |offset| trapped(libc::SYS_pread64, &[3, 1 << 45, 8, offset]);
        assert!(at(PAGED.start) && at(PAGED.end - 1));
        assert!(!at(PAGED.start - 1) && !at(PAGED.end) && !at(usize::MAX));
        let direct = libc::O_DIRECT as usize;
        assert!(trapped(libc::SYS_openat, &[0, 0, direct]) && !trapped(libc::SYS_openat, &[direct, 0, 1]));
        let open = |number| trapped(number, &[0, (libc::O_NONBLOCK | libc::O_RDWR) as usize]);
        assert!(crate::machine::OPEN.is_none_or(open));
        assert!(trapped(libc::SYS_prctl, &[22]) && !trapped(libc::SYS_prctl, &[15]));
    }

    #[test]
    fn reads_at_the_position_of_a_file_are_trapped() {
        let steps = at_position();
        assert!(!steps.ends_with(&[give(ALLOW)]));
        for number in CALLS_AT_POSITION {
            for (place, expected) in [(CODE, TRAP), (AREA.start, TRAP), (1 << 46, ALLOW)] {
                assert_eq!(run(&steps, number, place, &[5, 1 << 46, 8]), expected, "{number} {place}");
            }
        }
        assert_eq!(run(&steps, libc::SYS_lseek, CODE, &[5, 1 << 46, 0]), ALLOW);
        let seeks = super::steps(700, &[]);
        assert_eq!(run(&seeks, libc::SYS_lseek, CODE, &[5, 1 << 46, 0]), TRAP);
        assert_eq!(run(&seeks, libc::SYS_lseek, CODE, &[5, 1 << 40, 0]), ALLOW);
    }

    #[test]
    fn the_strict_filter_leaves_four_calls_to_the_program() {
        find_own_code();
        let steps = strict();
        let here = strict as *const () as usize;
        assert_eq!(run(&steps, libc::SYS_write, CODE, &[]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_rt_sigreturn, CODE, &[]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_openat, CODE, &[]), KILL);
        assert_eq!(run(&steps, libc::SYS_openat, 1 << 46, &[]), KILL);
        assert_eq!(run(&steps, libc::SYS_openat, here, &[]), ALLOW);
    }
}
