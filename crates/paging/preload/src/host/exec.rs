//! Hooks of `exec` and its kin: executed programs also get the library and its settings, whatever
//! environment they are given, unless it contains `TERAPAGE=off`.
//!
//! If a program cannot be paged, that is said once. If it cannot even load the library, it gets an
//! environment without it.
//!
//! These functions are called in children of `vfork`, which share their parent's memory, and in
//! signal handlers. So they take no lock and no memory of a heap: a new environment is made on the
//! stack, or, if it is large, in a mapping of its own.

use crate::real::{self, Texts};
use libc::{c_char, c_int, pid_t};
use std::ffi::{CStr, CString, OsStr};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terapage_sys::executable::{self, Name, Why};
use terapage_sys::{PAGE, binding, memory, thread};

/// The name of the library's file, by which it is found in `LD_PRELOAD`.
const FILE: &[u8] = b"libterapage_preload.so";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
const OFF: &[u8] = b"TERAPAGE=off";
/// An environment with this setting, which users do not set, has all settings.
const SETTINGS: &[u8] = b"TERAPAGE_ROOT=";
const SANITIZER: &[u8] = b"ASAN_OPTIONS=";
const LINK_ORDER: &[u8] = b"verify_asan_link_order=";

/// What executed programs get.
struct Kept {
    /// The path of the library.
    library: Vec<u8>,
    /// The variables `TERAPAGE_*`, as they were at the start.
    settings: Vec<CString>,
    /// The file of standard error at the start.
    errors: Option<(u64, u64)>,
    /// The hashed names of programs of which it was said that they are not paged. Shared with
    /// forked children.
    told: &'static [AtomicU64],
}

static KEPT: OnceLock<Kept> = OnceLock::new();

/// Remembers what executed programs get; from now on they get it.
pub fn open(settings: Vec<CString>) {
    let Some(library) = own_path() else { return };
    let told = memory::share(PAGE).map_or(&[][..], |at| {
        // SAFETY: the memory was mapped just now, and stays mapped; zeros are valid numbers.
        unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), PAGE / size_of::<AtomicU64>()) }
    });
    KEPT.set(Kept { library, settings, errors: standard_error(), told }).ok();
}

/// The path of this library, as given to the loader.
fn own_path() -> Option<Vec<u8>> {
    // SAFETY: the description is plain data, for which zeros are a value; the loader keeps the
    // name.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(own_path as *const () as *const libc::c_void, &raw mut info) != 0;
        if !found || info.dli_fname.is_null() {
            return None;
        }
        let path = std::path::absolute(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())).ok()?;
        Some(path.into_os_string().into_encoded_bytes())
    }
}

/// The device and number of standard error's file.
fn standard_error() -> Option<(u64, u64)> {
    // SAFETY: `status` is plain data, for which zeros are a value, and has room for the answer.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(2, &raw mut status) == 0).then_some((status.st_dev, status.st_ino))
    }
}

/// The texts of an environment; null is an empty environment.
///
/// # Safety
/// The environment is null, or an array of texts that ends in a null pointer and outlives the
/// iterator.
pub unsafe fn texts<'a>(environment: Texts) -> impl Iterator<Item = &'a CStr> {
    let mut at = environment;
    std::iter::from_fn(move || {
        // SAFETY: the caller passes an environment that ends in a null pointer.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let text = CStr::from_ptr(*at);
            at = at.add(1);
            Some(text)
        }
    })
}

/// The libraries that a value of `LD_PRELOAD` names.
fn libraries(value: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    value.split(|b| b": ".contains(b)).filter(|name| !name.is_empty())
}

/// The name of a variable, with its `=`.
fn name_of(text: &[u8]) -> &[u8] {
    &text[..text.iter().position(|&b| b == b'=').map_or(text.len(), |at| at + 1)]
}

fn is_ours(library: &[u8]) -> bool {
    library.rsplit(|&b| b == b'/').next() == Some(FILE)
}

