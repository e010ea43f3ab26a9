//! Hooks of `exec` and its kin: executed programs also get the library and its settings, whatever
//! their environment, unless it contains `TERAPAGE=off`.
//!
//! If a program cannot be paged, one line says so once. If it cannot even load the library, it gets
//! an environment without the library.
//!
//! Children of `vfork`, which share their parent's memory, and signal handlers call these
//! functions. So they take no lock and no heap memory: a new environment is made on the stack, or,
//! if it is large, in a separate mapping.

mod environment;
mod given;
mod unpaged;

pub(super) use environment::with_library;
pub use environment::{open, texts};

use crate::guard;
use crate::instead;
pub use crate::instead::Instead;
use crate::maps::refuse;
use crate::real::{self, Texts};
use environment::*;
use libc::{c_char, c_int, pid_t};
use std::ffi::{CStr, CString, OsStr};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terapage_config::Hosted;
use terapage_sys::executable::{self, Name, Why};
use terapage_sys::{binding, memory, page_bytes, thread};
use unpaged::Line;

/// The most bytes of a path; a program with a longer path is not inspected.
const PATH_BYTES: usize = 1024;

/// Calls `then` with the path at which a program is found by its name.
///
/// # Safety
/// `file` is a text or null.
unsafe fn found_in_path<R>(file: *const c_char, then: impl FnOnce(Option<&CStr>) -> R) -> R {
    if file.is_null() {
        return then(None);
    }
    // SAFETY: the name is a text, as the caller promises.
    let name = unsafe { CStr::from_ptr(file) };
    if KEPT.get().is_none() || name.to_bytes().contains(&b'/') {
        return then(Some(name));
    }
    // SAFETY: the value is a text in the environment; a program must not change the environment in
    // another thread now.
    let path = unsafe {
        let value = libc::getenv(c"PATH".as_ptr());
        if value.is_null() { c"/bin:/usr/bin" } else { CStr::from_ptr(value) }
    };
    let mut buffer = [0; PATH_BYTES];
    for directory in path.to_bytes().split(|&b| b == b':') {
        let slash = if directory.is_empty() { &b""[..] } else { b"/" };
        let mut len = 0;
        let fits = [directory, slash, name.to_bytes_with_nul()].iter().all(|part| {
            let room = buffer.get_mut(len..len + part.len());
            len += part.len();
            room.map(|room| room.copy_from_slice(part)).is_some()
        });
        if let (true, Ok(path)) = (fits, CStr::from_bytes_until_nul(&buffer))
            // SAFETY: the path ends in a zero byte.
            && unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::X_OK) } == 0
        {
            return then(Some(path));
        }
    }
    then(None)
}

/// Executes a program in this process. Servers that keep its blocks are notified before, and again
/// if the call fails. They are not notified of calls that certainly fail: shells try one directory
/// after another.
fn leaving(path: Option<&CStr>, execute: impl FnOnce() -> c_int) -> c_int {
    let leaves = leave(path);
    let answer = execute();
    if leaves {
        let errno = std::io::Error::last_os_error().raw_os_error();
        crate::exit::stay();
        crate::set_errno(errno.unwrap_or(0));
    }
    answer
}

/// The part of [`leaving`] before the exec. Whether `exit::stay` must be called if that fails.
pub fn leave(path: Option<&CStr>) -> bool {
    let may_be = |path: &CStr| {
        // SAFETY: the path ends in a zero byte.
        unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::X_OK) == 0 }
    };
    let goes = crate::exit::is_owner() && path.is_none_or(may_be);
    if goes {
        crate::summary::executes();
    }
    let leaves = goes && crate::exit::leave();
    binding::disinherit();
    leaves
}

/// Executes the host in place of a program.
///
/// # Safety
/// The contract is that of `execve`.
unsafe fn execute_host(path: Option<&CStr>, instead: &Instead, environment: Texts) -> c_int {
    let (host, arguments) = (instead.path.as_ptr(), instead.arguments);
    // SAFETY: the caller keeps the contract of `execve`.
    leaving(path, || unsafe { execute(host, arguments, environment) })
}

