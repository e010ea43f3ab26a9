//! Mapped files that the kernel reads more than once, because memory has no room for them. The
//! summary names those that `--files` could page.
//!
//! While the program reads from disk, a thread checks several times a second whether some pages of
//! each file are in the page cache. A page that was there, then was not, and is there again was
//! read twice. The thread begins once the program maps more than the budget has room for.

use crate::arena::{ARENA, Arena};
use crate::{exit, files, places, setup, summary};
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use terapage_stats::Snapshot;
use terapage_sys::fd::Fd;
use terapage_sys::file::{Early, is_cached};
use terapage_sys::opening::Opening;
use terapage_sys::{page_bytes, thread};

/// Pages of a file that are checked.
const PAGES: usize = 128;

/// A file is named if this many of its pages were read again.
const ENOUGH: usize = PAGES / 16;

/// Further files are not checked.
const FILES_MOST: usize = 16;

/// The time between two checks, ms.
const LOOK_MS: u64 = 200;

/// The process that has the thread.
static CHECKED: AtomicU32 = AtomicU32::new(0);

/// The thread's open file, or -1.
static OPEN: AtomicI32 = AtomicI32::new(-1);

/// The most bytes that were mapped at once of files that the kernel maps, and that could be paged.
static PEAK: AtomicU64 = AtomicU64::new(0);

/// Where a page of a file was last seen.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Nowhere,
    InMemory,
    /// It was in memory before.
    Gone,
    /// It was in memory, was gone, and came back.
    Again,
}

impl Seen {
    fn next(self, is_in_memory: bool) -> Seen {
        match (self, is_in_memory) {
            (Seen::Nowhere, true) => Seen::InMemory,
            (Seen::InMemory, false) => Seen::Gone,
            (Seen::Gone, true) => Seen::Again,
            (same, _) => same,
        }
    }
}

/// A file that the kernel maps.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// The path by which `/proc/PID/maps` names it.
    path: PathBuf,
    inode: u64,
    size: u64,
    /// When it was last changed: seconds and nanoseconds.
    changed: (i64, i64),
    pages: [Seen; PAGES],
}

impl Mapped {
    /// The file that is open under `fd`, if it can be paged: only its owner and root can lease it.
    fn of(fd: c_int) -> Option<Mapped> {
        files::size_of(fd)?;
        let link = format!("/proc/thread-self/fd/{fd}");
        let (path, status) = (std::fs::read_link(&link).ok()?, std::fs::metadata(&link).ok()?);
        // SAFETY: no memory is touched.
        let user = unsafe { libc::geteuid() };
        (user == 0 || user == status.uid()).then(|| Mapped {
            path,
            inode: status.ino(),
            size: status.size(),
            changed: (status.mtime(), status.mtime_nsec()),
            pages: [Seen::Nowhere; PAGES],
        })
    }

    /// The places of its mappings: from, to, offset in the file. None if it is also mapped to be
    /// written or executed, since the kernel then keeps it in any case.
    fn mappings(&self, maps: &str) -> Vec<(u64, u64, u64)> {
        let of_it = maps
            .lines()
            .filter_map(parse)
            .filter(|line| line.inode == self.inode && self.path.to_str() == Some(line.path));
        let found: Option<Vec<_>> =
            of_it.map(|line| matches!(line.rights, "r--s" | "r--p").then_some(line.place)).collect();
        found.unwrap_or_default()
    }

    /// The offsets of the pages that are checked.
    fn offsets(&self) -> impl Iterator<Item = u64> + use<> {
        let pages = self.size / page_bytes() as u64;
        (0..PAGES as u64).map(move |at| pages * at / PAGES as u64 * page_bytes() as u64)
    }

    /// Checks its pages.
    fn look(&mut self, mappings: &[(u64, u64, u64)]) {
        let offsets = self.offsets();
        for (seen, offset) in self.pages.iter_mut().zip(offsets) {
            let within =
                mappings.iter().find(|(from, to, first)| offset >= *first && offset - first < to - from);
            let Some((from, _, first)) = within else { continue };
            if let Some(is_in_memory) = is_cached((from + offset - first) as usize) {
                *seen = seen.next(is_in_memory);
            }
        }
    }

    /// The share of the checked pages that were read again, per cent, if they are enough, and the
    /// file is still the same: pages that somebody has written were not read.
    fn read_again(&self) -> Option<u64> {
        let again = self.pages.iter().filter(|&&seen| seen == Seen::Again).count();
        if again < ENOUGH {
            return None;
        }
        let now = std::fs::metadata(&self.path).ok()?;
        let is_same = (now.ino(), now.size()) == (self.inode, self.size)
            && (now.mtime(), now.mtime_nsec()) == self.changed;
        is_same.then_some((again * 100 / PAGES) as u64)
    }
}