/// What an environment says about the library.
#[derive(Default)]
struct Found<'a> {
    off: bool,
    settings: bool,
    preload: Option<&'a [u8]>,
    sanitizer: Option<&'a [u8]>,
    count: usize,
}

impl<'a> Found<'a> {
    /// # Safety
    /// As for [`texts`].
    unsafe fn of(environment: Texts) -> Found<'a> {
        let mut found = Found::default();
        // SAFETY: the caller passes an environment that ends in a null pointer.
        for text in unsafe { texts(environment) } {
            let text = text.to_bytes();
            found.off |= text == OFF;
            found.settings |= text.starts_with(SETTINGS);
            found.preload = found.preload.or(text.strip_prefix(PRELOAD));
            found.sanitizer = found.sanitizer.or(text.strip_prefix(SANITIZER));
            found.count += 1;
        }
        found
    }

    fn has_library(&self) -> bool {
        self.preload.is_some_and(|value| libraries(value).any(is_ours))
    }
}

/// Texts and their array, made in the memory given.
struct Made<'a> {
    texts: &'a mut [*const c_char],
    count: usize,
    bytes: &'a mut [u8],
    used: usize,
}

impl Made<'_> {
    fn add(&mut self, text: *const c_char) {
        self.texts[self.count] = text;
        self.count += 1;
    }

    /// Adds a text that is joined from parts without zero bytes.
    fn join<'p>(&mut self, parts: impl Iterator<Item = &'p [u8]>) {
        let from = self.used;
        for part in parts.chain([&b"\0"[..]]) {
            self.bytes[self.used..self.used + part.len()].copy_from_slice(part);
            self.used += part.len();
        }
        let text = self.bytes[from..].as_ptr();
        self.add(text.cast());
    }

    /// Adds `LD_PRELOAD` with these libraries, if there are any.
    fn preload<'p>(&mut self, libraries: impl Iterator<Item = &'p [u8]> + Clone) {
        if libraries.clone().next().is_some() {
            let parts = libraries.enumerate().flat_map(|(index, library)| {
                let before = if index > 0 { &b":"[..] } else { b"" };
                [before, library]
            });
            self.join([PRELOAD].into_iter().chain(parts));
        }
    }
}

/// The most texts of an environment that is made on the stack.
const TEXTS: usize = 384;
/// The most bytes of new texts on the stack.
const BYTES: usize = 3 << 10;

/// Calls `execute` with the environment that the program at `path` gets instead of `environment`.
///
/// # Safety
/// As for [`texts`].
unsafe fn with_library<R>(path: Option<&CStr>, environment: Texts, execute: impl FnOnce(Texts) -> R) -> R {
    // SAFETY: the caller passes an environment that ends in a null pointer.
    let found = unsafe { Found::of(environment) };
    let Some(kept) = KEPT.get().filter(|_| !found.off) else { return execute(environment) };
    let why = path.and_then(|path| look(kept, path));
    let barred = why.is_some_and(|why| why.bars_library());
    let is_fine = if barred { !found.has_library() } else { found.has_library() && found.settings };
    if is_fine {
        return execute(environment);
    }
    let preload = found.preload.unwrap_or_default().len() + kept.library.len();
    let need =
        (found.count + kept.settings.len() + 3, preload + found.sanitizer.unwrap_or_default().len() + 128);
    if need.0 <= TEXTS && need.1 <= BYTES {
        // SAFETY: the caller passes an environment that ends in a null pointer.
        return unsafe { on_stack(kept, &found, environment, barred, execute) };
    }
    // If a child of vfork succeeds, this memory stays in its parent: a few pages, and only if the
    // environment is this large and lacked the library.
    let len = (need.0 * size_of::<*const c_char>() + need.1).next_multiple_of(PAGE);
    let Ok(at) = memory::reserve(len) else { return execute(environment) };
    // SAFETY: the memory was mapped just now, is aligned to pages and has this length; zeros are
    // null pointers.
    let answer = unsafe {
        let texts = std::slice::from_raw_parts_mut(at.cast::<*const c_char>(), need.0);
        let bytes = std::slice::from_raw_parts_mut(at.add(size_of_val(texts)), need.1);
        execute(make(kept, &found, environment, barred, texts, bytes))
    };
    let errno = std::io::Error::last_os_error().raw_os_error();
    // SAFETY: nobody uses the memory any more.
    unsafe { memory::unmap(at, len) }.ok();
    crate::set_errno(errno.unwrap_or(0));
    answer
}

