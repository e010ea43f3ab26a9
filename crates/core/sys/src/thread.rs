//! Threads of the pager: starting them, waiting, signals, clocks, processors.

use crate::opening::Opening;
use crate::{Result, census, check};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Threads of the pager, or threads that do its work for a while: their allocations must not be
/// paged memory. Two places are taken for ever. The other places are for threads of the program
/// that end, grow mappings and so on at the same time. A thread that finds no free place waits for
/// one, at most for the time of reading a file of `/proc`.
static INTERNAL: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
const PLACES: usize = 128;

/// The number of places that were ever used. Each allocation searches them, and most programs use
/// few.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The `pthread_self` of the calling thread: never 0.
#[inline]
pub fn own_name() -> usize {
    // The C library's function reads the same word, which the processor's ABI fixes (the thread
    // pointer, TLS variant II), but the call costs more. SAFETY: the word is there in every thread.
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    unsafe {
        let name: usize;
        std::arch::asm!("mov {}, fs:0", out(reg) name, options(nostack, readonly, preserves_flags));
        name
    }
    // SAFETY: no memory is touched.
    #[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
    unsafe {
        libc::pthread_self() as usize
    }
}

/// Whether the calling thread, whose `pthread_self` is `thread`, does the pager's work.
#[inline]
pub fn is_internal(thread: usize) -> bool {
    // A thread sees its own writes, and only it writes its own name.
    INTERNAL[..USED.load(Relaxed).min(INTERNAL.len())].iter().any(|slot| slot.load(Relaxed) == thread)
}

/// Marks the calling thread as doing the pager's work until this value is dropped. Meanwhile the
/// thread runs no signal handler, and is not cancelled.
pub struct Internal(Option<(&'static AtomicUsize, Signals)>);

impl Internal {
    /// Begins the pager's work. May be nested.
    pub fn enter() -> Internal {
        let me = own_name();
        if is_internal(me) {
            return Internal(None);
        }
        let signals = block_signals();
        let free = |slot: &AtomicUsize| slot.compare_exchange(0, me, Relaxed, Relaxed).is_ok();
        let place = loop {
            match INTERNAL.iter().position(free) {
                Some(place) => break place,
                None => sleep_ms(1),
            }
        };
        USED.fetch_max(place + 1, Relaxed);
        Internal(Some((&INTERNAL[place], signals)))
    }
}

impl Drop for Internal {
    fn drop(&mut self) {
        if let Some((slot, signals)) = &self.0 {
            slot.store(0, Relaxed);
            restore_signals(signals);
        }
    }
}

/// The number of threads of this process that were begun by [`spawn`] and [`spawn_quiet`], of this
/// copy of the crate or another. A thread that is just beginning or ending may be missing.
pub fn ours() -> usize {
    census::threads()
}

/// Resets the count of threads in the child of a fork, which does not have them.
pub fn forget_others() {
    census::mine().store(0, Relaxed);
    OURS.iter().for_each(|place| place.store(0, Relaxed));
    USED_BY_ENDED.store(0, Relaxed);
    let me = own_name();
    for slot in &INTERNAL {
        if slot.load(Relaxed) != me {
            slot.store(0, Relaxed);
        }
    }
}

type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
    *mut libc::c_void,
) -> libc::c_int;

type CreateSimply = unsafe extern "C" fn(
    *mut libc::pthread_t,
    extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
    *mut libc::c_void,
) -> libc::c_int;

/// The C library's `pthread_create`, if [`find`] found it; otherwise 0.
static CREATE: AtomicUsize = AtomicUsize::new(0);
/// The C library's `thrd_create`, if [`find`] found no such `pthread_create`; otherwise 0.
static CREATE_SIMPLY: AtomicUsize = AtomicUsize::new(0);

/// Finds the function that begins threads. A program (Firefox) or a library may have its own
/// `pthread_create`, which takes memory of the program and waits for the new thread. It would wait
/// for the pager, which the new thread itself must become. So this function uses the
/// `pthread_create` behind this library if it is the C library's, and otherwise `thrd_create`,
/// which no library replaces. Without this call, the first function that the loader finds begins
/// threads. After this call, threads whose signals are blocked are not cancelled either.
#[cfg(not(target_env = "musl"))]
pub fn find() {
    // SAFETY: the names end in zero bytes; the descriptions are plain data, for which zeros are
    // valid.
    unsafe {
        let cancel = libc::dlsym(libc::RTLD_NEXT, c"pthread_setcancelstate".as_ptr());
        SET_CANCEL_STATE.store(cancel as usize, Relaxed);
        let [posix, simple] =
            [c"pthread_create", c"thrd_create"].map(|name| libc::dlsym(libc::RTLD_NEXT, name.as_ptr()));
        let [of_posix, of_simple] = [posix, simple].map(|at| {
            let mut info: libc::Dl_info = std::mem::zeroed();
            libc::dladdr(at, &raw mut info);
            info.dli_fbase
        });
        if simple.is_null() || of_posix == of_simple {
            CREATE.store(posix as usize, Relaxed);
        } else {
            CREATE_SIMPLY.store(simple as usize, Relaxed);
        }
    }
}

/// The same in a static host: nothing stands before its C library. But musl's first
/// `pthread_create` unblocks signals for a moment, and handlers of the hosted program must not run
/// in the host's code. So one comes before the program begins. It has no effect beside that: there
/// is no room for its stack.
#[cfg(target_env = "musl")]
pub fn find() {
    const NO_ROOM: usize = 1 << 60;
    extern "C" fn never(nothing: *mut libc::c_void) -> *mut libc::c_void {
        nothing
    }
    let mut thread = std::ptr::null_mut();
    // SAFETY: the attributes are used here only, and the function may be called with any argument.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, NO_ROOM);
        libc::pthread_create(&raw mut thread, &attributes, never, std::ptr::null_mut());
        libc::pthread_attr_destroy(&mut attributes);
    }
}

