//! Direct I/O with paged memory: if nothing keeps the pages in place, the transfer goes through a
//! bounce buffer that is not paged.
//!
//! - Before Linux 6.8 a block leaves the program by a copy, and nothing shows that a device is
//!   still writing to the copied page. The bytes of the transfer would be lost.
//! - From 6.8 on a block leaves with its pages, and a pinned page cannot leave. File systems on
//!   block devices pin the pages of direct I/O; NFS, Ceph and others only hold references. They
//!   would then read and write pages that belong to another block.
//!
//! Only I/O for which the caller waits is seen here; `docs/limits.md` describes the consequences
//! for asynchronous I/O.

use crate::{files, guard, own_memory, paged, real};
use libc::{c_int, c_void, iovec, off64_t, size_t, ssize_t};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use terapage_sys::{memory, page_bytes};

/// How blocks leave the program: not at all, by a move, or by a copy.
static LEAVE: AtomicU8 = AtomicU8::new(NEVER);
const NEVER: u8 = 0;
const BY_MOVE: u8 = 1;
const BY_COPY: u8 = 2;

/// Bytes of one transfer through the bounce buffer.
const BOUNCE: usize = 4 << 20;

/// The offset that means the file's position.
pub const HERE: off64_t = -1;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Read,
    Write,
}

/// Notes that there is a pager, which moves blocks or copies them.
pub fn begin(moves: bool) {
    LEAVE.store(if moves { BY_MOVE } else { BY_COPY }, Relaxed);
}

/// Notes that blocks leave no more.
pub fn end() {
    LEAVE.store(NEVER, Relaxed);
}

/// Whether a transfer must go through the bounce buffer.
fn goes_around(way: Way, fd: c_int, at: *const c_void, len: usize) -> bool {
    let leave = LEAVE.load(Relaxed);
    leave != NEVER
        // A copied page keeps its bytes, so a device can read from it.
        && (leave, way) != (BY_COPY, Way::Write)
        && len > 0
        && paged::meets(at as usize, len)
        // SAFETY: no memory is touched.
        && is_direct(unsafe { libc::fcntl(fd, libc::F_GETFL) })
        && !is_pipe(fd)
        && (leave == BY_COPY || !is_pinned_by(fd))
}

/// The most bytes of a small transfer: to copy these costs less than to ask what the file is.
const SMALL: usize = 256;

/// Whether a transfer goes through a copy on the stack, which is safe for every file. Mapped files
/// may not be written: the kernel then answers with EFAULT, where the copy would raise a signal.
#[inline]
fn is_small(at: *const c_void, len: usize) -> bool {
    LEAVE.load(Relaxed) != NEVER
        && !guard::is_on()
        && !files::were_paged()
        && (1..=SMALL).contains(&len)
        && guard::is_paged(at as usize, len)
}

/// Makes a small transfer by `call`, which gets the place of the copy.
unsafe fn by_copy(
    way: Way,
    at: *const c_void,
    len: usize,
    call: impl FnOnce(*mut c_void) -> ssize_t,
) -> ssize_t {
    let mut copy = [0_u8; SMALL];
    if way == Way::Write {
        // SAFETY: the caller's memory is there, and the copy has room.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(at.cast(), len) };
    }
    let answer = call(copy.as_mut_ptr().cast());
    if way == Way::Read && answer > 0 {
        // SAFETY: the caller's memory is there, and the call has filled the copy.
        unsafe { at.cast_mut().cast::<u8>().copy_from_nonoverlapping(copy.as_ptr(), answer as usize) };
    }
    answer
}

/// Whether the flags of a file (or -1) say that its I/O is direct.
fn is_direct(flags: c_int) -> bool {
    flags >= 0 && flags & libc::O_DIRECT != 0
}

/// A pipe in packet mode has O_DIRECT, too. Its bytes are copied, and all pieces of one call are
/// one packet.
pub fn is_pipe(fd: c_int) -> bool {
    // SAFETY: plain data, for which zeros are a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `status` has room for the answer.
    unsafe { libc::fstat(fd, &raw mut status) == 0 && status.st_mode & libc::S_IFMT == libc::S_IFIFO }
}

/// Whether the file's file system is known to pin the pages of direct I/O, or to do none.
fn is_pinned_by(fd: c_int) -> bool {
    // SAFETY: plain data, for which zeros are a value.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `system` has room for the answer.
    unsafe { libc::fstatfs(fd, &raw mut system) == 0 && pins(system.f_type as _) }
}