/// Calls `execute` with an environment on the stack. A function of its own, since the stack of a
/// signal handler may be small, and most environments need no change.
///
/// # Safety
/// As for [`texts`].
#[inline(never)]
unsafe fn on_stack<R>(
    kept: &Kept,
    found: &Found,
    environment: Texts,
    barred: bool,
    execute: impl FnOnce(Texts) -> R,
) -> R {
    let (mut texts, mut bytes) = ([null(); TEXTS], [0; BYTES]);
    // SAFETY: the caller passes an environment that ends in a null pointer.
    execute(unsafe { make(kept, found, environment, barred, &mut texts, &mut bytes) })
}

/// Makes an environment with the library, or, if `barred`, without it.
///
/// # Safety
/// As for [`texts`].
unsafe fn make(
    kept: &Kept,
    found: &Found,
    environment: Texts,
    barred: bool,
    texts: &mut [*const c_char],
    bytes: &mut [u8],
) -> Texts {
    let mut made = Made { texts, count: 0, bytes, used: 0 };
    let others = libraries(found.preload.unwrap_or_default()).filter(|library| !is_ours(library));
    let adds = !barred && !found.has_library();
    if barred {
        made.preload(others);
    } else if adds {
        made.preload([&*kept.library].into_iter().chain(others));
    }
    let options = found.sanitizer.unwrap_or_default();
    let orders = adds && !options.windows(LINK_ORDER.len()).any(|part| part == LINK_ORDER);
    if orders {
        // Options that are there already come later, and win.
        let between = if options.is_empty() { &b""[..] } else { b":" };
        made.join([SANITIZER, LINK_ORDER, b"0", between, options].into_iter());
    }
    if !barred && !found.settings {
        for text in &kept.settings {
            let name = name_of(text.to_bytes());
            // SAFETY: the caller passes an environment that ends in a null pointer.
            if !unsafe { self::texts(environment) }.any(|other| other.to_bytes().starts_with(name)) {
                made.add(text.as_ptr());
            }
        }
    }
    // SAFETY: the caller passes an environment that ends in a null pointer.
    for text in unsafe { self::texts(environment) } {
        let is = |name: &[u8]| text.to_bytes().starts_with(name);
        let replaced = (barred || adds) && is(PRELOAD) || orders && is(SANITIZER);
        if !replaced {
            made.add(text.as_ptr());
        }
    }
    made.add(null());
    made.texts.as_ptr()
}

/// Looks at a program that is about to be executed, and says, once, if it cannot be paged.
#[inline(never)]
fn look(kept: &Kept, path: &CStr) -> Option<Why> {
    let errno = std::io::Error::last_os_error().raw_os_error();
    let (mut first, mut last) = (None, Name::of(b""));
    let why = executable::cannot_be_paged(path, &mut |file| {
        last = Name::of(file.to_bytes());
        first.get_or_insert(last);
    });
    if let (Some(why), Some(first)) = (why, first) {
        tell(kept, first, last, why);
    }
    crate::set_errno(errno.unwrap_or(0));
    why
}

/// Says that a program is not paged, unless that was said before, or standard error is another file
/// than at the start: then the program may read it.
fn tell(kept: &Kept, first: Name, last: Name, why: Why) {
    if standard_error() != kept.errors {
        return;
    }
    let mut line = Line { bytes: [0; 256], len: 0 };
    let written = match first == last {
        true => write!(line, "terapage: {first} runs, but its memory is not paged: it is {why}"),
        false => {
            write!(
                line,
                "terapage: {first} runs, but its memory is not paged: its interpreter, {last}, is {why}"
            )
        }
    };
    if written.is_ok() && is_news(kept.told, number(&line.bytes[..line.len])) {
        line.bytes[line.len] = b'\n';
        thread::say(std::str::from_utf8(&line.bytes[..=line.len]).unwrap_or_default());
    }
}

