//! The end of the process: its counters are written as `--stats` says. Until then the pager's
//! descriptors stay open.

use crate::arena::ARENA;
use crate::{borrowed, real, rereads, setup, summary, untracked};
use std::ffi::{c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use terapage_sys::opening::{self, Opening};
use terapage_sys::{fd, file, last, thread};

/// The process in which the library began. A forked child writes under a different name.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// The process that owns this memory. A child of vfork, which only borrows the memory, has another
/// number.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The process that `terapage run` became, whatever programs it has executed since.
static ROOT: AtomicU32 = AtomicU32::new(0);

/// Notes that the calling process is the one that `terapage run` became.
pub fn is_root() {
    ROOT.store(std::process::id(), SeqCst);
}

/// Whether the calling process is the one that `terapage run` became.
pub fn is_run() -> bool {
    ROOT.load(SeqCst) == std::process::id()
}

/// Prepares to be called at the end of the process.
pub fn open() {
    FIRST.store(std::process::id(), SeqCst);
    own();
    // A hosted program ends by a system call. SAFETY: the functions live as long as the process.
    #[cfg(not(target_env = "musl"))]
    unsafe {
        on_exit(at_exit, std::ptr::null_mut());
        __cxa_at_quick_exit(at_quick_exit, std::ptr::null_mut());
    };
}

#[cfg(not(target_env = "musl"))]
unsafe extern "C" {
    /// Like `atexit`, but the function receives the status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    /// `at_quick_exit` calls it: the function is for `quick_exit`, `object` the caller's.
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), object: *mut c_void) -> c_int;
    /// The action of `exit` on streams after all functions were called.
    fn fcloseall() -> c_int;
}

/// Notes that the calling process owns the memory: at the start, and in a forked child.
pub fn own() {
    OWNER.store(std::process::id(), SeqCst);
    opening::is_asked();
}

/// The process that owns the memory.
pub fn owner() -> u32 {
    OWNER.load(SeqCst)
}

/// Whether the calling process owns the memory.
pub fn is_owner() -> bool {
    owner() == std::process::id()
}

#[cfg(not(target_env = "musl"))]
extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    finish();
    if is_far() {
        // The streams' memory may be paged, so they are closed before the stores are. SAFETY: this
        // function was the first to be registered, so it is called last, and this is the remaining
        // work of `exit`.
        unsafe { fcloseall() };
        close_stores();
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, i64::from(status)) };
    }
}

/// The first function to be registered is called last: `quick_exit` then only ends the process.
#[cfg(not(target_env = "musl"))]
extern "C" fn at_quick_exit(_argument: *mut c_void) {
    finish();
    if is_far() {
        close_stores();
    }
}

/// Whether this process is paged, and has a remote store.
fn is_far() -> bool {
    let has_far = |settings: &terapage_config::Settings| settings.stores.iter().any(|store| store.is_far());
    is_owner() && setup::settings().is_some_and(has_far) && ARENA.lock().pager.is_some()
}

/// Frees what the stores hold elsewhere. From here on missing memory no longer comes in.
fn close_stores() {
    let _internal = thread::Internal::enter();
    if let Some(pager) = &ARENA.lock().pager {
        pager.close_stores().ok();
    }
}

/// The longest time that an exec waits for servers to note that this process leaves.
const LEAVE_MS: u32 = 200;

/// Between two looks.
const LOOK_MS: u32 = 2;

/// Before this process executes another program: tells servers that it leaves its blocks. Returns
/// whether there are any servers; then [`stay`] must be called if there is no exec after all.
pub fn leave() -> bool {
    if !is_far() {
        return false;
    }
    let _internal = thread::Internal::enter();
    for _ in 0..LEAVE_MS / LOOK_MS {
        if ARENA.lock().pager.as_ref().is_none_or(|pager| pager.leaving(true)) {
            break;
        }
        thread::sleep_ms(LOOK_MS.into());
    }
    true
}

/// The process continues.
pub fn stay() {
    let _internal = thread::Internal::enter();
    if let Some(pager) = &ARENA.lock().pager {
        pager.leaving(false);
    }
}

/// The process that has begun to write its files, its thread that does so, and the process that has
/// written them.
static FINISHING: AtomicU32 = AtomicU32::new(0);
static FINISHER: AtomicU32 = AtomicU32::new(0);
static FINISHED: AtomicU32 = AtomicU32::new(0);

/// The longest time that a thread that ends the process waits for another that does so already.
/// Chosen, not measured.
const FINISH_MS: u32 = 2000;

/// Writes the counters and ends the trace, once in a process: a signal may end a process that is
/// just ending.
pub fn finish() {
    let process = std::process::id();
    if !is_owner() {
        return;
    }
    if FINISHING.swap(process, SeqCst) == process {
        return finished_by_another();
    }
    FINISHER.store(thread::id(), SeqCst);
    write_all();
    FINISHED.store(process, SeqCst);
}

