//! Hooks for programs that begin as root and continue as another user: servers.
//!
//! Unless the machine is configured for it, a process without privileges may not make a
//! userfaultfd. But the process needs one when it has grown, and so does each forked child. The
//! device `/dev/userfaultfd`, once open, makes them for any process that has the descriptor. So the
//! device is opened just before the program gives up its rights.

use crate::{real, setup};
use libc::{c_int, uid_t};
use terapage_sys::userfaultfd;

macro_rules! before_that {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        $($(#[$doc])*
        /// # Safety
        /// The contract is that of the C library's function.
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            if setup::settings().is_some() {
                userfaultfd::keep_device();
            }
            // SAFETY: the caller keeps the contract of the C library's function.
            unsafe { real::call!($name($($arg),*) or -1) }
        })*
    };
}

before_that! {
    /// Hook of the C library's function.
    fn setuid(user: uid_t);

    /// Hook of the C library's function.
    fn seteuid(user: uid_t);

    /// Hook of the C library's function.
    fn setreuid(real: uid_t, effective: uid_t);

    /// Hook of the C library's function.
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t);
}
