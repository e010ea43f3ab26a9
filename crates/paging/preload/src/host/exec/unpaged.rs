//! Programs that cannot be paged: their kind, and the line that says so.

use super::environment::{Kept, standard_error};
use super::*;

/// Why the library would not be loaded into a program, and whether the host pages it.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) why: Why,
    pub(super) is_hosted: bool,
}

/// Inspects a program that is about to be executed, and says, once, if it cannot be paged.
#[inline(never)]
pub(super) fn look(kept: &Kept, path: &CStr) -> Option<Seen> {
    let errno = std::io::Error::last_os_error().raw_os_error();
    let (mut first, mut last, mut files) = (None, Name::of(b""), 0);
    let why = executable::cannot_be_paged(path, &mut |file| {
        last = Name::of(file.to_bytes());
        first.get_or_insert(last);
        files += 1;
    });
    // Only the kernel can run a script whose interpreter is a script.
    let is_hosted = files <= 2
        && why.is_some_and(|why| why.is_hostable())
        && kept.host.as_deref().is_some_and(instead::is_there);
    if let (Some(why), Some(first), false) = (why, first, is_hosted) {
        report(kept, first, last, why);
    }
    crate::set_errno(errno.unwrap_or(0));
    why.map(|why| Seen { why, is_hosted })
}

/// Says that a program is not paged, unless that was already said, or standard error is another
/// file than at the start: then the program may read it.
pub(super) fn report(kept: &Kept, first: Name, last: Name, why: Why) {
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
    if written.is_ok() && is_news(kept.reported, number(&line.bytes[..line.len])) {
        line.bytes[line.len] = b'\n';
        thread::say(std::str::from_utf8(&line.bytes[..=line.len]).unwrap_or_default());
    }
}

/// A line that is written without a heap. Parts that are too long are left out.
pub(super) struct Line {
    pub(super) bytes: [u8; 256],
    pub(super) len: usize,
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

/// FNV-1a, 64 bits, with its authors' constants; never 0.
pub(super) fn number(bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(start, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)).max(1)
}

/// Whether a number is new among `reported`; adds it. If there is no room, the number does not
/// count as new.
pub(super) fn is_news(reported: &[AtomicU64], number: u64) -> bool {
    for place in reported {
        match place.compare_exchange(0, number, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(there) if there == number => return false,
            Err(_) => {}
        }
    }
    false
}
