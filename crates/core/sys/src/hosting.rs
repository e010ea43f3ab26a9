//! Programs that a host (crate `host`) has loaded: where their code lies, and whether this process
//! descends from a host.

use crate::machine::{Code, GATE_CODE, call_at, publish};
use crate::page_bytes;
use std::ops::Range;

/// Where the host puts code that may lie anywhere. The kernel puts nothing there by itself: it
/// begins at the upper end of all addresses, and with position-independent programs at two thirds
/// of them.
pub const AREA: Range<usize> = 0x1000_0000_0000..0x2000_0000_0000;

pub use crate::machine::GUARDED;

/// The address of the instruction from which all calls pass the filter of guarded mode.
pub const GATE: usize = GUARDED.start - (1 << 20);

/// Makes a system call at the [gate](GATE). The result is the kernel's: from -4095 to -1 it is an
/// error.
///
/// # Safety
/// The same as for the system call; the gate is open.
#[inline]
pub unsafe fn at_gate(number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the gate is open; the caller answers for the call.
    unsafe { crate::machine::call_at(GATE, number, arguments) }
}

/// Whether the calling process has a tracer, by system calls that `call` makes. It may be a child
/// of `vfork`.
///
/// # Safety
/// `call` makes system calls.
pub unsafe fn is_traced(call: unsafe fn(i64, [usize; 6]) -> isize) -> bool {
    const FIELD: &[u8] = b"\nTracerPid:\t";
    let (path, mut text) = (c"/proc/thread-self/status", [0_u8; 1024]);
    let open = [libc::AT_FDCWD as usize, path.as_ptr() as usize, libc::O_RDONLY as usize, 0, 0, 0];
    // SAFETY: the path ends in a zero byte, and the text has room.
    let len = unsafe {
        let fd = call(libc::SYS_openat, open) as usize;
        let len = call(libc::SYS_read, [fd, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
        call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        usize::try_from(len).unwrap_or(0)
    };
    let found = text[..len].windows(FIELD.len() + 1).find(|part| part.starts_with(FIELD));
    found.is_some_and(|part| part[FIELD.len()] != b'0')
}

/// The mark of a signal of that filter.
pub const GUARD_MARK: u16 = 0x7e4b;

/// The answer of the library if the thread makes the call.
pub const MADE_BY_THREAD: isize = isize::MIN;

/// The answer of the library if other calls have pinned too much memory: the thread asks again, up
/// to [`LOOKS`] times, once a millisecond.
pub const IS_CROWDED: isize = isize::MIN + 1;

/// How often a call checks, once a millisecond, whether other calls have unpinned enough memory, or
/// other processes have made room.
pub const LOOKS: usize = 10_000;

/// The most buffers of one piece of a call.
pub const BUFFERS: usize = 16;

/// A guarded call of a hosted program: what the host and the library tell each other. It lies in
/// memory that is never paged, and may be copied by a fork.
#[repr(C)]
#[derive(Debug)]
pub struct GuardedCall {
    /// The call, as the program has made it, or as the host makes it in its place.
    pub number: i64,
    /// Its arguments.
    pub given: [usize; 6],
    /// Who pins: not 0, and no other thread's.
    pub owner: usize,
    /// The id of the thread.
    pub thread: usize,
    /// The stack pointer of the call.
    pub depth: usize,
    /// The slot of the thread's last pins.
    pub hint: usize,
    /// 1 if the call names own memory by the position of its file; otherwise 0.
    pub at_position: usize,
    /// The arguments for the kernel: of the whole call, or of a piece.
    pub arguments: [usize; 6],
    /// Bytes that earlier pieces have transferred: 0 before the first.
    pub done: usize,
    /// Bytes of this piece.
    pub len: usize,
    /// The words that the thread sets to 0 to unpin; 0 if the library must unpin.
    pub words: [usize; 2],
    /// How the call is divided: the library's.
    pub way: usize,
    /// Buffers of a piece, and the header of a message: memory that arguments name.
    pub buffers: [[usize; 2]; BUFFERS],
    /// The header of a message.
    pub header: [usize; 7],
}

/// Calls that the host's filter hides from the program's code (ENOSYS), with a first argument with
/// which, the others being 0, the calls do nothing. A call that is also refused elsewhere, as in
/// some containers, proves nothing.
const UNKNOWN: [(i64, usize); 3] =
    [(libc::SYS_clone3, 0), (libc::SYS_rseq, 0), (libc::SYS_vmsplice, usize::MAX)];

/// Whether the host's filter is in force for this process: set by the process itself, or by one
/// that it descends from. An exec does not end it.
pub fn has_filter() -> bool {
    // SAFETY: no memory is touched.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) } == 0 {
        return false;
    }
    // Other threads may ask at the same time.
    let Some(at) = (0..PLACES).map(|number| AREA.start + number * page_bytes()).find(|&at| map(at)) else {
        return false;
    };
    // SAFETY: the page was mapped just now, and holds an instruction for calls that do nothing.
    unsafe {
        (at as *mut Code).write(GATE_CODE);
        publish(at);
        let rights = i64::from(libc::PROT_READ | libc::PROT_EXEC);
        // Some systems allow no new code (MemoryDenyWriteExecute).
        let runs = libc::syscall(libc::SYS_mprotect, at, page_bytes(), rights) == 0;
        let told = UNKNOWN.into_iter().filter(|_| runs).find_map(|(number, first)| {
            let answer = |place: usize| call_at(place, number, [first, 0, 0, 0, 0, 0]);
            (answer(here as *const () as usize) != NO_CALL).then(|| answer(at) == NO_CALL)
        });
        libc::syscall(libc::SYS_munmap, at, page_bytes());
        told.unwrap_or(false)
    }
}

/// How many pages are tried.
const PLACES: usize = 64;

/// Maps a writable page at `at`. Whether that was free.
fn map(at: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: nothing is replaced.
    let page = unsafe {
        libc::syscall(libc::SYS_mmap, at, page_bytes(), i64::from(rights), i64::from(flags), -1_i64, 0_i64)
    };
    page == at as i64
}

const NO_CALL: isize = -(libc::ENOSYS as isize);

/// A system call by an instruction of this crate's.
#[unsafe(naked)]
unsafe extern "C" fn here() {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("syscall", "ret");
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("svc #0", "ret");
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_that_descends_from_no_host_has_no_filter_of_one() {
        assert!(!super::has_filter());
    }
}
