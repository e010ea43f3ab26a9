//! Calls of sockets, and calls that wait for descriptors. In guarded mode they are made without a
//! trap, if their memory may be paged.
//!
//! Calls that open a file. If the program opens a mapped file for writing that is paged
//! (`--files`), the kernel lets the call wait until the library has given up its lease of the file;
//! with O_NONBLOCK it refuses the call instead. The program does not know of this lease, so the
//! hook gives the lease up and tries again.

use crate::{borrowed, files, guard, paged, real};
use libc::{
    SYS_recvfrom, SYS_recvmsg, SYS_sendmsg, SYS_sendto, c_char, c_int, c_void, epoll_event, mode_t, msghdr,
    size_t, sockaddr, socklen_t, ssize_t,
};

/// Arm has no `epoll_wait`, but this is the same without a set of signals.
#[cfg(target_arch = "aarch64")]
use libc::SYS_epoll_pwait as SYS_EPOLL_WAIT;
#[cfg(target_arch = "x86_64")]
use libc::{SYS_epoll_wait as SYS_EPOLL_WAIT, SYS_poll};

/// Hooks, each with its system call, the address by which they are guarded, and its length.
macro_rules! guarded {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $out:ty
        = $number:ident[$($value:expr),*] if $at:expr, $len:expr;)*) => {
        $(
            /// # Safety
            /// The contract is that of the C library's function.
            #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $out {
                // SAFETY: the caller keeps the contract of the function of the same name.
                unsafe {
                    if guard::is_on() && paged::meets($at as usize, $len) {
                        let mut arguments = [0; 6];
                        for (into, from) in arguments.iter_mut().zip([$($value as usize),*]) {
                            *into = from;
                        }
                        return guard::transfer($number, arguments) as $out;
                    }
                    real::call!($name($($argument),*) or -1)
                }
            }
        )*
    };
}

/// In place of an address and a length: every call is guarded, since its memory points to memory.
const ALWAYS: (usize, usize) = (0, usize::MAX);

guarded! {
    fn recv(fd: c_int, at: *mut c_void, len: size_t, flags: c_int) -> ssize_t
        = SYS_recvfrom[fd, at, len, flags] if at, len;
    fn recvfrom(
        fd: c_int,
        at: *mut c_void,
        len: size_t,
        flags: c_int,
        from: *mut sockaddr,
        from_len: *mut socklen_t
    ) -> ssize_t = SYS_recvfrom[fd, at, len, flags, from, from_len] if at, len;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t
        = SYS_recvmsg[fd, message, flags] if ALWAYS.0, ALWAYS.1;
    fn send(fd: c_int, at: *const c_void, len: size_t, flags: c_int) -> ssize_t
        = SYS_sendto[fd, at, len, flags] if at, len;
    fn sendto(
        fd: c_int,
        at: *const c_void,
        len: size_t,
        flags: c_int,
        to: *const sockaddr,
        to_len: socklen_t
    ) -> ssize_t = SYS_sendto[fd, at, len, flags, to, to_len] if at, len;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t
        = SYS_sendmsg[fd, message, flags] if ALWAYS.0, ALWAYS.1;
    fn epoll_wait(fd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int
        = SYS_EPOLL_WAIT[fd, events, most, timeout] if events, 1;
}

// Arm has only `ppoll`, with the time in memory: there the C library's call is trapped.
#[cfg(target_arch = "x86_64")]
guarded! {
    fn poll(descriptors: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int
        = SYS_poll[descriptors, count, timeout] if descriptors, 1;
}

/// Whether `open` was refused because of a lease.
fn is_refused(answer: c_int, flags: c_int) -> bool {
    answer < 0
        && flags & libc::O_NONBLOCK != 0
        && files::were_paged()
        && !borrowed::is_borrower()
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::EWOULDBLOCK)
}

macro_rules! tried_again {
    ($(fn $name:ident($($argument:ident: $type:ty),*) by $flags:ident;)*) => {
        $(
            /// # Safety
            /// The contract is that of the C library's function. The C library takes a mode of any
            /// call, but reads it only if the flags ask for one, and so does this function.
            #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the caller keeps the contract of the function of the same name.
                unsafe {
                    let opened = real::call!($name($($argument),*) or -1);
                    if !is_refused(opened, $flags) {
                        return opened;
                    }
                    files::give_way();
                    real::call!($name($($argument),*) or -1)
                }
            }
        )*
    };
}

tried_again! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) by flags;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) by flags;
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) by flags;
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) by flags;
    fn __open_2(path: *const c_char, flags: c_int) by flags;
    fn __open64_2(path: *const c_char, flags: c_int) by flags;
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) by flags;
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) by flags;
}
