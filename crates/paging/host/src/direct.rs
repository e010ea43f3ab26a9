//! Direct I/O and zero copy: the kernel would read and write paged memory while its blocks leave.
//! For other programs the paging library puts such transfers through its own memory. The host does
//! not see transfers, so files are opened without O_DIRECT, and sockets lack zero copy, as before
//! Linux 4.14.

use crate::raw::{self, error, raw};

const DIRECT: usize = libc::O_DIRECT as usize;

/// Serves `open` and `openat` with O_DIRECT, and `openat2`.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn open(number: i64, mut arguments: [usize; 6]) -> isize {
    const LEAST: usize = 24;
    let mut how = [0_u64; 3];
    match number {
        libc::SYS_open => arguments[1] &= !DIRECT,
        libc::SYS_openat => arguments[2] &= !DIRECT,
        // The flags lie in memory. A longer description than the known one is left to the kernel.
        _ if arguments[3] == LEAST => {
            let mut bytes = [0_u8; LEAST];
            if !raw::read(arguments[2], &mut bytes) {
                return error(libc::EFAULT);
            }
            // SAFETY: any bytes are words.
            how = unsafe { std::mem::transmute::<[u8; LEAST], [u64; 3]>(bytes) };
            how[0] &= !(DIRECT as u64);
            arguments[2] = how.as_ptr() as usize;
        }
        _ => {}
    }
    // SAFETY: the caller is responsible for the call; the description is a copy.
    let answer = unsafe { raw::call(number, arguments) };
    std::hint::black_box(&how);
    answer
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
pub unsafe fn set_option(arguments: [usize; 6]) -> isize {
    if arguments[1] as i32 == libc::SOL_SOCKET {
        return error(libc::ENOPROTOOPT);
    }
    // SAFETY: the caller answers for the call.
    unsafe { raw::call(libc::SYS_setsockopt, arguments) }
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
        let how = [flags as u64, 0, 0];
        let here = libc::AT_FDCWD as usize;
        for (number, arguments) in [
            (libc::SYS_open, [path, flags, 0, 0, 0, 0]),
            (libc::SYS_openat, [here, path, flags, 0, 0, 0]),
            (libc::SYS_openat2, [here, path, how.as_ptr() as usize, 24, 0, 0]),
        ] {
            // SAFETY: the path is a text.
            let fd = unsafe { open(number, arguments) };
            assert!(fd >= 0, "{number}: {fd}");
            // SAFETY: the descriptor was opened just now.
            let got = unsafe {
                let got = raw!(libc::SYS_fcntl, fd, libc::F_GETFL);
                raw!(libc::SYS_close, fd);
                got
            };
            assert_eq!(got as usize & DIRECT, 0);
        }
        let file = File::open("/proc/self/exe").unwrap();
        // SAFETY: no memory is touched.
        let answer =
            unsafe { set_flags([file.as_raw_fd() as usize, libc::F_SETFL as usize, DIRECT, 0, 0, 0]) };
        assert_eq!(answer, 0);
    }
}
