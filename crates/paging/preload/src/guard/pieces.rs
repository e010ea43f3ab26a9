//! Transfers that are longer than may be pinned at once, in pieces, with the result of the whole
//! call: on regular files to the end, elsewhere writes to the end, and reads with one piece, since
//! they may return less. Sockets that keep messages apart get the whole.

use super::trap::{Limit, Origin};
use super::{copy, trap, vectors};
use crate::{direct, paged, setup};
use libc::{c_long, iovec};
use terapage_calls::{Direction, Pieces, Range};
use terapage_pager::pins::Pins;

/// Bytes of a piece: a part of the budget, within these limits.
const PART: usize = 16;
const LEAST: usize = 256 << 10;
const MOST: usize = 4 << 20;
/// Bytes of the smallest piece, which is made while other calls have pinned much memory. Such a
/// piece may always be pinned.
pub(super) const SMALLEST: usize = 16 << 10;

/// Pieces that are larger than the smallest are made while all calls together pin at most this part
/// of the budget, in fourths. Some of the calls may wait forever, so a call that cannot be divided
/// may use more of the budget.
pub(super) const FOURTHS: usize = 1;

/// The most buffers of one piece.
pub(super) use terapage_sys::hosting::BUFFERS;

/// The header of a message as the kernel reads it (`struct user_msghdr`). In musl's `msghdr` the
/// counts are shorter.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) msg_name: *mut libc::c_void,
    pub(super) msg_namelen: u32,
    padding: u32,
    pub(super) msg_iov: *mut iovec,
    pub(super) msg_iovlen: usize,
    pub(super) msg_control: *mut libc::c_void,
    pub(super) msg_controllen: usize,
    msg_flags: u32,
    padding_at_end: u32,
}

/// The most bytes that the kernel transfers by one call (`MAX_RW_COUNT`).
pub(super) const ALL: usize = 0x7fff_f000;

pub(super) fn piece_bytes() -> usize {
    (setup::budget_now() / PART).clamp(LEAST, MOST)
}

/// What lies behind a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum File {
    /// A file or a block device.
    Regular,
    /// A stream of bytes, or a device.
    Stream,
    /// A socket that keeps messages apart.
    Messages,
}

pub(super) fn kind(fd: usize) -> File {
    // SAFETY: plain data, for which zeros are a value; there is room for the answers.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        if libc::syscall(libc::SYS_fstat, fd as i64, &raw mut status) != 0 {
            return File::Stream;
        }
        match status.st_mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFBLK => File::Regular,
            libc::S_IFSOCK if kind_of_socket(fd) == Ok(libc::SOCK_STREAM) => File::Stream,
            libc::S_IFSOCK => File::Messages,
            _ => File::Stream,
        }
    }
}

/// The kind of a socket (`SO_TYPE`), or why there is none.
pub fn kind_of_socket(fd: usize) -> Result<i32, i32> {
    let (mut kind, mut len) = (0, size_of::<i32>() as u32);
    let (level, name) = (libc::SOL_SOCKET as usize, libc::SO_TYPE as usize);
    let arguments = [fd, level, name, &raw mut kind as usize, &raw mut len as usize, 0];
    // SAFETY: there is room for the answer.
    let answer = unsafe { trap::pass(libc::SYS_getsockopt, arguments) };
    if answer < 0 { Err(-answer as i32) } else { Ok(kind) }
}

/// Whether a call writes to the file.
pub(super) fn is_write(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_sendto
    )
}

/// The argument that says where in the file a call begins, if there is one; it may say that it is
/// the file's position.
pub(super) fn offset(number: c_long, arguments: &[usize; 6]) -> Option<usize> {
    match number {
        libc::SYS_pread64 | libc::SYS_pwrite64 | libc::SYS_preadv | libc::SYS_pwritev => Some(3),
        libc::SYS_preadv2 | libc::SYS_pwritev2 => Some(3).filter(|_| arguments[3] != usize::MAX),
        _ => None,
    }
}

/// What a call names by its offset, if that may be the address of paged memory: the call may be one
/// for `/proc/self/mem`.
pub(super) fn named_by_offset(number: c_long, arguments: &[usize; 6]) -> Option<Range> {
    named_from(arguments[offset(number, arguments)?], number, arguments)
}

/// The same of the file's position, which the program has set to an address.
pub(super) fn named_by_position(number: c_long, arguments: &[usize; 6]) -> Option<Range> {
    // SAFETY: no memory is touched.
    let start =
        unsafe { libc::syscall(libc::SYS_lseek, arguments[0] as i64, 0_i64, i64::from(libc::SEEK_CUR)) };
    named_from(usize::try_from(start).ok()?, number, arguments)
}

fn named_from(start: usize, number: c_long, arguments: &[usize; 6]) -> Option<Range> {
    if !paged::meets(start, ALL) {
        return None;
    }
    let len = match terapage_calls::pieces(number as usize) {
        Pieces::Bytes(at) => arguments[usize::from(at) + 1],
        Pieces::Vector(at) => total(arguments[usize::from(at)], arguments[usize::from(at) + 1]),
        Pieces::Whole | Pieces::Vectors(..) => 0,
    };
    let len = len.min(start.wrapping_neg());
    (len > 0).then_some(Range { start, len, direction: Direction::InOut, kept: false })
}

