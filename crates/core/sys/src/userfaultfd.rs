//! userfaultfd: a descriptor reports the page faults of a range, and ioctls resolve them.

use crate::fd::Fd;
use crate::opening::Opening;
use crate::{Error, Result, check};
use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl;
use std::ffi::CStr;
use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

/// `UFFDIO_MOVE`, which the ioctl tables lack: `_IOWR(UFFDIO, _UFFDIO_MOVE, struct uffdio_move)`.
const UFFDIO_MOVE: u32 =
    0xC000_0000 | (size_of::<raw::uffdio_move>() as u32) << 16 | raw::UFFDIO << 8 | raw::_UFFDIO_MOVE;
const _: () = assert!(size_of::<raw::uffdio_move>() == 40 && size_of::<raw::uffd_msg>() == 32);

/// Install without waking the waiters.
const DONTWAKE: u64 = 1;

/// Copy into write-protected pages.
const PROTECT: u64 = 1 << 1;

/// Move only the pages of a range that are present.
const ALLOW_SRC_HOLES: u64 = 1 << 1;

/// The purpose of a userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A faulting thread waits until its fault is resolved.
    Faults,
    /// Faults wait, and so do calls that [change](Change) the range.
    Events {
        /// Whether pages will be copied, not moved. Then the pager itself removes pages by such
        /// calls, and calls that remove pages do not wait: otherwise the pager would wait for
        /// itself.
        copies: bool,
    },
    /// To touch a missing page is a bus error, or EFAULT in a system call.
    Sigbus,
}

/// A fault, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address of the page.
    pub at: usize,
    /// Whether the touch was a write.
    pub write: bool,
    /// Whether the page is present but write-protected.
    pub protected: bool,
    /// The id of the thread that waits, or 0 if the kernel does not say.
    pub thread: u32,
}

/// The effect of a direct system call on a registered range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The pages go once this event has been read: the range must then read as zeros.
    Removed,
    /// The range is unmapped.
    Unmapped,
    /// The pages were moved elsewhere.
    Moved,
}

/// A change of a range, as the kernel reports it. The call continues once this event has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The effect of the call.
    pub change: Change,
    /// The start of the range.
    pub from: usize,
    /// The end of the range.
    pub to: usize,
}

/// Why a transfer stopped, and how far it had come, by the kernel's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Bytes done.
    pub done: usize,
    /// The error number.
    pub errno: i32,
}

/// A userfaultfd.
#[derive(Debug)]
pub struct Userfaultfd {
    fd: Fd,
    features: u64,
}

/// The device that makes userfaultfds.
pub const DEVICE: &CStr = c"/dev/userfaultfd";

/// The descriptor of the device, if it is kept open; -1 if not.
static KEPT_DEVICE: AtomicI32 = AtomicI32::new(-1);

fn open_device() -> Option<Fd> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path ends in a zero byte.
    let open = || unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, DEVICE.as_ptr(), flags) };
    Fd::open("open", open).ok()
}

/// Opens the device that makes userfaultfds and keeps it open, for a process that is about to lose
/// the right to open the device.
pub fn keep_device() {
    if KEPT_DEVICE.load(Relaxed) < 0 {
        open_device().map(keep);
    }
}

/// Keeps a descriptor of the device open, unless another one is kept. Returns whether it does.
fn keep(device: Fd) -> bool {
    let is_kept = KEPT_DEVICE.compare_exchange(-1, device.raw(), Relaxed, Relaxed).is_ok();
    if is_kept {
        std::mem::forget(device);
    }
    is_kept
}

/// Closes the device that was kept open: this process needs no userfaultfd any more.
pub fn close_device() {
    let number = KEPT_DEVICE.swap(-1, Relaxed);
    if number >= 0 {
        // SAFETY: `keep` has left this descriptor to `KEPT_DEVICE`, which no longer has it.
        drop(Fd::keep(unsafe { OwnedFd::from_raw_fd(number) }));
    }
}

/// The environment variable that gives an executed program the place of the device, as an
/// [`Inherited`].
pub const DEVICE_VARIABLE: &str = "TERAPAGE_DEVICE";

