//! The program that this process runs. For the kernel, `/proc/self/exe` is the host; programs that
//! query or execute this link get their own file.

use crate::calls::Outcome;
use crate::own_stack::{Call, DATA};
use crate::raw::{self, error, raw};
use std::sync::OnceLock;

static PATH: OnceLock<&'static [u8]> = OnceLock::new();

/// Notes the program's path, in the kernel's form. The copy is not in the heap, which is paged: a
/// child of `vfork` reads it while a debugger may have stopped the pager.
pub fn set_path(path: &[u8]) {
    if let Some(at) = raw::map(path.len()) {
        // SAFETY: the mapping was made just now, has this length, and stays.
        let copy = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, path.len()) };
        copy.copy_from_slice(path);
        PATH.set(copy).ok();
    }
}

/// The longest name of the link.
const LINK_MOST: usize = 32;

/// The program's path, if `path` is the link to the executable of this process.
pub fn path_if_own(path: &[u8]) -> Option<&'static [u8]> {
    let rest = path.strip_prefix(b"/proc/")?.strip_suffix(b"/exe")?;
    let mut digits = itoa::Buffer::new();
    let number = digits.format(raw::own_id()).as_bytes();
    let is_own = rest == b"self" || rest == b"thread-self" || rest == number;
    if is_own { PATH.get().copied() } else { None }
}

/// Serves `readlink` and `readlinkat`.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn read_link(number: i64, arguments: [usize; 6]) -> Outcome {
    let at = if number == libc::SYS_readlinkat { 1 } else { 0 };
    let mut path = [0_u8; LINK_MOST];
    let len = raw::read_some(arguments[at], &mut path);
    let end = path[..len].iter().position(|&byte| byte == 0);
    let own = end.and_then(|end| path_if_own(&path[..end]));
    match own {
        // A directory on the way may be another machine's.
        None => Outcome::OnOwnStack(Call { number, arguments, data: [0; DATA] }),
        Some(_) if arguments[at + 2] as i32 <= 0 => Outcome::Answer(error(libc::EINVAL)),
        Some(own) => {
            let len = own.len().min(arguments[at + 2]);
            let done = raw::write(arguments[at + 1], &own[..len]);
            Outcome::Answer(if done { len as isize } else { error(libc::EFAULT) })
        }
    }
}

/// The file of the calling process, by the number of its first thread.
///
/// # Safety
/// The name ends in a zero byte within 16 bytes.
pub unsafe fn set_name(name: &[u8; 16]) {
    // SAFETY: the kernel copies the name.
    unsafe { raw!(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr()) };
}