/// Makes a call, in pieces if it is long.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn serve(pins: &Pins, origin: Origin, number: c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller answers for the call.
    unsafe {
        match number {
            libc::SYS_sendmsg | libc::SYS_recvmsg => message(pins, origin, number, arguments),
            libc::SYS_vmsplice => splice(pins, origin, arguments),
            libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => {
                vectors::transfer(pins, origin, number, arguments)
            }
            _ => transfer(pins, origin, number, arguments),
        }
    }
}

/// Makes a call for a piece of at most `most` bytes. `None` if the piece must be smaller.
///
/// # Safety
/// The same as for the system call.
pub(super) unsafe fn make(
    pins: &Pins,
    origin: Origin,
    number: c_long,
    arguments: [usize; 6],
    most: &mut usize,
) -> Option<isize> {
    let answer = match *most > SMALLEST {
        // SAFETY: the caller answers for the call.
        true => unsafe { trap::attempt(pins, origin, number, arguments, Limit::fourths(FOURTHS)) },
        // SAFETY: as above.
        false => Some(unsafe { trap::whole(pins, origin, number, arguments) }),
    };
    *most = match answer {
        Some(_) => (*most * 2).min(piece_bytes()),
        None => (*most / 2).max(SMALLEST),
    };
    answer
}

unsafe fn transfer(pins: &Pins, mut origin: Origin, number: c_long, arguments: [usize; 6]) -> isize {
    let mut most = piece_bytes();
    let (at, is_vector) = match terapage_calls::pieces(number as usize) {
        Pieces::Bytes(at) => (usize::from(at), false),
        Pieces::Vector(at) => (usize::from(at), true),
        Pieces::Whole | Pieces::Vectors(..) => {
            // SAFETY: the caller answers for the call.
            return unsafe { trap::whole(pins, origin, number, arguments) };
        }
    };
    let len = if is_vector { total(arguments[at], arguments[at + 1]) } else { arguments[at + 1] };
    if len <= most
        // SAFETY: the caller answers for the call.
        && let Some(answer) = unsafe { make(pins, origin, number, arguments, &mut most) }
    {
        return answer;
    }
    let file = kind(arguments[0]);
    if file == File::Messages {
        // SAFETY: the caller answers for the call.
        return unsafe { trap::whole(pins, origin, number, arguments) };
    }
    let mut done = 0;
    loop {
        let mut piece = arguments;
        if let Some(offset) = offset(number, &arguments) {
            piece[offset] = arguments[offset].wrapping_add(done);
        }
        let mut buffers = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BUFFERS];
        let room = most.min(ALL - done);
        let len = if is_vector {
            let (count, len) = part(arguments[at], arguments[at + 1], done, room, &mut buffers);
            (piece[at], piece[at + 1]) = (buffers.as_ptr() as usize, count);
            len
        } else {
            let len = room.min(arguments[at + 1] - done);
            (piece[at], piece[at + 1]) = (arguments[at].wrapping_add(done), len);
            len
        };
        if len == 0 && done > 0 {
            return done as isize;
        }
        // SAFETY: the caller answers for the call, of which this is a piece.
        let Some(answer) = (unsafe { make(pins, origin, number, piece, &mut most) }) else { continue };
        if answer < 0 {
            return if done > 0 { done as isize } else { answer };
        }
        done += answer as usize;
        origin.place = 0;
        let is_over = file == File::Stream && !is_write(number);
        if (answer as usize) < len || is_over || len == 0 {
            return done as isize;
        }
    }
}

/// `sendmsg` and `recvmsg`: long ones on a stream in pieces, the address and the control data with
/// the first.
unsafe fn message(pins: &Pins, mut origin: Origin, number: c_long, mut arguments: [usize; 6]) -> isize {
    let (mut most, at) = (piece_bytes(), arguments[1]);
    let Some(mut header) = plain::<Header>(at) else {
        // SAFETY: the caller answers for the call, which fails.
        return unsafe { trap::whole(pins, origin, number, arguments) };
    };
    let (vector, count) = (header.msg_iov as usize, header.msg_iovlen);
    if total(vector, count) <= most
        // SAFETY: the caller answers for the call.
        && let Some(answer) = unsafe { make(pins, origin, number, arguments, &mut most) }
    {
        return answer;
    }
    if kind(arguments[0]) != File::Stream {
        // SAFETY: the caller answers for the call.
        return unsafe { trap::whole(pins, origin, number, arguments) };
    }
    arguments[1] = &raw mut header as usize;
    let mut done = 0;
    loop {
        let mut buffers = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BUFFERS];
        let (used, len) = part(vector, count, done, most, &mut buffers);
        if len == 0 {
            return done as isize;
        }
        (header.msg_iov, header.msg_iovlen) = (buffers.as_mut_ptr(), used);
        // SAFETY: the caller answers for the call, of which this is a piece.
        let Some(answer) = (unsafe { make(pins, origin, number, arguments, &mut most) }) else { continue };
        if answer < 0 {
            return if done > 0 { done as isize } else { answer };
        }
        done += answer as usize;
        origin.place = 0;
        if number == libc::SYS_recvmsg {
            (header.msg_iov, header.msg_iovlen) = (vector as *mut iovec, count);
            // SAFETY: a header is plain data.
            let bytes =
                unsafe { std::slice::from_raw_parts((&raw const header).cast::<u8>(), size_of::<Header>()) };
            return if copy::write(at, bytes) { answer } else { -(libc::EFAULT as isize) };
        }
        (header.msg_name, header.msg_namelen) = (std::ptr::null_mut(), 0);
        (header.msg_control, header.msg_controllen) = (std::ptr::null_mut(), 0);
        if (answer as usize) < len {
            return done as isize;
        }
    }
}

