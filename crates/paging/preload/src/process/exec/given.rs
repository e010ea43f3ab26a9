//! Whether a program's arguments of an exec are there: the kernel answers EFAULT if they are not,
//! and this library, which reads them first, must not end the program.

use crate::real::Texts;
use libc::c_char;
use terapage_sys::{memory, page_bytes};

/// The address of arguments that are not there: an exec with them fails, and the kernel knows
/// whether something else is wrong before.
pub const NOWHERE: usize = usize::MAX & !7;

/// The longest text that the kernel takes (`MAX_ARG_STRLEN`).
const TEXT_MOST: usize = 128 << 10;

/// Pages that were found to be there: the last one, as texts lie next to one another.
#[derive(Default)]
struct Pages {
    last: Option<usize>,
}

impl Pages {
    /// Whether the page of an address can be read.
    fn has(&mut self, at: usize) -> bool {
        let page = at / page_bytes() * page_bytes();
        if self.last == Some(page) {
            return true;
        }
        let mut byte = 0;
        // SAFETY: one byte has room; the kernel checks the address.
        let there = unsafe { memory::copy_what_is_there(&raw mut byte, page as *const u8, 1) };
        if there {
            self.last = Some(page);
        }
        there
    }

    /// Whether there is a text, or one that is too long for the kernel.
    fn have_text(&mut self, at: usize) -> bool {
        for index in 0..TEXT_MOST {
            let Some(at) = at.checked_add(index) else { return false };
            if (index == 0 || at.is_multiple_of(page_bytes())) && !self.has(at) {
                return false;
            }
            // SAFETY: the page was there just now.
            if unsafe { *(at as *const u8) } == 0 {
                return true;
            }
        }
        true
    }

    /// Whether there is an array of texts that ends in a null pointer.
    fn have_texts(&mut self, texts: Texts) -> bool {
        let mut at = texts as usize;
        loop {
            let Some(end) = at.checked_add(size_of::<usize>()) else { return false };
            if !self.has(at) || !self.has(end - 1) {
                return false;
            }
            // SAFETY: the word was there just now.
            match unsafe { (at as *const usize).read_unaligned() } {
                0 => return true,
                text if !self.have_text(text) => return false,
                _ => at = end,
            }
        }
    }
}

/// Whether a path, arguments and an environment are there. Each may be null.
pub fn are_there(path: *const c_char, arguments: Texts, environment: Texts) -> bool {
    let mut pages = Pages::default();
    (path.is_null() || pages.have_text(path as usize))
        && [arguments, environment].into_iter().all(|texts| texts.is_null() || pages.have_texts(texts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{dangling, null};

    #[test]
    fn what_is_not_there_is_seen() {
        let text = c"text".as_ptr();
        let (good, bad) = ([text, null()], [text, dangling::<c_char>(), null()]);
        assert!(are_there(text, good.as_ptr(), null()) && are_there(null(), null(), good.as_ptr()));
        assert!(!are_there(dangling(), good.as_ptr(), null()));
        assert!(!are_there(text, bad.as_ptr(), null()) && !are_there(text, null(), dangling()));
        let end = memory::reserve(2 * page_bytes()).unwrap() as usize + page_bytes();
        // SAFETY: the second page was mapped just now, and the first one is written.
        unsafe {
            memory::unmap(end as *mut u8, page_bytes()).unwrap();
            *((end - 1) as *mut u8) = b'x';
        }
        assert!(!are_there((end - 1) as *const c_char, null(), null()), "a text without an end");
    }
}