/// Whether a file system, by its number, pins pages or does no direct I/O. Device files lie on
/// `tmpfs`.
fn pins(system: libc::c_long) -> bool {
    // The libc crate has no name for this constant; the kernel's header has.
    const F2FS: libc::c_long = 0xf2f5_2010;
    [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::BTRFS_SUPER_MAGIC, libc::TMPFS_MAGIC, F2FS]
        .contains(&system)
}

/// Transfers through a bounce buffer of the library.
unsafe fn go_around(
    way: Way,
    fd: c_int,
    at: *const c_void,
    len: usize,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    let size = len.min(BOUNCE).next_multiple_of(page_bytes());
    let Ok(bounce) = memory::reserve(size) else {
        crate::set_errno(libc::ENOMEM);
        return -1;
    };
    let mut done = 0;
    let mut answer = 0;
    while done < len {
        let part = (len - done).min(size);
        // SAFETY: the address is within the caller's buffer.
        let here = unsafe { at.cast::<u8>().add(done) };
        if way == Way::Write {
            // SAFETY: the bounce buffer has room for the part.
            unsafe { bounce.copy_from_nonoverlapping(here, part) };
        }
        let from = if offset == HERE { HERE } else { offset + done as off64_t };
        // SAFETY: the bounce buffer is as long as the part.
        answer = unsafe { transfer(way, fd, bounce, part, from, flags) };
        if answer <= 0 {
            break;
        }
        if way == Way::Read {
            // SAFETY: the bounce buffer was filled just now.
            unsafe { here.cast_mut().copy_from_nonoverlapping(bounce, answer as usize) };
        }
        done += answer as usize;
        if (answer as usize) < part {
            break;
        }
    }
    let errno = std::io::Error::last_os_error().raw_os_error();
    // SAFETY: the bounce buffer has no other user.
    unsafe { memory::unmap(bounce, size) }.ok();
    if done > 0 {
        return done as ssize_t;
    }
    crate::set_errno(errno.unwrap_or(0));
    answer
}

/// The system call that includes the functions of all others.
unsafe fn transfer(way: Way, fd: c_int, at: *mut u8, len: usize, offset: off64_t, flags: c_int) -> ssize_t {
    let piece = iovec { iov_base: at.cast(), iov_len: len };
    let call = match way {
        Way::Read => libc::SYS_preadv2,
        Way::Write => libc::SYS_pwritev2,
    };
    // The upper half of the offset counts only if words have 32 bits. SAFETY: the caller passes a
    // buffer of `len` bytes.
    unsafe { libc::syscall(call, fd as i64, &raw const piece, 1_u64, offset, 0_u64, flags as i64) as ssize_t }
}

/// Transfers several pieces; `None` if they need no bounce buffer.
unsafe fn vector_around(
    way: Way,
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> Option<ssize_t> {
    // SAFETY: no memory is touched.
    let flags_of_file = || unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // An array that the kernel would refuse is not read here, because there may be no pieces at the
    // address.
    if LEAVE.load(Relaxed) == NEVER
        || guard::is_on()
        || !(1..=memory::PIECES as c_int).contains(&count)
        || !is_direct(flags_of_file())
        || !memory::are_readable(vector, count as usize)
    {
        return None;
    }
    // SAFETY: the caller passes `count` pieces, and the array can be read.
    let pieces = unsafe { std::slice::from_raw_parts(vector, count as usize) };
    if !pieces.iter().any(|piece| goes_around(way, fd, piece.iov_base, piece.iov_len)) {
        return None;
    }
    let mut done: ssize_t = 0;
    for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
        let at = if offset == HERE { HERE } else { offset + done as off64_t };
        // SAFETY: the caller passes `count` valid pieces.
        let moved = unsafe { go_around(way, fd, piece.iov_base, piece.iov_len, at, flags) };
        if moved < 0 {
            return Some(if done > 0 { done } else { moved });
        }
        done += moved;
        if (moved as usize) < piece.iov_len {
            break;
        }
    }
    Some(done)
}

/// Writes to another process's memory, or to the process's own memory. The kernel pins the pages to
/// which it writes. If blocks leave by a copy, it may write to a page that was just copied. So for
/// its own memory the process reads instead, and the kernel then writes as in any system call.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn process_vm_writev(
    process: libc::pid_t,
    from: *const iovec,
    from_count: libc::c_ulong,
    into: *const iovec,
    into_count: libc::c_ulong,
    flags: libc::c_ulong,
) -> ssize_t {
    let process = i64::from(process);
    // SAFETY: the caller keeps the contract of `process_vm_writev`.
    unsafe {
        if LEAVE.load(Relaxed) == BY_COPY && process == i64::from(std::process::id()) {
            let read = libc::SYS_process_vm_readv;
            return libc::syscall(read, process, into, into_count, from, from_count, flags) as ssize_t;
        }
        libc::syscall(libc::SYS_process_vm_writev, process, from, from_count, into, into_count, flags)
            as ssize_t
    }
}

