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

use crate::raw::{error, is_error, raw};
use std::ops::Range;
use std::sync::OnceLock;
pub use terapage_sys::hosting::AREA;

/// The addresses of fixed executables.
pub const LOW: Range<usize> = 0..1 << 32;

/// The mark of a signal of this filter: the program's own filters may send the same signal.
pub const MARK: u16 = 0x7e4a;

/// An instruction of the kernel's filters (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    code: u16,
    yes: u8,
    no: u8,
    value: u32,
}

/// A filter in the kernel's form (`struct sock_fprog`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Steps {
    pub len: u16,
    pub first: *const Step,
}

/// The most instructions of one filter.
pub const STEPS_MOST: usize = 4096;

/// The most ranges of code whose calls pass the program's own filters.
const RANGES_MOST: usize = 32;

const LOAD: u16 = 0x20;
const IS: u16 = 0x15;
const FROM: u16 = 0x35;
const HAS: u16 = 0x45;
const GIVE: u16 = 0x06;

const NUMBER: u32 = 0;
const PROCESSOR: u32 = 4;
/// The halves of the address from which the call comes.
const PLACE_LOW: u32 = 8;
const PLACE: u32 = 12;
/// The lower half of an argument; the upper half follows 4 bytes later.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const X86_64: u32 = 0xc000_003e;

pub const ALLOW: u32 = 0x7fff_0000;
pub const KILL: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0000;
const TRAP: u32 = 0x0003_0000 | MARK as u32;

pub const fn step(code: u16, value: u32) -> Step {
    Step { code, yes: 0, no: 0, value }
}

pub const fn give(value: u32) -> Step {
    step(GIVE, value)
}

const fn branch(code: u16, value: u32, yes: u8, no: u8) -> Step {
    Step { code, yes, no, value }
}

/// The condition under which a call of a number is trapped.
#[derive(Clone, Copy)]
enum When {
    Always,
    /// If an argument is not 0.
    Given(u32),
    /// If an argument is this or more.
    From(u32, u32),
    /// If an argument is this number.
    Is(u32, u32),
    /// If an argument has this bit.
    Has(u32, u32),
    /// If it makes a process that has a copy of this memory, or has this memory until it executes a
    /// program.
    Forks,
    /// If it may block signals.
    Blocks,
    /// Never: the answer is that the kernel does not know the call. Programs then use older
    /// calls.
    Unknown,
}

/// The calls, and when they are trapped. `descriptors` is the lowest number of the pager's.
fn calls(descriptors: u32) -> Vec<(i64, When)> {
    use When::*;
    use libc::*;
    let always = [
        SYS_mmap,
        SYS_munmap,
        SYS_mprotect,
        SYS_madvise,
        SYS_mremap,
        SYS_brk,
        SYS_pkey_mprotect,
        SYS_mlock,
        SYS_mlock2,
        SYS_mlockall,
        SYS_munlock,
        SYS_munlockall,
        SYS_shmat,
        SYS_shmdt,
        SYS_process_madvise,
        SYS_rt_sigaction,
        SYS_rt_sigsuspend,
        SYS_execve,
        SYS_execveat,
        SYS_exit_group,
        SYS_fork,
        SYS_vfork,
        SYS_seccomp,
        SYS_close_range,
        SYS_unshare,
        SYS_setns,
        SYS_readlink,
        SYS_readlinkat,
    ];
    let others = [
        (SYS_rt_sigprocmask, Blocks),
        (SYS_clone, Forks),
        (SYS_open, Has(1, O_DIRECT as u32)),
        (SYS_openat, Has(2, O_DIRECT as u32)),
        (SYS_openat2, Always),
        (SYS_fcntl, Is(1, F_SETFL as u32)),
        (SYS_setsockopt, Is(2, SO_ZEROCOPY as u32)),
        (SYS_vmsplice, Unknown),
        (SYS_process_vm_writev, Always),
        (SYS_close, From(0, descriptors)),
        (SYS_dup2, From(1, descriptors)),
        (SYS_dup3, From(1, descriptors)),
        (SYS_prctl, Is(0, PR_SET_SECCOMP as u32)),
        (SYS_ppoll, Given(3)),
        (SYS_pselect6, Given(5)),
        (SYS_epoll_pwait, Given(4)),
        (SYS_epoll_pwait2, Given(4)),
        (SYS_rseq, Unknown),
        (SYS_clone3, Unknown),
    ];
    always.into_iter().map(|number| (number, Always)).chain(others).collect()
}

