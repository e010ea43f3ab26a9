//! The real functions: those of the C library, or of another library that replaces some of them,
//! which the program would call without this library. ([family](crate::family) has malloc's.)
//!
//! All are found in one place, [`find`], when the library begins: later, a thread that waits for
//! the pager may hold the loader's lock. Some are also found by their first use: functions that a
//! program may call earlier, and functions that may be missing (for these `dlsym` allocates an
//! error text, by a `malloc` that may not be ready).
//!
//! Each static has the name of its function. To add a function, add a line to the table.

use libc::{
    FILE, c_char, c_int, c_long, c_uint, c_void, epoll_event, iovec, mode_t, msghdr, nfds_t, off64_t, pid_t,
    pollfd, siginfo_t, size_t, sockaddr, socklen_t, ssize_t, uid_t,
};
#[cfg(not(target_env = "musl"))]
use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A real function of type `F`. The address comes first, because `dlopen` jumps to it.
#[repr(C)]
pub struct Real<F> {
    /// Its address; 0 until it is found.
    at: AtomicUsize,
    name: &'static [u8],
    function: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// # Safety
    /// `F` is a pointer to a C function, of the type that the function of this name has. The name
    /// ends in a zero byte.
    const unsafe fn named(name: &'static [u8]) -> Self {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        Real { at: AtomicUsize::new(0), name, function: PhantomData }
    }

    /// Finds the function that the loader finds behind this library.
    #[cfg(not(target_env = "musl"))]
    fn find(&self) {
        let name = CStr::from_bytes_with_nul(self.name).unwrap_or_default();
        // SAFETY: the name ends in a zero byte.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
        self.at.store(at, Relaxed);
    }

    /// Finds the function, if a host needs it: a static host has no loader.
    #[cfg(target_env = "musl")]
    fn find(&self) {
        let at = match self.name {
            b"close\0" => libc::close as *const () as usize,
            b"fork\0" => libc::fork as *const () as usize,
            _ => 0,
        };
        self.at.store(at, Relaxed);
    }

    /// The function's address, if it is already found; otherwise 0.
    #[cfg(test)]
    fn address(&self) -> usize {
        self.at.load(Relaxed)
    }

    /// The function, if it is already found.
    #[inline]
    pub fn known(&self) -> Option<F> {
        let at = self.at.load(Relaxed);
        // SAFETY: the loader gave this address for the name, and `named`'s caller has promised the
        // type of the function of this name.
        (at != 0).then(|| unsafe { std::mem::transmute_copy::<usize, F>(&at) })
    }

    /// The function, which is looked up if it is not found yet. `None` if there is none.
    #[inline]
    pub fn get(&self) -> Option<F> {
        self.known().or_else(|| self.search())
    }

    #[cold]
    fn search(&self) -> Option<F> {
        self.find();
        self.known()
    }
}

/// A table of functions, and the function that finds them all.
macro_rules! table {
    ($(#[$about:meta])* pub fn $find:ident: $(fn $name:ident($($type:ty),*) $(-> $out:ty)?;)*) => {
        $(
            #[allow(non_upper_case_globals, reason = "it has the name of its function")]
            pub static $name: Real<unsafe extern "C" fn($($type),*) $(-> $out)?> =
                // SAFETY: the type is that of the C library's headers.
                unsafe { Real::named(concat!(stringify!($name), "\0").as_bytes()) };
        )*
        $(#[$about])*
        pub fn $find() {
            $($name.find();)*
        }
    };
}

/// Calls a real function. If there is none, `errno` is ENOSYS, and the answer is `$lacking`.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?) or $lacking:expr) => {
        match $crate::real::$name.get() {
            Some(function) => function($($argument),*),
            None => {
                $crate::set_errno(libc::ENOSYS);
                $lacking
            }
        }
    };
}
pub(crate) use call;

/// Arguments, or an environment: texts, and a null pointer at the end.
pub type Texts = *const *const c_char;
type Actions = *const libc::posix_spawn_file_actions_t;
type Attributes = *const libc::posix_spawnattr_t;

