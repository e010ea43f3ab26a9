//! Guarded mode exists on x86-64 only.

use std::ffi::CStr;
use std::ops::Range;
use terapage_pager::pins::Pins;

pub const ARENA: Range<usize> = 0..0;

pub fn is_on() -> bool {
    false
}

pub fn is_active() -> bool {
    false
}

pub fn is_paged(_at: usize, _len: usize) -> bool {
    false
}

pub fn pins() -> Option<&'static Pins> {
    None
}

pub fn begin(_is_paged: bool) {}

pub fn executing<R>(_path: Option<&CStr>, _library: &CStr, execute: impl FnOnce() -> R) -> R {
    execute()
}

pub fn watch(_ranges: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    Vec::new()
}

pub fn bring_pinned(_from: usize, _to: usize) {}

pub fn end_start() {}

pub fn in_child() {}

/// # Safety
/// None: it is never called.
pub unsafe fn transfer(_number: libc::c_long, _arguments: [usize; 6]) -> libc::ssize_t {
    -1
}

pub fn forget_ended() {}

pub fn arrive() {}

pub fn forks(_owner: usize) {}

pub fn stays() {}