fn piece(at: *const c_void, len: usize) -> iovec {
    iovec { iov_base: at.cast_mut(), iov_len: len }
}

/// The kernel's answer to a transfer of several pieces; a transfer of own memory is continued.
unsafe fn checked(
    way: Way,
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off64_t,
    answer: ssize_t,
) -> ssize_t {
    // The kernel gives this error, and bytes, only after it has read the vector. SAFETY: the caller
    // passes `count` pieces.
    let pieces = || unsafe { std::slice::from_raw_parts(vector, count as usize) };
    let is_refused = answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EIO);
    // SAFETY: the caller's pieces.
    unsafe {
        if offset == HERE && is_refused {
            own_memory::after_refusal(way, fd, pieces())
        } else if own_memory::may_be(offset, 1) && (is_refused || answer > 0) {
            own_memory::go_on(way, fd, pieces(), offset, answer)
        } else {
            answer
        }
    }
}

/// Transfers of one piece, at the file's position and at an offset.
macro_rules! single {
    ($way:ident, $type:ty, $here:ident $here_number:ident, $at:ident $at64:ident $at_number:ident) => {
        /// # Safety
        /// The contract is that of the C library's function.
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $here(fd: c_int, at: $type, len: size_t) -> ssize_t {
            // What a guarded call uses stays in place, so direct I/O needs no bounce buffer.
            let is_guarded = guard::is_on() && paged::meets(at as usize, len);
            let is_small = is_small(at, len);
            if !is_guarded && !is_small && goes_around(Way::$way, fd, at, len) {
                // SAFETY: the caller keeps the contract of this function.
                return unsafe { go_around(Way::$way, fd, at, len, HERE, 0) };
            }
            // SAFETY: the caller keeps the contract of this function.
            let answer = unsafe {
                match is_guarded {
                    true => guard::transfer(libc::$here_number, [fd as usize, at as usize, len, 0, 0, 0]),
                    false if is_small => {
                        by_copy(Way::$way, at, len, |copy| real::call!($here(fd, copy, len) or -1))
                    }
                    false => real::call!($here(fd, at, len) or -1),
                }
            };
            if answer == -1 {
                // SAFETY: the caller's buffer.
                return unsafe { own_memory::after_refusal(Way::$way, fd, &[piece(at, len)]) };
            }
            answer
        }

        /// # Safety
        /// The contract is that of the C library's function.
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $at64(fd: c_int, at: $type, len: size_t, offset: off64_t) -> ssize_t {
            let is_guarded = guard::is_on() && paged::meets(at as usize, len);
            let is_small = is_small(at, len);
            if !is_guarded && !is_small && offset >= 0 && goes_around(Way::$way, fd, at, len) {
                // SAFETY: the caller keeps the contract of this function.
                return unsafe { go_around(Way::$way, fd, at, len, offset, 0) };
            }
            let arguments = [fd as usize, at as usize, len, offset as usize, 0, 0];
            // SAFETY: the caller keeps the contract of this function.
            let answer = unsafe {
                match is_guarded {
                    true => guard::transfer(libc::$at_number, arguments),
                    false if is_small => {
                        by_copy(Way::$way, at, len, |copy| real::call!($at64(fd, copy, len, offset) or -1))
                    }
                    false => real::call!($at64(fd, at, len, offset) or -1),
                }
            };
            if answer < len as ssize_t && own_memory::may_be(offset, len) {
                // SAFETY: the caller's buffer.
                return unsafe { own_memory::go_on(Way::$way, fd, &[piece(at, len)], offset, answer) };
            }
            answer
        }

        alias! {
            fn $at(fd: c_int, at: $type, len: size_t, offset: off64_t) -> ssize_t = $at64(fd, at, len, offset);
        }
    };
}

