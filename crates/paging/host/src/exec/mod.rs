//! Exec: the library decides which program is really executed, and with which environment. The
//! library's answer is copied, and the thread makes the call on [its own
//! stack](crate::own_stack): signals that the program has not blocked arrive then.

pub mod tracing;

use crate::calls::Outcome;
use crate::guard;
use crate::library::{self, Texts};
use crate::machine::FAILED;
use crate::own_stack::{self, Execution};
use crate::program;
use crate::raw::{self, error, is_error, raw};
use crate::seat;
use crate::slots::Slot;
use std::ffi::{CStr, c_char};
use std::ptr::null;

/// The arguments of an exec for the kernel, in a separate mapping, which begins with a [`Header`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Prepared {
    at: usize,
    len: usize,
    path: usize,
    arguments: usize,
    environment: usize,
    /// The argument for the library if there is no exec after all.
    left: i32,
    /// The stack pointer of the thread that makes the call.
    depth: usize,
}

/// An exec that gives way to handlers.
pub struct Delayed {
    /// The stack pointer of the thread that makes the call.
    depth: usize,
    /// How often the call has given way.
    times: u32,
}

/// How often one exec gives way. Otherwise a thread that gets signals faster than an exec is
/// prepared would execute nothing.
const DELAYS: u32 = 2;

impl Delayed {
    /// Whether the exec with this stack pointer gives way once more.
    fn is_possible(&mut self, depth: usize) -> bool {
        let times = if self.depth == depth { self.times } else { 0 };
        *self = Delayed { depth, times: if times < DELAYS { times + 1 } else { 0 } };
        times < DELAYS
    }
}

/// The beginning of the mapping: what is needed if the exec fails. The slot may serve other calls
/// meanwhile, of handlers.
#[repr(C)]
struct Header {
    execution: Execution,
    prepared: Prepared,
}

/// The longest text of a program that the kernel accepts.
const TEXT_MOST: usize = 128 << 10;
const PATH_MOST: usize = 4096;

/// Serves `execve` and `execveat`.
///
/// # Safety
/// The calling thread has the slot and runs on its stack, with all signals blocked.
pub unsafe fn serve(slot: *mut Slot) -> Outcome {
    // SAFETY: the slot is this thread's.
    let (number, mut arguments) = unsafe { ((*slot).number, (*slot).arguments) };
    if number == libc::SYS_execve && arguments[2] == FAILED {
        // SAFETY: as above.
        return unsafe { failed(slot) };
    }
    let mut path = [0_u8; PATH_MOST];
    let at = if number == libc::SYS_execveat { 1 } else { 0 };
    let directory = if at == 1 { arguments[0] as i32 } else { libc::AT_FDCWD };
    let flags = if at == 1 { arguments[4] as i32 } else { 0 };
    if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) != 0 {
        // The kernel executes nothing with other flags. SAFETY: the caller is responsible.
        return unsafe { guard::plain(number, arguments) };
    }
    let is_there = resolve(directory, arguments[at], flags, &mut path).is_ok()
        && are_texts(arguments[at + 1])
        && are_texts(arguments[at + 2]);
    if !is_there {
        // The call fails. The kernel knows which of its arguments is wrong first.
        arguments[at + 1..at + 3].fill(raw::NOWHERE);
        // SAFETY: as above.
        return unsafe { guard::plain(number, arguments) };
    }
    let Some(texts) = path_of(&path) else { return Outcome::Answer(error(libc::ENAMETOOLONG)) };
    arguments = [texts.as_ptr() as usize, arguments[at + 1], arguments[at + 2], 0, 0, 0];
    // SAFETY: the slot is this thread's, and has room for the context; the program's memory that
    // the work reads was checked above. The mapping begins with a header.
    unsafe {
        let depth = (*Slot::context(slot)).depth();
        if (*slot).exec.depth == depth {
            // A handler has left an exec that was made in the same place.
            forget(slot);
        }
        (*slot).arguments = arguments;
        (*slot).exec = Prepared { at: 0, len: 0, path: 0, arguments: 0, environment: 0, left: 0, depth };
        seat::with(prepare, slot as usize);
        let exec = (*slot).exec;
        if exec.at == 0 {
            return Outcome::Answer((*slot).answer);
        }
        let context = &mut *Slot::context(slot);
        // A handler that runs now may leave by a long jump. So it runs before the call, as natively
        // it might have done, and the thread then makes the call again.
        if raw::pending() & !context.blocked != 0 && (*slot).delayed.is_possible(depth) {
            seat::with(stay, slot as usize);
            forget(slot);
            context.repeat(number);
            return Outcome::Continues;
        }
        let arguments = [exec.path, exec.arguments, exec.environment];
        if tracing::is_later(slot) {
            let answer = tracing::execute(slot, arguments);
            seat::with(stay, slot as usize);
            forget(slot);
            return Outcome::Answer(answer);
        }
        let header = exec.at as *mut Header;
        (*header).prepared = exec;
        own_stack::continue_with_exec(context, &raw mut (*header).execution, arguments);
    }
    Outcome::Continues
}