/// The steps that trap a call of a known number from the program's code, and otherwise allow it.
fn trap(when: When) -> Vec<Step> {
    let (allow, is_unknown) = (give(ALLOW), matches!(when, When::Unknown));
    let end = if is_unknown { give(REFUSE | libc::ENOSYS as u32) } else { give(TRAP) };
    // If a condition holds, the next step follows; otherwise the step after it, which allows the
    // call.
    let mut steps = match when {
        When::Always | When::Unknown => Vec::new(),
        When::Given(index) => vec![
            step(LOAD, argument(index)),
            branch(IS, 0, 0, 3),
            step(LOAD, argument(index) + 4),
            branch(IS, 0, 0, 1),
            allow,
        ],
        When::From(index, least) => {
            vec![step(LOAD, argument(index)), branch(FROM, least, 1, 0), allow]
        }
        When::Has(index, bit) => vec![step(LOAD, argument(index)), branch(HAS, bit, 1, 0), allow],
        When::Is(index, value) => vec![step(LOAD, argument(index)), branch(IS, value, 1, 0), allow],
        // Threads, and processes that share the memory for long, are the kernel's business.
        When::Forks => vec![
            step(LOAD, argument(0)),
            branch(HAS, libc::CLONE_THREAD as u32, 2, 0),
            branch(HAS, libc::CLONE_VM as u32, 0, 2),
            branch(HAS, libc::CLONE_VFORK as u32, 1, 0),
            allow,
        ],
        When::Blocks => vec![
            step(LOAD, argument(0)),
            branch(IS, libc::SIG_UNBLOCK as u32, 4, 0),
            step(LOAD, argument(1)),
            branch(IS, 0, 0, 3),
            step(LOAD, argument(1) + 4),
            branch(IS, 0, 0, 1),
            allow,
        ],
    };
    let (from, to) = ((AREA.start >> 32) as u32, (AREA.end >> 32) as u32);
    steps.extend([
        step(LOAD, PLACE),
        branch(IS, 0, 3, 0),
        branch(FROM, from, 0, 1),
        branch(FROM, to, 0, 1),
        allow,
        end,
    ]);
    steps
}

/// The filter. `descriptors` is the least number that a descriptor of the pager has.
pub fn steps(descriptors: u32) -> Vec<Step> {
    let mut steps = vec![step(LOAD, PROCESSOR), branch(IS, X86_64, 1, 0), give(ALLOW), step(LOAD, NUMBER)];
    for (number, when) in calls(descriptors) {
        let trapped = trap(when);
        steps.push(branch(IS, number as u32, 0, trapped.len() as u8));
        steps.extend(trapped);
    }
    steps.push(give(ALLOW));
    steps
}

/// The code of the host and its libraries that is present when the program begins.
static OWN_CODE: OnceLock<Vec<Range<usize>>> = OnceLock::new();

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
    let mut all: Vec<Range<usize>> = Vec::new();
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
        step(LOAD, PLACE),
        branch(IS, (code.start >> 32) as u32, 0, 4),
        step(LOAD, PLACE_LOW),
        branch(FROM, code.start as u32, 0, 2),
        branch(FROM, end, 1, 0),
        give(ALLOW),
    ]
}

/// A filter with the effect of the strict mode.
pub fn strict() -> Vec<Step> {
    let allowed = [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn];
    let mut steps = before_own();
    steps.push(step(LOAD, NUMBER));
    let count = allowed.len();
    for (index, number) in allowed.into_iter().enumerate() {
        steps.push(branch(IS, number as u32, (count - index) as u8, 0));
    }
    steps.extend([give(KILL), give(ALLOW)]);
    steps
}