/// A line that is written without a heap. Parts that are too long are left out.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        // The last byte is for the end of the line.
        let to = self.len + text.len();
        let room = self.bytes[..255].get_mut(self.len..to).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = to;
        Ok(())
    }
}

/// FNV-1a, 64 bits, by its authors' numbers; never 0.
fn number(bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(start, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)).max(1)
}

/// Whether a number is new among `told`; adds it. If there is no room, it does not count as new.
fn is_news(told: &[AtomicU64], number: u64) -> bool {
    for place in told {
        match place.compare_exchange(0, number, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(there) if there == number => return false,
            Err(_) => {}
        }
    }
    false
}

/// The most bytes of a path; a program with a longer one is not looked at.
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
    // SAFETY: the value is a text in the environment; a program must not change that in another
    // thread now.
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

/// Executes a program in this process. Servers that keep its blocks hear of it before, and again if
/// it fails. What surely fails is not told: shells try one directory after the other.
fn leaving(path: Option<&CStr>, execute: impl FnOnce() -> c_int) -> c_int {
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
    let answer = execute();
    if leaves {
        let errno = std::io::Error::last_os_error().raw_os_error();
        crate::exit::stay();
        crate::set_errno(errno.unwrap_or(0));
    }
    answer
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    // SAFETY: the caller keeps the contract of `execve`.
    unsafe {
        let known = (!path.is_null()).then(|| CStr::from_ptr(path));
        with_library(known, environment, |environment| {
            leaving(known, || libc::syscall(libc::SYS_execve, path, arguments, environment) as c_int)
        })
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    // SAFETY: the caller keeps the hook's contract.
    unsafe {
        found_in_path(file, |path| {
            with_library(path, environment, |environment| {
                leaving(path, || real::call!(execvpe(file, arguments, environment) or -1))
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: Texts, environment: Texts) -> c_int {
    path_of_descriptor(fd, |path| {
        // SAFETY: the caller keeps the hook's contract.
        unsafe {
            with_library(path, environment, |environment| {
                leaving(None, || real::call!(fexecve(fd, arguments, environment) or -1))
            })
        }
    })
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Texts,
    environment: Texts,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller keeps the contract of `execveat`.
    unsafe {
        let execute = |environment: Texts| {
            let (directory, flags) = (i64::from(directory), i64::from(flags));
            leaving(None, || {
                libc::syscall(libc::SYS_execveat, directory, path, arguments, environment, flags) as c_int
            })
        };
        if path.is_null() || *path == 0 {
            return path_of_descriptor(directory, |path| with_library(path, environment, execute));
        }
        // A path that is relative to another directory is not looked at.
        let known = *path == b'/' as c_char || directory == libc::AT_FDCWD;
        with_library(known.then(|| CStr::from_ptr(path)), environment, execute)
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

/// Hooks with any number of arguments. They lie first in registers, then on the stack: the
/// registers are pushed in front of the others, and `$to` gets the array.
macro_rules! list {
    ($name:ident, $to:ident) => {
        /// # Safety
        /// The contract is that of the C library's function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_path: *const c_char, _first: *const c_char) -> c_int {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                // The return address lies in front of the arguments on the stack; it is moved out
                // of the way.
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: Actions,
    attributes: Attributes,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    // SAFETY: the caller keeps the hook's contract.
    unsafe {
        with_library((!path.is_null()).then(|| CStr::from_ptr(path)), environment, |environment| {
            binding::freed(
                || real::call!(posix_spawn(pid, path, actions, attributes, arguments, environment) or libc::ENOSYS),
            )
        })
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: Actions,
    attributes: Attributes,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    // SAFETY: the caller keeps the hook's contract.
    unsafe {
        found_in_path(file, |path| {
            with_library(path, environment, |environment| {
                binding::freed(
                    || real::call!(posix_spawnp(pid, file, actions, attributes, arguments, environment) or libc::ENOSYS),
                )
            })
        })
    }
}

/// A shell command that sets the library, if the process's own environment, which the C library
/// gives to the shell, does not have it.
///
/// # Safety
/// `command` is a text or null.
unsafe fn command_with_library(command: *const c_char) -> Option<CString> {
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
        let all: Vec<&[u8]> = [&*kept.library].into_iter().chain(others).collect();
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

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    // SAFETY: the caller keeps the hook's contract.
    unsafe {
        let with_library = command_with_library(command);
        let command = with_library.as_ref().map_or(command, |command| command.as_ptr());
        binding::freed(|| real::call!(system(command) or -1))
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the caller keeps the hook's contract.
    unsafe {
        let with_library = command_with_library(command);
        let command = with_library.as_ref().map_or(command, |command| command.as_ptr());
        binding::freed(|| real::call!(popen(command, mode) or null_mut()))
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, Found, Kept, TEXTS, is_news, make, texts};
    use std::ffi::{CStr, CString, c_char};
    use std::ptr::null;
    use std::sync::atomic::AtomicU64;

    /// The environment that is made out of `environment`.
    fn made(environment: &[&CStr], barred: bool) -> Vec<String> {
        let settings = [c"TERAPAGE_ROOT=1", c"TERAPAGE_MEMORY=5"].map(CStr::to_owned).to_vec();
        let kept = Kept { library: b"/l/libterapage_preload.so".to_vec(), settings, errors: None, told: &[] };
        let given: Vec<*const c_char> =
            environment.iter().map(|text| text.as_ptr()).chain([null()]).collect();
        let (mut room, mut bytes) = ([null(); TEXTS], [0; BYTES]);
        // SAFETY: both are arrays of texts that end in a null pointer.
        unsafe {
            let found = Found::of(given.as_ptr());
            let made = make(&kept, &found, given.as_ptr(), barred, &mut room, &mut bytes);
            texts(made).map(|text| CString::from(text).into_string().unwrap()).collect()
        }
    }

    #[test]
    fn what_is_missing_is_put_back() {
        let ours = "LD_PRELOAD=/l/libterapage_preload.so";
        let order = "ASAN_OPTIONS=verify_asan_link_order=0";
        let settings = ["TERAPAGE_ROOT=1", "TERAPAGE_MEMORY=5"];
        assert_eq!(made(&[], false), [ours, order, settings[0], settings[1]]);
        let with = made(&[c"A=b", c"LD_PRELOAD=x.so y.so", c"ASAN_OPTIONS=c=d", c"TERAPAGE_MEMORY=7"], false);
        let preload = format!("{ours}:x.so:y.so");
        let order = format!("{order}:c=d");
        assert_eq!(with, [&*preload, &*order, "TERAPAGE_ROOT=1", "A=b", "TERAPAGE_MEMORY=7"]);
        let stripped = made(&[c"LD_PRELOAD=/other/libterapage_preload.so", c"A=b"], false);
        let other = "LD_PRELOAD=/other/libterapage_preload.so";
        assert_eq!(stripped, [settings[0], settings[1], other, "A=b"]);
    }

    #[test]
    fn the_library_is_taken_out_where_it_is_barred() {
        let given = [c"LD_PRELOAD=x.so:/l/libterapage_preload.so", c"TERAPAGE_MEMORY=7"];
        assert_eq!(made(&given, true), ["LD_PRELOAD=x.so", "TERAPAGE_MEMORY=7"]);
        assert_eq!(made(&[c"A=b", c"LD_PRELOAD=/l/libterapage_preload.so"], true), ["A=b"]);
    }

    #[test]
    fn news_are_news_once() {
        let told = [const { AtomicU64::new(0) }; 2];
        let news = [1, 2, 1, 3, 2].map(|number| is_news(&told, number));
        assert_eq!(news, [true, true, false, false, false]);
    }
}