/// Begins a detached thread.
///
/// # Safety
/// `begin` may be called with `argument`, in another thread.
unsafe fn create(
    begin: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
    argument: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: zeros are a valid name of a thread. The functions found have these types, except that
    // the function of a `thrd_create` thread returns a number, which nobody reads. Only this
    // function uses the attributes, and the caller promises that `begin` may be called with
    // `argument`.
    unsafe {
        let mut thread: libc::pthread_t = std::mem::zeroed();
        let simply = CREATE_SIMPLY.load(Relaxed);
        if simply != 0 {
            let errno = std::mem::transmute::<usize, CreateSimply>(simply)(&mut thread, begin, argument);
            if errno == 0 {
                libc::pthread_detach(thread);
            }
            // The results of `thrd_create` (`thrd_nomem`, `thrd_error`) are not errnos.
            return if errno == 0 { 0 } else { libc::EAGAIN };
        }
        let create = match CREATE.load(Relaxed) {
            0 => libc::pthread_create,
            at => std::mem::transmute::<usize, Create>(at),
        };
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, 512 << 10);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let errno = create(&mut thread, &attributes, begin, argument);
        libc::pthread_attr_destroy(&mut attributes);
        errno
    }
}

/// The ids of this copy's threads; 0 marks a free place. Further threads count as the program's.
static OURS: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
/// The processor time of those threads that have ended, ns.
static USED_BY_ENDED: AtomicU64 = AtomicU64::new(0);

/// Does `work` as one of this copy's threads.
fn as_one_of_ours(work: impl FnOnce()) {
    let me = id();
    let place = OURS.iter().find(|place| place.compare_exchange(0, me, Relaxed, Relaxed).is_ok());
    work();
    if let Some(place) = place {
        // The sum comes first: a reading in between counts the thread twice rather than never.
        USED_BY_ENDED.fetch_add(used_ns(), Relaxed);
        place.store(0, Relaxed);
    }
}

