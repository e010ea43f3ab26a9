//! Hook of `strerror_r`, which the standard library calls for the texts of errors.
//!
//! The C library looks for a translation. The C library's data about translations
//! (`bindtextdomain`) lie in the program's memory, and have a lock: a thread of the pager that
//! touched them could wait for itself.

use crate::real::{self, call};
use libc::{c_char, c_int, size_t};
use std::ffi::CStr;
use std::io::Write;
use terapage_sys::thread;

/// Hook of the C library's function. A thread of the pager gets the untranslated text.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn __xpg_strerror_r(errno: c_int, text: *mut c_char, len: size_t) -> c_int {
    if !thread::is_internal(thread::own_name()) {
        // SAFETY: the caller keeps the function's contract.
        return unsafe { call!(__xpg_strerror_r(errno, text, len) or libc::ENOSYS) };
    }
    if text.is_null() || len == 0 {
        return libc::ERANGE;
    }
    // SAFETY: the caller passes a buffer of this length.
    describe(errno, unsafe { std::slice::from_raw_parts_mut(text.cast(), len) })
}

/// Writes the text of an error, and a zero byte. Touches no memory of the program's.
fn describe(errno: c_int, text: &mut [u8]) -> c_int {
    // Old C libraries (before 2.32) have no such function. SAFETY: it may be called with any
    // number.
    let known = real::strerrordesc_np.known().map(|function| unsafe { function(errno) });
    let len = text.len() - 1;
    let mut rest = &mut text[..len];
    let written = match known.filter(|at| !at.is_null()) {
        // SAFETY: the C library's constant texts end in a zero byte.
        Some(at) => rest.write_all(unsafe { CStr::from_ptr(at) }.to_bytes()),
        None => write!(rest, "error {errno}"),
    };
    let left = rest.len();
    text[len - left] = 0;
    if written.is_err() { libc::ERANGE } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terapage_sys::thread::Internal;

    fn said(errno: c_int, room: usize) -> (c_int, String) {
        let mut text = vec![b'x'; room];
        // SAFETY: a buffer of this length.
        let answer = unsafe { __xpg_strerror_r(errno, text.as_mut_ptr().cast(), room) };
        (answer, CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned())
    }

    #[test]
    fn a_pagers_thread_has_the_texts_too() {
        real::find();
        let _internal = Internal::enter();
        let old = real::strerrordesc_np.known().is_none();
        let text = if old { "error 104" } else { "Connection reset by peer" };
        assert_eq!(said(libc::ECONNRESET, 100), (0, text.to_owned()));
        assert_eq!(said(libc::ECONNRESET, text.len() + 1), (0, text.to_owned()));
        assert_eq!(said(libc::ECONNRESET, 5), (libc::ERANGE, text[..4].to_owned()));
        assert_eq!(said(libc::ECONNRESET, 1), (libc::ERANGE, String::new()));
        assert_eq!(said(99_999, 100), (0, "error 99999".to_owned()));
        assert_eq!(std::io::Error::from_raw_os_error(99_999).to_string(), "error 99999 (os error 99999)");
    }

    #[test]
    fn the_program_asks_the_c_library() {
        assert_eq!(said(99_999, 100), (libc::EINVAL, "Unknown error 99999".to_owned()));
    }
}