/// An exec has failed: the first argument names its header, the second the error.
///
/// # Safety
/// As for [`serve`].
unsafe fn failed(slot: *mut Slot) -> Outcome {
    let mut bytes = [0_u8; size_of::<Header>()];
    // SAFETY: the slot is this thread's; a header is plain data. The mapping was made for it.
    unsafe {
        let [at, answer, ..] = (*slot).arguments;
        if !raw::read(at, &mut bytes) {
            return Outcome::Answer(error(libc::EFAULT));
        }
        let Header { execution, prepared } = std::mem::transmute_copy(&bytes);
        (*slot).exec = prepared;
        seat::with(stay, slot as usize);
        forget(slot);
        (*Slot::context(slot)).settle(execution.place);
        (*Slot::context(slot)).restore(&execution.saved);
        Outcome::Answer(answer as isize)
    }
}

/// The text in a buffer.
fn path_of(buffer: &[u8]) -> Option<&CStr> {
    CStr::from_bytes_until_nul(buffer).ok()
}

/// Puts the path of the program into `into`.
fn resolve(directory: i32, at: usize, flags: i32, into: &mut [u8; PATH_MOST]) -> Result<(), i32> {
    let mut given = [0_u8; PATH_MOST];
    let len = raw::read_some(at, &mut given);
    let given = match path_of(&given[..len]) {
        Some(path) => path.to_bytes(),
        None if len < PATH_MOST => return Err(libc::EFAULT),
        None => return Err(libc::ENAMETOOLONG),
    };
    let itself = program::path_if_own(given);
    let given = itself.unwrap_or(given);
    let is_whole = given.starts_with(b"/") || directory == libc::AT_FDCWD && !given.is_empty();
    if given.is_empty() && flags & libc::AT_EMPTY_PATH == 0 {
        return Err(libc::ENOENT);
    }
    // SAFETY: no memory is touched.
    if !is_whole && is_error(unsafe { raw!(libc::SYS_fcntl, directory, libc::F_GETFD) }) {
        return Err(libc::EBADF);
    }
    let mut used = 0;
    let mut add = |bytes: &[u8]| {
        let room = into.get_mut(used..used + bytes.len()).ok_or(libc::ENAMETOOLONG)?;
        room.copy_from_slice(bytes);
        used += bytes.len();
        Ok(())
    };
    if !is_whole {
        add(b"/proc/self/fd/")?;
        add(itoa::Buffer::new().format(directory).as_bytes())?;
        if !given.is_empty() {
            add(b"/")?;
        }
    }
    add(given)?;
    add(b"\0")
}

/// Whether the program can read all texts of an array; null is an empty array.
fn are_texts(mut at: usize) -> bool {
    let mut text = [0_u8; 8];
    if at == 0 {
        return true;
    }
    loop {
        if !raw::read(at, &mut text) {
            return false;
        }
        match usize::from_ne_bytes(text) {
            0 => return true,
            text if !is_text(text) => return false,
            _ => at += size_of::<usize>(),
        }
    }
}

/// Whether there is a text at an address: checked page by page, as its end is unknown.
fn is_text(at: usize) -> bool {
    let mut buffer = [0_u8; 1024];
    let mut done = 0;
    while done < TEXT_MOST {
        let got = raw::read_some(at + done, &mut buffer);
        if buffer[..got].contains(&0) {
            return true;
        }
        if got < buffer.len() {
            return false;
        }
        done += got;
    }
    true
}

unsafe extern "C" fn prepare(slot: usize) {
    let slot = slot as *mut Slot;
    // SAFETY: the slot is the calling thread's, and the arguments are those of an exec.
    unsafe {
        let [path, arguments, environment, ..] = (*slot).arguments;
        let empty = [null::<c_char>()];
        let or_empty = |at: usize| if at == 0 { empty.as_ptr() } else { at as Texts };
        let path = path as *const c_char;
        // If `take` has no memory for it, it is not executed.
        let errno = library::prepare(path, or_empty(arguments), or_empty(environment), take, slot as usize);
        (*slot).answer = error(if errno == 0 { libc::ENOMEM } else { errno });
        if (*slot).exec.at != 0 {
            (*slot).exec.left = library::leave(path);
        }
    }
}

