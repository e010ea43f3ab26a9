//! The program that is executed instead of one that loads no library: the host, which loads the
//! program and pages it. A variable names the program; for a script, that is its interpreter, and
//! the arguments begin as the kernel would set them.
//!
//! As in [exec](crate::exec), it takes no lock and no heap memory.

use crate::real::Texts;
use libc::{c_char, c_int};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;
use terapage_sys::executable::{self, FirstLine};
use terapage_sys::hosting;
use terapage_sys::opening::Opening;

/// The variable that names the program, with its `=`.
pub const VARIABLE: &[u8] = b"TERAPAGE_HOSTED=";

/// The name of the host's file, which lies beside the library.
pub const FILE: &str = "terapage-host";

/// The host beside the library, if there is one. For musl the library is in the host.
pub fn find(library: &[u8]) -> Option<CString> {
    if cfg!(target_env = "musl") {
        return CString::new(library).ok();
    }
    let path = Path::new(OsStr::from_bytes(library)).with_file_name(FILE);
    CString::new(path.as_os_str().as_bytes()).ok().filter(|_| path.is_file())
}

/// Whether the host can be executed now: the process may have another root than at its start.
pub fn is_there(host: &CStr) -> bool {
    // SAFETY: the path ends in a zero byte.
    unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, host.as_ptr(), libc::X_OK) == 0 }
}

/// Whether the program at `path` can be executed here by the host only: the process has the host's
/// filter, which an exec does not end, and the program would end at its first trapped call.
pub fn is_barred(path: &CStr) -> bool {
    (crate::hosted::is_host() || hosting::has_filter()) && needs_host(path)
}

/// Whether the program at `path` needs the host because of the host's filter. For a script, its
/// interpreter is checked. Without the host, a fixed executable that loads no library would make
/// its calls from addresses that the filter traps.
fn needs_host(path: &CStr) -> bool {
    const KIND: usize = 16;
    const FIXED: u8 = 2;
    let line = FirstLine::of(path);
    let path = line.as_ref().map_or(path, |line| line.interpreter());
    let is_hostable = executable::cannot_be_paged(path, &mut |_| {}).is_some_and(|why| why.is_hostable());
    let mut head = [0_u8; KIND + 1];
    let _opening = Opening::begin();
    // SAFETY: the path ends in a zero byte; the buffer has the given length.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        libc::syscall(libc::SYS_pread64, fd, head.as_mut_ptr(), head.len(), 0_i64);
        libc::syscall(libc::SYS_close, fd);
    }
    is_hostable && head[KIND] == FIXED
}

/// The program to execute instead.
pub struct Instead<'a> {
    pub path: &'a CStr,
    pub arguments: Texts,
}

/// The longest path of a hosted program.
const PATH_MOST: usize = 1024;
/// Bytes of the variable before the path.
const BEFORE: usize = 32;

/// A program that the host is to run.
pub struct Hosted<'a> {
    variable: [u8; PATH_MOST + BEFORE],
    /// The script, if the program is the interpreter of one.
    script: Option<(&'a CStr, FirstLine)>,
    /// A copy of a descriptor that the host closes.
    lent: c_int,
}

impl<'a> Hosted<'a> {
    /// The program at `path`. `None` if its path is too long.
    pub fn of(path: &'a CStr) -> Option<Hosted<'a>> {
        let line = FirstLine::of(path);
        let program = line.as_ref().map_or(path, |line| line.interpreter());
        let mut hosted = Hosted { variable: [0; PATH_MOST + BEFORE], script: None, lent: -1 };
        let (lent, rest) = lend(program.to_bytes());
        let mut used = 0;
        let mut add = |bytes: &[u8]| {
            let room = hosted.variable.get_mut(used..used + bytes.len());
            used += bytes.len();
            room.map(|room| room.copy_from_slice(bytes))
        };
        add(VARIABLE)?;
        if crate::guard::is_active() {
            add(&[crate::hosted::GUARDED])?;
        }
        if lent >= 0 {
            let mut digits = itoa::Buffer::new();
            let number = digits.format(lent).as_bytes();
            [number, b":", DESCRIPTORS, number, rest].into_iter().try_for_each(&mut add)?;
        } else {
            [b":", program.to_bytes()].into_iter().try_for_each(&mut add)?;
        }
        add(b"\0")?;
        hosted.lent = lent;
        hosted.script = line.map(|line| (path, line));
        Some(hosted)
    }

    /// The variable that names the program.
    pub fn variable(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.variable).unwrap_or_default()
    }

