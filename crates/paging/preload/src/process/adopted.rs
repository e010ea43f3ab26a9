//! A program that was running before this library began: `terapage adopt` has brought the host into
//! it (docs/rescue.md). The memory that it has is paged where it lies.
//!
//! A thread of the host begins while all threads of the program are stopped. It makes the pager,
//! but takes over nothing. Once the filter is set, the program's threads run, and their calls about
//! memory wait for the seat. The thread holds the seat whenever it takes over a piece, so that
//! mappings do not change meanwhile.
#![cfg_attr(
    not(target_env = "musl"),
    allow(dead_code, reason = "only the host for musl comes into running programs")
)]

use crate::arena::ARENA;
use crate::{brk, setup, statics};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use terapage_sys::adoption::{Report, State, TEXT_MOST};
use terapage_sys::fd::Fd;
use terapage_sys::opening::Opening;
use terapage_sys::thread;

type Parts = Vec<(usize, usize)>;

/// The report, until the filter is set; 0 for none.
static BEGINNING: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are taken over at once. Calls about memory wait meanwhile, and so do faults.
const PIECE: usize = 16 << 20;

/// Whether memory is still being taken over: until then much of it is in no budget. In a child that
/// is forked meanwhile this stays so: nobody takes over the rest there.
static TAKES_OVER: AtomicBool = AtomicBool::new(false);

/// Whether this process was adopted, so that the thread that has adopted it waits for a release.
static ADOPTED: AtomicBool = AtomicBool::new(false);

/// Whether this process was adopted, or forked by one whose memory was still being taken over.
pub fn is_adopted() -> bool {
    ADOPTED.load(Relaxed)
}

/// In the child of a fork: its pager waits for a release, as in other programs.
pub fn in_child() {
    ADOPTED.store(is_taking_over(), Relaxed);
}

/// Whether memory is still being taken over.
pub fn is_taking_over() -> bool {
    TAKES_OVER.load(Relaxed)
}

/// Notes that this process is being adopted: an error must not end it.
pub fn begin(report: &'static Report) {
    TAKES_OVER.store(true, Relaxed);
    ADOPTED.store(true, Relaxed);
    BEGINNING.store(std::ptr::from_ref(report) as usize, Relaxed);
    brk::stay();
}

/// Whether this process is being adopted, and the filter is not set yet.
pub fn is_beginning() -> bool {
    BEGINNING.load(Relaxed) != 0
}

/// Notes that there is no way back: from here on an error ends the process.
pub fn hold() {
    BEGINNING.store(0, Relaxed);
}

/// While the process is being adopted: reports why that fails, and ends the calling thread. The
/// rest is `terapage adopt`'s, which leaves the program as it was.
pub fn give_up_if_beginning(why: &str) {
    let at = BEGINNING.load(Relaxed) as *mut Report;
    if at.is_null() {
        return;
    }
    let len = why.len().min(TEXT_MOST);
    // SAFETY: the report stays mapped, and nobody reads its text before the state says so.
    unsafe {
        (&raw mut (*at).text).cast::<u8>().copy_from_nonoverlapping(why.as_ptr(), len);
        (*at).text_len.store(len as u32, Relaxed);
        (*at).state.store(State::Failed as u32, Release);
    }
    loop {
        // SAFETY: ends this thread.
        unsafe { libc::syscall(libc::SYS_exit, 0_i64) };
    }
}

/// The kernel's lists of this process's mappings, opened while an error can still be reported, and
/// out of the way of the program's numbers.
static MAPS: OnceLock<Fd> = OnceLock::new();
static SMAPS: OnceLock<Fd> = OnceLock::new();

fn open(path: &CStr) -> Option<Fd> {
    let _internal = thread::Internal::enter();
    let _opening = Opening::begin();
    Fd::adopt(File::open(path.to_str().ok()?).ok()?.into()).ok()
}

/// A file of `/proc` from its beginning.
struct Text<'a> {
    file: &'a Fd,
    at: i64,
}

impl Read for Text<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the kernel writes no more bytes than there is room for.
        let got = unsafe { libc::pread64(self.file.raw(), into.as_mut_ptr().cast(), into.len(), self.at) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        self.at += got as i64;
        Ok(got)
    }
}

/// Makes the pager for memory in these ranges, and takes over nothing yet. Returns whether there is
/// a pager.
pub fn start(ranges: &[(usize, usize)]) -> bool {
    if [(&MAPS, c"/proc/thread-self/maps"), (&SMAPS, c"/proc/thread-self/smaps")]
        .into_iter()
        .any(|(place, path)| open(path).is_none_or(|file| place.set(file).is_err()))
    {
        give_up_if_beginning("its files in /proc cannot be read");
    }
    statics::adopt(ranges, setup::block());
    let mut arena = ARENA.lock();
    for (from, len) in statics::ranges() {
        arena.close_unpaged(from, from + len);
    }
    if arena.pager.is_none() {
        arena.start();
    }
    arena.pager.is_some()
}

/// Bytes that [`take_over`] will page.
pub fn bytes() -> usize {
    statics::bytes()
}

