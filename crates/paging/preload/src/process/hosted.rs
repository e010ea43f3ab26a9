//! A program that loads no library, in this process: the host (crate `host`) has loaded the
//! program, and passes its calls to this library. The host and this library have agreed on these
//! names.
//!
//! The calling thread is one of the program's threads. It has the thread pointer of the host's
//! first thread, all its signals are blocked, and there is one such thread at a time.

use crate::exec::{self, Instead};
use crate::real::Texts;
use crate::{advise, borrowed, brk, direct, exit, locked, maps, remap, rights, shm};
use crate::{files, hooks::namespaces, statics};
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_calls::{By, Hook, Hosted, Service};
use terapage_sys::thread;

/// The variable that names the program.
pub const VARIABLE: &str = "TERAPAGE_HOSTED";

static IS_HOST: AtomicBool = AtomicBool::new(false);
static IS_GUARDED: AtomicBool = AtomicBool::new(false);

/// Before the program in the variable: the host is guarded.
pub const GUARDED: u8 = b'g';

/// Notes that this process is a host, with this value of the variable.
pub fn begin(value: &[u8]) {
    IS_HOST.store(true, Relaxed);
    IS_GUARDED.store(value.iter().take_while(|&&byte| byte != b':').any(|&byte| byte == GUARDED), Relaxed);
    thread::is_silent();
}

/// Whether this process is a host whose program's calls are guarded.
pub fn is_guarded() -> bool {
    IS_GUARDED.load(Relaxed)
}

/// Whether this process is a host.
pub fn is_host() -> bool {
    IS_HOST.load(Relaxed)
}

/// Executes a system call of the program as the hook does for a program that calls the C library's
/// function. The result has the form of a system call's.
///
/// # Safety
/// The same as for the system call.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn terapage_hosted_call(number: c_long, arguments: &[usize; 6]) -> isize {
    // SAFETY: the program is responsible for the call.
    let answer = unsafe { serve(number, *arguments) };
    if answer != -1 {
        return answer;
    }
    -(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL) as isize)
}

/// Executes the call by its hook. The result is -1 if the call fails, and `errno` says why.
///
/// # Safety
/// The same as for the system call.
unsafe fn serve(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let hook = match terapage_calls::hosted(number as usize) {
        Some(Hosted { by: By::Library(hook), .. }) => hook,
        // The host itself serves what else `clone` does.
        Some(Hosted { by: By::Host(Service::Clone), .. }) => Hook::Fork,
        // SAFETY: the program is responsible for the call.
        _ => return unsafe { libc::syscall(number, a, b, c, d, e, f) as isize },
    };
    let at = a as *mut c_void;
    let (pieces, count) = (b as *const libc::iovec, c_int::try_from(c).unwrap_or(-1));
    if hook.changes_memory() && borrowed::is_borrower() {
        // SAFETY: the program is responsible for the call.
        return unsafe { borrowed::call(number, [a, b, c, d, e, f]) };
    }
    // SAFETY: the program keeps the contract of the call, which equals the hook's.
    unsafe {
        match hook {
            Hook::Mmap => maps::mmap(at, b, c as c_int, d as c_int, e as c_int, f as i64) as isize,
            Hook::Munmap => maps::munmap(at, b) as isize,
            Hook::Mprotect => rights::mprotect(at, b, c as c_int) as isize,
            Hook::PkeyMprotect => rights::pkey_mprotect(at, b, c as c_int, d as c_int) as isize,
            Hook::Mremap => remap::by_number(at, b, c, d as c_int, e as *mut c_void) as isize,
            Hook::Madvise => advise::madvise(at, b, c as c_int) as isize,
            Hook::ProcessMadvise => advise::process_madvise(a as c_int, pieces, c, d as c_int, e as c_uint),
            Hook::Pread64 => direct::pread64(a as c_int, b as *mut c_void, c, d as i64),
            Hook::Pwrite64 => direct::pwrite64(a as c_int, b as *const c_void, c, d as i64),
            Hook::Preadv => direct::preadv64(a as c_int, pieces, count, d as i64),
            Hook::Pwritev => direct::pwritev64(a as c_int, pieces, count, d as i64),
            Hook::Read => direct::read(a as c_int, b as *mut c_void, c),
            Hook::Write => direct::write(a as c_int, b as *const c_void, c),
            Hook::Readv => direct::readv(a as c_int, pieces, count),
            Hook::Writev => direct::writev(a as c_int, pieces, count),
            // The fifth argument is the upper half of the offset where words have 32 bits.
            Hook::Preadv2 => direct::preadv64v2(a as c_int, pieces, count, d as i64, f as c_int),
            Hook::Pwritev2 => direct::pwritev64v2(a as c_int, pieces, count, d as i64, f as c_int),
            Hook::ProcessVmWritev => direct::process_vm_writev(
                a as libc::pid_t,
                pieces,
                c as libc::c_ulong,
                d as *const libc::iovec,
                e as libc::c_ulong,
                f as libc::c_ulong,
            ),
            Hook::Brk => brk::direct(a) as isize,
            Hook::Mlock => locked::mlock(at, b) as isize,
            Hook::Mlock2 => locked::mlock2(at, b, c as c_uint) as isize,
            Hook::Mlockall => locked::mlockall(a as c_int) as isize,
            Hook::Munlock => locked::munlock(at, b) as isize,
            Hook::Munlockall => locked::munlockall() as isize,
            Hook::Shmat => shm::shmat(a as c_int, b as *const c_void, c as c_int) as isize,
            Hook::Shmdt => shm::shmdt(at) as isize,
            Hook::Close => exit::close(a as c_int) as isize,
            Hook::Dup2 => exit::dup2(a as c_int, b as c_int) as isize,
            Hook::Dup3 => exit::dup3(a as c_int, b as c_int, c as c_int) as isize,
            Hook::CloseRange => exit::close_range(a as c_uint, b as c_uint, c as c_int) as isize,
            Hook::Unshare => namespaces::unshare(a as c_int) as isize,
            Hook::Setns => namespaces::setns(a as c_int, b as c_int) as isize,
            Hook::Fork => {
                crate::guard::forks(a);
                crate::fork::fork() as isize
            }
            Hook::ExitGroup => exit::_exit(a as c_int),
        }
    }
}

