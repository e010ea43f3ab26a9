//! Untracked memory: memory of the process that no pager counts. It is private (the executable,
//! stacks, `brk`, direct system calls) or shared (MAP_SHARED, memory files, /dev/shm, System V).
//!
//! The kernel knows the sums (`/proc/self/status`), and reading them costs about 20 us. The pager's
//! thread reads them each second; in its first second, within which some programs end, 40 times. A
//! process without a pager has no thread of the library: it reads them when the program maps or
//! unmaps much, when it forks, and at its end. So the peak is seen even if the memory is returned
//! before the end.

use crate::arena::ARENA;
use crate::{exit, job, places, setup};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terapage_config::Heap;
use terapage_stats::{Counters, Shared};
use terapage_sys::fd::Fd;
use terapage_sys::file::Early;
use terapage_sys::opening::Opening;
use terapage_sys::runtimes::JAVA;
use terapage_sys::thread;

/// The promise: at most the budget, a hundredth of it, and this many bytes.
const PROMISED: u64 = 32 << 20;

/// While the program runs, nothing is reported if at most a tenth of the budget, and this many
/// bytes, are outside the budget.
const REPORT_MIN_BYTES: u64 = 8 << 20;

/// Smaller mappings are not counted.
const LEAST: usize = 64 << 10;

/// A reading is due if this many bytes were mapped or unmapped since the last one, and that was
/// `PAUSE_MS` ago.
const STEP: usize = 4 << 20;
/// The shortest time between two readings.
const PAUSE_MS: u64 = 20;
/// After this time a reading is always due.
const LONG_MS: u64 = 1000;

/// The memory found by one reading, or the peaks of all readings, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Untracked {
    /// Private memory that is neither frames nor bookkeeping.
    pub private: u64,
    /// The largest part of `private` that can be memory of `brk`.
    pub brk: u64,
    /// The largest part of `private` that can be locked memory.
    pub locked: u64,
    /// The largest part of `private` that can lie at addresses that the program named.
    pub named: u64,
    /// The largest part of `private` that can be written pages of files, mapped private.
    pub copied: u64,
    /// Shared memory.
    pub shared: u64,
}

impl Untracked {
    pub fn total(&self) -> u64 {
        self.private + self.shared
    }
}

/// A [`Beside`] that all threads can use.
struct Cells {
    private: AtomicU64,
    brk: AtomicU64,
    locked: AtomicU64,
    named: AtomicU64,
    copied: AtomicU64,
    shared: AtomicU64,
}

impl Cells {
    const fn new() -> Cells {
        Cells {
            private: AtomicU64::new(0),
            brk: AtomicU64::new(0),
            locked: AtomicU64::new(0),
            named: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            shared: AtomicU64::new(0),
        }
    }

    fn set(&self, to: Untracked) {
        self.private.store(to.private, Relaxed);
        self.brk.store(to.brk, Relaxed);
        self.locked.store(to.locked, Relaxed);
        self.named.store(to.named, Relaxed);
        self.copied.store(to.copied, Relaxed);
        self.shared.store(to.shared, Relaxed);
    }

    fn get(&self) -> Untracked {
        Untracked {
            private: self.private.load(Relaxed),
            brk: self.brk.load(Relaxed),
            locked: self.locked.load(Relaxed),
            named: self.named.load(Relaxed),
            copied: self.copied.load(Relaxed),
            shared: self.shared.load(Relaxed),
        }
    }
}

/// The result of the last reading.
static NOW: Cells = Cells::new();
/// The peak.
static MOST: Cells = Cells::new();
/// The peak of shared memory.
static MOST_SHARED: AtomicU64 = AtomicU64::new(0);
/// The untracked memory with which a forked child began.
static BEGAN_WITH: AtomicU64 = AtomicU64::new(0);

/// Whether the memory ever exceeded the promise.
static BROKEN: AtomicBool = AtomicBool::new(false);
/// Whether that was reported.
static SAID: AtomicBool = AtomicBool::new(false);

/// Bytes mapped and unmapped since the last reading.
static MOVED: AtomicU64 = AtomicU64::new(0);
/// The time of the last reading, ms.
static LOOKED_MS: AtomicU64 = AtomicU64::new(0);

