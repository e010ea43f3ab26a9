//! Hooks of `madvise` and `process_madvise`.

use crate::arena::ARENA;
use crate::maps::{is_beyond, is_nowhere, refuse};
use crate::{borrowed, paged, set_errno, setup, untracked};
use std::ffi::{c_int, c_void};
use terapage_sys::opening::Opening;
use terapage_sys::{memory, page_bytes, thread};

/// In `linux/mman.h` since Linux 6.1.
const MADV_COLLAPSE: c_int = 25;

unsafe fn kernel_madvise(from: usize, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller keeps the contract of `madvise`.
    unsafe { memory::madvise(from, len, advice) as c_int }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `madvise`.
        return unsafe { borrowed::call(libc::SYS_madvise, [at as usize, len, advice as usize, 0, 0, 0]) }
            as c_int;
    }
    let from = at as usize;
    if is_nowhere(from, len) {
        // SAFETY: nothing is changed.
        return unsafe { kernel_madvise(from, len, advice) };
    }
    if is_beyond(from, len) {
        // Like the kernel, says that not all was mapped, if the advice concerns only performance.
        // Other advice would reach the library's own memory.
        let is_harmless = (libc::MADV_NORMAL..=libc::MADV_WILLNEED).contains(&advice);
        let is_refused = !is_harmless || !from.is_multiple_of(page_bytes());
        return refuse(if is_refused { libc::EINVAL } else { libc::ENOMEM });
    }
    if len == 0 || !paged::concerns(from, len) {
        untracked::moves(len);
        // SAFETY: the caller keeps the contract of `madvise`.
        return unsafe { kernel_madvise(from, len, advice) };
    }
    if !from.is_multiple_of(page_bytes()) {
        return refuse(libc::EINVAL);
    }
    let to = from + len.next_multiple_of(page_bytes());
    let mapped = ARENA.lock().mapped_within(from, to);
    if mapped != [(from, to)] {
        // SAFETY: the caller keeps the contract of `madvise`.
        return unsafe { advise_mapped(&mapped, advice) };
    }
    let mut arena = ARENA.lock();
    let pieces = arena.file_pieces(from, to);
    if pieces.len() > 1 {
        drop(arena);
        // SAFETY: the caller keeps the contract of `madvise`.
        let done =
            |(from, to): (usize, usize)| unsafe { madvise(from as *mut c_void, to - from, advice) == 0 };
        return if pieces.into_iter().all(done) { 0 } else { -1 };
    }
    if let Some(answer) = arena.advise_private(from, to, advice) {
        return answer.map_or_else(refuse, |()| 0);
    }
    if arena.is_file(from, to) && arena.advise_file(from, to, advice) {
        return 0;
    }
    arena.leave_files(from, to);
    drop(arena);
    match advice {
        libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED | libc::MADV_FREE => {
            drop_bytes(from, to, advice).map_or_else(|error| refuse(error.errno()), |()| 0)
        }
        libc::MADV_WILLNEED => will_need(from, to),
        // SAFETY: the caller keeps the contract of `madvise`.
        libc::MADV_WIPEONFORK | libc::MADV_KEEPONFORK => unsafe { wipe_on_fork(from, to, advice) },
        // This advice concerns only performance. The pager does without it; for memory that is not
        // paged, the kernel gets it.
        libc::MADV_COLD..=MADV_COLLAPSE => {
            let special = ARENA.lock().special_within(from, to);
            // SAFETY: the caller keeps the contract of `madvise`.
            let done = |&(from, to): &(usize, usize)| unsafe { kernel_madvise(from, to - from, advice) == 0 };
            if special.iter().all(done) { 0 } else { -1 }
        }
        libc::MADV_NORMAL..=libc::MADV_SEQUENTIAL
        | libc::MADV_DONTFORK..=libc::MADV_DOFORK
        | libc::MADV_UNMERGEABLE..=libc::MADV_DODUMP => 0,
        // Nothing in the range is paged. SAFETY: the caller keeps the contract of `madvise`.
        _ if ARENA.lock().special_bytes(from, to) == to - from => unsafe {
            kernel_madvise(from, to - from, advice)
        },
        // As on a kernel that does not know the advice (MADV_MERGEABLE: without KSM, whose shared
        // pages could not be moved): the call must not seem to succeed.
        _ => refuse(libc::EINVAL),
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    // The C library does nothing in this case, because the kernel would drop bytes.
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    let before = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    // SAFETY: the caller keeps the contract of `posix_madvise`, whose other advice has the numbers
    // of `madvise`.
    let done = unsafe { madvise(at, len, advice) };
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    set_errno(before);
    if done == 0 { 0 } else { error }
}

/// Advice for a range with holes: like the kernel, advises all mapped parts, and then says that not
/// all was mapped.
unsafe fn advise_mapped(mapped: &[(usize, usize)], advice: c_int) -> c_int {
    for &(from, to) in mapped {
        // SAFETY: the caller keeps the contract of `madvise`.
        let done = unsafe { madvise(from as *mut c_void, to - from, advice) };
        if done != 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM) {
            return done;
        }
    }
    refuse(libc::ENOMEM)
}

/// Drops bytes by advice; for memory that is not paged, the kernel drops them.
fn drop_bytes(from: usize, to: usize, advice: c_int) -> terapage_sys::Result<()> {
    let mut arena = ARENA.lock();
    for (from, end) in paged::others(from, to) {
        // SAFETY: the program asks for the bytes to be dropped.
        unsafe { memory::drop_bytes(from, end - from, advice) }?;
    }
    paged::parts(from, to).try_for_each(|(from, end)| arena.drop_bytes(from, end, advice))
}