/// Notes that a child is about to begin that borrows the program's memory. It takes no lock, and
/// may be called with any thread pointer.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub extern "C" fn terapage_hosted_lend() {
    borrowed::lend();
}

/// Notes that such a child has gone.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub extern "C" fn terapage_hosted_is_back() {
    borrowed::is_back();
}

/// Whether mapped files are paged, so that the library may have leases. It takes no lock, and may
/// be called with any thread pointer.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub extern "C" fn terapage_hosted_has_leases() -> bool {
    files::were_paged()
}

/// The kernel refuses to open a file at once because of a lease: gives up the leases for which
/// somebody waits.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub extern "C" fn terapage_hosted_give_way() {
    files::give_way();
}

/// Lets the library page a static array of the program. The program has not begun.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub extern "C" fn terapage_hosted_array(start: usize, len: usize) {
    statics::add(start, len, crate::setup::block());
    crate::arena::ARENA.lock().start_if_due();
}

/// Receives a path, arguments and an environment, and the number that came with the request.
type Take = unsafe extern "C" fn(usize, *const c_char, Texts, Texts);

/// Calls `take` with the path, arguments and environment with which the program at `path` must be
/// executed. Returns an error (`errno`) if it cannot be executed.
///
/// # Safety
/// The path is a text; arguments and environment are arrays of texts that end in a null pointer.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn terapage_hosted_prepare(
    path: *const c_char,
    arguments: Texts,
    environment: Texts,
    take: Take,
    to: usize,
) -> c_int {
    // SAFETY: the host passes the arguments of the program's call.
    unsafe {
        let given = CStr::from_ptr(path);
        let execute = |instead: Option<Instead>, environment| match instead {
            Some(Instead { path, arguments }) => {
                take(to, path.as_ptr(), arguments, environment);
                0
            }
            None => {
                take(to, path, arguments, environment);
                0
            }
        };
        match exec::with_library(Some(given), arguments, environment, execute) {
            -1 => libc::ENOEXEC,
            answer => answer,
        }
    }
}

/// Says that the process is about to execute a program. Returns the argument for
/// [`terapage_hosted_stay`].
///
/// # Safety
/// The path is a text.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn terapage_hosted_leave(path: *const c_char) -> c_int {
    // SAFETY: the host passes a text.
    exec::leave(unsafe { Some(CStr::from_ptr(path)) }).into()
}

/// Says that there was no exec after all.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub extern "C" fn terapage_hosted_stay(left: c_int) {
    crate::guard::stays();
    if left != 0 {
        exit::stay();
    }
}
