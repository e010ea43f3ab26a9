//! Threads of the pager, and waiting.

use crate::{Result, census, check};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Threads that are the pager's, or do its work for a while: what they allocate must not be paged
/// memory. Two places are taken for good. The others are for threads of the program that end, grow
/// mappings and so on at one time. A thread that finds no free place waits for one, no longer than
/// it takes to read a file of `/proc`.
static INTERNAL: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
const PLACES: usize = 64;

/// How many of them were ever used: most programs have none, and each allocation asks.
static USED: AtomicUsize = AtomicUsize::new(0);

/// What `pthread_self` calls the calling thread: not 0.
#[inline]
pub fn own_name() -> usize {
    // SAFETY: no memory is touched.
    unsafe { libc::pthread_self() as usize }
}

/// Whether the calling thread, whose `pthread_self` is `thread`, does the pager's work.
#[inline]
pub fn is_internal(thread: usize) -> bool {
    // A thread sees what itself has written: only that can be its own name.
    INTERNAL[..USED.load(Relaxed).min(INTERNAL.len())].iter().any(|slot| slot.load(Relaxed) == thread)
}

/// The calling thread does the pager's work until this is dropped; no signal's handler runs in it,
/// and it is not cancelled.
pub struct Internal(Option<(&'static AtomicUsize, Signals)>);

impl Internal {
    /// Begins. May be nested.
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

/// How many threads of this process were begun by [`spawn`] and [`spawn_quiet`], of this copy of
/// the crate or another; one that just begins or ends may not be counted.
pub fn ours() -> usize {
    census::threads()
}

/// In the child of a fork: the threads that were noted are not here.
pub fn forget_others() {
    census::mine().store(0, Relaxed);
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

/// What begins threads, if it was looked for: the C library's `pthread_create`, or its
/// `thrd_create`. 0 otherwise.
static CREATE: AtomicUsize = AtomicUsize::new(0);
static CREATE_SIMPLY: AtomicUsize = AtomicUsize::new(0);

/// Finds what begins threads. A program (Firefox) or a library may have a `pthread_create`, which
/// takes the program's memory and waits for the new thread: it would wait for the pager that it is
/// to become. So the one that comes after this library's object is taken if it is the C library's,
/// and else `thrd_create`, which nobody stands in for. Without this call, threads are begun by
/// whichever the loader has first. From then on, threads whose signals are blocked are not
/// cancelled either.
pub fn find() {
    // SAFETY: the names end in zero bytes; the descriptions are plain data, for which zeros are a
    // value, and ours to write to.
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

/// Begins a thread of which nobody waits for the end.
///
/// # Safety
/// `begin` may be called with `argument`, in another thread.
unsafe fn create(
    begin: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
    argument: *mut libc::c_void,
) -> libc::c_int {
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the functions found are of these types, but that `thrd_create`'s returns a number:
    // what is returned, in the same register, nobody reads. The attributes are ours; the rest is
    // the caller's promise.
    unsafe {
        let simply = CREATE_SIMPLY.load(Relaxed);
        if simply != 0 {
            let errno = std::mem::transmute::<usize, CreateSimply>(simply)(&mut thread, begin, argument);
            if errno == 0 {
                libc::pthread_detach(thread);
            }
            // Its own numbers (`thrd_nomem`, `thrd_error`) are no errnos.
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

/// Starts a thread that no signal of the program's reaches.
///
/// The standard library's threads allocate by `malloc`, which may be the one that pages; this one
/// does not.
pub fn spawn(name: &'static std::ffi::CStr, work: impl FnOnce() + Send + 'static) -> Result<()> {
    spawn_quiet(name, move || {
        let _internal = Internal::enter();
        work();
    })
}

/// The same for a thread that never allocates: it need not be [`Internal`], of which there can be
/// few.
///
/// # Errors
/// As for [`spawn`].
pub fn spawn_quiet(name: &'static std::ffi::CStr, work: impl FnOnce() + Send + 'static) -> Result<()> {
    launch(name, move || {
        // By the thread itself: never more than there are.
        census::mine().fetch_add(1, Relaxed);
        work();
        census::mine().fetch_sub(1, Relaxed);
    })
}

/// What a thread is called that is there for a moment, by which others know it.
pub const FOR_NOW: &std::ffi::CStr = c"terapage-fork";

/// The same for a thread that ends at once. It is not among [`ours`]: who counts threads after that
/// would take it for another.
///
/// # Errors
/// As for [`spawn`].
pub fn spawn_for_now(work: impl FnOnce() + Send + 'static) -> Result<()> {
    launch(FOR_NOW, work)
}

fn launch(name: &'static std::ffi::CStr, work: impl FnOnce() + Send + 'static) -> Result<()> {
    type Work = Box<dyn FnOnce() + Send>;
    extern "C" fn begin(argument: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: `launch` gave the box away.
        let (name, work) = *unsafe { Box::from_raw(argument.cast::<(&'static std::ffi::CStr, Work)>()) };
        // SAFETY: the name ends in a zero byte.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        work();
        std::ptr::null_mut()
    }
    let internal = Internal::enter();
    let argument: Box<(&'static std::ffi::CStr, Work)> = Box::new((name, Box::new(work)));
    let argument = Box::into_raw(argument);
    let old = block_signals();
    // SAFETY: the argument is given to the thread, or taken back below.
    let errno = unsafe { create(begin, argument.cast()) };
    restore_signals(&old);
    drop(internal);
    if errno == 0 {
        return Ok(());
    }
    // SAFETY: no thread took it.
    drop(unsafe { Box::from_raw(argument) });
    let call = match errno {
        libc::EAGAIN => {
            "pthread_create; there may be no more threads and processes (ulimit -u, or pids.max of the cgroup)"
        }
        libc::EINVAL => {
            "pthread_create; its children get a namespace of processes of their own (unshare): only they may begin threads"
        }
        _ => "pthread_create",
    };
    Err(crate::Error { call, source: std::io::Error::from_raw_os_error(errno) })
}

/// The calling thread's number, as faults have it.
pub fn id() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { libc::gettid() as u32 }
}

/// `pthread_setcancelstate`, if it was looked for; 0 otherwise. A sanitizer has one of its own,
/// which is not ready for each moment: where there is one it is not looked for.
static SET_CANCEL_STATE: AtomicUsize = AtomicUsize::new(0);

/// `PTHREAD_CANCEL_DISABLE`, for which the libc crate has no name.
const NOT_CANCELLED: libc::c_int = 1;

/// Lets the calling thread be cancelled, or not; says what was so before. `None`: nothing was done.
fn set_cancel_state(state: libc::c_int) -> Option<libc::c_int> {
    let at = SET_CANCEL_STATE.load(Relaxed);
    if at == 0 {
        return None;
    }
    type Set = unsafe extern "C" fn(libc::c_int, *mut libc::c_int) -> libc::c_int;
    let mut old = 0;
    // SAFETY: the function found by that name has this type; the old state is ours to write to.
    unsafe { std::mem::transmute::<usize, Set>(at)(state, &raw mut old) };
    Some(old)
}

/// Signals, a bit for each: the kernel's own form. (The C library's functions on its form may be
/// others' by the same name, and not ready for each moment.) And whether the thread could be
/// cancelled.
#[derive(Clone, Copy)]
pub struct Signals(u64, Option<libc::c_int>);

const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Not blocked: a fault of the pager's own must stop the process, not repeat for ever; and the C
/// library has 32 and 33 to itself, to cancel threads and to change all threads' user.
const NEVER: u64 =
    bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGILL) | bit(libc::SIGFPE) | bit(32) | bit(33);

/// Blocks every signal in the calling thread; says which were blocked before. Nor is the thread
/// cancelled: the library opens and reads files, where one that is to end would end, with the locks
/// that it holds.
pub fn block_signals() -> Signals {
    let mut old = 0;
    change_signals(!NEVER, &raw mut old);
    Signals(old, set_cancel_state(NOT_CANCELLED))
}

/// Blocks again just those signals that [`block_signals`] found blocked.
pub fn restore_signals(old: &Signals) {
    if let Some(state) = old.1 {
        set_cancel_state(state);
    }
    change_signals(old.0, std::ptr::null_mut());
}

/// The calling thread is not cancelled while this is there: it would end in the middle of a call,
/// with the locks that it holds.
#[derive(Debug)]
pub struct Uncancelled(libc::c_int);

impl Uncancelled {
    /// From now on.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Uncancelled {
        let mut old = 0;
        // SAFETY: the old state is ours to write to.
        unsafe { pthread_setcancelstate(NOT_CANCELLED, &raw mut old) };
        Uncancelled(old)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut old = 0;
        // SAFETY: as above.
        unsafe { pthread_setcancelstate(self.0, &raw mut old) };
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

/// Takes a signal away that waits for the calling thread, which has it blocked.
pub fn forget_signal(signal: libc::c_int) {
    let (set, now) = (bit(signal), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the set is as long as is said; nothing is told of the signal; it does not wait.
    unsafe {
        libc::syscall(libc::SYS_rt_sigtimedwait, &raw const set, 0_usize, &raw const now, size_of::<u64>())
    };
}

fn change_signals(new: u64, old: *mut u64) {
    let bytes = size_of::<u64>();
    // SAFETY: both are as long as is said; `old` is null or the caller's.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const new, old, bytes) };
}

/// Sleeps while `word` holds `value`; may wake early.
pub fn wait(word: &AtomicU32, value: u32) {
    // SAFETY: the word is valid while the call lasts; no timeout is given.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

/// Wakes all who sleep on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word is valid.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX)
    };
}

/// Nanoseconds of a clock that never goes back.
pub fn now_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of processor time that this thread has used.
pub fn used_ns() -> u64 {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds of processor time that another thread of this process has used; `None`: there is no
/// such thread.
pub fn used_by(thread: u32) -> Option<u64> {
    // What pthread_getcpuclockid makes of a thread's id (CPUCLOCK_PERTHREAD and CPUCLOCK_SCHED of
    // <linux/posix-timers.h>).
    let clock = !(thread as libc::clockid_t) << 3 | 4 | 2;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` has room.
    let answer = unsafe { libc::clock_gettime(clock, &mut now) };
    (answer == 0).then_some(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` has room.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Writes one line to standard error, without allocation or locks.
pub fn say(line: &str) {
    let bytes = line.as_bytes();
    // SAFETY: the bytes are valid.
    unsafe { libc::syscall(libc::SYS_write, 2, bytes.as_ptr(), bytes.len()) };
}

/// Ends the process by SIGABRT with its default action: the program has lost memory that it
/// cannot do without, and no handler of its own may run on.
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

/// This process's id.
pub fn pid() -> u64 {
    u64::from(std::process::id())
}

/// Some of the machine's processors.
#[derive(Clone)]
pub struct Processors(libc::cpu_set_t);

impl Processors {
    /// Those that the calling thread may use; `None` where they have higher numbers than fit.
    pub fn of_this_thread() -> Option<Processors> {
        // SAFETY: zeros are a valid set, which has room for what is written.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(0, size_of_val(&set), &mut set) == 0).then_some(Processors(set))
        }
    }

    /// Their numbers, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        // SAFETY: each number has a bit in the set.
        (0..8 * size_of_val(&self.0)).filter(|&number| unsafe { libc::CPU_ISSET(number, &self.0) })
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        // SAFETY: the set is valid.
        unsafe { libc::CPU_COUNT(&self.0) as usize }
    }

    /// The one with this number, if it is among them.
    pub fn only(&self, number: usize) -> Option<Processors> {
        if number >= 8 * size_of_val(&self.0) {
            return None;
        }
        // SAFETY: the number has a bit in the set; zeros are a valid set.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(number, &mut set);
            libc::CPU_ISSET(number, &self.0).then_some(Processors(set))
        }
    }

    /// The calling thread uses these and no others from now on, if the kernel lets it.
    pub fn use_them(&self) {
        // SAFETY: the set is valid.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) };
    }
}

/// The calling thread runs only where nobody else wants to from now on.
pub fn give_way() {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter is valid.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &priority) };
}

/// The number of the processor that the calling thread runs on.
pub fn processor() -> Option<usize> {
    // SAFETY: no memory is touched.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The number of the processor that a thread of this process runs on, or did last.
pub fn processor_of(thread: u32) -> Option<usize> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name, in brackets, may hold anything; the processor is the 37th field after it (proc(5)).
    stat.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()
}

/// Lets other threads run.
pub fn pause() -> Result<()> {
    // SAFETY: no memory is touched.
    check("sched_yield", unsafe { libc::sched_yield() }.into()).map(|_| ())
}

/// Sleeps.
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
        // Linux numbers no thread so high (PID_MAX_LIMIT).
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
