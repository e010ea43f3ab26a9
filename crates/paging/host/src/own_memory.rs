//! The program's own memory as a file (`/proc/self/mem`), at the file's position.
//!
//! The kernel does not wait for a page of it: a read gets EIO. Calls that name an offset are
//! trapped if the offset may be an address. A call at the position names none. But before, the
//! program sets the position to an address, by `lseek`, which is trapped then. If the file is own
//! memory, a filter follows: from then on all reads and writes at a position are trapped. Not only
//! those of this descriptor: its duplicates share the position, and the program may make them
//! before, later, or get them from others. Calls on other files are made as the program has asked.

use crate::calls::Outcome;
use crate::own_stack::{Call, DATA};
use crate::raw::{self, is_error, raw};
use crate::slots::Slot;
use crate::{calls, filter, guard};
use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

/// The process in which reads and writes at a position are trapped; 0 for none. A child of `vfork`
/// uses its parent's memory, but has a filter of its own.
static TRAPPED_IN: AtomicI32 = AtomicI32::new(0);

/// The device of the file that was own memory.
static DEVICE: AtomicU64 = AtomicU64::new(0);

/// Whether a call is one at the position of own memory.
pub fn is_meant(number: i64, arguments: &[usize; 6]) -> bool {
    TRAPPED_IN.load(Relaxed) != 0 && filter::CALLS_AT_POSITION.contains(&number) && {
        let fd = arguments[0] as i32;
        identity(fd).is_some_and(|(device, _)| device == DEVICE.load(Relaxed)) && is_own(fd)
    }
}

fn process() -> i32 {
    // SAFETY: no memory is touched.
    unsafe { raw!(libc::SYS_getpid) as i32 }
}

/// In the child of a fork, which has inherited the filter.
pub fn in_child() {
    if TRAPPED_IN.load(Relaxed) != 0 {
        TRAPPED_IN.store(process(), Relaxed);
    }
}

/// Serves `lseek` to what may be an address.
///
/// # Safety
/// All signals of the calling thread are blocked.
pub unsafe fn seek(arguments: [usize; 6]) -> isize {
    // SAFETY: no memory is touched.
    let answer = unsafe { raw::call(libc::SYS_lseek, arguments) };
    let fd = arguments[0] as i32;
    if !is_error(answer) && TRAPPED_IN.load(Relaxed) != process() && is_own(fd) {
        DEVICE.store(identity(fd).map_or(0, |(device, _)| device), Relaxed);
        // Two threads may both set it. SAFETY: the handler of the signal is there.
        if unsafe { filter::install_at_position() }.is_ok() {
            TRAPPED_IN.store(process(), Relaxed);
        }
    }
    answer
}

/// The device and the number of a file that `call` asks for.
fn asked(call: impl FnOnce(*mut libc::stat) -> isize) -> Option<(u64, u64)> {
    // SAFETY: plain data, for which zeros are a value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    (call(&raw mut found) == 0).then_some((found.st_dev, found.st_ino))
}

fn identity(fd: i32) -> Option<(u64, u64)> {
    // SAFETY: the place has room for the answer.
    asked(|into| unsafe { raw!(libc::SYS_fstat, fd, into) })
}

/// Whether a descriptor is of a file that is this process's memory.
fn is_own(fd: i32) -> bool {
    let of = |path: &CStr| {
        let (here, path) = (libc::AT_FDCWD, path.as_ptr());
        // SAFETY: the path is a text, and the place has room for the answer.
        asked(|into| unsafe { raw!(libc::SYS_newfstatat, here, path, into, 0) })
    };
    let this = identity(fd);
    this.is_some() && [c"/proc/self/mem", c"/proc/thread-self/mem"].into_iter().any(|path| of(path) == this)
}

/// Serves a read or a write at a position.
///
/// # Safety
/// As for [`calls::serve`].
pub unsafe fn serve(slot: *mut Slot) -> Outcome {
    // SAFETY: the slot is this thread's, and the program is responsible for its calls.
    unsafe {
        let (number, arguments) = ((*slot).number, (*slot).arguments);
        if guard::is_active() || !is_meant(number, &arguments) {
            return Outcome::OnOwnStack(Call { number, arguments, data: [0; DATA] });
        }
        Outcome::Answer(calls::by_library(slot))
    }
}
