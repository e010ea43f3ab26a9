//! Limits that a program sets on its address space (`RLIMIT_AS`) and data (`RLIMIT_DATA`).
//!
//! The kernel counts this library's reservations, terabytes, as the program's. With a lower limit
//! it would refuse everything that follows, even the next page of a stack. So the kernel gets the
//! requested limit plus [`ASIDE`], with which it refuses nothing, and the hooks of `malloc`'s and
//! `mmap`'s families refuse memory beyond the requested limit.
//!
//! The kernel's limit also passes the requested limit on: by `fork`, `vfork` and `posix_spawn`, and
//! over `exec`, after which this library begins again and subtracts [`ASIDE`]. A limit below
//! [`ASIDE`] is older than `terapage run` (`ulimit -v`, `ulimit -d`). If the process may raise it
//! (there is no hard limit, or with CAP_SYS_RESOURCE), it is handled in the same way. Otherwise it
//! remains the kernel's limit, and reserved memory counts: the arena is made to fit.

use crate::{exit, set_errno, setup};
use libc::{c_int, c_uint, pid_t, rlimit};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_sys::file::Early;
use terapage_sys::{memory, page_bytes};

/// The kernel's limits exceed the requested ones by this number: all the addresses that a process
/// with this library can have.
const ASIDE: u64 = 1 << 47;

const RESOURCES: [c_uint; 2] = [libc::RLIMIT_AS as _, libc::RLIMIT_DATA as _];
const DATA: usize = 1;
/// The fields for these resources in `/proc/thread-self/statm`.
const FIELDS: [usize; 2] = [0, 5];

const NONE: usize = usize::MAX;

/// The soft limits, as asked for.
static SOFT: [AtomicUsize; 2] = [const { AtomicUsize::new(NONE) }; 2];

/// Whether the program may have `more` bytes, which are `data` (private and writable) or not.
/// `arena` has the bytes of the arena: of all of it, and of the part that is data from the start.
/// `closed` bytes of the arena become data only when the program opens them.
pub fn allow(arena: [usize; 2], closed: usize, more: usize, data: bool) -> bool {
    if !any() {
        return true;
    }
    let all = mapped();
    let reserved = memory::reserved();
    let reserved = [reserved, reserved - closed];
    (0..RESOURCES.len()).filter(|&index| data || index != DATA).all(|index| {
        // Reserved memory is the library's, apart from the program's part of the arena.
        let used =
            all.map_or(arena[index], |all| (all[index] + arena[index]).saturating_sub(reserved[index]));
        used.saturating_add(more) <= SOFT[index].load(Relaxed)
    })
}

/// Whether any limit is set.
pub fn any() -> bool {
    SOFT.iter().any(|soft| soft.load(Relaxed) != NONE)
}

/// The amounts that the kernel counts for each limit; `None` if it does not tell. Nothing is
/// allocated, since locks are held.
fn mapped() -> Option<[usize; 2]> {
    let mut text = [0u8; 128];
    let len = Early::open(c"/proc/thread-self/statm")?.read_at(&mut text, 0);
    let text = std::str::from_utf8(&text[..len]).ok()?;
    let pages = |field| text.split_ascii_whitespace().nth(field)?.parse::<usize>().ok();
    let [size, data] = FIELDS.map(pages);
    Some([size? * page_bytes(), data? * page_bytes()])
}

unsafe fn kernel(pid: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: the caller passes null, or limits to read and to write.
    unsafe { libc::syscall(libc::SYS_prlimit64, i64::from(pid), i64::from(resource), new, old) as c_int }
}