/// Whether much was ever mapped or unmapped.
static HAS_MUCH: AtomicBool = AtomicBool::new(false);

/// The pager's counters, once there is a pager.
static COUNTED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

/// The address at which `brk` began.
static BRK: AtomicU64 = AtomicU64::new(0);

/// The device and the file of standard error when the library began.
static ERRORS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The descriptor of the status file, once it is open.
static STATUS: AtomicI32 = AtomicI32::new(-1);
/// The process whose status file it is.
static STATUS_OF: AtomicU32 = AtomicU32::new(0);

/// A buffer for the file, used by one thread at a time.
struct Room {
    taken: AtomicBool,
    bytes: UnsafeCell<[u8; 4096]>,
}

// SAFETY: only the thread that has set `taken` uses the bytes.
unsafe impl Sync for Room {}

static ROOM: Room = Room { taken: AtomicBool::new(false), bytes: UnsafeCell::new([0; 4096]) };

/// Called when the library begins.
pub fn begin() {
    BRK.store(brk(), Relaxed);
    if let Some([device, file]) = standard_error() {
        ERRORS[0].store(device, Relaxed);
        ERRORS[1].store(file, Relaxed);
    }
    LOOKED_MS.store(now_ms(), Relaxed);
}

/// Notes that there is a pager, or will be at once, and its counters.
pub fn is_paged(shared: &'static Shared) {
    // Other threads of the program follow the pointer, without a lock: what it points to was
    // written before.
    COUNTED.store(std::ptr::from_ref(shared).cast_mut(), Release);
}

/// There is no pager after all.
pub fn forget() {
    COUNTED.store(std::ptr::null_mut(), Relaxed);
}

/// Called in the child of a fork, by its only thread.
pub fn in_child(shared: Option<&'static Shared>) {
    ROOM.taken.store(false, Relaxed);
    forget();
    shared.into_iter().for_each(is_paged);
    BEGAN_WITH.store(NOW.get().total(), Relaxed);
    MOST.set(NOW.get());
    MOST_SHARED.store(NOW.get().shared, Relaxed);
    BROKEN.store(false, Relaxed);
    MOVED.store(0, Relaxed);
}

/// The pager's counters, if there is a pager.
fn shared() -> Option<&'static Shared> {
    // SAFETY: the pointer is null, or its target lasts as long as the process.
    unsafe { COUNTED.load(Acquire).as_ref() }
}

/// The pager's thread calls it when it begins, and as often as it reads. It does not wait.
pub fn each_second(_: &'static Counters, _books_bytes: u64) {
    exit::look_for_the_end();
    let Some(shared) = shared() else { return };
    note_program_time();
    look();
    crate::summary::watch(&shared.counters);
}

/// Notes how long the program's threads have worked, for comparisons with the time that they
/// waited.
pub fn note_program_time() {
    if let Some(shared) = shared() {
        shared.counters.program_us.store(thread::used_by_program_ns() / 1000, Relaxed);
    }
}

/// Notes that the program maps or unmaps `len` bytes that are not paged.
pub fn moves(len: usize) {
    if len < LEAST || setup::settings().is_none() || thread::is_internal(thread::own_name()) {
        return;
    }
    let moved = MOVED.fetch_add(len as u64, Relaxed) + len as u64;
    let since_ms = now_ms().saturating_sub(LOOKED_MS.load(Relaxed));
    let much = moved >= STEP as u64 && (since_ms >= PAUSE_MS || len >= STEP);
    if much || since_ms >= LONG_MS {
        HAS_MUCH.fetch_or(much, Relaxed);
        look();
    }
}

/// Called when the program forks, or does something else that takes long: reads the sums if it has
/// ever mapped much.
pub fn passes_by() {
    if HAS_MUCH.load(Relaxed) && setup::settings().is_some() {
        look();
    }
}

/// The last reading, at the end of the process, which reports the result.
pub fn look_last() {
    SAID.store(true, Relaxed);
    look();
}