unsafe extern "C" fn stay(slot: usize) {
    // SAFETY: the slot is the calling thread's.
    library::stay(unsafe { (*(slot as *mut Slot)).exec.left });
}

/// The number of texts in an array, and their bytes, with a zero byte after each.
///
/// # Safety
/// The array ends in a null pointer.
unsafe fn measure(texts: Texts) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    // SAFETY: the caller passes an array that ends in a null pointer.
    unsafe {
        while !(*texts.add(count)).is_null() {
            bytes += CStr::from_ptr(*texts.add(count)).count_bytes() + 1;
            count += 1;
        }
    }
    (count, bytes)
}

/// Copies the arguments of an exec to a separate mapping, and notes it in the slot.
unsafe extern "C" fn take(slot: usize, path: *const c_char, arguments: Texts, environment: Texts) {
    let slot = slot as *mut Slot;
    let word = size_of::<usize>();
    // SAFETY: the library passes a text and two arrays of texts; the mapping has room for copies of
    // all; the slot is the calling thread's.
    unsafe {
        let (some, others) = (measure(arguments), measure(environment));
        let path_bytes = CStr::from_ptr(path).to_bytes_with_nul();
        let pointers = (some.0 + others.0 + 2) * word;
        let len = size_of::<Header>() + pointers + some.1 + others.1 + path_bytes.len();
        let Some(at) = raw::map(len) else { return };
        let first = at + size_of::<Header>();
        let mut text = first + pointers;
        let mut put = |bytes: &[u8]| {
            (text as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            text += bytes.len();
            text - bytes.len()
        };
        let mut place = first as *mut usize;
        for (texts, (count, _)) in [(arguments, some), (environment, others)] {
            for index in 0..count {
                place.write(put(CStr::from_ptr(*texts.add(index)).to_bytes_with_nul()));
                place = place.add(1);
            }
            place.write(0);
            place = place.add(1);
        }
        let path = put(path_bytes);
        let environment = first + (some.0 + 1) * word;
        let depth = (*slot).exec.depth;
        (*slot).exec = Prepared { at, len, path, arguments: first, environment, left: 0, depth };
    }
}

/// Frees the memory of a failed exec, or of a child of `vfork` that has executed a program.
///
/// # Safety
/// No other code uses the slot meanwhile.
pub unsafe fn forget(slot: *mut Slot) {
    // SAFETY: the caller has the slot; the mapping was made for it.
    unsafe {
        let Prepared { at, len, .. } = (*slot).exec;
        (*slot).exec.at = 0;
        if at != 0 {
            let answer = raw!(libc::SYS_munmap, at, len);
            debug_assert!(!is_error(answer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn resolved(directory: i32, path: &str, flags: i32) -> Result<String, i32> {
        let path = CString::new(path).unwrap();
        let mut into = [0; PATH_MOST];
        resolve(directory, path.as_ptr() as usize, flags, &mut into)?;
        Ok(path_of(&into).unwrap().to_str().unwrap().to_owned())
    }

    #[test]
    fn paths_are_resolved_as_the_kernel_does() {
        assert_eq!(resolved(libc::AT_FDCWD, "a/b", 0).unwrap(), "a/b");
        assert_eq!(resolved(5, "/a", 0).unwrap(), "/a");
        assert_eq!(resolved(1, "a", 0).unwrap(), "/proc/self/fd/1/a");
        assert_eq!(resolved(2, "", libc::AT_EMPTY_PATH).unwrap(), "/proc/self/fd/2");
        assert_eq!(resolved(-1, "a", 0), Err(libc::EBADF));
        assert_eq!(resolved(50, "", 0), Err(libc::ENOENT));
        assert_eq!(resolve(0, 1, 0, &mut [0; PATH_MOST]), Err(libc::EFAULT));
    }

    #[test]
    fn texts_that_are_not_there_are_seen() {
        let text = c"text".as_ptr();
        let good = [text, null()];
        let bad = [text, std::ptr::dangling::<c_char>(), null()];
        assert!(are_texts(0) && are_texts(good.as_ptr() as usize));
        assert!(!are_texts(bad.as_ptr() as usize) && !are_texts(1));
    }
}