/// A line of `/proc/PID/maps`.
struct Line<'a> {
    /// From, to, offset in the file.
    place: (u64, u64, u64),
    rights: &'a str,
    inode: u64,
    path: &'a str,
}

fn parse(line: &str) -> Option<Line<'_>> {
    let mut words = line.splitn(6, ' ');
    let (from, to) = words.next()?.split_once('-')?;
    let (rights, offset, _device) = (words.next()?, words.next()?, words.next()?);
    let (inode, path) = (words.next()?.parse().ok()?, words.next()?.trim_start());
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Line { place: (number(from)?, number(to)?, number(offset)?), rights, inode, path })
}

/// `/proc/PID/maps` of this process. (Of this thread: the first one may have ended.)
fn maps() -> String {
    let mut bytes = Vec::new();
    if let Some(file) = Early::open(c"/proc/thread-self/maps") {
        let mut piece = [0; 4096];
        loop {
            let got = file.read_at(&mut piece, bytes.len() as u64);
            if got == 0 {
                break;
            }
            bytes.extend_from_slice(&piece[..got]);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether mappings of files that are left to the kernel are noted: they count, or are reported.
pub fn are_noted() -> bool {
    summary::is_asked()
        || setup::settings().is_some_and(|settings| settings.files || settings.stats.is_some())
}

/// Notes a mapping of `len` bytes of a file, which was left to the kernel.
pub fn note(at: usize, len: usize, fd: c_int) {
    // This opens files: if the thread were cancelled here, they would stay open.
    let _internal = thread::Internal::enter();
    let is_off = setup::settings().is_some_and(|settings| !settings.files);
    let file = if is_off { Mapped::of(fd) } else { None };
    let mut arena = ARENA.lock();
    arena.reads.add(at, at + len.next_multiple_of(page_bytes()), false);
    PEAK.fetch_max(places::read_bytes() as u64, Relaxed);
    let Some(file) = file else { return };
    let is_known = |known: &Mapped| (known.inode, &known.path) == (file.inode, &file.path);
    if arena.rereads.len() < FILES_MOST && !arena.rereads.iter().any(is_known) {
        arena.rereads.push(file);
    }
    let is_much = arena.in_use() + places::read_bytes() > setup::budget();
    drop(arena);
    let me = std::process::id();
    if is_much && exit::is_owner() && CHECKED.swap(me, Relaxed) != me {
        thread::spawn(c"terapage-reread", check).ok();
    }
}

/// The work of the thread. It ends once the program has a filter for system calls, which may kill
/// the process for a call that the program itself does not make.
fn check() {
    let Some(status) = Status::open() else { return };
    let filters = status.filters();
    let (never, mut read) = (AtomicU32::new(0), 0);
    loop {
        thread::wait_ms(&never, 0, LOOK_MS);
        if status.filters() != filters {
            return;
        }
        exit::look_for_the_end();
        // Nothing is missing in the page cache while nothing is read.
        let now = thread::blocks_read();
        if now != read {
            read = now;
            look();
        }
    }
}

/// The status of the thread, which stays open: the program may forbid itself to open files.
struct Status(Fd);

impl Status {
    fn open() -> Option<Status> {
        let _opening = Opening::begin();
        let file = std::fs::File::open("/proc/thread-self/status").ok()?;
        let fd = Fd::adopt(file.into()).ok()?;
        OPEN.store(fd.raw(), Relaxed);
        Some(Status(fd))
    }

    /// The lines about filters.
    fn filters(&self) -> Vec<u8> {
        let mut bytes = [0; 4096];
        let (to, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the kernel writes into the array.
        let got = unsafe { libc::syscall(libc::SYS_pread64, i64::from(self.0.raw()), to, len, 0_i64) };
        let lines = bytes[..usize::try_from(got).unwrap_or(0)].split(|&byte| byte == b'\n');
        lines.filter(|line| line.starts_with(b"Seccomp")).collect::<Vec<_>>().concat()
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        OPEN.store(-1, Relaxed);
    }
}

/// Checks all files.
fn look() {
    let mut files = ARENA.lock().rereads.clone();
    let before = maps();
    let mappings: Vec<_> = files.iter().map(|file| file.mappings(&before)).collect();
    let were = files.clone();
    files.iter_mut().zip(&mappings).for_each(|(file, mappings)| file.look(mappings));
    // The program may have mapped something else there meanwhile.
    let after = maps();
    let are_same = files.iter().zip(&mappings).map(|(file, mappings)| file.mappings(&after) == *mappings);
    let are_same: Vec<bool> = are_same.collect();
    let seen = files.into_iter().zip(were).zip(are_same);
    let seen = seen.map(|((now, was), is_same)| if is_same { now.pages } else { was.pages });
    // Meanwhile files were only added at the end.
    ARENA.lock().rereads.iter_mut().zip(seen).for_each(|(file, pages)| file.pages = pages);
}

/// The files that the kernel read more than once, and how much of each at least, per cent.
pub fn found(arena: &Arena) -> Vec<(u64, PathBuf)> {
    arena.rereads.iter().filter_map(|file| Some((file.read_again()?, file.path.clone()))).collect()
}

/// Puts the findings into the counters, at the end of the process.
pub fn fill(arena: &Arena, counters: &mut Snapshot) {
    counters.unpaged_files_peak_bytes = PEAK.load(Relaxed);
    counters.files_read_again = found(arena).len() as u64;
}

/// In the child of a fork, which has no such thread.
pub fn in_child(arena: &mut Arena) {
    arena.rereads = Vec::new();
    let open = OPEN.swap(-1, Relaxed);
    if open >= 0 {
        // SAFETY: the thread had it, and the child has no such thread.
        drop(Fd::keep(unsafe { OwnedFd::from_raw_fd(open) }));
    }
    PEAK.store(places::read_bytes() as u64, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &std::path::Path) -> Mapped {
        let status = std::fs::metadata(path).unwrap();
        Mapped {
            path: path.to_owned(),
            inode: status.ino(),
            size: status.size(),
            changed: (status.mtime(), status.mtime_nsec()),
            pages: [Seen::Nowhere; PAGES],
        }
    }

    #[test]
    fn a_page_was_read_again_if_it_was_gone_between() {
        let seen = |states: &[bool]| states.iter().fold(Seen::Nowhere, |seen, &is| seen.next(is));
        assert_eq!(seen(&[false, true, true, false, true, false]), Seen::Again);
        assert_eq!(seen(&[true, false, false]), Seen::Gone);
        assert_eq!(seen(&[false, true, true]), Seen::InMemory);
        assert_eq!(seen(&[false, false]), Seen::Nowhere);
    }

    #[test]
    fn a_file_counts_if_enough_pages_came_back_and_nobody_has_changed_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "before").unwrap();
        let mut file = file(&path);
        file.pages[..ENOUGH - 1].fill(Seen::Again);
        file.pages[ENOUGH..].fill(Seen::Gone);
        assert_eq!(file.read_again(), None, "few pages");
        file.pages[ENOUGH] = Seen::Again;
        assert_eq!(file.read_again(), Some(6));
        std::fs::write(&path, "after that").unwrap();
        assert_eq!(file.read_again(), None, "it has changed");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.read_again(), None, "it is gone");
    }

    #[test]
    fn only_mappings_that_read_the_file_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a b");
        std::fs::write(&path, "x").unwrap();
        let file = file(&path);
        let line = |place: &str, rights: &str, inode: u64, path: &std::path::Path| {
            format!("{place} {rights} 00001000 fe:00 {inode}      {}\n", path.display())
        };
        let own = line("7f00-7f80", "r--p", file.inode, &path) + "7f80-7f90 rw-p 00000000 00:00 0 \n";
        let others = line("1000-2000", "r--s", file.inode + 1, &path)
            + &line("2000-3000", "r--s", file.inode, directory.path());
        assert_eq!(file.mappings(&(own.clone() + &others)), [(0x7f00, 0x7f80, 0x1000)]);
        let code = line("5000-6000", "r-xp", file.inode, &path);
        assert_eq!(file.mappings(&(own + &code)), []);
    }

    #[test]
    fn a_filter_for_system_calls_is_seen() {
        let status = Status::open().unwrap();
        let before = status.filters();
        assert!(before.starts_with(b"Seccomp:"));
        // SAFETY: the filter allows all calls (SECCOMP_RET_ALLOW), and is this thread's alone.
        unsafe {
            let mut allow = libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0x7fff_0000 };
            let all = libc::sock_fprog { len: 1, filter: &raw mut allow };
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const all), 0);
        }
        assert_ne!(status.filters(), before);
    }

    #[test]
    fn this_process_has_mappings() {
        assert!(maps().lines().filter_map(parse).any(|line| line.rights == "r-xp" && line.inode > 0));
    }
}