/// Waits until another thread has written the files. Not for ever: that thread may wait for a lock
/// of this one, and this one may be the same, in a handler.
fn finished_by_another() {
    for _ in 0..FINISH_MS / LOOK_MS {
        if FINISHED.load(SeqCst) == std::process::id() || FINISHER.load(SeqCst) == thread::id() {
            return;
        }
        thread::sleep_ms(LOOK_MS.into());
    }
}

fn write_all() {
    // Files are opened here: a cancelled thread would end itself, and not the process.
    let _internal = thread::Internal::enter();
    if let Some(pager) = &ARENA.lock().pager {
        write_recorded(pager);
    }
    untracked::look_last();
    untracked::note_program_time();
    write_stats();
    if let Some(line) = untracked::last_line() {
        thread::say(&line);
    }
    summary::finish(is_run());
}

/// The path of a file that each process of a run writes. The first process uses the name itself;
/// later ones append their number. A pipe keeps its name.
pub fn own_name(path: &Path) -> PathBuf {
    if path.is_file() { with_number(path) } else { path.to_owned() }
}

pub fn with_number(path: &Path) -> PathBuf {
    let mut numbered = path.as_os_str().to_owned();
    numbered.push(format!(".{}", std::process::id()));
    numbered.into()
}

/// The counters of a process that had no pager.
pub fn never_paged() -> terapage_stats::Snapshot {
    let mut counters = terapage_stats::Snapshot {
        pid: std::process::id().into(),
        budget_bytes: crate::job::auto_budget().unwrap_or(setup::budget() as u64),
        budget_auto: crate::job::auto_budget().is_some().into(),
        block_bytes: setup::block() as u64,
        program_us: thread::used_by_program_ns() / 1000,
        ..Default::default()
    };
    (counters.job, counters.job_processes) = crate::job::numbers();
    untracked::fill(&mut counters);
    counters
}

/// Ends what the pager records: the trace, and what this run has learnt.
pub fn write_recorded(pager: &terapage_pager::Pager) {
    if let Err(error) = pager.finish_trace() {
        thread::say(&format!("terapage: {error}\n"));
    }
    write_learnt(pager);
}

/// Notes for the program's next run what this one has learnt.
fn write_learnt(pager: &terapage_pager::Pager) {
    let Some(path) = setup::settings().and_then(|settings| settings.learn.as_ref()) else { return };
    if let Some(learnt) = pager.finish_learning()
        && let Err(error) = learnt.write(path)
    {
        thread::say(&format!(
            "terapage: what this run has learnt (--learn) could not be written to {}: {error}\n",
            path.display()
        ));
    }
}

