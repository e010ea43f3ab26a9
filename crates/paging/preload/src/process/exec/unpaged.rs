//! Programs that cannot be paged: their kind, and the line that says so.

use super::environment::{Kept, standard_error};
use super::*;
use terapage_sys::hosting;

/// Why the library would not be loaded into a program, if there is a reason, and whether the host
/// pages it.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) why: Option<Why>,
    pub(super) is_hosted: bool,
}

/// Inspects a program that is about to be executed, and says, once, if it cannot be paged.
#[inline(never)]
pub(super) fn look(kept: &Kept, path: &CStr) -> Option<Seen> {
    let errno = std::io::Error::last_os_error().raw_os_error();
    let (mut first, mut last, mut files) = (None, Name::of(b""), 0);
    let mut is_dynamic = false;
    let mut changes_calls = None;
    let why = executable::cannot_be_paged(path, &mut |file| {
        last = Name::of(file.to_bytes());
        changes_calls = executable::cannot_be_guarded(file).filter(|_| crate::guard::is_active());
        first.get_or_insert(last);
        files += 1;
        is_dynamic = kept.hosts_all && executable::is_elf(file);
    });
    let why = changes_calls.or(why);
    let is_hostable = why.map_or(is_dynamic, |why| why.is_hostable()) && last.bytes() != HOST;
    // Only the kernel can run a script whose interpreter is a script.
    let is_hosted = files <= 2 && is_hostable && kept.host.as_deref().is_some_and(instead::is_there);
    if let (Some(why), Some(first), false) = (why, first, is_hosted)
        && !(is_hostable && instead::is_barred(path))
    {
        report(kept, |line| match first == last {
            true => write!(line, "terapage: {first} runs, but its memory is not paged: it is {why}"),
            false => write!(
                line,
                "terapage: {first} runs, but its memory is not paged: its interpreter, {last}, is {why}"
            ),
        });
    }
    if let (Some(first), true) = (first, executable::is_denied_rights(path))
        && (crate::guard::is_active() || crate::hosted::is_host() || hosting::has_filter())
    {
        report(kept, |line| match crate::guard::is_active() {
            true => write!(
                line,
                "terapage: {first} gains no rights: it is started without rights, with guarded calls"
            ),
            false => write!(
                line,
                "terapage: {first} gains no rights: a paged static or Go program that lacks CAP_SYS_ADMIN has \
                 started it (try: --static off)"
            ),
        });
    }
    crate::set_errno(errno.unwrap_or(0));
    (why.is_some() || is_hosted).then_some(Seen { why, is_hosted })
}

/// The name of the host's file.
const HOST: &[u8] = instead::FILE.as_bytes();

/// Says what `write` writes of a program, unless that was already said, or standard error is
/// another file than at the start: then the program may read it.
fn report(kept: &Kept, write: impl FnOnce(&mut Line) -> std::fmt::Result) {
    if standard_error() != kept.errors {
        return;
    }
    let mut line = Line { bytes: [0; 256], len: 0 };
    if write(&mut line).is_ok() && is_news(kept.reported, number(&line.bytes[..line.len])) {
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
