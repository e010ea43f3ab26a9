//! Limits that a program sets on its own addresses (`RLIMIT_AS`) and data (`RLIMIT_DATA`).
//!
//! The kernel counts what this library reserves, terabytes, as the program's: below that it would
//! refuse whatever comes next, a stack's next page too. So the kernel is given the asked limit and
//! [`ASIDE`], with which it refuses nothing, and what the program asks `malloc`'s and `mmap`'s
//! families for beyond the asked limit is refused here.
//!
//! The kernel's limit also hands the asked one on: by `fork`, `vfork` and `posix_spawn`, and over
//! `exec`, after which this library begins anew and takes [`ASIDE`] off. A limit below that is from
//! before Terapage (`ulimit -v`, `ulimit -d`). It is taken over in the same way where the process
//! may raise it: a soft one without a hard one, or with CAP_SYS_RESOURCE. Else it stays the
//! kernel's, and what the library reserves counts: the arena is made to fit.

use crate::{exit, process, set_errno};
use libc::{c_int, c_uint, pid_t, rlimit};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_sys::file::Early;
use terapage_sys::{PAGE, memory};

/// What the kernel's limits are above the asked ones: all the addresses that a process of this
/// library's can have.
const ASIDE: u64 = 1 << 47;

const RESOURCES: [c_uint; 2] = [libc::RLIMIT_AS, libc::RLIMIT_DATA];
const DATA: usize = 1;
/// Their fields in `/proc/thread-self/statm`.
const FIELDS: [usize; 2] = [0, 5];

const NONE: usize = usize::MAX;

/// The soft limits as they were asked for.
static SOFT: [AtomicUsize; 2] = [const { AtomicUsize::new(NONE) }; 2];

/// Whether the program may have so many bytes more, being `data` (private and writable) or not. It
/// has `arena` bytes of the arena: of all of it, and of the part that is data from the start;
/// `closed` bytes are not, until the program opens them.
pub fn allow(arena: [usize; 2], closed: usize, more: usize, data: bool) -> bool {
    if !any() {
        return true;
    }
    let all = mapped();
    let reserved = memory::reserved();
    let reserved = [reserved, reserved - closed];
    (0..RESOURCES.len()).filter(|&index| data || index != DATA).all(|index| {
        // What is reserved is the library's, but for what the program uses of the arena.
        let used =
            all.map_or(arena[index], |all| (all[index] + arena[index]).saturating_sub(reserved[index]));
        used.saturating_add(more) <= SOFT[index].load(Relaxed)
    })
}

/// Whether there is a limit.
pub fn any() -> bool {
    SOFT.iter().any(|soft| soft.load(Relaxed) != NONE)
}

/// What the kernel counts for each limit. `None`: it does not say. Nothing is allocated: locks are
/// held.
fn mapped() -> Option<[usize; 2]> {
    let mut text = [0u8; 128];
    let len = Early::open(c"/proc/thread-self/statm")?.read_at(&mut text, 0);
    let text = std::str::from_utf8(&text[..len]).ok()?;
    let pages = |field| text.split_ascii_whitespace().nth(field)?.parse::<usize>().ok();
    let [size, data] = FIELDS.map(pages);
    Some([size? * PAGE, data? * PAGE])
}

unsafe fn kernel(pid: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: the caller passes null, or limits to read and to write.
    unsafe { libc::syscall(libc::SYS_prlimit64, i64::from(pid), i64::from(resource), new, old) as c_int }
}

/// The kernel's own limit.
fn in_kernel(resource: c_uint) -> Option<rlimit> {
    let mut limit = rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the answer is ours to write to.
    (unsafe { kernel(0, resource, null(), &raw mut limit) } == 0).then_some(limit)
}

/// A limit that is the kernel's.
pub struct Kernels {
    /// As the shell's `ulimit` has it.
    pub flag: &'static str,
    pub bytes: usize,
    /// What of it is mapped already.
    pub used: usize,
}

impl Kernels {
    /// What may still be mapped.
    pub fn left(&self) -> usize {
        self.bytes.saturating_sub(self.used)
    }
}

/// The limit that leaves the least room for what this library reserves, addresses that are private
/// and writable. `None`: there is none.
pub fn of_kernel() -> Option<Kernels> {
    let used = mapped()?;
    let limits = RESOURCES.into_iter().zip(["-v", "-d"]).zip(used).zip(&SOFT);
    limits
        .filter(|(_, soft)| soft.load(Relaxed) == NONE)
        .filter_map(|(((resource, flag), used), _)| {
            let bytes = in_kernel(resource)?.rlim_cur;
            (bytes != libc::RLIM_INFINITY).then_some(Kernels { flag, bytes: bytes as usize, used })
        })
        .min_by_key(Kernels::left)
}

/// The kernel's lower soft limit.
pub fn lower() -> Option<usize> {
    RESOURCES.into_iter().filter_map(in_kernel).map(|limit| limit.rlim_cur as usize).min()
}

/// A limit of the kernel's as it was asked for.
fn asked(kernel: u64) -> u64 {
    if kernel == libc::RLIM_INFINITY || kernel < ASIDE { kernel } else { kernel - ASIDE }
}

/// An asked limit as the kernel gets it, which has `now`.
fn aside(limit: u64, now: u64) -> u64 {
    // One from before Terapage may be the most that the process may have.
    if limit == asked(now) { now } else { limit.saturating_add(ASIDE) }
}