/// The processor time that the program's own threads have used, ns: all but this copy's.
pub fn used_by_program_ns() -> u64 {
    let ours: u64 =
        OURS.iter().map(|place| place.load(Relaxed)).filter(|&id| id != 0).filter_map(used_by).sum();
    used_by_all_ns().saturating_sub(ours + USED_BY_ENDED.load(Relaxed))
}

/// Starts a thread that no signal of the program reaches.
///
/// The standard library's threads allocate by `malloc`, which may be the paged one; this thread
/// does not.
pub fn spawn(name: &'static std::ffi::CStr, work: impl FnOnce() + Send + 'static) -> Result<()> {
    spawn_quiet(name, move || {
        let _internal = Internal::enter();
        work();
    })
}

/// Like [`spawn`], for a thread that never allocates: it need not be [`Internal`], so it takes none
/// of those places.
///
/// # Errors
/// As for [`spawn`].
pub fn spawn_quiet(name: &'static std::ffi::CStr, work: impl FnOnce() + Send + 'static) -> Result<()> {
    launch(name, move || {
        // The thread counts itself, so the count never exceeds the number of threads.
        census::mine().fetch_add(1, Relaxed);
        work();
        census::mine().fetch_sub(1, Relaxed);
    })
}

/// Does `work` in a thread that another process has begun in this one: the thread counts in
/// [`ours`] meanwhile.
pub fn counted(work: impl FnOnce()) {
    census::mine().fetch_add(1, Relaxed);
    work();
    census::mine().fetch_sub(1, Relaxed);
}

/// The name of a short-lived thread, by which others recognise it.
pub const FOR_NOW: &std::ffi::CStr = c"terapage-fork";

/// Like [`spawn`], for a thread that ends at once. It is not counted in [`ours`], because the count
/// could be wrong after its end.
///
/// # Errors
/// As for [`spawn`].
pub fn spawn_for_now(work: impl FnOnce() + Send + 'static) -> Result<()> {
    launch(FOR_NOW, work)
}