/// The device in a descriptor that stays open on exec and on a change of user: as text,
/// `NUMBER,MAJOR:MINOR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited {
    number: RawFd,
    device: (u32, u32),
}

impl fmt::Display for Inherited {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{},{}:{}", self.number, self.device.0, self.device.1)
    }
}

impl FromStr for Inherited {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Inherited, ()> {
        let (number, device) = text.split_once(',').ok_or(())?;
        let (major, minor) = device.split_once(':').ok_or(())?;
        let number = number.parse().map_err(|_| ())?;
        Ok(Inherited { number, device: (major.parse().map_err(|_| ())?, minor.parse().map_err(|_| ())?) })
    }
}

impl Inherited {
    /// The device, which is open here, under a number that it has in another process.
    pub fn of(device: &impl AsRawFd, number: RawFd) -> Option<Inherited> {
        Some(Inherited { number, device: device_of(device.as_raw_fd())? })
    }

    /// Whether the device is open under that number.
    pub fn is_there(&self) -> bool {
        self.number >= INHERITED_LEAST && device_of(self.number) == Some(self.device)
    }

    /// The descriptor's number.
    pub fn number(&self) -> RawFd {
        self.number
    }
}

/// The lowest descriptor that is passed on: programs open and close lower ones by number.
pub const INHERITED_LEAST: RawFd = 64;

/// The character device that a descriptor is open on.
fn device_of(fd: RawFd) -> Option<(u32, u32)> {
    // SAFETY: plain data, for which zeros are a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `status` has room for the answer.
    let known = unsafe { libc::fstat(fd, &raw mut status) } == 0;
    let is_device = known && status.st_mode & libc::S_IFMT == libc::S_IFCHR;
    is_device.then(|| (libc::major(status.st_rdev), libc::minor(status.st_rdev)))
}

/// Opens the device, if this process may do so, in a descriptor that stays open on exec and after
/// the rights to open the device are gone.
pub fn hand_on() -> Option<Inherited> {
    let device = open_device()?;
    // SAFETY: no memory is touched.
    let made = unsafe { libc::syscall(libc::SYS_ioctl, device.raw(), 0xAA00, libc::O_CLOEXEC) };
    if made < 0 {
        return None;
    }
    // SAFETY: the descriptor was made just now, by this process.
    drop(unsafe { OwnedFd::from_raw_fd(made as RawFd) });
    let number = device.raw();
    let inherited = Inherited { number, device: device_of(number)? };
    // SAFETY: no memory is touched.
    if number < INHERITED_LEAST || unsafe { libc::fcntl(number, libc::F_SETFD, 0) } != 0 {
        return None;
    }
    std::mem::forget(device);
    Some(inherited)
}

/// Takes the device that was passed on, if it is still there. From then on its descriptor counts as
/// the pager's, not the program's.
pub fn take(inherited: Inherited) -> bool {
    if !inherited.is_there() {
        return false;
    }
    // SAFETY: the descriptor was opened to be passed to this process, and its number has no other
    // user.
    let device = Fd::keep(unsafe { OwnedFd::from_raw_fd(inherited.number) });
    keep(device)
}

/// Whether userfaultfds see the faults of programs only.
static PROGRAMS_ONLY: AtomicBool = AtomicBool::new(false);

/// From now on userfaultfds see the faults of programs only, which takes no right: a system call
/// that meets a missing page fails (EFAULT).
pub fn serve_programs_only() {
    PROGRAMS_ONLY.store(true, Relaxed);
}

/// Whether this process may have such userfaultfds (Linux 5.11; some containers forbid them), and
/// they can move or write-protect pages (on Arm, Linux 6.8).
pub fn may_serve_programs() -> bool {
    let probe = Userfaultfd::of_programs(libc::O_CLOEXEC | libc::O_NONBLOCK);
    let probed = probe.and_then(|probe| Ok(Userfaultfd { features: probe.handshake(0)?, ..probe }));
    probed.is_ok_and(|probed| probed.can_move() || probed.can_protect())
}

