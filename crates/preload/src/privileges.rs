//! Programs that begin as root and go on as somebody else: servers.
//!
//! A process without privileges may not make a userfaultfd, where the machine has not been told
//! otherwise. But it needs one when it grows, and each child that it forks needs one. The device
//! `/dev/userfaultfd`, once open, makes them for whoever has it. So it is opened just before the
//! program gives up what it takes.

use crate::{process, set_errno};
use libc::{c_int, uid_t};
use terapage_sys::userfaultfd;

macro_rules! before_that {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        $($(#[$doc])*
        /// # Safety
        /// The contract is that of the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            if process::settings().is_some() {
                userfaultfd::keep_device();
            }
            let name = concat!(stringify!($name), "\0");
            // SAFETY: the name ends in a zero byte.
            let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
            if next.is_null() {
                set_errno(libc::ENOSYS);
                return -1;
            }
            // SAFETY: the C library has the function, of this type; the caller's promise.
            unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn($($type),*) -> c_int>(next)($($arg),*) }
        })*
    };
}

before_that! {
    /// Stands in for the C library's.
    fn setuid(user: uid_t);

    /// Stands in for the C library's.
    fn seteuid(user: uid_t);

    /// Stands in for the C library's.
    fn setreuid(real: uid_t, effective: uid_t);

    /// Stands in for the C library's.
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t);
}