const SET_FILTER: usize = 1;

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
    let steps = steps(descriptors);
    // SAFETY: the caller has set the handler.
    unsafe {
        let mut answer = set(0, &steps);
        if answer == error(libc::EACCES) {
            raw!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            answer = set(0, &steps);
        }
        if is_error(answer) { Err(-answer as i32) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's decision about a call.
    fn run(steps: &[Step], number: i64, place: u64, arguments: &[u64]) -> u32 {
        let word = |offset: u32| {
            let index = (offset.saturating_sub(16) / 8) as usize;
            let value = arguments.get(index).copied().unwrap_or(0);
            match offset {
                NUMBER => number as u32,
                PROCESSOR => X86_64,
                PLACE => (place >> 32) as u32,
                PLACE_LOW => place as u32,
                _ if offset % 8 == 4 => (value >> 32) as u32,
                _ => value as u32,
            }
        };
        let (mut at, mut loaded) = (0, 0);
        loop {
            let Step { code, yes, no, value } = steps[at];
            let holds = match code {
                LOAD => {
                    loaded = word(value);
                    at += 1;
                    continue;
                }
                GIVE => return value,
                IS => loaded == value,
                FROM => loaded >= value,
                HAS => loaded & value != 0,
                _ => panic!("{code}"),
            };
            at += 1 + usize::from(if holds { yes } else { no });
        }
    }

    const CODE: u64 = 0x40_1000;

    #[test]
    fn memory_calls_of_the_program_are_trapped_and_those_of_the_host_are_not() {
        let steps = steps(700);
        assert!(steps.len() < STEPS_MOST);
        for place in [CODE, AREA.start as u64, AREA.end as u64 - 2] {
            assert_eq!(run(&steps, libc::SYS_mmap, place, &[]), TRAP);
        }
        for place in [1 << 32, AREA.start as u64 - 2, AREA.end as u64, 0x5555_5555_5000, 0x7fff_0000_0000] {
            assert_eq!(run(&steps, libc::SYS_mmap, place, &[]), ALLOW);
        }
        assert_eq!(run(&steps, libc::SYS_read, CODE, &[]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_rseq, CODE, &[]), REFUSE | 38);
        assert_eq!(run(&steps, libc::SYS_rseq, 1 << 46, &[]), ALLOW);
    }

    #[test]
    fn some_calls_are_trapped_by_their_arguments() {
        let steps = steps(700);
        let trapped = |number, arguments: &[u64]| match run(&steps, number, CODE, arguments) {
            TRAP => true,
            ALLOW => false,
            other => panic!("{other:x}"),
        };
        let [vm, vfork, thread] = [libc::CLONE_VM, libc::CLONE_VFORK, libc::CLONE_THREAD].map(|f| f as u64);
        assert!(trapped(libc::SYS_clone, &[17]) && trapped(libc::SYS_clone, &[vm | vfork | 17]));
        assert!(!trapped(libc::SYS_clone, &[vm | thread]) && !trapped(libc::SYS_clone, &[vm | 17]));
        assert!(!trapped(libc::SYS_close, &[699]) && trapped(libc::SYS_close, &[700]));
        assert!(!trapped(libc::SYS_dup2, &[700, 3]) && trapped(libc::SYS_dup3, &[3, 701]));
        let (block, unblock) = (libc::SIG_BLOCK as u64, libc::SIG_UNBLOCK as u64);
        assert!(trapped(libc::SYS_rt_sigprocmask, &[block, 1 << 32]));
        assert!(trapped(libc::SYS_rt_sigprocmask, &[block, 8]));
        assert!(!trapped(libc::SYS_rt_sigprocmask, &[unblock, 8]));
        assert!(!trapped(libc::SYS_rt_sigprocmask, &[block, 0]));
        assert!(trapped(libc::SYS_ppoll, &[0, 0, 0, 1 << 40]) && !trapped(libc::SYS_ppoll, &[1, 1, 1, 0]));
        let direct = libc::O_DIRECT as u64;
        assert!(trapped(libc::SYS_openat, &[0, 0, direct]) && !trapped(libc::SYS_openat, &[direct, 0, 1]));
        assert!(trapped(libc::SYS_prctl, &[22]) && !trapped(libc::SYS_prctl, &[15]));
    }

    #[test]
    fn the_strict_filter_leaves_four_calls_to_the_program() {
        find_own_code();
        let steps = strict();
        let here = strict as *const () as u64;
        assert_eq!(run(&steps, libc::SYS_write, CODE, &[]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_rt_sigreturn, CODE, &[]), ALLOW);
        assert_eq!(run(&steps, libc::SYS_openat, CODE, &[]), KILL);
        assert_eq!(run(&steps, libc::SYS_openat, 1 << 46, &[]), KILL);
        assert_eq!(run(&steps, libc::SYS_openat, here, &[]), ALLOW);
    }
}