/// Reads the sums, and reports them if necessary. Does nothing if another thread is just reading.
pub fn look() {
    let has_budget = setup::settings().is_some() && !crate::arena::is_without_budget();
    if !has_budget || !exit::is_owner() || crate::adopted::is_taking_over() {
        return;
    }
    let budget = setup::budget() as u64;
    let counted = counted();
    if ROOM.taken.swap(true, Acquire) {
        return;
    }
    LOOKED_MS.store(now_ms(), Relaxed);
    MOVED.store(0, Relaxed);
    // SAFETY: this thread has set `taken`.
    let bytes = unsafe { &mut *ROOM.bytes.get() };
    let len = read_status(bytes);
    if let Some((found, all)) = parse(&bytes[..len], counted) {
        note(found);
        // A pager counts the memory of stores in its own share.
        let packed = if shared().is_none() { terapage_store::packed_bytes() as u64 } else { 0 };
        job::claim(found.private, packed);
        if all > budget + budget / 100 + PROMISED {
            BROKEN.store(true, Relaxed);
            let is_much = found.total() > BEGAN_WITH.load(Relaxed) + budget / 10 + REPORT_MIN_BYTES;
            if is_much && !SAID.load(Relaxed) && !setup::goes_unpaged() {
                let line = format!(
                    "terapage: {}: {} are in memory beside the budget of {} MiB, not paged ({}): --memory does not hold ({})\n",
                    name(),
                    mib(found.total()),
                    budget >> 20,
                    kinds(&found),
                    remedy(&found)
                );
                SAID.store(say(&line), Relaxed);
            }
        }
    }
    ROOM.taken.store(false, Release);
}

/// Bytes in memory that count in the budget, or would count if there were a pager.
fn counted() -> u64 {
    match shared() {
        Some(shared) => shared.counted_bytes(),
        None => {
            let arena = ARENA.lock();
            // The free parts of blocks count, too: before there is a pager, they stay in memory.
            let rests = arena.ranges.block_bytes - arena.ranges.used_bytes;
            (arena.in_use() + rests) as u64
        }
    }
}

/// The name of the process.
fn name() -> String {
    let mut comm = [0; 64];
    let len = Early::open(c"/proc/self/comm").map_or(0, |file| file.read_at(&mut comm, 0));
    let name = String::from_utf8_lossy(&comm[..len]);
    name.trim_end().chars().filter(|c| !c.is_control()).collect()
}

/// The untracked memory, and all memory of the process, private or shared.
fn parse(status: &[u8], counted: u64) -> Option<(Untracked, u64)> {
    let field = |name: &str| {
        let at = memchr::memmem::find(status, name.as_bytes())? + name.len();
        let line = status[at..].split(|&byte| byte == b'\n').next()?;
        std::str::from_utf8(line).ok().map(str::trim)
    };
    let bytes = |name| Some(field(name)?.strip_suffix(" kB")?.parse::<u64>().ok()? << 10);
    let (anonymous, shared) = (bytes("\nRssAnon:")?, bytes("\nRssShmem:")?);
    let private = anonymous.saturating_sub(counted);
    let locked = bytes("\nVmLck:").unwrap_or(0).min(private);
    let brk = brk().saturating_sub(BRK.load(Relaxed)).min(private);
    let named = (places::bytes() as u64).min(private);
    let copied = (places::copied_bytes() as u64).min(private);
    Some((Untracked { private, brk, locked, named, copied, shared }, anonymous + shared))
}

fn note(found: Untracked) {
    NOW.set(found);
    if found.total() > MOST.get().total() {
        MOST.set(found);
    }
    MOST_SHARED.fetch_max(found.shared, Relaxed);
    if let Some(counters) = shared().map(|shared| &shared.counters) {
        let most = MOST.get().total();
        for (counter, value) in [
            (&counters.untracked_bytes, found.total()),
            (&counters.untracked_peak_bytes, most),
            (&counters.shared_bytes, found.shared),
            (&counters.shared_peak_bytes, MOST_SHARED.load(Relaxed)),
        ] {
            counter.store(value, Relaxed);
        }
    }
}

/// Puts the findings into the counters of a process without a pager.
pub fn fill(snapshot: &mut terapage_stats::Snapshot) {
    snapshot.untracked_bytes = NOW.get().total();
    snapshot.untracked_peak_bytes = MOST.get().total();
    snapshot.shared_bytes = NOW.get().shared;
    snapshot.shared_peak_bytes = MOST_SHARED.load(Relaxed);
}

