//! Direct I/O and zero copy: the kernel would read and write paged memory while its blocks leave.
//! For other programs the paging library puts such transfers through its own memory. The host does
//! not see transfers, so files are opened without O_DIRECT, and sockets lack zero copy, as before
//! Linux 4.14.
//!
//! And files that the program maps: the library has leases of those that it pages (`--files`). The
//! kernel lets a call that opens such a file for writing wait until the lease is given up; with
//! O_NONBLOCK it refuses the call instead. The program does not know of the lease, so the host has
//! it given up and tries again.

use crate::calls::Outcome;
use crate::machine::{self, Context};
use crate::own_stack::{self, Call, DATA};
use crate::raw::{self, error, raw};
use crate::{guard, library, seat};

const DIRECT: usize = libc::O_DIRECT as usize;

/// Bytes of the description for `openat2` that is known here, and the most that the kernel takes.
const LEAST: usize = 24;
const MOST: usize = 4096;

/// Serves `open` and `openat` with O_DIRECT or O_NONBLOCK, and `openat2`. They may wait, as for a
/// pipe's other end.
///
/// # Safety
/// The same as for the system call. The context is the calling thread's.
pub unsafe fn open(context: &Context, number: i64, arguments: [usize; 6]) -> Outcome {
    let mut call = Call { number, arguments, data: [0; DATA] };
    match number {
        _ if machine::OPEN == Some(number) => call.arguments[1] &= !DIRECT,
        libc::SYS_openat => call.arguments[2] &= !DIRECT,
        // The flags lie in memory.
        _ if (LEAST..=MOST).contains(&arguments[3]) => {
            let mut bytes = [0_u8; MOST];
            let bytes = &mut bytes[..arguments[3]];
            if !raw::read(arguments[2], bytes) {
                return Outcome::Answer(error(libc::EFAULT));
            }
            let (known, longer) = bytes.split_at(LEAST);
            // As a kernel that does not know the longer description.
            if longer.iter().any(|&byte| byte != 0) {
                return Outcome::Answer(error(libc::E2BIG));
            }
            let words = known.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
            call.data.iter_mut().zip(words).for_each(|(place, word)| *place = word);
            call.data[0] &= !(DIRECT as u64);
            (call.arguments[2], call.arguments[3]) = (own_stack::data_at(context), LEAST);
        }
        // The kernel refuses it.
        _ => {}
    }
    // SAFETY: the caller answers for the call.
    match unsafe { without_waiting(&call) } {
        Some(answer) => Outcome::Answer(answer),
        None => Outcome::OnOwnStack(call),
    }
}

/// The longest path that the kernel takes.
const PATH_MOST: usize = 4096;

/// Makes a call that opens a file for writing and does not wait, if the library may have a lease of
/// the file. `None` if the thread can make the call itself.
///
/// # Safety
/// As for [`open`].
unsafe fn without_waiting(call: &Call) -> Option<isize> {
    let (at, flags) = match call.number {
        number if machine::OPEN == Some(number) => (0, call.arguments[1] as i32),
        libc::SYS_openat => (1, call.arguments[2] as i32),
        _ => (1, call.data[0] as i32),
    };
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    if !writes || flags & libc::O_NONBLOCK == 0 || !library::has_leases() {
        return None;
    }
    // In guarded mode the path may be absent.
    let mut path = [0_u8; PATH_MOST];
    let len = raw::read_some(call.arguments[at], &mut path);
    if !path[..len].contains(&0) {
        return None;
    }
    let mut arguments = call.arguments;
    arguments[at] = path.as_ptr() as usize;
    if call.number == libc::SYS_openat2 {
        arguments[2] = call.data.as_ptr() as usize;
    }
    unsafe extern "C" fn give_way(_: usize) {
        library::give_way();
    }
    // SAFETY: the caller answers for the call, and has blocked all signals.
    unsafe {
        let answer = raw::call(call.number, arguments);
        if answer != error(libc::EWOULDBLOCK) {
            return Some(answer);
        }
        seat::with(give_way, 0);
        Some(raw::call(call.number, arguments))
    }
}

/// Serves `fcntl(F_SETFL)`. For a pipe, the flag means packets.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn set_flags(mut arguments: [usize; 6]) -> isize {
    if arguments[2] & DIRECT != 0 && !is_pipe(arguments[0]) {
        arguments[2] &= !DIRECT;
    }
    // SAFETY: the caller answers for the call.
    unsafe { raw::call(libc::SYS_fcntl, arguments) }
}

fn is_pipe(fd: usize) -> bool {
    // SAFETY: plain data, for which zeros are valid; the kernel fills it.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let answer = raw!(libc::SYS_fstat, fd, &raw mut status);
        answer == 0 && status.st_mode & libc::S_IFMT == libc::S_IFIFO
    }
}

/// Serves `setsockopt` of SO_ZEROCOPY's number.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn set_option(mut arguments: [usize; 6]) -> Outcome {
    /// An option that no kernel knows: it is refused as SO_ZEROCOPY was before Linux 4.14, after
    /// the socket and the value are checked.
    const UNKNOWN: usize = 0x7e4a;
    if arguments[1] as i32 == libc::SOL_SOCKET {
        arguments[2] = UNKNOWN;
    }
    // SAFETY: the caller answers for the call.
    unsafe { guard::plain(libc::SYS_setsockopt, arguments) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn files_are_opened_without_the_flag() {
        let path = c"/proc/self/exe".as_ptr() as usize;
        let flags = (libc::O_RDONLY | libc::O_DIRECT | libc::O_CLOEXEC) as usize;
        let how = [flags as u64, 0, 0, 0, 7];
        let how_at = how.as_ptr() as usize;
        let here = libc::AT_FDCWD as usize;
        // SAFETY: a context is plain data, for which zeros are a value.
        let mut context: Context = unsafe { std::mem::zeroed() };
        context.set_depth(1 << 20);
        // SAFETY: the path is a text; nothing is called.
        let opened = |number, arguments| unsafe { open(&context, number, arguments) };
        let open = machine::OPEN.map(|number| (number, [path, flags, 0, 0, 0, 0]));
        let opens = open.into_iter().chain([(libc::SYS_openat, [here, path, flags, 0, 0, 0])]);
        for (number, arguments) in opens {
            let Outcome::OnOwnStack(call) = opened(number, arguments) else { panic!("{number}") };
            assert!(
                call.arguments
                    .iter()
                    .all(|&argument| argument == here || argument & DIRECT == 0 || argument == path)
            );
        }
        let two = |len| opened(libc::SYS_openat2, [here, path, how_at, len, 0, 0]);
        for len in [24, 32] {
            let Outcome::OnOwnStack(call) = two(len) else { panic!("{len}") };
            assert_eq!(call.data, [(flags & !DIRECT) as u64, 0, 0]);
            assert_eq!(call.arguments[2..4], [own_stack::data_at(&context), 24]);
        }
        assert!(matches!(two(40), Outcome::Answer(answer) if answer == error(libc::E2BIG)));
        let file = File::open("/proc/self/exe").unwrap();
        // SAFETY: no memory is touched.
        let answer =
            unsafe { set_flags([file.as_raw_fd() as usize, libc::F_SETFL as usize, DIRECT, 0, 0, 0]) };
        assert_eq!(answer, 0);
    }
}
