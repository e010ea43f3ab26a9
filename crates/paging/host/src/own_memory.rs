//! The program's own memory as a file (`/proc/self/mem`), at the file's position.
//!
//! The kernel does not wait for a page of it: a read gets EIO. Calls that name an offset are
//! trapped if the offset may be an address. A call at the position names none. But before, the
//! program sets the position to an address, by `lseek`, which is trapped then. If the file is own
//! memory, a filter for its descriptor follows: from then on the reads and writes of that number
//! are trapped. If the number becomes another file's, they are made as the program has asked.

use crate::calls::Outcome;
use crate::own_stack::{Call, DATA};
use crate::raw::{self, is_error, raw};
use crate::slots::Slot;
use crate::{calls, filter, guard};
use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The most descriptors: each costs a filter, which all calls of the process pass.
const MOST: usize = 8;
static MARKED: [AtomicI32; MOST] = [const { AtomicI32::new(NONE) }; MOST];
const NONE: i32 = -1;

/// Whether a call is one at the position of a descriptor that has been own memory.
pub fn is_meant(number: i64, arguments: &[usize; 6]) -> bool {
    filter::CALLS_AT_POSITION.contains(&number) && is_marked(arguments[0] as i32)
}

fn is_marked(fd: i32) -> bool {
    fd != NONE && MARKED.iter().any(|marked| marked.load(Relaxed) == fd)
}

/// Serves `lseek` to what may be an address.
///
/// # Safety
/// All signals of the calling thread are blocked.
pub unsafe fn seek(arguments: [usize; 6]) -> isize {
    // SAFETY: no memory is touched.
    let answer = unsafe { raw::call(libc::SYS_lseek, arguments) };
    let fd = arguments[0] as i32;
    if !is_error(answer) && !is_marked(fd) && is_own(fd) {
        mark(fd);
    }
    answer
}

/// Has the reads and writes of a descriptor trapped.
fn mark(fd: i32) {
    let claims = |marked: &&AtomicI32| marked.compare_exchange(NONE, fd, Relaxed, Relaxed).is_ok();
    let Some(marked) = MARKED.iter().find(claims) else { return };
    // SAFETY: the handler of the signal is there.
    if unsafe { filter::install_at_position(fd) }.is_err() {
        marked.store(NONE, Relaxed);
    }
}

/// Whether a descriptor is of a file that is this process's memory.
fn is_own(fd: i32) -> bool {
    let file = |call: &dyn Fn(*mut libc::stat) -> isize| {
        // SAFETY: plain data, for which zeros are a value.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        (call(&raw mut found) == 0).then_some((found.st_dev, found.st_ino))
    };
    // SAFETY: the caller's place has room for the answer.
    let this = file(&|into| unsafe { raw!(libc::SYS_fstat, fd, into) });
    // SAFETY: the path is a text, and the place has room for the answer.
    let of = |path: &CStr| file(&|into| unsafe { raw!(libc::SYS_stat, path.as_ptr(), into) });
    this.is_some() && [c"/proc/self/mem", c"/proc/thread-self/mem"].into_iter().any(|path| of(path) == this)
}

/// Serves a read or a write at the position of a marked descriptor.
///
/// # Safety
/// As for [`calls::serve`].
pub unsafe fn serve(slot: *mut Slot) -> Outcome {
    // SAFETY: the slot is this thread's, and the program is responsible for its calls.
    unsafe {
        let (number, arguments) = ((*slot).number, (*slot).arguments);
        if guard::is_active() || !is_own(arguments[0] as i32) {
            return Outcome::OnOwnStack(Call { number, arguments, data: [0; DATA] });
        }
        Outcome::Answer(calls::by_library(slot))
    }
}