/// Transfers of several pieces: at the file's position, at an offset, and with flags.
macro_rules! several {
    (
        $way:ident, $here:ident $here_number:ident, $at:ident $at64:ident $at_number:ident,
        $flags:ident $flags64:ident $flags_number:ident
    ) => {
        /// # Safety
        /// The contract is that of the C library's function.
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $here(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
            // SAFETY: the caller keeps the contract of this function.
            unsafe {
                if let Some(done) = vector_around(Way::$way, fd, vector, count, HERE, 0) {
                    return done;
                }
                let arguments = [fd as usize, vector as usize, count as usize, 0, 0, 0];
                let answer = match guard::is_on() {
                    true => guard::transfer(libc::$here_number, arguments),
                    false => real::call!($here(fd, vector, count) or -1),
                };
                checked(Way::$way, fd, vector, count, HERE, answer)
            }
        }

        /// # Safety
        /// The contract is that of the C library's function.
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $at64(
            fd: c_int,
            vector: *const iovec,
            count: c_int,
            offset: off64_t,
        ) -> ssize_t {
            // SAFETY: the caller keeps the contract of this function.
            unsafe {
                if offset >= 0
                    && let Some(done) = vector_around(Way::$way, fd, vector, count, offset, 0)
                {
                    return done;
                }
                let arguments = [fd as usize, vector as usize, count as usize, offset as usize, 0, 0];
                let answer = match guard::is_on() {
                    true => guard::transfer(libc::$at_number, arguments),
                    false => real::call!($at64(fd, vector, count, offset) or -1),
                };
                checked(Way::$way, fd, vector, count, offset, answer)
            }
        }

        alias! {
            fn $at(fd: c_int, vector: *const iovec, count: c_int, offset: off64_t) -> ssize_t = $at64(fd, vector, count, offset);
        }

        /// # Safety
        /// The contract is that of the C library's function.
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $flags64(
            fd: c_int,
            vector: *const iovec,
            count: c_int,
            offset: off64_t,
            flags: c_int,
        ) -> ssize_t {
            // SAFETY: the caller keeps the contract of this function.
            unsafe {
                if offset >= HERE
                    && let Some(done) = vector_around(Way::$way, fd, vector, count, offset, flags)
                {
                    return done;
                }
                let arguments =
                    [fd as usize, vector as usize, count as usize, offset as usize, 0, flags as usize];
                let answer = match guard::is_on() {
                    true => guard::transfer(libc::$flags_number, arguments),
                    false => real::call!($flags64(fd, vector, count, offset, flags) or -1),
                };
                checked(Way::$way, fd, vector, count, offset, answer)
            }
        }

        alias! {
            fn $flags(fd: c_int, vector: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t = $flags64(fd, vector, count, offset, flags);
        }
    };
}

/// Programs built with `_FORTIFY_SOURCE` call this: `room` is the known length of the buffer. If
/// the buffer is too short, the C library's function is called, which ends the program.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn __read_chk(fd: c_int, at: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    // SAFETY: the caller keeps the contract of `__read_chk`.
    unsafe {
        if len <= room {
            return read(fd, at, len);
        }
        real::call!(__read_chk(fd, at, len, room) or -1)
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn __pread64_chk(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    offset: off64_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller keeps the contract of `__pread64_chk`.
    unsafe {
        if len <= room {
            return pread64(fd, at, len, offset);
        }
        real::call!(__pread64_chk(fd, at, len, offset, room) or -1)
    }
}

alias! {
    fn __pread_chk(fd: c_int, at: *mut c_void, len: size_t, offset: off64_t, room: size_t) -> ssize_t = __pread64_chk(fd, at, len, offset, room);
}

single!(Read, *mut c_void, read SYS_read, pread pread64 SYS_pread64);
single!(Write, *const c_void, write SYS_write, pwrite pwrite64 SYS_pwrite64);
several!(Read, readv SYS_readv, preadv preadv64 SYS_preadv, preadv2 preadv64v2 SYS_preadv2);
several!(Write, writev SYS_writev, pwritev pwritev64 SYS_pwritev, pwritev2 pwritev64v2 SYS_pwritev2);

#[cfg(test)]
mod tests {
    use super::{BOUNCE, HERE, Way, go_around, is_direct, pins};
    use std::io::{Read, Seek, SeekFrom};
    use std::os::fd::AsRawFd;

    #[test]
    fn only_known_file_systems_are_trusted() {
        for known in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010] {
            assert!(pins(known), "{known:x}");
        }
        // NFS, SMB, Ceph, FUSE, 9P, overlay, ZFS.
        for other in [0x6969, 0xfe53_4d42, 0x00c3_6400, 0x6573_5546, 0x0102_1997, 0x794c_7630, 0x2fc1_2fc1] {
            assert!(!pins(other), "{other:x}");
        }
    }

    #[test]
    fn what_has_no_flags_is_not_direct() {
        assert!(!is_direct(-1) && !is_direct(libc::O_RDWR) && is_direct(libc::O_RDWR | libc::O_DIRECT));
    }

    #[test]
    fn the_way_around_is_as_long_as_it_must_be() {
        let path = std::env::temp_dir().join(format!("terapage-direct-{}", std::process::id()));
        let mut file =
            std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let fd = file.as_raw_fd();
        let bytes: Vec<u8> = (0..2 * BOUNCE + 12345).map(|i| ((i * 31) >> 7) as u8).collect();
        let (long, at) = (bytes.len() as isize, bytes.as_ptr().cast());
        // SAFETY: the buffers have the given lengths.
        unsafe {
            assert_eq!(go_around(Way::Write, fd, at, bytes.len(), HERE, 0), long);
            assert_eq!(go_around(Way::Write, fd, at, bytes.len(), 1 << 30, 0), long);
        }
        assert_eq!(file.stream_position().unwrap(), bytes.len() as u64);
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut written = vec![0; bytes.len()];
        file.read_exact(&mut written).unwrap();
        assert!(written == bytes);
        file.seek(SeekFrom::Start(100)).unwrap();
        let mut got = vec![0; bytes.len()];
        // SAFETY: the buffers have the given lengths. The file ends 700 bytes before the buffer
        // does; no bytes are read behind its end.
        unsafe {
            let into = got.as_mut_ptr().cast();
            assert_eq!(go_around(Way::Read, fd, into, 1000, HERE, 0), 1000);
            assert!(got[..1000] == bytes[100..1100]);
            assert_eq!(go_around(Way::Read, fd, into, bytes.len(), (1 << 30) + 700, 0), long - 700);
            assert!(got[..bytes.len() - 700] == bytes[700..]);
            assert_eq!(go_around(Way::Read, fd, into, 10, 1 << 31, 0), 0);
            assert_eq!(go_around(Way::Read, -1, into, 10, HERE, 0), -1);
        }
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn each_name_is_the_function_that_it_says() {
        let path = std::env::temp_dir().join(format!("terapage-names-{}", std::process::id()));
        let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let fd = file.as_raw_fd();
        let piece =
            |bytes: &mut [u8]| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let (mut a, mut b) = (*b"ab", *b"cde");
        let out = [piece(&mut a), piece(&mut b)];
        let (mut c, mut d) = ([0; 2], [0; 3]);
        let into = [piece(&mut c), piece(&mut d)];
        // SAFETY: the pieces have the given lengths.
        unsafe {
            assert_eq!(super::write(fd, b"01".as_ptr().cast(), 2), 2);
            assert_eq!(super::writev(fd, out.as_ptr(), 2), 5);
            assert_eq!(super::pwrite64(fd, b"xyz".as_ptr().cast(), 3, 100), 3);
            assert_eq!(super::pwritev64(fd, out.as_ptr(), 2, 200), 5);
            assert_eq!(super::pwritev64v2(fd, out.as_ptr(), 2, 300, 0), 5);
            assert_eq!(super::pwritev64v2(fd, out.as_ptr(), 1, HERE, 0), 2);
            let mut got = [0; 3];
            for (from, expected) in [(0, b"01a"), (5, b"dea"), (100, b"xyz"), (200, b"abc"), (302, b"cde")] {
                assert_eq!(super::pread64(fd, got.as_mut_ptr().cast(), 3, from), 3);
                assert_eq!(&got, expected);
            }
            assert_eq!(super::preadv64(fd, into.as_ptr(), 2, 200), 5);
            assert_eq!((&c, &d), (b"ab", b"cde"));
            assert_eq!(super::preadv64v2(fd, into.as_ptr(), 2, 299, 0), 5);
            assert_eq!((&c, &d), (b"\0a", b"bcd"));
            assert_eq!(super::__pread_chk(fd, got.as_mut_ptr().cast(), 3, 100, 3), 3);
            assert_eq!(&got, b"xyz");
            assert_eq!(super::__pread_chk(fd, got.as_mut_ptr().cast(), 3, HERE, 3), -1);
            assert_eq!(super::__pread64_chk(fd, got.as_mut_ptr().cast(), 3, 302, 3), 3);
            assert_eq!(&got, b"cde");
            (&file).seek(SeekFrom::Start(0)).unwrap();
            assert_eq!(super::__read_chk(fd, got.as_mut_ptr().cast(), 3, 3), 3);
            assert_eq!(&got, b"01a");
            (&file).seek(SeekFrom::Start(0)).unwrap();
            assert_eq!(super::read(fd, got.as_mut_ptr().cast(), 2), 2);
            assert_eq!(super::readv(fd, into.as_ptr(), 2), 5);
            assert_eq!((&got[..2], &c, &d), (&b"01"[..], b"ab", b"cde"));
        }
    }
}