    /// The number of words that the arguments of a script take; 0 if the program is not a script.
    ///
    /// # Safety
    /// The arguments end in a null pointer.
    pub unsafe fn arguments_of_script(&self, arguments: Texts) -> usize {
        // SAFETY: the arguments end in a null pointer.
        let count = || unsafe { crate::exec::texts(arguments) }.count();
        if self.script.is_some() { count() + 4 } else { 0 }
    }

    /// The arguments of the program; those of a script are made in `room`.
    ///
    /// # Safety
    /// The arguments end in a null pointer, and the room suffices.
    pub unsafe fn arguments(&self, arguments: Texts, room: &mut [*const c_char]) -> Texts {
        let Some((script, line)) = &self.script else { return arguments };
        let before = [Some(line.interpreter()), line.argument(), Some(script)];
        // SAFETY: the arguments end in a null pointer.
        let after = unsafe { crate::exec::texts(arguments) }.skip(1);
        let all = before.into_iter().flatten().chain(after).map(CStr::as_ptr).chain([null()]);
        room.iter_mut().zip(all).for_each(|(place, text)| *place = text);
        room.as_ptr()
    }
}

impl Drop for Hosted<'_> {
    fn drop(&mut self) {
        if self.lent >= 0 {
            // SAFETY: the descriptor was made for this value.
            unsafe { libc::syscall(libc::SYS_close, i64::from(self.lent)) };
        }
    }
}

const DESCRIPTORS: &[u8] = b"/proc/self/fd/";

/// For a path that leads through a descriptor which an exec closes: returns a copy of that
/// descriptor, which the host finds, and the rest of the path. -1 if there is none.
fn lend(path: &[u8]) -> (c_int, &[u8]) {
    let Some(rest) = path.strip_prefix(DESCRIPTORS) else { return (-1, path) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let Some(fd) = std::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse::<c_int>().ok())
    else {
        return (-1, path);
    };
    // SAFETY: no memory is touched.
    let copy = unsafe {
        let flags = libc::syscall(libc::SYS_fcntl, i64::from(fd), libc::F_GETFD, 0_i64);
        let closes = flags >= 0 && flags as c_int & libc::FD_CLOEXEC != 0;
        if closes { libc::syscall(libc::SYS_fcntl, i64::from(fd), libc::F_DUPFD, 3_i64) } else { -1 }
    };
    (copy as c_int, &rest[digits..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    fn path(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    #[test]
    fn a_script_gets_the_arguments_that_the_kernel_would_pass() {
        let here = tempfile::tempdir().unwrap();
        let script = here.path().join("script");
        std::fs::write(&script, "#!/bin/busybox sh\n").unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let script = path(&script);
        let hosted = Hosted::of(&script).unwrap();
        assert_eq!(hosted.variable(), c"TERAPAGE_HOSTED=:/bin/busybox");
        let given = [c"name".as_ptr(), c"1".as_ptr(), null()];
        let mut room = [null(); 8];
        // SAFETY: both are arrays of texts that end in a null pointer.
        let all: Vec<&CStr> = unsafe {
            assert_eq!(hosted.arguments_of_script(given.as_ptr()), 6);
            crate::exec::texts(hosted.arguments(given.as_ptr(), &mut room)).collect()
        };
        assert_eq!(all, [c"/bin/busybox", c"sh", &*script, c"1"]);
    }

    #[test]
    fn a_file_that_an_exec_closes_is_lent() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let through = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let hosted = Hosted::of(&through).unwrap();
        assert!(hosted.lent > 2 && hosted.lent != file.as_raw_fd());
        let expected = format!("TERAPAGE_HOSTED={0}:/proc/self/fd/{0}", hosted.lent);
        assert_eq!(hosted.variable().to_str().unwrap(), expected);
        assert_eq!(Hosted::of(c"/bin/true").unwrap().lent, -1);
    }
}