/// Reads the blocks of a range ahead.
fn will_need(from: usize, to: usize) -> c_int {
    let arena = ARENA.lock();
    let block = setup::block();
    if let Some(pager) = &arena.pager {
        for (from, to) in paged::parts(from, to) {
            let (first, last) = (from / block * block, to.next_multiple_of(block));
            setup::or_fail(pager.will_need(first, last - first));
        }
    }
    0
}

/// Advice about what the child of a fork sees: the kernel decides it, on memory that is not paged.
unsafe fn wipe_on_fork(from: usize, to: usize, advice: c_int) -> c_int {
    let mut arena = ARENA.lock();
    let wipe = advice == libc::MADV_WIPEONFORK;
    if wipe && let Err(error) = paged::parts(from, to).try_for_each(|(from, to)| arena.wipe_on_fork(from, to))
    {
        return refuse(error.errno());
    }
    // SAFETY: the caller keeps the contract of `madvise`.
    let answer = unsafe { kernel_madvise(from, to - from, advice) };
    if !wipe && answer == 0 {
        paged::parts(from, to).for_each(|(from, to)| arena.keep_on_fork(from, to));
    }
    answer
}

/// Hook of the C library's function. For the calling process's own memory, [`madvise`] is used.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn process_madvise(
    process: c_int,
    pieces: *const libc::iovec,
    count: usize,
    advice: c_int,
    flags: libc::c_uint,
) -> isize {
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `process_madvise`.
        return unsafe {
            borrowed::call(
                libc::SYS_process_madvise,
                [process as usize, pieces as usize, count, advice as usize, flags as usize, 0],
            )
        };
    }
    let is_own = match is_own(process) {
        Ok(is_own) => is_own,
        Err(errno) => return refuse(errno) as isize,
    };
    if count > memory::PIECES || !is_own {
        // SAFETY: the caller keeps the contract of `process_madvise`.
        return unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                process as i64,
                pieces,
                count,
                advice as i64,
                flags as i64,
            ) as isize
        };
    }
    if flags != 0 {
        return refuse(libc::EINVAL) as isize;
    }
    let Some(mut pieces) = memory::copied_pieces(pieces, count) else {
        return refuse(libc::EFAULT) as isize;
    };
    if let Some(errno) = refusal_of_pieces(&pieces, advice) {
        return refuse(errno) as isize;
    }
    let total = shorten(&mut pieces);
    let mut done = 0;
    for piece in pieces {
        if done == total {
            break;
        }
        // SAFETY: the caller keeps the contract of `process_madvise`.
        if unsafe { madvise(piece.iov_base, piece.iov_len, advice) } != 0 {
            return if done > 0 { done as isize } else { -1 };
        }
        done += piece.iov_len;
    }
    done as isize
}

/// The error that the kernel finds in the pieces before it advises any of them.
fn refusal_of_pieces(pieces: &[libc::iovec], advice: c_int) -> Option<c_int> {
    const NOBODY: i64 = -1;
    let (at, count) = (pieces.as_ptr(), pieces.len());
    // SAFETY: there is no such process, so nothing is advised.
    unsafe { libc::syscall(libc::SYS_process_madvise, NOBODY, at, count, i64::from(advice), 0_usize) };
    std::io::Error::last_os_error().raw_os_error().filter(|errno| *errno != libc::EBADF)
}

/// Cuts pieces off behind the bytes that one call may concern (`MAX_RW_COUNT` in the kernel).
/// Returns the bytes of all.
fn shorten(pieces: &mut [libc::iovec]) -> usize {
    let mut left = i32::MAX as usize / page_bytes() * page_bytes();
    let most = left;
    for piece in pieces {
        piece.iov_len = piece.iov_len.min(left);
        left -= piece.iov_len;
    }
    most - left
}

/// Numbers that name the calling thread or process without a descriptor, if the kernel knows them
/// (`PIDFD_SELF_THREAD` and `PIDFD_SELF_THREAD_GROUP`; the latter has had two numbers:
/// `linux/pidfd.h`).
const SELVES: [c_int; 3] = [-10000, -10001, -20000];

/// Whether a descriptor refers to the calling process, or one of its threads.
///
/// # Errors
/// This cannot be determined for lack of descriptors, and memory is paged: the call must not seem
/// to succeed.
fn is_own(process: c_int) -> Result<bool, c_int> {
    let _internal = thread::Internal::enter();
    let _opening = Opening::begin();
    if SELVES.contains(&process) {
        // SAFETY: no ranges are passed, so no memory is touched.
        let known = unsafe {
            libc::syscall(libc::SYS_process_madvise, process as i64, 0_usize, 0_usize, 0_i64, 0_i64)
        };
        return Ok(known == 0);
    }
    let text = match std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{process}")) {
        Ok(text) => text,
        Err(error) => {
            let short = error.raw_os_error().filter(|errno| matches!(*errno, libc::EMFILE | libc::ENFILE));
            let is_paged = || ARENA.lock().pager.is_some();
            return short.filter(|_| is_paged()).map_or(Ok(false), Err);
        }
    };
    let pid = text
        .lines()
        .find_map(|line| line.strip_prefix("Pid:"))
        .and_then(|pid| pid.trim().parse::<u32>().ok());
    Ok(pid.is_some_and(|pid| std::path::Path::new(&format!("/proc/self/task/{pid}")).exists()))
}