/// Begins with what the process has inherited.
pub fn begin() {
    for (resource, soft) in RESOURCES.into_iter().zip(&SOFT) {
        let Some(limit) = in_kernel(resource) else { continue };
        let was_raised = asked(limit.rlim_cur) != limit.rlim_cur;
        if was_raised || limit.rlim_cur != libc::RLIM_INFINITY && raise(resource, limit) {
            soft.store(asked(limit.rlim_cur) as usize, Relaxed);
        }
    }
}

/// Takes over a limit from before Terapage, where the process may.
fn raise(resource: c_uint, limit: rlimit) -> bool {
    let [rlim_cur, rlim_max] = [limit.rlim_cur, limit.rlim_max].map(|limit| limit.saturating_add(ASIDE));
    let raised = rlimit { rlim_cur, rlim_max };
    // SAFETY: the limit is ours to read.
    unsafe { kernel(0, resource, &raw const raised, null_mut()) == 0 }
}

/// Gives inherited limits to the kernel: this process is not paged.
pub fn hand_back() {
    for resource in RESOURCES {
        if let Some(limit) = in_kernel(resource) {
            let real = rlimit { rlim_cur: asked(limit.rlim_cur), rlim_max: asked(limit.rlim_max) };
            if real.rlim_cur != limit.rlim_cur || real.rlim_max != limit.rlim_max {
                // SAFETY: the limit is ours to read.
                unsafe { kernel(0, resource, &raw const real, null_mut()) };
            }
        }
    }
}

/// Which limit of the calling process's is meant; `None`: it is the kernel's to see to.
fn ours(pid: pid_t, resource: c_uint) -> Option<usize> {
    process::settings()?;
    let index = RESOURCES.iter().position(|&ours| ours == resource)?;
    (pid == 0 || pid as u32 == std::process::id()).then_some(index)
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    pid: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    let Some(index) = ours(pid, resource) else {
        // SAFETY: the caller keeps the contract of `prlimit`.
        return unsafe { kernel(pid, resource, new, old) };
    };
    let Some(now) = in_kernel(resource) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    // A child of vfork has limits of its own, but its parent's memory.
    let is_owner = exit::is_owner();
    let soft = match SOFT[index].load(Relaxed) {
        soft if soft != NONE && is_owner => soft as u64,
        _ => asked(now.rlim_cur),
    };
    if !new.is_null() {
        // SAFETY: the caller keeps the contract of `prlimit`.
        let wanted = unsafe { *new };
        let hard = aside(wanted.rlim_max, now.rlim_max);
        let kernels = if wanted.rlim_cur > wanted.rlim_max {
            wanted
        } else {
            rlimit { rlim_cur: aside(wanted.rlim_cur, now.rlim_cur).min(hard), rlim_max: hard }
        };
        // SAFETY: the limit is ours to read.
        let answer = unsafe { kernel(0, resource, &raw const kernels, null_mut()) };
        if answer != 0 {
            return answer;
        }
        if is_owner {
            // Without a limit it is this very number.
            SOFT[index].store(wanted.rlim_cur as usize, Relaxed);
        }
    }
    if !old.is_null() {
        // SAFETY: the caller keeps the contract of `prlimit`.
        unsafe { *old = rlimit { rlim_cur: soft, rlim_max: asked(now.rlim_max) } };
    }
    0
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    pid: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the caller's promise; both kinds of numbers are the same here.
    unsafe { prlimit(pid, resource, new, old) }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrlimit(resource: c_uint, limit: *mut rlimit) -> c_int {
    // SAFETY: the caller keeps the contract of `getrlimit`.
    unsafe { prlimit(0, resource, null(), limit) }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrlimit64(resource: c_uint, limit: *mut rlimit) -> c_int {
    // SAFETY: the caller keeps the contract of `getrlimit64`.
    unsafe { prlimit(0, resource, null(), limit) }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_uint, limit: *const rlimit) -> c_int {
    // SAFETY: the caller keeps the contract of `setrlimit`.
    unsafe { prlimit(0, resource, limit, null_mut()) }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_uint, limit: *const rlimit) -> c_int {
    // SAFETY: the caller keeps the contract of `setrlimit64`.
    unsafe { prlimit(0, resource, limit, null_mut()) }
}

#[cfg(test)]
mod tests {
    use super::{ASIDE, allow, any, aside, asked, mapped};
    use libc::RLIM_INFINITY;

    #[test]
    fn a_limit_comes_back_as_it_was_asked_for() {
        for limit in [0, 1, 1 << 20, 1 << 40, ASIDE - 1, ASIDE, RLIM_INFINITY] {
            assert_eq!(asked(aside(limit, RLIM_INFINITY)), limit);
            assert_eq!(asked(aside(limit, ASIDE + 5)), limit);
        }
    }

    #[test]
    fn a_limit_from_before_stays() {
        assert_eq!(aside(20 << 30, 20 << 30), 20 << 30);
        assert_eq!(aside(RLIM_INFINITY, 20 << 30), RLIM_INFINITY);
    }

    #[test]
    fn without_a_limit_all_is_allowed() {
        assert!(!any() && allow([usize::MAX; 2], 0, usize::MAX, true));
        let [size, data] = mapped().unwrap();
        assert!(data > 0 && size > data);
    }
}
