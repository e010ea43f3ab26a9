//! The last thread: a process whose `main` has ended by `pthread_exit` ends when its last thread
//! does.
//!
//! The C library counts threads for this, including the pager's, so its count would never reach
//! zero and the process would never end. So after the first thread has ended (in the child of a
//! fork: the forking thread), one thread checks whether the program still has threads. If it has
//! none, that thread ends the process. There is only one such thread, even if there are several
//! copies of this crate ([`census`]).
//!
//! Threads that end by the system call itself do so without the C library's knowledge. Then nobody
//! waits, and a pager's thread asks [`is_deserted`] now and then.

use crate::opening::Opening;
use crate::{census, thread};
use std::fs::{DirEntry, File};
use std::io::Read;
use std::sync::OnceLock;
use std::time::Duration;

/// The first pause between two checks. Few programs end in this way, and they may live long before.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest pause: each pause is longer than the previous one, up to this.
const LONGEST: Duration = Duration::from_millis(32);

/// The beginning of the names of the kernel's threads that work for an io_uring; the id of the
/// owner follows.
const WORKER: &[u8] = b"iou-wrk-";

/// The key for which the C library calls [`ended`] at the end of a thread that has a value: the
/// process's first thread.
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

/// A function through which [`look`] is called again, if the program has opened as many files as it
/// may.
static AGAIN: OnceLock<fn() -> bool> = OnceLock::new();

/// Prepares a call at the end of the first thread, which is the calling one. (Another thread may
/// load the library; then the end is not noticed.)
pub fn open(again: fn() -> bool) {
    census::join();
    if thread::id() != std::process::id() {
        return;
    }
    AGAIN.set(again).ok();
    let mut key = 0;
    // SAFETY: `key` has room for the key; the function lives as long as the process.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0 {
        KEY.set(key).ok();
        is_first();
    }
}

/// Notes that the calling thread is its process's first: at the start, and in a forked child.
pub fn is_first() {
    if let Some(&key) = KEY.get() {
        // SAFETY: the key was made. The value may be any pointer except null, and is never
        // dereferenced.
        unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
        census::wait_no_more();
    }
}

/// Called at the end of the first thread; not if the process ends by `exit` or `_exit`.
unsafe extern "C" fn ended(_value: *mut libc::c_void) {
    // Otherwise two threads would call `exit` at the same time.
    if !census::begin_to_wait() {
        return;
    }
    let signals = thread::block_signals();
    // If no thread can begin, the process stays.
    let begun = thread::spawn_quiet(c"terapage-last", move || {
        let (mut looks, mut sleep) = (0, SHORTEST);
        // Twice: a thread of the pager may begin or end between the two counts.
        while looks < 2 {
            std::thread::sleep(sleep);
            sleep = (2 * sleep).min(LONGEST);
            looks = if is_alone() { looks + 1 } else { 0 };
        }
        // Functions that are called at exit may fork, and wait for signals.
        thread::restore_signals(&signals);
        // SAFETY: the C library calls `exit` in the last thread, too.
        unsafe { libc::exit(0) };
    });
    if begun.is_err() {
        census::wait_no_more();
    }
    thread::restore_signals(&signals);
}

/// Whether the first thread has ended, and only the library's threads are left.
fn is_alone() -> bool {
    let _internal = thread::Internal::enter();
    look().unwrap_or_else(|_| AGAIN.get().is_some_and(|again| again()))
}

/// Whether the first thread has ended, and only the library's threads are left. An error says why
/// this cannot be determined.
///
/// # Errors
/// The list of threads cannot be read: perhaps the program has opened as many files as it may.
pub fn look() -> std::io::Result<bool> {
    let _opening = Opening::begin();
    let before = thread::ours();
    let mut stat = [0; 1024];
    let len = File::open("/proc/self/stat")?.read(&mut stat)?;
    let stat = String::from_utf8_lossy(&stat[..len]);
    // The name, in brackets, may contain anything. The first thread's state follows the name and,
    // 17 fields later, the number of threads (proc(5)).
    let Some((_, fields)) = stat.rsplit_once(')') else { return Ok(false) };
    let mut fields = fields.split_ascii_whitespace();
    let has_ended = fields.next() == Some("Z");
    let threads = fields.nth(16).and_then(|threads| threads.parse::<usize>().ok());
    // The number of threads is checked first, because this opens no further file.
    Ok(has_ended && (threads == Some(1 + before.min(thread::ours())) || is_one()?))
}

/// Whether the program has no threads left, and no thread waits for that moment.
pub fn is_deserted() -> bool {
    !census::is_awaited() && look().unwrap_or(false)
}

/// The status with which the process's first thread has ended.
pub fn status_of_first() -> Option<libc::c_int> {
    let _opening = Opening::begin();
    let stat = std::fs::read("/proc/self/stat").ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The last field, in the form of `wait` (proc(5)).
    let code: libc::c_int = stat.split_ascii_whitespace().nth_back(0)?.parse().ok()?;
    Some(code >> 8)
}

/// Whether the program has one thread, apart from the library's.
pub fn has_one_thread() -> bool {
    let _internal = thread::Internal::enter();
    // Twice: a thread of the library may begin or end between the two counts.
    is_one().unwrap_or(false) || is_one().unwrap_or(false)
}

/// Whether there is one thread, apart from the library's and the kernel's. The kernel's threads
/// work for the pager's ring if a file system requires it (an overlay, in containers), and the last
/// one stays even if it has no work. If a thread of the library begins or ends meanwhile, there may
/// seem to be more threads.
///
/// # Errors
/// As for [`look`]. A file for the list and one for a name are open at the same time.
fn is_one() -> std::io::Result<bool> {
    let _opening = Opening::begin();
    let before = thread::ours();
    let mut others = 0;
    // No more names are read than necessary: a program may have thousands of threads.
    for task in std::fs::read_dir("/proc/self/task")?.filter_map(Result::ok) {
        others += usize::from(is_other(&task)?);
        if others > 1 + before {
            return Ok(false);
        }
    }
    Ok(others <= 1 + before.min(thread::ours()))
}

/// Whether a thread is neither the kernel's nor one of the library's for a moment. A thread that is
/// just ending counts.
fn is_other(task: &DirEntry) -> std::io::Result<bool> {
    let name = match std::fs::read(task.path().join("comm")) {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => return Err(error),
        name => name.unwrap_or_default(),
    };
    Ok(!name.starts_with(WORKER) && !name.starts_with(thread::FOR_NOW.to_bytes()))
}