/// The most buffers that a call takes.
const BUFFERS_MOST: usize = 1024;

/// `vmsplice` would leave pages in a pipe for any time, so paged memory is copied.
unsafe fn splice(pins: &Pins, origin: Origin, arguments: [usize; 6]) -> isize {
    let [fd, vector, count, flags, ..] = arguments;
    if count > BUFFERS_MOST || (0..count).any(|index| buffer(vector, index).is_none()) {
        // SAFETY: the kernel refuses this.
        return unsafe { trap::make(libc::SYS_vmsplice, arguments, origin.place) };
    }
    let is_paged = |buffer: iovec| paged::meets(buffer.iov_base as usize, buffer.iov_len);
    if !(0..count).filter_map(|index| buffer(vector, index)).any(is_paged) {
        let mut buffers = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BUFFERS];
        let (used, _) = part(vector, count, 0, ALL, &mut buffers);
        let whole = [fd, buffers.as_ptr() as usize, used, flags, 0, 0];
        // SAFETY: the caller answers for the call, which touches no paged memory.
        return unsafe { trap::make(libc::SYS_vmsplice, whole, origin.place) };
    }
    if !direct::is_pipe(fd as i32) {
        return -(libc::EBADF as isize);
    }
    // SAFETY: no memory is touched but the description of the descriptor.
    let answer = unsafe {
        let mode = libc::syscall(libc::SYS_fcntl, fd as i64, i64::from(libc::F_GETFL), 0_i64);
        let reads = mode as i32 & libc::O_ACCMODE == libc::O_RDONLY;
        let events = if reads { libc::POLLIN } else { libc::POLLOUT };
        let mut ready = libc::pollfd { fd: fd as i32, events, revents: 0 };
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let waits = flags as u32 & libc::SPLICE_F_NONBLOCK == 0;
        let number = if reads { libc::SYS_readv } else { libc::SYS_writev };
        if waits || libc::syscall(libc::SYS_ppoll, &raw mut ready, 1_i64, &raw const now, 0_i64) != 0 {
            Ok(transfer(pins, origin, number, [fd, vector, count, 0, 0, 0]))
        } else {
            Err(libc::EAGAIN)
        }
    };
    answer.unwrap_or_else(|errno| -(errno as isize))
}

/// A structure of the program's, any bytes of which are valid.
pub(super) fn plain<T>(at: usize) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the value has this many bytes, all written.
    let bytes = unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    // SAFETY: zeros, or the bytes that were read, are a valid value.
    copy::read(at, bytes).then(|| unsafe { value.assume_init() })
}

/// A buffer of the program's array.
pub(super) fn buffer(vector: usize, index: usize) -> Option<iovec> {
    plain(vector.checked_add(index.checked_mul(size_of::<iovec>())?)?)
}

/// Bytes of all buffers; 0 if the kernel will refuse them.
pub(super) fn total(vector: usize, count: usize) -> usize {
    if count > BUFFERS_MOST {
        return 0;
    }
    let lens = (0..count).map(|index| Some(buffer(vector, index)?.iov_len).filter(|&len| len < 1 << 62));
    lens.sum::<Option<usize>>().unwrap_or(0)
}

/// The part of the buffers that follows the first `done` bytes, of `most` bytes at most. Returns
/// the number of buffers, and their bytes.
pub(super) fn part(
    vector: usize,
    count: usize,
    done: usize,
    most: usize,
    into: &mut [iovec],
) -> (usize, usize) {
    let (mut skip, mut used, mut bytes) = (done, 0, 0);
    for index in 0..count {
        let Some(buffer) = buffer(vector, index).filter(|_| used < into.len() && bytes < most) else { break };
        if skip >= buffer.iov_len {
            skip -= buffer.iov_len;
            continue;
        }
        let len = (buffer.iov_len - skip).min(most - bytes);
        into[used] = iovec { iov_base: buffer.iov_base.wrapping_byte_add(skip), iov_len: len };
        (skip, used, bytes) = (0, used + 1, bytes + len);
    }
    (used, bytes)
}
