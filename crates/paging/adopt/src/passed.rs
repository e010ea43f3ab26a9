//! Descriptors that are passed to the process: the table of a job's memory; and the device that
//! makes userfaultfds: root thus adopts a user's program, or one that becomes another user later.

use crate::Why;
use crate::remote::Remote;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use terapage_sys::userfaultfd::{INHERITED_LEAST, Inherited};

const PATH: &str = "/dev/userfaultfd";

/// Offsets in the scratch memory, of `struct msghdr`, `struct iovec`, a byte, and a control message
/// with one descriptor.
const MESSAGE: usize = 64;
const VECTOR: usize = 128;
const BYTE: usize = 160;
const CONTROL: usize = 192;
const CONTROL_BYTES: usize = 24;
/// The descriptor's offset in the control message.
const NUMBER: usize = 16;

/// The least number that the descriptor gets, if the limit on open files allows it.
pub const HIGH: usize = 700;

/// Passes the device. `None` if this process may not open the device either.
pub fn pass_device(remote: &mut Remote, scratch: usize) -> Result<Option<Inherited>, Why> {
    let Ok(device) = std::fs::OpenOptions::new().read(true).write(true).open(PATH) else { return Ok(None) };
    let number = pass(remote, scratch, &device, "the userfaultfd device cannot be passed")?;
    Ok(Inherited::of(&device, number))
}

/// Passes a descriptor, which stays open on exec. `scratch` is a page of the process. Returns its
/// number there. `what` names it in errors.
pub fn pass(remote: &mut Remote, scratch: usize, given: &impl AsRawFd, what: &str) -> Result<i32, Why> {
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize;
    let pair = [libc::AF_UNIX as usize, kind, 0, scratch, 0, 0];
    remote.call(what, libc::SYS_socketpair, pair)?;
    let ends = [number(remote, scratch)?, number(remote, scratch + size_of::<i32>())?];
    let own = taken(remote.process.pid, ends[1]).map_err(|error| format!("{what} ({error})"))?;
    send(&own, given).map_err(|error| format!("{what} ({error})"))?;
    remote.put(scratch, &message(scratch))?;
    let close_on_exec = libc::MSG_CMSG_CLOEXEC as usize;
    remote.call(what, libc::SYS_recvmsg, [ends[0], scratch + MESSAGE, close_on_exec, 0, 0, 0])?;
    let low = number(remote, scratch + CONTROL + NUMBER)?;
    let mut duplicate =
        |least: usize| remote.call(what, libc::SYS_fcntl, [low, libc::F_DUPFD as usize, least, 0, 0, 0]);
    let high = duplicate(HIGH).or_else(|_| duplicate(INHERITED_LEAST as usize))?;
    for fd in [low, ends[0], ends[1]] {
        remote.call(what, libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
    }
    Ok(high as i32)
}

/// A descriptor's number in the process's memory.
fn number(remote: &Remote, at: usize) -> Result<usize, Why> {
    let mut bytes = [0; size_of::<i32>()];
    remote.process.get(at, &mut bytes).map_err(|error| format!("its memory cannot be read ({error})"))?;
    Ok(i32::from_ne_bytes(bytes) as usize)
}

/// The place of the message for `recvmsg`, as the process sees it.
fn message(scratch: usize) -> Vec<u8> {
    let mut bytes = vec![0; CONTROL + CONTROL_BYTES];
    let mut put = |at: usize, word: usize| bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    put(MESSAGE + 16, scratch + VECTOR);
    put(MESSAGE + 24, 1);
    put(MESSAGE + 32, scratch + CONTROL);
    put(MESSAGE + 40, CONTROL_BYTES);
    put(VECTOR, scratch + BYTE);
    put(VECTOR + 8, 1);
    bytes
}

/// A descriptor of another process.
fn taken(pid: u32, fd: usize) -> io::Result<OwnedFd> {
    let opened = |answer: libc::c_long| match answer {
        fd if fd < 0 => Err(io::Error::last_os_error()),
        // SAFETY: the call has made the descriptor just now.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
    };
    // SAFETY: the calls touch no memory.
    unsafe {
        let process = opened(libc::syscall(libc::SYS_pidfd_open, i64::from(pid), 0_i64))?;
        opened(libc::syscall(libc::SYS_pidfd_getfd, i64::from(process.as_raw_fd()), fd, 0_i64))
    }
}

/// Sends a descriptor.
fn send(to: &OwnedFd, what: &impl AsRawFd) -> io::Result<()> {
    let mut byte = [0_u8];
    let mut vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = [0_u64; CONTROL_BYTES / 8];
    // SAFETY: the message is plain data, for which zeros are a value; its parts live until it is
    // sent, and there is room for a header and a number.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), CONTROL_BYTES as _);
        let header = control.as_mut_ptr().cast::<libc::cmsghdr>();
        (*header).cmsg_len = (NUMBER + size_of::<i32>()) as _;
        ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        header.byte_add(NUMBER).cast::<i32>().write(what.as_raw_fd());
        libc::sendmsg(to.as_raw_fd(), &raw const message, 0)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