table! {
    /// Finds the functions that hooks call. In the C library's functions, unlike in bare system
    /// calls, a thread that waits can be cancelled.
    pub fn find:

    fn dlopen(*const c_char, c_int) -> *mut c_void;
    fn fork() -> pid_t;
    fn makecontext();
    fn open(*const c_char, c_int, mode_t) -> c_int;
    fn open64(*const c_char, c_int, mode_t) -> c_int;
    fn openat(c_int, *const c_char, c_int, mode_t) -> c_int;
    fn openat64(c_int, *const c_char, c_int, mode_t) -> c_int;
    fn __open_2(*const c_char, c_int) -> c_int;
    fn __open64_2(*const c_char, c_int) -> c_int;
    fn __openat_2(c_int, *const c_char, c_int) -> c_int;
    fn __openat64_2(c_int, *const c_char, c_int) -> c_int;
    fn sigaction(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    fn signal(c_int, libc::sighandler_t) -> libc::sighandler_t;
    fn pthread_mutex_init(*mut libc::pthread_mutex_t, *const libc::pthread_mutexattr_t) -> c_int;
    fn pthread_create(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void
    ) -> c_int;
    fn thrd_create(*mut c_void, *const c_void, *mut c_void) -> c_int;
    fn sched_getaffinity(pid_t, size_t, *mut libc::cpu_set_t) -> c_int;
    fn sched_setaffinity(pid_t, size_t, *const libc::cpu_set_t) -> c_int;
    fn pthread_getaffinity_np(libc::pthread_t, size_t, *mut libc::cpu_set_t) -> c_int;
    fn pthread_setaffinity_np(libc::pthread_t, size_t, *const libc::cpu_set_t) -> c_int;
    fn clone(
        extern "C" fn(*mut c_void) -> c_int,
        *mut c_void,
        c_int,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void
    ) -> c_int;
    fn pthread_attr_setstack(*mut libc::pthread_attr_t, *mut c_void, size_t) -> c_int;

    fn execvpe(*const c_char, Texts, Texts) -> c_int;
    fn fexecve(c_int, Texts, Texts) -> c_int;
    fn posix_spawn(*mut pid_t, *const c_char, Actions, Attributes, Texts, Texts) -> c_int;
    fn posix_spawnp(*mut pid_t, *const c_char, Actions, Attributes, Texts, Texts) -> c_int;
    fn system(*const c_char) -> c_int;
    fn popen(*const c_char, *const c_char) -> *mut FILE;

    fn read(c_int, *mut c_void, size_t) -> ssize_t;
    fn write(c_int, *const c_void, size_t) -> ssize_t;
    fn pread64(c_int, *mut c_void, size_t, off64_t) -> ssize_t;
    fn pwrite64(c_int, *const c_void, size_t, off64_t) -> ssize_t;
    fn readv(c_int, *const iovec, c_int) -> ssize_t;
    fn writev(c_int, *const iovec, c_int) -> ssize_t;
    fn preadv64(c_int, *const iovec, c_int, off64_t) -> ssize_t;
    fn pwritev64(c_int, *const iovec, c_int, off64_t) -> ssize_t;
    fn preadv64v2(c_int, *const iovec, c_int, off64_t, c_int) -> ssize_t;
    fn pwritev64v2(c_int, *const iovec, c_int, off64_t, c_int) -> ssize_t;
    fn __read_chk(c_int, *mut c_void, size_t, size_t) -> ssize_t;
    fn __pread64_chk(c_int, *mut c_void, size_t, off64_t, size_t) -> ssize_t;
    fn close(c_int) -> c_int;
    fn vmsplice(c_int, *const iovec, size_t, c_uint) -> ssize_t;
    fn recv(c_int, *mut c_void, size_t, c_int) -> ssize_t;
    fn recvfrom(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    fn recvmsg(c_int, *mut msghdr, c_int) -> ssize_t;
    fn send(c_int, *const c_void, size_t, c_int) -> ssize_t;
    fn sendto(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
    fn sendmsg(c_int, *const msghdr, c_int) -> ssize_t;
    fn epoll_wait(c_int, *mut epoll_event, c_int, c_int) -> c_int;
    fn poll(*mut pollfd, nfds_t, c_int) -> c_int;

    fn ptrace(c_uint, pid_t, *mut c_void, *mut c_void) -> c_long;
    fn wait4(pid_t, *mut c_int, c_int, *mut libc::rusage) -> pid_t;
    fn waitid(libc::idtype_t, libc::id_t, *mut siginfo_t, c_int) -> c_int;

    fn __xpg_strerror_r(c_int, *mut c_char, size_t) -> c_int;
    fn strerrordesc_np(c_int) -> *const c_char;

    fn setuid(uid_t) -> c_int;
    fn seteuid(uid_t) -> c_int;
    fn setreuid(uid_t, uid_t) -> c_int;
    fn setresuid(uid_t, uid_t, uid_t) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::symbol_of;

    #[test]
    fn each_function_is_the_c_librarys() {
        find();
        // Addresses, not calls: the tests' own functions have the same names.
        let all = [read.address(), close.address(), fork.address(), setuid.address(), popen.address()];
        for at in all {
            assert!(symbol_of(at as *const c_void).is_some());
        }
        assert!(fork.known().is_some());
    }

    #[test]
    fn a_function_that_is_missing_is_none() {
        // SAFETY: there is no function of this name.
        let missing: Real<unsafe extern "C" fn()> = unsafe { Real::named(b"terapage_has_no_such\0") };
        assert!(missing.get().is_none() && missing.known().is_none());
    }
}