/// Makes the system call.
///
/// # Safety
/// The contract is that of `execve`.
unsafe fn execute(path: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    let arguments = [path as usize, arguments as usize, environment as usize, 0, 0, 0];
    // SAFETY: the caller keeps the contract of `execve`.
    unsafe { guard::execute(libc::SYS_execve, arguments) }
}

unsafe extern "C" {
    #[link_name = "environ"]
    static mut ENVIRONMENT: Texts;
}

/// The environment of the process.
fn own_environment() -> Texts {
    // SAFETY: one word is read.
    unsafe { ENVIRONMENT }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    if !given::are_there(path, arguments, environment) {
        let execve = libc::SYS_execve;
        // SAFETY: the call fails.
        return unsafe { libc::syscall(execve, path, given::NOWHERE, given::NOWHERE) as c_int };
    }
    // SAFETY: the caller keeps the contract of `execve`.
    unsafe {
        let known = (!path.is_null()).then(|| CStr::from_ptr(path));
        with_library(known, arguments, environment, |instead, environment| match instead {
            Some(instead) => execute_host(known, &instead, environment),
            None => leaving(known, || execute(path, arguments, environment)),
        })
    }
}

/// Executes a file that was found at a path. In guarded mode the C library's own call would be
/// trapped; but that library knows where else to look, and what to do with a script that names no
/// interpreter.
///
/// # Safety
/// The contract is that of `execvpe`.
unsafe fn execute_file(
    path: Option<&CStr>,
    file: *const c_char,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    // SAFETY: the caller keeps the contract of `execvpe`.
    unsafe {
        if let Some(path) = path.filter(|path| guard::is_active() && !path.is_empty()) {
            execute(path.as_ptr(), arguments, environment);
            let errno = std::io::Error::last_os_error().raw_os_error();
            if std::ptr::eq(path.as_ptr(), file) && errno != Some(libc::ENOEXEC) {
                return -1;
            }
        }
        real::call!(execvpe(file, arguments, environment) or -1)
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    if !given::are_there(file, arguments, environment) {
        return refuse(libc::EFAULT);
    }
    // SAFETY: the caller keeps the hook's contract.
    unsafe {
        found_in_path(file, |path| {
            with_library(path, arguments, environment, |instead, environment| match instead {
                Some(instead) => execute_host(path, &instead, environment),
                None => leaving(path, || execute_file(path, file, arguments, environment)),
            })
        })
    }
}

alias! {
    fn execv(path: *const c_char, arguments: Texts) -> c_int = execve(path, arguments, own_environment());
    fn execvp(file: *const c_char, arguments: Texts) -> c_int = execvpe(file, arguments, own_environment());
}

/// Calls `then` with a path that leads to the file of a descriptor.
fn path_of_descriptor<R>(fd: c_int, then: impl FnOnce(Option<&CStr>) -> R) -> R {
    let mut line = Line { bytes: [0; 256], len: 0 };
    let written = write!(line, "/proc/self/fd/{fd}\0");
    then(CStr::from_bytes_until_nul(&line.bytes).ok().filter(|_| written.is_ok()))
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: Texts, environment: Texts) -> c_int {
    if !given::are_there(null(), arguments, environment) {
        return refuse(libc::EFAULT);
    }
    path_of_descriptor(fd, |path| {
        // SAFETY: the caller keeps the hook's contract.
        unsafe {
            with_library(path, arguments, environment, |instead, environment| match instead {
                Some(instead) => execute_host(None, &instead, environment),
                None => leaving(None, || real::call!(fexecve(fd, arguments, environment) or -1)),
            })
        }
    })
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Texts,
    environment: Texts,
    flags: c_int,
) -> c_int {
    if !given::are_there(path, arguments, environment) {
        let (directory, execveat) = (i64::from(directory), libc::SYS_execveat);
        // SAFETY: the call fails.
        return unsafe {
            libc::syscall(execveat, directory, path, given::NOWHERE, given::NOWHERE, i64::from(flags))
                as c_int
        };
    }
    // SAFETY: the caller keeps the contract of `execveat`.
    unsafe {
        let execute = |instead: Option<Instead>, environment: Texts| {
            if let Some(instead) = instead {
                return execute_host(None, &instead, environment);
            }
            let (texts, environment) = (arguments as usize, environment as usize);
            let arguments = [directory as usize, path as usize, texts, environment, flags as usize, 0];
            leaving(None, || guard::execute(libc::SYS_execveat, arguments))
        };
        if path.is_null() || *path == 0 {
            return path_of_descriptor(directory, |path| with_library(path, arguments, environment, execute));
        }
        // A path that is relative to another directory is not inspected.
        let known = *path == b'/' as c_char || directory == libc::AT_FDCWD;
        with_library(known.then(|| CStr::from_ptr(path)), arguments, environment, execute)
    }
}

/// The address of the null pointer at which arguments end.
///
/// # Safety
/// As for [`texts`].
unsafe fn end_of(arguments: Texts) -> Texts {
    let mut at = arguments;
    // SAFETY: the caller passes arguments that end in a null pointer.
    unsafe {
        while !(*at).is_null() {
            at = at.add(1);
        }
        at
    }
}

unsafe extern "C" fn execute_list(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller keeps the contract of `execute_list`.
    unsafe { execv(path, arguments) }
}

unsafe extern "C" fn execute_list_in_path(file: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller keeps the contract of `execute_list_in_path`.
    unsafe { execvp(file, arguments) }
}

unsafe extern "C" fn execute_list_with(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller keeps the contract of `execle`: the environment follows the null pointer.
    unsafe { execve(path, arguments, end_of(arguments).add(1).read().cast()) }
}

/// Hooks with a variable number of arguments. They lie first in registers, then on the stack: the
/// registers are pushed in front of the others, and `$to` gets the array.
macro_rules! list {
    ($name:ident, $to:ident) => {
        /// # Safety
        /// The contract is that of the C library's function.
        #[unsafe(naked)]
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(_path: *const c_char, _first: *const c_char) -> c_int {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                // The return address lies in front of the arguments on the stack; it is moved away.
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {to}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                to = sym $to,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "mov x29, sp",
                "str x1, [sp, #24]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x1, sp, #24",
                "bl {to}",
                "ldp x29, x30, [sp], #80",
                "ret",
                to = sym $to,
            );
        }
    };
}