/// Takes over the memory piece by piece. Between pieces `pause` is called, with the bytes that were
/// taken over since.
pub fn take_over(mut pause: impl FnMut(usize)) {
    let marked = marked();
    for (start, len) in statics::ranges() {
        for from in (start..start + len).step_by(PIECE) {
            let to = (from + PIECE).min(start + len);
            for (from, to) in plain_within(from, to) {
                for (from, to) in between(&marked, from, to) {
                    ARENA.lock().readmit(from, to);
                }
            }
            pause(to - from);
        }
    }
    TAKES_OVER.store(false, Relaxed);
}

/// Flags of the kernel (`VmFlags`, proc(5)) of mappings that stay as they are: locked, device or
/// raw pages, not copied or emptied by a fork, droppable, huge pages of their own, merged pages,
/// growing stacks, in the hands of a userfaultfd, a stack of return addresses.
const STAY: [&str; 12] = ["lo", "io", "pf", "dc", "wf", "dp", "ht", "mg", "gd", "um", "uw", "ss"];

/// The ranges with such flags from before, ascending. Later calls that set them are served by this
/// library.
fn marked() -> Parts {
    let _internal = thread::Internal::enter();
    SMAPS.get().map_or_else(Parts::new, |smaps| marked_in(BufReader::new(Text { file: smaps, at: 0 })))
}

fn marked_in(smaps: impl BufRead) -> Parts {
    let (mut found, mut last) = (Parts::new(), (0, 0));
    for line in smaps.lines().map_while(Result::ok) {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("VmFlags:") if words.any(|flag| STAY.contains(&flag)) => found.push(last),
            Some(word) if !word.ends_with(':') => last = addresses(word).unwrap_or(last),
            _ => {}
        }
    }
    found
}

/// The parts of a range outside these ascending ranges.
fn between(marked: &[(usize, usize)], from: usize, to: usize) -> Parts {
    let (mut parts, mut at) = (Parts::new(), from);
    for (start, end) in marked.iter().filter_map(|&part| within(part, from, to)) {
        if at < start {
            parts.push((at, start));
        }
        at = end;
    }
    if at < to {
        parts.push((at, to));
    }
    parts
}

/// The parts of a range that are readable, writable, private memory, as the kernel says: the
/// program may have changed others since.
fn plain_within(from: usize, to: usize) -> Parts {
    let _internal = thread::Internal::enter();
    let Some(maps) = MAPS.get() else { return Parts::new() };
    let lines = BufReader::new(Text { file: maps, at: 0 }).lines().map_while(Result::ok);
    let parts = lines.filter_map(|line| plain(&line)).take_while(|part| part.0 < to);
    parts.filter_map(|part| within(part, from, to)).collect()
}

/// The range of a line of `/proc/PID/maps` (proc(5)), if it is such memory.
fn plain(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let range = addresses(words.next()?);
    let is_plain = words.next() == Some("rw-p") && words.nth(2) == Some("0");
    range.filter(|_| is_plain)
}

fn addresses(range: &str) -> Option<(usize, usize)> {
    let (start, end) = range.split_once('-')?;
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

fn within((start, end): (usize, usize), from: usize, to: usize) -> Option<(usize, usize)> {
    let part = (start.max(from), end.min(to));
    (part.0 < part.1).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::{between, marked_in, plain, within};

    #[test]
    fn lines_of_plain_memory_are_found() {
        assert_eq!(plain("1000-3000 rw-p 00000000 00:00 0 [heap]"), Some((0x1000, 0x3000)));
        assert_eq!(plain("1000-3000 rw-p 00000000 00:00 0"), Some((0x1000, 0x3000)));
        assert_eq!(plain("1000-3000 rw-p 00001000 08:01 12 /lib/a"), None);
        assert_eq!(plain("1000-3000 r--p 00000000 00:00 0"), None);
        assert_eq!(within((1, 5), 3, 9), Some((3, 5)));
        assert_eq!(within((1, 3), 3, 9), None);
    }
    #[test]
    fn marked_memory_is_found_by_the_flags_and_left_out() {
        let smaps = "1000-2000 rw-p 00000000 00:00 0\nSize: 4 kB\nVmFlags: rd wr mr\n\
                     3000-4000 rw-p 00000000 00:00 0\nSize: 4 kB\nVmFlags: rd wr lo mr\n\
                     5000-6000 rw-p 00000000 00:00 0 [heap]\nVmFlags: rd wr dc\n";
        let marked = marked_in(smaps.as_bytes());
        assert_eq!(marked, [(0x3000, 0x4000), (0x5000, 0x6000)]);
        assert_eq!(between(&marked, 0x2000, 0x7000), [(0x2000, 0x3000), (0x4000, 0x5000), (0x6000, 0x7000)]);
        assert_eq!(between(&marked, 0x3000, 0x3800), []);
        assert_eq!(between(&marked, 0x3800, 0x4800), [(0x4000, 0x4800)]);
        assert_eq!(between(&[], 1, 2), [(1, 2)]);
    }
}