fn launch(name: &'static std::ffi::CStr, work: impl FnOnce() + Send + 'static) -> Result<()> {
    type Work = Box<dyn FnOnce() + Send>;
    extern "C" fn begin(argument: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: `launch` made the argument out of a box, for this thread.
        let (name, work) = *unsafe { Box::from_raw(argument.cast::<(&'static std::ffi::CStr, Work)>()) };
        // SAFETY: the name ends in a zero byte.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        as_one_of_ours(work);
        std::ptr::null_mut()
    }
    let internal = Internal::enter();
    let argument: Box<(&'static std::ffi::CStr, Work)> = Box::new((name, Box::new(work)));
    let argument = Box::into_raw(argument);
    let old = block_signals();
    // SAFETY: the argument goes to the thread, or is taken back below.
    let errno = unsafe { create(begin, argument.cast()) };
    restore_signals(&old);
    drop(internal);
    if errno == 0 {
        return Ok(());
    }
    // SAFETY: no thread began, so none took the argument.
    drop(unsafe { Box::from_raw(argument) });
    // musl gives EAGAIN for every error of the kernel's.
    let errno = if cfg!(target_env = "musl") && begins_children_elsewhere() { libc::EINVAL } else { errno };
    let call = match errno {
        libc::EAGAIN => {
            "pthread_create; the limit on threads and processes may be reached (ulimit -u, or \
             pids.max of the cgroup)"
        }
        libc::EINVAL => {
            "pthread_create; children of the program start in another PID namespace (unshare), and \
             only they may start threads"
        }
        _ => "pthread_create",
    };
    Err(crate::Error { call, source: std::io::Error::from_raw_os_error(errno) })
}

/// Whether children of the process start in another PID namespace (`unshare`), which has no name
/// before the first of them.
fn begins_children_elsewhere() -> bool {
    let namespace = |name: &str| {
        let found = std::fs::metadata(format!("/proc/self/ns/{name}"));
        found.map(|found| std::os::unix::fs::MetadataExt::ino(&found)).ok()
    };
    let own = namespace("pid");
    own.is_some() && own != namespace("pid_for_children")
}

/// The id of the calling thread, as in a fault.
pub fn id() -> u32 {
    // glibc has gettid since 2.30 only.
    // SAFETY: no memory is touched.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// The C library's `pthread_setcancelstate`, if [`find`] found it; otherwise 0. A sanitizer has its
/// own version, which cannot be called at every moment: under a sanitizer this stays 0.
static SET_CANCEL_STATE: AtomicUsize = AtomicUsize::new(0);

/// `PTHREAD_CANCEL_DISABLE`, for which the libc crate has no name.
const NOT_CANCELLED: libc::c_int = 1;

/// Allows or forbids the cancellation of the calling thread. Returns the previous state; `None` if
/// nothing was done.
fn set_cancel_state(state: libc::c_int) -> Option<libc::c_int> {
    let at = SET_CANCEL_STATE.load(Relaxed);
    if at == 0 {
        return None;
    }
    type Set = unsafe extern "C" fn(libc::c_int, *mut libc::c_int) -> libc::c_int;
    let mut old = 0;
    // SAFETY: the function of this name has this type; `old` has room for the old state.
    unsafe { std::mem::transmute::<usize, Set>(at)(state, &raw mut old) };
    Some(old)
}

/// The blocked signals, one bit each, in the kernel's form, and whether the thread could be
/// cancelled. (Libraries may replace the C library's functions for this, and their functions cannot
/// be called at every moment.) `None` if nothing had to be changed.
#[derive(Clone, Copy)]
pub struct Signals(Option<(u64, Option<libc::c_int>)>);

/// The `pthread_self` of the quiet thread, if there is one; otherwise 0.
static QUIET: AtomicUsize = AtomicUsize::new(0);

/// How many times the quiet thread has said so. Only that thread uses it.
static QUIET_DEPTH: AtomicUsize = AtomicUsize::new(0);

/// Says that the signals of the calling thread, whose `pthread_self` is `me`, are blocked, and stay
/// blocked until [`end_quiet`]. Until then, [`block_signals`] costs no system call in this thread.
/// One thread at a time may say so: the holder of a certain lock, or the only thread of a process
/// that starts. May be nested.
pub fn begin_quiet(me: usize) {
    QUIET_DEPTH.store(QUIET_DEPTH.load(Relaxed) + 1, Relaxed);
    QUIET.store(me, Relaxed);
}

/// Ends the state that [`begin_quiet`] began. All code that blocked signals meanwhile has restored
/// them.
pub fn end_quiet() {
    let depth = QUIET_DEPTH.load(Relaxed) - 1;
    QUIET_DEPTH.store(depth, Relaxed);
    if depth == 0 {
        QUIET.store(0, Relaxed);
    }
}

const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Signals that are never blocked. A fault of the pager itself must stop the process, not repeat
/// for ever. The C library uses 33 to change the user of all threads. It uses 32 to cancel a
/// thread, and the handler of glibc 2.36 does not ask whether the thread still may be cancelled,
/// which was asked when the signal was sent. So that signal is blocked.
const NEVER: u64 = bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGILL) | bit(libc::SIGFPE) | bit(33);

/// More signals that are never blocked, one bit each.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// From now on this signal is never blocked: it brings system calls to a handler of the library.
pub fn leaves_open(signal: libc::c_int) {
    OPEN.fetch_or(bit(signal), Relaxed);
}

/// Whether the signals of the calling thread, whose `pthread_self` is `me`, are blocked for a while
/// or always: it holds a lock of the library's, or is lent to threads of another C library.
pub fn is_quiet(me: usize) -> bool {
    QUIET.load(Relaxed) == me || SILENT.load(Relaxed) == me
}

/// The `pthread_self` of a thread whose signals are always blocked; 0 if there is none.
static SILENT: AtomicUsize = AtomicUsize::new(0);

/// Says that any thread with the calling thread's `pthread_self` has all signals blocked: the value
/// is lent to threads of another C library, which must not be unblocked here.
pub fn is_silent() {
    SILENT.store(own_name(), Relaxed);
}

/// Blocks every signal in the calling thread, and returns the signals that were already blocked.
/// The thread is not cancelled either: the library opens and reads files, and a cancelled thread
/// would end there, with the locks that it holds.
pub fn block_signals() -> Signals {
    // A thread sees its own writes, and only it writes its own name.
    let me = own_name();
    if QUIET.load(Relaxed) == me || SILENT.load(Relaxed) == me {
        return Signals(None);
    }
    let mut old = 0;
    change_signals(!(NEVER | OPEN.load(Relaxed)), &raw mut old);
    Signals(Some((old, set_cancel_state(NOT_CANCELLED))))
}

/// Restores the signals that were blocked before [`block_signals`].
pub fn restore_signals(old: &Signals) {
    let Some((signals, state)) = old.0 else { return };
    if let Some(state) = state {
        set_cancel_state(state);
    }
    change_signals(signals, std::ptr::null_mut());
}

/// While this value lives, the calling thread is not cancelled: otherwise it could end in the
/// middle of a call, with the locks that it holds.
#[derive(Debug)]
pub struct Uncancelled(libc::c_int);

impl Uncancelled {
    /// Forbids cancelling from now on.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Uncancelled {
        let mut old = 0;
        // SAFETY: `old` has room for the old state.
        unsafe { pthread_setcancelstate(NOT_CANCELLED, &raw mut old) };
        Uncancelled(old)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut old = 0;
        // SAFETY: `old` has room for the state before.
        unsafe { pthread_setcancelstate(self.0, &raw mut old) };
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

/// Removes a pending signal of the calling thread, which must have the signal blocked.
pub fn forget_signal(signal: libc::c_int) {
    let (set, now) = (bit(signal), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the set has the given length; no information is requested; the call does not wait.
    unsafe {
        libc::syscall(libc::SYS_rt_sigtimedwait, &raw const set, 0_usize, &raw const now, size_of::<u64>())
    };
}

fn change_signals(new: u64, old: *mut u64) {
    let bytes = size_of::<u64>();
    // SAFETY: both sets have the given length; `old` is null or belongs to the caller.
    unsafe {
        let arguments = [libc::SIG_SETMASK as usize, &raw const new as usize, old as usize, bytes, 0, 0];
        libc::passing(libc::SYS_rt_sigprocmask, arguments)
    };
}

/// Sleeps while `word` holds `value`; may wake early.
pub fn wait(word: &AtomicU32, value: u32) {
    sleep_on(word, value, None);
}

/// Like [`wait`], for `ms` milliseconds at most.
pub fn wait_ms(word: &AtomicU32, value: u32, ms: u64) {
    let most = libc::timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as i64 };
    sleep_on(word, value, Some(&most));
}

fn sleep_on(word: &AtomicU32, value: u32, most: Option<&libc::timespec>) {
    let most = most.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the time are valid while the call lasts; without a time it waits without
    // limit.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            most,
        )
    };
}

/// Wakes all threads that sleep on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word is valid.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX)
    };
}

/// The time of a clock that never goes back, ns.
pub fn now_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// The processor time that this thread has used, ns.
pub fn used_ns() -> u64 {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The processor time that all threads of this process have used, ns.
pub fn used_by_all_ns() -> u64 {
    read_clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The processor time that another thread of this process has used, ns; `None` if there is no such
/// thread.
pub fn used_by(thread: u32) -> Option<u64> {
    // The clock that pthread_getcpuclockid computes from a thread's id (CPUCLOCK_PERTHREAD and
    // CPUCLOCK_SCHED of <linux/posix-timers.h>).
    let clock = !(thread as libc::clockid_t) << 3 | 4 | 2;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` has room for the time.
    let answer = unsafe { libc::clock_gettime(clock, &mut now) };
    (answer == 0).then_some(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Blocks of 512 bytes that this process has read from disks; 0 if the kernel does not count them.
pub fn blocks_read() -> u64 {
    // SAFETY: plain data, for which zeros are a value.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `used` has room for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut used) };
    used.ru_inblock as u64
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` has room for the time.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Writes one line to standard error, without allocation or locks.
pub fn say(line: &str) {
    let bytes = line.as_bytes();
    // SAFETY: the bytes are valid.
    unsafe { libc::syscall(libc::SYS_write, 2, bytes.as_ptr(), bytes.len()) };
}

/// Ends the process by SIGABRT with its default action: the program has lost memory that it needs,
/// so none of its handlers may run.
pub fn stop(line: &str) -> ! {
    say(line);
    // SAFETY: a zeroed action is SIG_DFL with no flags; the signal is unblocked for this thread,
    // then raised.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGABRT, &action, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGABRT);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::raise(libc::SIGABRT);
        libc::_exit(134)
    }
}

/// Ends the process with an exit status, as an error of Terapage's own: none of the program's
/// handlers may run.
pub fn end(line: &str, status: i32) -> ! {
    say(line);
    // SAFETY: the call ends the process and touches no memory.
    unsafe { libc::syscall(libc::SYS_exit_group, i64::from(status)) };
    std::process::abort()
}

/// The id of this process.
pub fn pid() -> u64 {
    u64::from(std::process::id())
}

/// The number of the processor on which a thread of this process runs, or ran last.
pub fn processor_of(thread: u32) -> Option<usize> {
    let _opening = Opening::begin();
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name, in brackets, may contain anything; the processor is the 37th field after the name
    // (proc(5)).
    stat.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()
}

/// The time for which a thread of this process has run, and for which it was ready to run and
/// waited for a processor, ns; `None` if the kernel does not count it.
pub fn ran_and_waited(thread: u32) -> Option<(u64, u64)> {
    let _opening = Opening::begin();
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The number of processors that this process may use, at least one: also by the limits of its
/// cgroup, which are read from files.
pub fn processors() -> usize {
    let _opening = Opening::begin();
    std::thread::available_parallelism().map_or(usize::MAX, usize::from)
}

/// Yields the processor to other threads.
pub fn pause() -> Result<()> {
    // SAFETY: no memory is touched.
    check("sched_yield", unsafe { libc::sched_yield() }.into()).map(|_| ())
}

/// Sleeps for `ms` milliseconds.
pub fn sleep_ms(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

#[cfg(test)]
mod tests {
    use super::{Internal, PLACES, id, is_internal, own_name, used_by, used_ns};
    use std::sync::Barrier;

    #[test]
    fn the_time_that_a_thread_has_used_is_its_own() {
        let before = used_by(id()).expect("this thread");
        while used_ns() < before + 20_000_000 {
            std::hint::spin_loop();
        }
        assert!(used_by(id()).expect("this thread") >= before + 20_000_000);
        // Linux gives no thread an id this high (PID_MAX_LIMIT).
        assert_eq!(used_by(5_000_000), None);
    }

    #[test]
    fn threads_do_the_pagers_work_however_many_they_are() {
        let together = Barrier::new(PLACES / 2);
        let work = |wait: bool| {
            let _internal = Internal::enter();
            let is_so = is_internal(own_name());
            if wait {
                together.wait();
            }
            assert!(is_so);
            let _nested = Internal::enter();
            assert!(is_internal(own_name()));
            // SAFETY: no memory is touched.
            assert_eq!(own_name(), unsafe { libc::pthread_self() } as usize);
        };
        let work = &work;
        std::thread::scope(|scope| {
            for index in 0..4 * PLACES {
                scope.spawn(move || work(index < PLACES / 2));
            }
        });
        let _internal = Internal::enter();
    }
}
