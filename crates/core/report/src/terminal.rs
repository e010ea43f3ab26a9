//! The terminal that a text is for.

use rustix::termios::tcgetwinsize;
use std::os::fd::AsFd;

/// Characters of a line of `out`: `COLUMNS`, or the width of the terminal; `None` if neither is
/// known.
pub fn columns(out: impl AsFd) -> Option<usize> {
    let named = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || tcgetwinsize(out).ok().map(|size| size.ws_col.into());
    named.or_else(terminal).filter(|columns| *columns > 0)
}
