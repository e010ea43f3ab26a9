//! The last thread: a process whose `main` has ended by `pthread_exit` ends when its last thread
//! does.
//!
//! The C library counts threads for this, and counts the pager's too: with those the count never
//! comes to nothing, and the process would be there for good. So once the first thread has ended
//! (which may be a fork's, in the child), one thread looks whether the program has others, and ends
//! the process: one, though there may be several copies of this crate ([`census`]).

use crate::{census, thread};
use std::fs::{DirEntry, File};
use std::io::Read;
use std::sync::OnceLock;
use std::time::Duration;

/// How long it sleeps before it looks again, at first and at most: few programs end so, and they
/// may live long before.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(32);

/// How the kernel calls threads that work for a ring: behind it comes whose it is.
const WORKER: &[u8] = b"iou-wrk-";

/// What the C library calls [`ended`] for, in a thread that ends and has a value here: the
/// process's first.
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

/// What [`look`] is asked through once more, where the program has opened all the files that it
/// may.
static AGAIN: OnceLock<fn() -> bool> = OnceLock::new();

/// Asks to be told of the first thread's end: it is the calling one. (A library may be loaded by
/// another; then nothing is told.)
pub fn open(again: fn() -> bool) {
    census::join();
    if thread::id() != std::process::id() {
        return;
    }
    AGAIN.set(again).ok();
    let mut key = 0;
    // SAFETY: the key is ours to write to; the function lives as long as the process.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0 {
        KEY.set(key).ok();
        is_first();
    }
}

/// The calling thread is its process's first: at the start, and in a forked child.
pub fn is_first() {
    if let Some(&key) = KEY.get() {
        // SAFETY: the key was made; any pointer but null will do, and nobody follows it.
        unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
        census::wait_no_more();
    }
}

/// Not called where the process ends by `exit` or `_exit`.
unsafe extern "C" fn ended(_value: *mut libc::c_void) {
    // Two would call `exit` at the same time.
    if !census::begin_to_wait() {
        return;
    }
    let signals = thread::block_signals();
    // Where no thread can begin the process stays.
    let begun = thread::spawn_quiet(c"terapage-last", move || {
        let (mut looks, mut sleep) = (0, SHORTEST);
        // Twice: a thread of the pager's may begin or end just between the two counts.
        while looks < 2 {
            std::thread::sleep(sleep);
            sleep = (2 * sleep).min(LONGEST);
            looks = if is_alone() { looks + 1 } else { 0 };
        }
        // What is called at the end may fork, and wait for signals.
        thread::restore_signals(&signals);
        // SAFETY: as the C library does it in the last thread.
        unsafe { libc::exit(0) };
    });
    if begun.is_err() {
        census::wait_no_more();
    }
    thread::restore_signals(&signals);
}

/// Whether the first thread has ended, and there are none but the library's otherwise.
fn is_alone() -> bool {
    let _internal = thread::Internal::enter();
    look().unwrap_or_else(|_| AGAIN.get().is_some_and(|again| again()))
}

/// The same, or why that cannot be told.
///
/// # Errors
/// What the program's threads are cannot be read: it may have opened all the files that it may.
pub fn look() -> std::io::Result<bool> {
    let before = thread::ours();
    let mut stat = [0; 1024];
    let len = File::open("/proc/self/stat")?.read(&mut stat)?;
    let stat = String::from_utf8_lossy(&stat[..len]);
    // The name, in brackets, may hold anything; after it come the first thread's state and, 17
    // fields on, the number of threads (proc(5)).
    let Some((_, fields)) = stat.rsplit_once(')') else { return Ok(false) };
    let mut fields = fields.split_ascii_whitespace();
    let has_ended = fields.next() == Some("Z");
    let threads = fields.nth(16).and_then(|threads| threads.parse::<usize>().ok());
    // The first way takes no file more than there is room for at times.
    Ok(has_ended && (threads == Some(1 + before.min(thread::ours())) || is_one()?))
}

/// Whether the program has one thread, apart from the library's.
pub fn has_one_thread() -> bool {
    let _internal = thread::Internal::enter();
    // Twice: a thread of the library's may begin or end just between the two counts.
    is_one().unwrap_or(false) || is_one().unwrap_or(false)
}

/// Whether there is one thread, apart from the library's and the kernel's: those work for the
/// pager's ring where a file system knows no other way (an overlay, in containers), and the last of
/// them stays when there is nothing to do. Where one of the library's begins or ends meanwhile
/// there may seem to be more.
fn is_one() -> std::io::Result<bool> {
    let before = thread::ours();
    let tasks = std::fs::read_dir("/proc/self/task")?;
    let is_other = |task: &DirEntry| {
        let name = std::fs::read(task.path().join("comm")).unwrap_or_default();
        !name.starts_with(WORKER) && !name.starts_with(thread::FOR_NOW.to_bytes())
    };
    // No more names are read than it takes: a program may have thousands of threads. One that ends
    // just now counts.
    let tasks = tasks.filter_map(Result::ok).filter(is_other).take(2 + before).count();
    Ok(tasks <= 1 + before.min(thread::ours()))
}