/// The kernel's own limit.
fn in_kernel(resource: c_uint) -> Option<rlimit> {
    let mut limit = rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` has room for the answer.
    (unsafe { kernel(0, resource, null(), &raw mut limit) } == 0).then_some(limit)
}

/// A limit that stays with the kernel.
pub struct Kernels {
    /// The flag of the shell's `ulimit` for this limit.
    pub flag: &'static str,
    pub bytes: usize,
    /// Bytes that are already mapped.
    pub used: usize,
}

impl Kernels {
    /// Bytes that may still be mapped.
    pub fn left(&self) -> usize {
        self.bytes.saturating_sub(self.used)
    }
}

/// The limit that leaves the least room for this library's reservations: private, writable
/// addresses. `None` if there is no limit.
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

/// The lower of the kernel's two soft limits.
pub fn lower() -> Option<usize> {
    RESOURCES.into_iter().filter_map(in_kernel).map(|limit| limit.rlim_cur as usize).min()
}

/// The asked limit, from the kernel's.
fn asked(kernel: u64) -> u64 {
    if kernel == libc::RLIM_INFINITY || kernel < ASIDE { kernel } else { kernel - ASIDE }
}

/// The kernel's limit for a requested one; the kernel's present limit is `now`.
fn aside(limit: u64, now: u64) -> u64 {
    // A limit from before Terapage may be the highest that the process may have.
    if limit == asked(now) { now } else { limit.saturating_add(ASIDE) }
}

/// Begins with the limits that the process has inherited.
pub fn begin() {
    for (resource, soft) in RESOURCES.into_iter().zip(&SOFT) {
        let Some(limit) = in_kernel(resource) else { continue };
        let was_raised = asked(limit.rlim_cur) != limit.rlim_cur;
        if was_raised || limit.rlim_cur != libc::RLIM_INFINITY && raise(resource, limit) {
            soft.store(asked(limit.rlim_cur) as usize, Relaxed);
        }
    }
}

/// Takes over a limit that is older than `terapage run`, if the process may raise it.
fn raise(resource: c_uint, limit: rlimit) -> bool {
    let [rlim_cur, rlim_max] = [limit.rlim_cur, limit.rlim_max].map(|limit| limit.saturating_add(ASIDE));
    let raised = rlimit { rlim_cur, rlim_max };
    // SAFETY: the new limit is valid, and the old one is not requested.
    unsafe { kernel(0, resource, &raw const raised, null_mut()) == 0 }
}

/// Gives inherited limits back to the kernel, in a process that is not paged.
pub fn hand_back() {
    for resource in RESOURCES {
        if let Some(limit) = in_kernel(resource) {
            let real = rlimit { rlim_cur: asked(limit.rlim_cur), rlim_max: asked(limit.rlim_max) };
            if real.rlim_cur != limit.rlim_cur || real.rlim_max != limit.rlim_max {
                // SAFETY: the new limit is valid, and the old one is not requested.
                unsafe { kernel(0, resource, &raw const real, null_mut()) };
            }
        }
    }
}

/// The index of a limit of the calling process that this file handles; `None` if the kernel handles
/// it.
fn ours(pid: pid_t, resource: c_uint) -> Option<usize> {
    setup::settings()?;
    let index = RESOURCES.iter().position(|&ours| ours == resource)?;
    (pid == 0 || pid as u32 == std::process::id()).then_some(index)
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
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
    // A child of vfork has its own limits, but shares its parent's memory.
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
        // SAFETY: the new limit is valid, and the old one is not requested.
        let answer = unsafe { kernel(0, resource, &raw const kernels, null_mut()) };
        if answer != 0 {
            return answer;
        }
        if is_owner {
            // `RLIM_INFINITY` becomes `NONE`, the same number.
            SOFT[index].store(wanted.rlim_cur as usize, Relaxed);
        }
    }
    if !old.is_null() {
        // SAFETY: the caller keeps the contract of `prlimit`.
        unsafe { *old = rlimit { rlim_cur: soft, rlim_max: asked(now.rlim_max) } };
    }
    0
}

alias! {
    fn prlimit64(pid: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int = prlimit(pid, resource, new, old);
    fn getrlimit(resource: c_uint, limit: *mut rlimit) -> c_int = prlimit(0, resource, null(), limit);
    fn getrlimit64(resource: c_uint, limit: *mut rlimit) -> c_int = prlimit(0, resource, null(), limit);
    fn setrlimit(resource: c_uint, limit: *const rlimit) -> c_int = prlimit(0, resource, limit, null_mut());
    fn setrlimit64(resource: c_uint, limit: *const rlimit) -> c_int = prlimit(0, resource, limit, null_mut());
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
