//! System calls that leave `errno` unchanged: in the handler of a trapped call, the thread pointer
//! may be the program's, and `errno` is found through it.

use crate::{guard, library, seat};
use terapage_sys::page_bytes;

pub use crate::machine::call;

/// [`call`], with fewer arguments.
macro_rules! raw {
    ($number:expr) => { $crate::raw::call($number, [0; 6]) };
    ($number:expr $(, $argument:expr)+ $(,)?) => {{
        let given = [$($argument as usize),+];
        let mut all = [0_usize; 6];
        all[..given.len()].copy_from_slice(&given);
        $crate::raw::call($number, all)
    }};
}
pub(crate) use raw;

/// Whether an answer is an error.
pub fn is_error(answer: isize) -> bool {
    (-4095..0).contains(&answer)
}

/// An error as the answer of a system call.
pub fn error(errno: i32) -> isize {
    -(errno as isize)
}

/// Fresh memory from the kernel, which is never paged; `None` if there is none.
pub fn map(len: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses the place.
    let at = unsafe { raw!(libc::SYS_mmap, 0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1_isize, 0) };
    (!is_error(at)).then_some(at as usize)
}

/// Makes a page of the host's own memory inaccessible, below a stack.
pub fn guard(page: usize) {
    // SAFETY: the caller uses nothing in the page.
    unsafe { raw!(libc::SYS_mprotect, page, page_bytes(), libc::PROT_NONE) };
}

/// Waits.
pub fn sleep_ms(ms: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
    // SAFETY: the kernel reads the time.
    unsafe { raw!(libc::SYS_nanosleep, &raw const time, 0) };
}

/// An address at which there is never anything.
pub const NOWHERE: usize = usize::MAX & !7;

/// Reads memory of the program, which may not be there. Whether all was read.
pub fn read(at: usize, into: &mut [u8]) -> bool {
    read_some(at, into) == into.len()
}

/// Reads as much memory of the program as is mapped. Returns the number of bytes read.
pub fn read_some(at: usize, into: &mut [u8]) -> usize {
    if guard::may_be_absent(at, into.len()) {
        return copy(at, into.as_mut_ptr() as usize, into.len(), false);
    }
    let got = carry(at, into.as_mut_ptr() as usize, into.len());
    if got != error(libc::EPERM) && got != error(libc::ENOSYS) {
        return if is_error(got) { 0 } else { got as usize };
    }
    for (place, len) in pages(at, into.len()) {
        if !is_readable(place) {
            return place - at;
        }
        // SAFETY: the page is there; the buffer has room for its part.
        unsafe { into.as_mut_ptr().add(place - at).copy_from_nonoverlapping(place as *const u8, len) };
    }
    into.len()
}

/// Writes memory of the program, which may not be there. Whether all was written.
///
/// The kernel reads from this process's own memory into the program's, because writing there by
/// `process_vm_writev` would pin pages that may be leaving.
pub fn write(at: usize, from: &[u8]) -> bool {
    if guard::may_be_absent(at, from.len()) {
        return copy(at, from.as_ptr() as usize, from.len(), true) == from.len();
    }
    let put = carry(from.as_ptr() as usize, at, from.len());
    if put != error(libc::EPERM) && put != error(libc::ENOSYS) {
        return put == from.len() as isize;
    }
    pages(at, from.len()).all(|(place, len)| {
        let there = is_writable(place, len);
        if there {
            // SAFETY: the page is there, and was written just now.
            unsafe { (place as *mut u8).copy_from_nonoverlapping(from.as_ptr().add(place - at), len) };
        }
        there
    })
}

/// Has the library copy memory of the program. The caller's signals are all blocked, and it does
/// not have the seat.
fn copy(at: usize, own: usize, len: usize, writes: bool) -> usize {
    struct Request(usize, usize, usize, bool, usize);
    unsafe extern "C" fn work(request: usize) {
        // SAFETY: the request comes from below.
        let request = unsafe { &mut *(request as *mut Request) };
        let Request(at, own, len, writes, done) = request;
        // SAFETY: the host's memory has this length.
        *done = unsafe { library::copy(*at, *own, *len, *writes) };
    }
    let mut request = Request(at, own, len, writes, 0);
    // SAFETY: the caller keeps the seat's contract.
    unsafe { seat::with(work, &raw mut request as usize) };
    request.4
}

/// Has the kernel copy within this process, as far as the memory is there.
pub fn carry(from: usize, to: usize, len: usize) -> isize {
    let from = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: len };
    let to = libc::iovec { iov_base: to as *mut libc::c_void, iov_len: len };
    // SAFETY: the kernel checks the addresses.
    unsafe { raw!(libc::SYS_process_vm_readv, own_id(), &raw const to, 1, &raw const from, 1, 0) }
}

/// The parts of a range that lie in one page each.
fn pages(at: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = at.saturating_add(len);
    let next = |place: usize| (place / page_bytes() + 1) * page_bytes();
    std::iter::successors(Some(at), move |&place| Some(next(place)))
        .take_while(move |&place| place < end)
        .map(move |place| (place, next(place).min(end) - place))
}

/// Bytes of a set of signals.
const SET: usize = size_of::<u64>();

/// Where containers forbid the call of [`carry`]: whether a page can be read. The kernel reads a
/// set of signals there, at the page's beginning; as all are blocked, it blocks nothing else.
fn is_readable(place: usize) -> bool {
    // SAFETY: the kernel checks the address.
    unsafe {
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, place / page_bytes() * page_bytes(), 0, SET) == 0
    }
}

/// Whether a word can be written: the kernel puts the blocked signals there. For the caller, whose
/// signals are all blocked, these are known. The kernel extends a stack for it.
pub fn is_writable_by_mask(place: usize) -> bool {
    // SAFETY: the kernel checks the address.
    unsafe { raw!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0, place, SET) == 0 }
}

/// The same of writing: the kernel puts other bytes there first.
fn is_writable(place: usize, len: usize) -> bool {
    // SAFETY: the kernel checks the address.
    unsafe { raw!(libc::SYS_getrandom, place, len, libc::GRND_NONBLOCK) == len as isize }
}

/// The number of the calling process.
pub fn own_id() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { raw!(libc::SYS_getpid) as u32 }
}

/// The number of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { raw!(libc::SYS_gettid) as u32 }
}

/// The signals that have come for the calling thread, or its process, and are blocked.
pub fn pending() -> u64 {
    let mut set = 0_u64;
    // SAFETY: the set has the given length.
    unsafe { raw!(libc::SYS_rt_sigpending, &raw mut set, size_of::<u64>()) };
    set
}

/// Sets the signals that are blocked in the calling thread.
pub fn block(signals: u64) {
    // SAFETY: the set has the given length.
    unsafe {
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const signals, 0, size_of::<u64>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_not_there_are_seen_without_the_kernels_copying() {
        let at = map(3 * 4096).unwrap();
        // SAFETY: the mapping was made just now; the set has the length given.
        let before = unsafe {
            raw!(libc::SYS_munmap, at + 2 * 4096, 4096);
            let (all, mut before) = (u64::MAX, 0_u64);
            raw!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const all, &raw mut before, SET);
            before
        };
        let parts: Vec<_> = pages(at + 4000, 4096 + 100).collect();
        assert_eq!(parts, [(at + 4000, 96), (at + 4096, 4096), (at + 8192, 4)]);
        assert!(is_readable(at + 8191) && !is_readable(at + 8192));
        assert!(is_writable(at + 4095, 1) && !is_writable(at + 8192, 4) && !is_writable(0, 8));
        block(before);
    }
}