/// The line for the end of the process: more was in memory than promised, since some of it is not
/// paged. A forked child does not count the memory with which it began.
pub fn last_line() -> Option<String> {
    let settings = setup::settings()?;
    // An unpaged process has said so before, and a released one has no budget.
    if setup::goes_unpaged() || crate::arena::is_released() {
        return None;
    }
    let (most, began_with) = (MOST.get(), BEGAN_WITH.load(Relaxed));
    if !BROKEN.load(Relaxed) || began_with > 0 && most.total() < began_with + REPORT_MIN_BYTES {
        return None;
    }
    let heap = match settings.heap {
        Heap::All => "",
        Heap::Large => "; objects below 128 KiB are not paged (--heap large)",
        Heap::Off => "; malloc's memory is not paged (--heap off)",
    };
    Some(format!(
        "terapage: {}: {} of its memory at most were not paged, so --memory did not hold ({} MiB): {}{heap} ({})\n",
        name(),
        mib(most.total()),
        setup::budget() >> 20,
        kinds(&most),
        remedy(&most)
    ))
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// What pages the largest kind of memory, or limits it.
pub fn remedy(what: &Untracked) -> &'static str {
    let may_load_host = !crate::hosted::is_host() && !cfg!(target_env = "musl");
    let is_malloc_paged = setup::settings().is_some_and(|settings| settings.heap == Heap::All);
    // The loader's list of libraries cannot be asked: the pager's thread must not wait for it.
    remedy_for(what, may_load_host && is_malloc_paged, || name() == JAVA.program)
}

/// The same. `hosts`: whether a host could page what goes past the C library.
fn remedy_for(what: &Untracked, hosts: bool, is_java: impl Fn() -> bool) -> &'static str {
    const LIMIT: &str = "--enforce limits all of it";
    let largest = parts(what).into_iter().max_by_key(|(bytes, _)| *bytes).map(|(_, kind)| kind);
    match largest {
        Some(SHARED) if is_java() => JAVA.shared_remedy,
        Some(BY_BRK | NAMED | REST) if hosts => {
            "try --static all, which pages what is mapped past the C library, too; --enforce limits all of it"
        }
        _ => LIMIT,
    }
}

const SHARED: &str = "shared memory";
const BY_BRK: &str = "an allocator's by brk";
const NAMED: &str = "at addresses that the program named";
const COPIED: &str = "written pages of files that are mapped private";
const REST: &str = "executable, protected, stacks, or mapped past the arena";

fn parts(what: &Untracked) -> [(u64, &'static str); 6] {
    let rest = what.private.saturating_sub(what.brk + what.locked + what.named + what.copied);
    [
        (what.shared, SHARED),
        (what.brk, BY_BRK),
        (what.locked, "locked"),
        (what.named, NAMED),
        (what.copied, COPIED),
        (rest, REST),
    ]
}

/// The kinds of memory, in words.
fn kinds(what: &Untracked) -> String {
    let mut shown = Vec::new();
    for (bytes, kind) in parts(what) {
        if bytes >= 1 << 20 {
            shown.push(format!("{} {kind}", mib(bytes)));
        }
    }
    shown.join(", ")
}

/// Reads the status of the process. Returns the bytes read. If there is a pager, its thread opens
/// the file and keeps it open, because the program may later forbid itself to open files. (The
/// status is that of this thread, because the first thread may have ended and then shows nothing.)
fn read_status(bytes: &mut [u8]) -> usize {
    const NAME: &std::ffi::CStr = c"/proc/thread-self/status";
    if shared().is_none() {
        return Early::open(NAME).map_or(0, |file| file.read_at(bytes, 0));
    }
    let me = std::process::id();
    if STATUS_OF.load(Relaxed) != me {
        let _opening = Opening::begin();
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path ends in a zero byte.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, NAME.as_ptr(), flags) };
        if fd < 0 {
            return 0;
        }
        let old = STATUS.load(Relaxed);
        if old >= 0 {
            // The open file is the parent's: it is replaced under the same number. SAFETY: no
            // memory is touched.
            unsafe {
                libc::syscall(libc::SYS_dup3, fd, i64::from(old), libc::O_CLOEXEC);
                libc::syscall(libc::SYS_close, fd);
            }
        } else {
            // SAFETY: the descriptor was made just now.
            let fd = unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd as i32) };
            let Ok(fd) = Fd::adopt(fd) else { return 0 };
            STATUS.store(std::mem::ManuallyDrop::new(fd).raw(), Relaxed);
        }
        STATUS_OF.store(me, Relaxed);
    }
    // SAFETY: the kernel writes into the slice.
    let got = unsafe {
        libc::syscall(
            libc::SYS_pread64,
            i64::from(STATUS.load(Relaxed)),
            bytes.as_mut_ptr(),
            bytes.len(),
            0i64,
        )
    };
    usize::try_from(got).unwrap_or(0)
}