fn write_stats() {
    let Some(path) = setup::settings().and_then(|settings| settings.stats.as_ref()) else { return };
    let first = FIRST.load(SeqCst) == std::process::id();
    let arena = ARENA.lock();
    let mut counters = match arena.snapshot() {
        Some(counters) => counters,
        // A process that never grew large enough to be paged says so, unless another process of the
        // run has written counters.
        None if is_run() && !path.exists() => never_paged(),
        None => return,
    };
    rereads::fill(&arena, &mut counters);
    drop(arena);
    let Ok(json) = counters.to_json() else { return };
    let path = if first { own_name(path) } else { with_number(path) };
    if let Err(error) = std::fs::write(&path, json) {
        thread::say(&format!(
            "terapage: the counters (--stats) could not be written to {}: {error}\n",
            path.display()
        ));
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    finish();
    if is_far() {
        close_stores();
    }
    // SAFETY: ends the process.
    unsafe { libc::syscall(libc::SYS_exit_group, status as i64) };
    std::process::abort()
}

/// Ends the process of a program that has no threads left: they may end without the C library's
/// knowledge, by a direct call, and the pager's threads would remain. The pager's thread calls it
/// each second.
pub fn look_for_the_end() {
    static ENDS: AtomicBool = AtomicBool::new(false);
    // Twice: a thread of the library may begin or end between the two counts.
    let is_over = || last::is_deserted() && last::is_deserted();
    if !is_owner() || !is_over() || ENDS.swap(true, SeqCst) {
        return;
    }
    let status = last::status_of_first().unwrap_or(0);
    // In a thread of its own, since the end of the process asks the pager for its counters.
    // SAFETY: ends the process.
    thread::spawn(c"terapage-last", move || unsafe { _exit(status) }).ok();
}

fn refuse() -> c_int {
    crate::set_errno(libc::EBADF);
    -1
}

/// Whether a number may be the program's to close. (A child of `vfork` has descriptors of its own.)
fn is_programs(number: c_int) -> bool {
    borrowed::is_borrower() || opening::is_programs(number, || ARENA.is_mine())
}

/// Hook: programs close descriptors that they did not open. For them the pager's descriptors do not
/// exist, also those that are [still under a low number](opening).
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn close(number: c_int) -> c_int {
    // The C library refuses to close what does not exist, and there a thread may be cancelled, too.
    let number = if fd::is_ours(number) || !is_programs(number) { -1 } else { number };
    // SAFETY: the caller keeps the contract of `close`.
    unsafe { real::call!(close(number) or -1) }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if old == new && !fd::is_ours(new) {
        // `dup3` refuses equal numbers. SAFETY: no memory is touched.
        return if unsafe { libc::fcntl(old, libc::F_GETFD) } < 0 { -1 } else { new };
    }
    // SAFETY: the caller keeps the contract of `dup2`.
    unsafe { dup3(old, new, 0) }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    while old != new && !is_programs(new) && !fd::is_ours(new) {
        // The number is free, or will be at once. It is taken only if it is free.
        match copy_to_free(old, new, flags) {
            Some(copy) if copy == new => return new,
            Some(_) => {}
            None => break,
        }
    }
    if fd::is_ours(new) {
        return refuse();
    }
    // SAFETY: the caller keeps the contract of `dup3`.
    unsafe { libc::syscall(libc::SYS_dup3, old as i64, new as i64, flags as i64) as c_int }
}

/// Copies a descriptor to a number if it is free. Returns the number of the copy, which remains
/// only if it is that one. `None` if there is no copy: `dup3` says why.
fn copy_to_free(old: c_int, new: c_int, flags: c_int) -> Option<c_int> {
    let call = match flags {
        0 => libc::F_DUPFD,
        libc::O_CLOEXEC => libc::F_DUPFD_CLOEXEC,
        _ => return None,
    };
    let _opening = Opening::begin();
    // SAFETY: no memory is touched, and the second copy has no user.
    unsafe {
        let copy = libc::syscall(libc::SYS_fcntl, i64::from(old), call, i64::from(new)) as c_int;
        if copy >= 0 && copy != new {
            libc::syscall(libc::SYS_close, i64::from(copy));
        }
        (copy >= 0).then_some(copy)
    }
}

/// The flags of a call without `own`, the flag that gives a thread separate descriptors, since the
/// pager's threads need the program's descriptors. If the program has one thread, it shares its
/// descriptors with no other thread, and the flag can be removed. `None` if it has several threads:
/// then the call is refused, as if memory were lacking.
pub fn without_own_descriptors(flags: c_int, own: c_int) -> Option<c_int> {
    if flags & own == 0 || setup::settings().is_none() {
        return Some(flags);
    }
    if !last::has_one_thread() {
        crate::set_errno(libc::ENOMEM);
        return None;
    }
    Some(flags & !own)
}

/// Closes what is open from `first` to `last` and is the program's: a call for all could close what
/// the pager has for a moment. `None` if what is open cannot be listed.
///
/// # Safety
/// The contract is that of `close_range`.
unsafe fn close_one_by_one(first: c_uint, last: c_uint) -> Option<()> {
    let (mut from, mut some) = (first, [0; 64]);
    loop {
        let found = file::open_numbers(from, &mut some)?;
        for &number in some[..found].iter().take_while(|&&number| number <= last) {
            // SAFETY: the caller keeps the contract of `close_range`.
            unsafe { close(number as c_int) };
        }
        match some[..found].last() {
            Some(&number) if found == some.len() && number < last => from = number + 1,
            _ => return Some(()),
        }
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let own = if first <= last { libc::CLOSE_RANGE_UNSHARE as c_int } else { 0 };
    let Some(flags) = without_own_descriptors(flags, own) else { return -1 };
    let may_ask = flags == 0 && first <= last && !borrowed::is_borrower() && opening::may_ask();
    // SAFETY: the caller keeps the contract of `close_range`.
    if may_ask && unsafe { close_one_by_one(first, last) }.is_some() {
        return 0;
    }
    let mut from = first;
    // This also runs in children of `vfork`, so it takes no memory.
    for ours in fd::ours_sorted() {
        let ours = ours as c_uint;
        if ours < from || ours > last {
            continue;
        }
        if from < ours {
            // SAFETY: the caller keeps the contract of `close_range`.
            unsafe { libc::syscall(libc::SYS_close_range, from as u64, (ours - 1) as u64, flags as i64) };
        }
        from = ours + 1;
    }
    if from > last && from != first {
        return 0;
    }
    // SAFETY: the caller keeps the contract of `close_range`.
    unsafe { libc::syscall(libc::SYS_close_range, from as u64, last as u64, flags as i64) as c_int }
}

alias! {
    fn _Exit(status: c_int) -> ! = _exit(status);
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the caller keeps the contract of `closefrom`.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}