list!(execl, execute_list);
list!(execlp, execute_list_in_path);
list!(execle, execute_list_with);

type Actions = *const libc::posix_spawn_file_actions_t;
type Attributes = *const libc::posix_spawnattr_t;

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: Actions,
    attributes: Attributes,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    if !given::are_there(path, arguments, environment) {
        return libc::EFAULT;
    }
    // SAFETY: the caller keeps the hook's contract.
    unsafe {
        let known = (!path.is_null()).then(|| CStr::from_ptr(path));
        let answer = with_library(known, arguments, environment, |instead, environment| {
            let arguments = instead.as_ref().map_or(arguments, |instead| instead.arguments);
            let path = instead.map_or(path, |instead| instead.path.as_ptr());
            binding::freed(
                || real::call!(posix_spawn(pid, path, actions, attributes, arguments, environment) or libc::ENOSYS),
            )
        });
        if answer == -1 { libc::ENOEXEC } else { answer }
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: Actions,
    attributes: Attributes,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    if !given::are_there(file, arguments, environment) {
        return libc::EFAULT;
    }
    // SAFETY: the caller keeps the hook's contract.
    unsafe {
        let answer = found_in_path(file, |path| {
            with_library(path, arguments, environment, |instead, environment| {
                if let Some(Instead { path, arguments }) = instead {
                    let path = path.as_ptr();
                    return binding::freed(
                        || real::call!(posix_spawn(pid, path, actions, attributes, arguments, environment) or libc::ENOSYS),
                    );
                }
                binding::freed(
                    || real::call!(posix_spawnp(pid, file, actions, attributes, arguments, environment) or libc::ENOSYS),
                )
            })
        });
        if answer == -1 { libc::ENOEXEC } else { answer }
    }
}