/// Writes a line to standard error while the program runs. It does so only if the file accepts the
/// line at once, since the pager must not wait for a reader. The file must also be the one from the
/// beginning, since the program may have opened another file under that number.
pub fn say(line: &str) -> bool {
    let began = [ERRORS[0].load(Relaxed), ERRORS[1].load(Relaxed)];
    if standard_error() != Some(began) {
        return false;
    }
    let mut poll = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one descriptor is polled, without waiting; no signals are changed.
    let ready = unsafe { libc::syscall(libc::SYS_ppoll, &raw mut poll, 1i64, &raw const now, 0i64, 8i64) };
    let takes = ready == 1 && poll.revents == libc::POLLOUT;
    if takes {
        thread::say(line);
    }
    takes
}

/// The device and the file of standard error.
fn standard_error() -> Option<[u64; 2]> {
    // SAFETY: plain data, for which zeros are a value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `found` has room for the answer.
    let done = unsafe { libc::syscall(libc::SYS_fstat, 2i64, &raw mut found) };
    (done == 0).then_some([found.st_dev, found.st_ino])
}

/// The end of the heap that the kernel keeps for the process (`brk`).
fn brk() -> u64 {
    // SAFETY: with 0 the call only queries.
    unsafe { libc::syscall(libc::SYS_brk, 0i64) as u64 }
}

fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` has room for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_untracked_is_what_nobody_counts() {
        let status = b"Name:\ta b\nVmLck:\t    2048 kB\nRssAnon:\t  102400 kB\nRssFile:\t 1 kB\nRssShmem:\t  51200 kB\n";
        let (found, all) = parse(status, 60 << 20).unwrap();
        assert_eq!((found.private, found.shared, found.locked), (40 << 20, 50 << 20, 2 << 20));
        assert_eq!(all, 150 << 20);
        assert_eq!(parse(status, 1 << 40).unwrap().0.total(), 50 << 20);
        assert!(parse(b"Name:\tx\n", 0).is_none());
    }

    #[test]
    fn kinds_are_named_where_there_are_some() {
        let what = Untracked {
            private: 30 << 20,
            brk: 10 << 20,
            locked: 1 << 10,
            shared: 5 << 20,
            ..Untracked::default()
        };
        let text = kinds(&what);
        assert!(
            text.starts_with("5 MiB shared memory, 10 MiB an allocator's by brk, 19 MiB executable"),
            "{text}"
        );
        assert!(!text.contains("locked"), "{text}");
    }

    #[test]
    fn each_kind_has_its_remedy() {
        let hosted = |what: Untracked| remedy_for(&what, true, || true);
        let files = Untracked { private: 30 << 20, copied: 29 << 20, ..Untracked::default() };
        assert_eq!(
            kinds(&files),
            "29 MiB written pages of files that are mapped private, 1 MiB executable, protected, stacks, or mapped past the arena"
        );
        assert_eq!(hosted(files), "--enforce limits all of it");
        let direct = Untracked { private: 30 << 20, ..Untracked::default() };
        assert!(hosted(direct).contains("--static all"), "{}", hosted(direct));
        assert_eq!(remedy_for(&direct, false, || true), "--enforce limits all of it");
        let shared = Untracked { private: 3 << 20, shared: 40 << 20, ..Untracked::default() };
        assert!(hosted(shared).contains("-XX:+UseG1GC"), "{}", hosted(shared));
        assert_eq!(remedy_for(&shared, true, || false), "--enforce limits all of it");
    }

    #[test]
    fn this_process_has_memory() {
        let mut bytes = [0; 4096];
        let len = read_status(&mut bytes);
        assert!(parse(&bytes[..len], 0).unwrap().0.private > 0);
    }
}