impl Userfaultfd {
    /// Opens a userfaultfd, by the system call or, if that is refused, by `/dev/userfaultfd`.
    ///
    /// # Errors
    /// EPERM if neither is allowed; ENOSYS if the kernel has no userfaultfd, or cannot
    /// write-protect pages that must be copied.
    pub fn open(kind: Kind) -> Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let probe = Self::bare(flags)?;
        let features = probe.handshake(0)?;
        let probed = Userfaultfd { fd: probe.fd, features };
        if let Kind::Events { copies } = kind
            && (copies || !probed.can_move())
            && !probed.can_protect()
        {
            let source = std::io::Error::from_raw_os_error(libc::ENOSYS);
            return Err(Error { call: "write protection by userfaultfd (Linux 5.7, on Arm 6.10)", source });
        }
        drop(probed);
        let wanted = match kind {
            Kind::Faults => u64::from(raw::UFFD_FEATURE_THREAD_ID),
            Kind::Events { copies } => {
                let removals = if !copies && features & u64::from(raw::UFFD_FEATURE_MOVE) != 0 {
                    raw::UFFD_FEATURE_EVENT_REMOVE
                } else {
                    0
                };
                let changes = raw::UFFD_FEATURE_EVENT_UNMAP | raw::UFFD_FEATURE_EVENT_REMAP | removals;
                u64::from(raw::UFFD_FEATURE_THREAD_ID | changes)
            }
            Kind::Sigbus => u64::from(raw::UFFD_FEATURE_SIGBUS),
        };
        let have = Self::bare(flags)?;
        have.handshake(wanted & features)?;
        Ok(Userfaultfd { features, ..have })
    }

    fn bare(flags: i32) -> Result<Self> {
        if PROGRAMS_ONLY.load(Relaxed) {
            return Self::of_programs(flags);
        }
        let _opening = Opening::begin();
        // SAFETY: no memory is touched.
        let mut answer = check("userfaultfd", unsafe { libc::syscall(libc::SYS_userfaultfd, flags) });
        if answer.is_err() {
            let opened = open_device();
            let device = opened.as_ref().map_or(KEPT_DEVICE.load(Relaxed), Fd::raw);
            if device >= 0 {
                // SAFETY: USERFAULTFD_IOC_NEW (_IO(0xAA, 0)) takes flags.
                let made = unsafe { libc::syscall(libc::SYS_ioctl, device, 0xAA00, flags) };
                // If this fails, too, the first answer is the one to report.
                answer = if made < 0 { answer } else { Ok(made) };
            }
        }
        // SAFETY: the descriptor was made just now.
        let fd = Fd::adopt(unsafe { OwnedFd::from_raw_fd(answer? as RawFd) })?;
        Ok(Userfaultfd { fd, features: 0 })
    }

    /// A userfaultfd to which the kernel hands no fault of its own.
    fn of_programs(flags: i32) -> Result<Self> {
        let flags = flags | raw::UFFD_USER_MODE_ONLY as i32;
        // SAFETY: no memory is touched.
        let fd = Fd::open("userfaultfd", || unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })?;
        Ok(Userfaultfd { fd, features: 0 })
    }

    fn handshake(&self, features: u64) -> Result<u64> {
        let mut api = raw::uffdio_api { api: u64::from(raw::UFFD_API), features, ioctls: 0 };
        self.ioctl("ioctl(UFFDIO_API)", ioctl::UFFDIO_API, &mut api)?;
        Ok(api.features)
    }

    fn ioctl<T>(&self, call: &'static str, number: u32, argument: &mut T) -> Result<()> {
        // SAFETY: each caller passes the structure of its call.
        let answer = unsafe {
            let arguments = [self.fd.raw() as usize, number as usize, &raw mut *argument as usize, 0, 0, 0];
            libc::passing(libc::SYS_ioctl, arguments)
        };
        check(call, answer).map(|_| ())
    }

    /// Whether pages can be moved (Linux 6.8).
    pub fn can_move(&self) -> bool {
        self.features & u64::from(raw::UFFD_FEATURE_MOVE) != 0
    }

    /// Whether anonymous memory can be write-protected (Linux 5.7).
    pub fn can_protect(&self) -> bool {
        self.features & u64::from(raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP) != 0
    }

    /// The number of the descriptor, for polling.
    pub fn raw(&self) -> RawFd {
        self.fd.raw()
    }

    /// Registers a range: from now on this descriptor gets its faults. `protect` says that
    /// [`protect`](Self::protect) will be used.
    pub fn register(&self, at: usize, len: usize, protect: bool) -> Result<()> {
        let mode = raw::UFFDIO_REGISTER_MODE_MISSING | if protect { raw::UFFDIO_REGISTER_MODE_WP } else { 0 };
        let mut register = raw::uffdio_register { range: range(at, len), mode: mode.into(), ioctls: 0 };
        self.ioctl("ioctl(UFFDIO_REGISTER)", ioctl::UFFDIO_REGISTER, &mut register).map_err(of_mappings)
    }

    /// Unregisters a range: from now on the kernel resolves its faults itself.
    pub fn unregister(&self, at: usize, len: usize) -> Result<()> {
        let answer = self.ioctl("ioctl(UFFDIO_UNREGISTER)", ioctl::UFFDIO_UNREGISTER, &mut range(at, len));
        answer.map_err(of_mappings)
    }

    /// Wakes all threads that wait for the range.
    pub fn wake(&self, at: usize, len: usize) -> Result<()> {
        self.ioctl("ioctl(UFFDIO_WAKE)", ioctl::UFFDIO_WAKE, &mut range(at, len))
    }

    /// Write-protects the range; or, if `on` is false, ends the protection and wakes the waiters.
    pub fn protect(&self, at: usize, len: usize, on: bool) -> Result<()> {
        let mut protect = raw::uffdio_writeprotect { range: range(at, len), mode: u64::from(on) };
        self.ioctl("ioctl(UFFDIO_WRITEPROTECT)", ioctl::UFFDIO_WRITEPROTECT, &mut protect)
    }

    /// Moves the pages at `from` to `to`, and wakes the waiters of `to` if `wake` is set. All pages
    /// of `from` must be present, and none of `to`. Both are private and anonymous; `to` is
    /// registered here. If the kernel is busy for a moment (EAGAIN), the call is repeated up to
    /// `patience` times.
    ///
    /// # Safety
    /// No code relies on the bytes at `from` staying there.
    pub unsafe fn shift(
        &self,
        to: usize,
        from: usize,
        len: usize,
        wake: bool,
        patience: u32,
    ) -> std::result::Result<(), Stuck> {
        self.move_pages(to, from, len, if wake { 0 } else { DONTWAKE }, patience)
    }

    /// Moves the pages that are present, and wakes no thread.
    ///
    /// # Safety
    /// As for [`shift`](Self::shift).
    pub unsafe fn shift_what_is_there(
        &self,
        to: usize,
        from: usize,
        len: usize,
    ) -> std::result::Result<(), Stuck> {
        self.move_pages(to, from, len, DONTWAKE | ALLOW_SRC_HOLES, 100)
    }

    fn move_pages(
        &self,
        to: usize,
        from: usize,
        len: usize,
        mode: u64,
        patience: u32,
    ) -> std::result::Result<(), Stuck> {
        in_steps(len, patience, |done| {
            let mut shift = raw::uffdio_move {
                dst: (to + done) as u64,
                src: (from + done) as u64,
                len: (len - done) as u64,
                mode,
                move_: 0,
            };
            (self.ioctl("ioctl(UFFDIO_MOVE)", UFFDIO_MOVE, &mut shift), shift.move_)
        })
    }

    /// Copies `len` bytes at `from` into fresh pages at `to`, which must have none, and wakes the
    /// waiters if `wake`. With `protect`, the pages are write-protected from the beginning: the
    /// range must be registered for that. `patience` means the same as in [`shift`](Self::shift).
    ///
    /// # Safety
    /// The bytes at `from` are valid and do not change meanwhile.
    pub unsafe fn copy(
        &self,
        to: usize,
        from: usize,
        len: usize,
        wake: bool,
        protect: bool,
        patience: u32,
    ) -> std::result::Result<(), Stuck> {
        let mode = if wake { 0 } else { DONTWAKE } | if protect { PROTECT } else { 0 };
        in_steps(len, patience, |done| {
            let mut copy = raw::uffdio_copy {
                dst: (to + done) as u64,
                src: (from + done) as u64,
                len: (len - done) as u64,
                mode,
                copy: 0,
            };
            (self.ioctl("ioctl(UFFDIO_COPY)", ioctl::UFFDIO_COPY, &mut copy), copy.copy)
        })
    }

    /// Waits until a fault has come or `other` is readable. It may return early.
    ///
    /// # Errors
    /// `poll` fails.
    pub fn wait(&self, other: &Fd) -> Result<()> {
        let of = |fd: &Fd| libc::pollfd { fd: fd.raw(), events: libc::POLLIN, revents: 0 };
        let mut both = [of(&self.fd), of(other)];
        // SAFETY: `both` has two entries; there is no timeout and no mask of signals.
        let answer =
            unsafe { libc::syscall(libc::SYS_ppoll, both.as_mut_ptr(), both.len(), 0usize, 0usize, 0usize) };
        match check("ppoll", answer) {
            Err(error) if error.errno() != libc::EINTR => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether a call that changes a range waits to be read, or has not continued yet: until it
    /// continues, no page can be put into any range.
    pub fn is_changing(&self) -> bool {
        // The kernel checks for such a call first, and only then refuses a copy of no bytes.
        let mut nothing = raw::uffdio_copy { dst: 0, src: 0, len: 0, mode: 0, copy: 0 };
        let answer = self.ioctl("ioctl(UFFDIO_COPY)", ioctl::UFFDIO_COPY, &mut nothing);
        answer.is_err_and(|error| error.errno() == libc::EAGAIN)
    }

    /// Whether faults have come, which are read before other events. True if that is unknown.
    pub fn has_faults(&self) -> bool {
        let path = format!("/proc/thread-self/fdinfo/{}", self.fd.raw());
        let _opening = Opening::begin();
        let Ok(text) = std::fs::read_to_string(path) else { return true };
        let pending = text.lines().find_map(|line| line.strip_prefix("pending:"));
        pending.and_then(|count| count.trim().parse::<u64>().ok()).is_none_or(|count| count > 0)
    }

    /// Takes the events that have come, up to `most` (16 or fewer), and returns their number. Never
    /// waits.
    pub fn read(&self, most: usize, faults: &mut Vec<Fault>, changes: &mut Vec<Changed>) -> Result<usize> {
        const EMPTY: raw::uffd_msg = {
            // SAFETY: zeros are a valid message.
            unsafe { std::mem::zeroed() }
        };
        let mut messages = [EMPTY; 16];
        let room = &mut messages[..most.min(16)];
        // SAFETY: `room` has room for the requested number of bytes.
        let answer =
            unsafe { libc::syscall(libc::SYS_read, self.fd.raw(), room.as_mut_ptr(), size_of_val(room)) };
        let got = match check("read(userfaultfd)", answer) {
            Ok(got) => got as usize / size_of::<raw::uffd_msg>(),
            Err(error) if matches!(error.errno(), libc::EAGAIN | libc::EINTR) => 0,
            Err(error) => return Err(error),
        };
        for message in &messages[..got] {
            let event = u32::from(message.event);
            // SAFETY: the event says which part of the union is valid.
            let (removed, moved) = unsafe { (message.arg.remove, message.arg.remap) };
            let changed = |change| Changed { change, from: removed.start as usize, to: removed.end as usize };
            match event {
                raw::UFFD_EVENT_PAGEFAULT => faults.push(fault_of(message)),
                raw::UFFD_EVENT_REMOVE => changes.push(changed(Change::Removed)),
                raw::UFFD_EVENT_UNMAP => changes.push(changed(Change::Unmapped)),
                raw::UFFD_EVENT_REMAP => {
                    let from = moved.from as usize;
                    changes.push(Changed { change: Change::Moved, from, to: from + moved.len as usize });
                }
                _ => {
                    let source = std::io::ErrorKind::InvalidData.into();
                    return Err(Error { call: "read(userfaultfd)", source });
                }
            }
        }
        Ok(got)
    }
}

fn fault_of(message: &raw::uffd_msg) -> Fault {
    // SAFETY: the message is that of a fault.
    let fault = unsafe { message.arg.pagefault };
    Fault {
        at: fault.address as usize & !(crate::page_bytes() - 1),
        write: fault.flags & u64::from(raw::UFFD_PAGEFAULT_FLAG_WRITE) != 0,
        protected: fault.flags & u64::from(raw::UFFD_PAGEFAULT_FLAG_WP) != 0,
        // SAFETY: the kernel writes this field, or leaves zeros.
        thread: unsafe { fault.feat.ptid },
    }
}

/// Repeats a call that may stop part way until all of `len` is done. `step` continues after `done`
/// bytes, and returns its answer and the kernel's count. After EAGAIN the call is repeated, up to
/// `patience` times.
fn in_steps(
    len: usize,
    mut patience: u32,
    mut step: impl FnMut(usize) -> (Result<()>, i64),
) -> std::result::Result<(), Stuck> {
    let mut done = 0;
    while done < len {
        match step(done) {
            (Ok(()), _) => done = len,
            (Err(_), count) if count > 0 => done += count as usize,
            (Err(error), _) if error.errno() == libc::EAGAIN && patience > 0 => {
                patience -= 1;
                crate::thread::pause().ok();
            }
            (Err(error), _) => return Err(Stuck { done, errno: error.errno() }),
        }
    }
    Ok(())
}

/// At the edges of a range that is registered or unregistered, the kernel splits its mappings.
fn of_mappings(error: Error) -> Error {
    let call = if error.errno() == libc::ENOMEM {
        "userfaultfd; the process has as many mappings as it may have (sysctl vm.max_map_count)"
    } else {
        error.call
    };
    Error { call, ..error }
}

fn range(at: usize, len: usize) -> raw::uffdio_range {
    raw::uffdio_range { start: at as u64, len: len as u64 }
}

#[cfg(test)]
mod tests {
    use super::{INHERITED_LEAST, Inherited, Kind, Userfaultfd, device_of, take};
    use crate::{memory, page_bytes};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    #[test]
    fn what_is_handed_on_is_read_again() {
        let inherited = Inherited { number: 700, device: (10, 257) };
        assert_eq!(inherited.to_string(), "700,10:257");
        assert_eq!(inherited.to_string().parse(), Ok(inherited));
        for text in ["", "700", "700,10", "700,10:", "x,10:257", "700,10:257 "] {
            assert_eq!(text.parse::<Inherited>(), Err(()), "{text}");
        }
    }

    #[test]
    fn another_file_of_that_number_is_not_taken() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: no memory is touched.
        let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, INHERITED_LEAST) };
        assert_eq!(device_of(high), Some((1, 3)));
        assert!(!take(Inherited { number: high, device: (10, 257) }));
        assert!(!take(Inherited { number: file.as_raw_fd().min(INHERITED_LEAST - 1), device: (1, 3) }));
        // SAFETY: the descriptor was made above, and has no other user.
        drop(unsafe { OwnedFd::from_raw_fd(high) });
        assert!(!take(Inherited { number: high, device: (1, 3) }));
    }

    /// Why faults are not served in the thread that meets them, which takes 6.5 us instead of 9.7.
    #[test]
    fn a_system_call_fails_if_it_meets_an_absent_page_of_a_strict_descriptor() {
        let Ok(strict) = Userfaultfd::open(Kind::Sigbus) else {
            eprintln!("NOT TESTED: userfaultfd is not allowed here");
            return;
        };
        let at = memory::reserve(page_bytes()).unwrap();
        strict.register(at as usize, page_bytes(), false).unwrap();
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        let read = || {
            // SAFETY: the page belongs to this test, and only the kernel writes to it.
            let read = unsafe { libc::read(zeros.as_raw_fd(), at.cast(), page_bytes()) };
            (read, (read < 0).then(|| std::io::Error::last_os_error().raw_os_error()).flatten())
        };
        assert_eq!(read(), (-1, Some(libc::EFAULT)));
        strict.unregister(at as usize, page_bytes()).unwrap();
        assert_eq!(read(), (page_bytes() as isize, None));
        drop(strict);
        // SAFETY: reserved above, and no longer used.
        unsafe { memory::unmap(at, page_bytes()) }.unwrap();
    }
}