/// In a released program: takes the library out of the process's own environment, which the shell
/// gets from the C library. Other threads may read the environment, so separators replace the name:
/// any number of them may stand in a row.
fn forget_library() {
    // SAFETY: this is the process's environment; a program must not change it in another thread
    // now.
    let values = unsafe { texts(own_environment()) }.filter_map(|text| text.to_bytes().strip_prefix(PRELOAD));
    for library in values.flat_map(libraries).filter(|library| is_ours(library)) {
        // SAFETY: the texts of an environment belong to the program, which may change them.
        unsafe { library.as_ptr().cast_mut().write_bytes(b':', library.len()) };
    }
}

/// A shell command that sets the library, if the process's own environment, which the C library
/// gives to the shell, lacks it.
///
/// # Safety
/// `command` is a text or null.
unsafe fn command_with_library(command: *const c_char) -> Option<CString> {
    if crate::arena::is_released() {
        forget_library();
        return None;
    }
    let kept = KEPT.get()?;
    // SAFETY: this is the process's environment; a program must not change it in another thread
    // now.
    let found = unsafe { Found::of(own_environment()) };
    if command.is_null() || found.off || found.has_library() && found.settings {
        return None;
    }
    let mut all = b"export".to_vec();
    let mut add = |text: &[u8]| {
        let (name, value) = text.split_at(name_of(text).len());
        all.push(b' ');
        all.extend_from_slice(name);
        all.push(b'\'');
        all.extend(value.split(|&b| b == b'\'').collect::<Vec<_>>().join(&b"'\\''"[..]));
        all.push(b'\'');
    };
    if !found.has_library() {
        let others = libraries(found.preload.unwrap_or_default());
        let all: Vec<&[u8]> = [kept.own_path.to_bytes()].into_iter().chain(others).collect();
        add(&[PRELOAD, &all.join(&b":"[..])].concat());
        let options = found.sanitizer.unwrap_or_default();
        add(&[SANITIZER, LINK_ORDER, b"0:", options].concat());
    }
    if !found.settings {
        kept.settings.iter().for_each(|text| add(text.to_bytes()));
    }
    all.extend_from_slice(b"; ");
    // SAFETY: the command is a text, as the caller promises.
    all.extend_from_slice(unsafe { CStr::from_ptr(command) }.to_bytes());
    CString::new(all).ok()
}

/// Calls a function that executes the shell with the environment of this process.
fn with_shell<R>(execute: impl FnOnce() -> R) -> R {
    // SAFETY: this is the process's environment; a program must not change it in another thread
    // now.
    let found = unsafe { Found::of(own_environment()) };
    let names = |kept: &&Kept| found.has_library() && found.would_load(&kept.own_path) && !found.off;
    match KEPT.get().filter(names) {
        Some(kept) => guard::executing(Some(c"/bin/sh"), &kept.own_path, execute),
        None => execute(),
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    // SAFETY: the caller keeps the hook's contract.
    unsafe {
        let with_library = command_with_library(command);
        let command = with_library.as_ref().map_or(command, |command| command.as_ptr());
        with_shell(|| binding::freed(|| real::call!(system(command) or -1)))
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the caller keeps the hook's contract.
    unsafe {
        let with_library = command_with_library(command);
        let command = with_library.as_ref().map_or(command, |command| command.as_ptr());
        with_shell(|| binding::freed(|| real::call!(popen(command, mode) or null_mut())))
    }
}
