//! Fork: the locks are taken and the pager is parked; the child gets its own pager.
//!
//! Until the child has a pager, its pages are not brought in: a missing page would be a page of
//! zeros, or a wait without end. The C library touches some pages before and while it begins the
//! pager's thread: its streams, its locale, the loader's data about threads. Many of these are in
//! small objects, which are paged. So the parent rehearses the same touches, while the pager takes
//! out only blocks that must leave. Memory of [some callers](crate::callers) is never paged.

use super::streams;
use crate::arena::ARENA;
use crate::lock::Lock;
use crate::{caches, guard, heap, own_heap, paged, real, setup};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use terapage_pager::{Forking, Pager};
use terapage_sys::fd::{Fd, Room};
use terapage_sys::thread::{self, Signals};
use terapage_sys::{Result, binding, last, memory, opening, page_bytes};

/// The data of a fork between its two halves. Only the forking thread, which holds the arena's
/// lock, uses it.
static FORKING: Lock<Option<InHand>> = Lock::new(None);

struct InHand {
    pager: Option<Forking>,
    kept: Option<Kept>,
    /// The heaps' locks that the fork has taken, a bit for each.
    heaps: u32,
    /// The signals that were already blocked.
    signals: Signals,
}

/// What is kept for threads that are about to fork. Only a thread that holds the arena's lock uses
/// it.
static KEPT: Lock<Vec<Kept>> = Lock::new(Vec::new());

/// Descriptors for a fork: another thread may open as many files as it may meanwhile.
struct Kept {
    thread: u32,
    /// The pipe between the two pagers.
    pipe: Option<(Fd, Fd)>,
    /// The child closes these, and can open others.
    _spare: Vec<Fd>,
}

impl Kept {
    fn new() -> Result<Kept> {
        let pipe = Fd::pipe()?;
        let spare = (0..SPARE).map(|_| Fd::copy(pipe.1.file())).collect::<Result<_>>()?;
        Ok(Kept { thread: thread::id(), pipe: Some(pipe), _spare: spare })
    }

    /// What is kept for the calling thread. The caller holds the arena's lock.
    fn take() -> Option<Kept> {
        let mut all = KEPT.lock();
        let mine = all.iter().position(|kept| kept.thread == thread::id())?;
        Some(all.swap_remove(mine))
    }
}

/// The threads that have rehearsed and are about to fork.
static READY: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];

/// The tables of the locale that a new thread reads: those of `ctype.h` (`_NL_CTYPE_CLASS`,
/// `_NL_CTYPE_TOUPPER`, `_NL_CTYPE_TOLOWER`).
const CLASSES: [c_int; 3] = [0, 1, 3];

/// Bytes of the stack that a fork uses below this library's frames; a generous guess.
const STACK_BELOW: usize = 32 << 10;
/// Bytes of the stack above these frames through which a fork returns before the child has a pager.
const STACK_ABOVE: usize = 16 << 10;

/// The size of a thread's variables (TLS), some of which a fork uses.
const OWN_VARIABLES: usize = 8 << 10;
/// Bytes of a thread's descriptor.
const DESCRIPTOR: usize = 4 << 10;
/// Whether the variables lie before the descriptor (TLS variant II), and not behind it, as on Arm.
const VARIABLES_BEFORE: bool = cfg!(target_arch = "x86_64");

/// The thread that forks and holds the lock of the streams' list; 0 for none.
static STREAMS: AtomicU32 = AtomicU32::new(0);

/// Registers the functions that are called before and after a fork.
pub fn open() {
    // SAFETY: the three functions live as long as the process.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Hook of the C library's `fork`. Signals are blocked until its end. A paged process has several
/// threads, and in such a process the C library's `fork` holds a lock while it calls the registered
/// functions: a signal handler that forked there would wait for its own thread.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    crate::untracked::passes_by();
    let signals = thread::block_signals();
    let child = binding::freed(|| {
        let child = rehearsed_fork();
        if child == 0 {
            binding::forget();
        }
        child
    });
    thread::restore_signals(&signals);
    child
}

/// Rehearses and forks. Steps that may take memory from the program's own `malloc` are done here:
/// later, such a `malloc` may already hold its locks for the fork.
fn rehearsed_fork() -> libc::pid_t {
    if let Err(errno) = prepare() {
        return refuse(errno);
    }
    let me = thread::id();
    let place = READY.iter().find(|place| place.compare_exchange(0, me, SeqCst, SeqCst).is_ok());
    let mut had_room = false;
    if let Some(place) = place {
        if say_fork_is_near() {
            // As many threads as the child and its pager.
            had_room = rehearse(2);
            if !had_room {
                place.store(0, SeqCst);
                let_go();
                return refuse(libc::EAGAIN);
            }
        } else {
            place.store(0, SeqCst);
        }
    }
    // SAFETY: `fork` may be called at any time.
    let fork = || unsafe { real::call!(fork() or -1) };
    let child = fork();
    if child < 0 && had_room && std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) {
        // The threads of the rehearsal may not have ended yet.
        thread::sleep_ms(1);
        return prepare().map_or_else(refuse, |()| fork());
    }
    child
}

fn refuse(errno: c_int) -> libc::pid_t {
    crate::set_errno(errno);
    -1
}

/// The number of mappings that the pager of a child makes, with some to spare.
const MAPPINGS: usize = 20;
/// The number of descriptors that it opens before the parent's are closed, with some to spare.
const SPARE: usize = 12;
/// How often room for descriptors is made: other threads may use it up.
const TRIES: usize = 4;

/// Keeps what the pager and the child's need for a fork, if there is a pager.
///
/// # Errors
/// The error with which the fork must be refused: there are not enough descriptors, mappings, or
/// numbers.
fn prepare() -> std::result::Result<(), c_int> {
    // Room is always made under the lock: otherwise a fork by another thread would give its child
    // the limit of that moment.
    let arena = ARENA.lock();
    let Some(pager) = arena.pager.as_ref() else { return Ok(()) };
    if !pager.may_fork() {
        return Err(libc::EAGAIN);
    }
    if !memory::has_room_for_mappings(MAPPINGS) {
        return Err(libc::ENOMEM);
    }
    let kept = (0..TRIES).find_map(|_| {
        let _room = Room::make();
        Kept::new().ok()
    });
    KEPT.lock().push(kept.ok_or(libc::EAGAIN)?);
    Ok(())
}

/// Whether the calling thread has rehearsed in [`fork`]. The second call says no.
fn is_ready() -> bool {
    READY.iter().any(|place| place.compare_exchange(thread::id(), 0, SeqCst, SeqCst).is_ok())
}

unsafe extern "C" fn before() {
    let signals = thread::block_signals();
    let is_ready = is_ready();
    if is_ready || say_fork_is_near() {
        // This lock is taken first and released last. The C library takes it, too, once the pager
        // is parked, and another thread that held it then might wait for a page. (A thread may take
        // it several times.) SAFETY: the lock is released in the parent, and the C library makes it
        // anew in the child.
        unsafe { streams::lock() };
        STREAMS.store(thread::id(), SeqCst);
        if !is_ready {
            // If a thread cannot begin here, none can begin in the child either, and the child says
            // so.
            rehearse(1);
        }
    }
    let heaps = heap::take_all();
    ARENA.take();
    // SAFETY: the lock was taken just now.
    let arena = unsafe { ARENA.value() };
    if arena.files.any() {
        let _internal = thread::Internal::enter();
        arena.leave_all_files();
    }
    let mut kept = Kept::take();
    let pager = arena.pager.as_ref().map(|pager| {
        let pipe = kept.as_mut().and_then(|kept| kept.pipe.take());
        opening::forks(true);
        begin(pager, pipe)
    });
    let is_paged = pager.is_some();
    *FORKING.lock() = Some(InHand { pager, kept, heaps, signals });
    if is_paged {
        if STREAMS.load(SeqCst) == thread::id() {
            // Twice: in a small budget, the last pages may have evicted the first.
            (0..2).for_each(|_| touch());
        }
        arena.set_forkable(true);
    }
}

/// Parks the pager for a fork, with the pipe that is kept for it. The C library's own forks have
/// kept none.
fn begin(pager: &Pager, pipe: Option<(Fd, Fd)>) -> Forking {
    let _room = pipe.is_none().then(Room::make);
    setup::or_fail(match pipe {
        Some(pipe) => pager.before_fork_by(pipe),
        None => pager.before_fork(),
    })
}

/// From now on, until the fork, only blocks that must leave the program do. Returns whether there
/// is a pager.
fn say_fork_is_near() -> bool {
    let arena = ARENA.lock();
    let Some(pager) = &arena.pager else { return false };
    setup::or_fail(pager.fork_is_near());
    true
}

/// There is no fork after all: the pager may take blocks out again.
fn let_go() {
    let arena = ARENA.lock();
    let pipe = Kept::take().and_then(|kept| kept.pipe);
    if let Some(pager) = &arena.pager {
        pager.after_fork_in_parent(begin(pager, pipe));
    }
}

/// Begins `threads` threads at the same time, which do nothing, in the way in which the child
/// begins its pager's thread. `false` if the limits allow only fewer threads. If children get a
/// separate PID namespace (EINVAL), the process itself cannot begin threads, and there is no
/// rehearsal.
fn rehearse(threads: u32) -> bool {
    let (begun, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut barred = false;
    let begin = |_: &u32| {
        let (begun, over) = (begun.clone(), over.clone());
        let work = move || {
            begun.fetch_add(1, SeqCst);
            thread::wake(&begun);
            while over.load(SeqCst) == 0 {
                thread::wait(&over, 0);
            }
        };
        let spawned = thread::spawn_for_now(work);
        barred = spawned.as_ref().is_err_and(|error| error.errno() == libc::EINVAL);
        spawned.is_ok()
    };
    let count = (0..threads).take_while(begin).count() as u32;
    loop {
        match begun.load(SeqCst) {
            all if all == count => break,
            some => thread::wait(&begun, some),
        }
    }
    over.store(1, SeqCst);
    thread::wake(&over);
    count == threads || barred
}

/// Touches the memory that the C library touches in the child before there is a pager, apart from
/// that of [`rehearse`]. The caller has locked the streams' list. The pager is parked and serves
/// only this thread's faults.
fn touch() {
    // SAFETY: the caller has locked the list.
    unsafe { streams::touch() };
    for item in CLASSES {
        // SAFETY: the function accepts any number.
        unsafe { libc::nl_langinfo(item) };
    }
    // The stack and the thread-local variables may lie in memory of the program.
    let mark = 0u8;
    let here = &raw const mark as usize;
    touch_pages(here - STACK_BELOW, here + STACK_ABOVE);
    let own = thread::own_name();
    let from = if VARIABLES_BEFORE { own - OWN_VARIABLES } else { own };
    touch_pages(from, from + OWN_VARIABLES + DESCRIPTOR);
}

/// Touches pages that may be paged, if they are in use.
fn touch_pages(from: usize, to: usize) {
    for at in (from / page_bytes() * page_bytes()..to)
        .step_by(page_bytes())
        .filter(|&at| paged::meets(at, page_bytes()))
    {
        if guard::is_on() {
            // The kernel cannot wait for the page. SAFETY: the lock was taken before.
            if !unsafe { ARENA.value() }.is_loose(at) {
                // SAFETY: paged memory can be read.
                unsafe { (at as *const u8).read_volatile() };
            }
            continue;
        }
        // The call reads a set of signals at the address before it finds that the operation does
        // not exist (EINVAL), or that there is no memory (EFAULT). SAFETY: the call only reads.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, -1_i64, at, 0_usize, 8_usize) };
    }
}

fn after(heaps: u32, signals: &Signals) {
    ARENA.give();
    heap::give(heaps);
    thread::restore_signals(signals);
}

fn in_hand() -> InHand {
    let in_hand = FORKING.lock().take();
    in_hand.unwrap_or_else(|| setup::fail("a fork that was not announced"))
}

unsafe extern "C" fn in_parent() {
    // SAFETY: the lock was taken in `before`.
    let arena = unsafe { ARENA.value() };
    let InHand { pager: forking, kept, heaps, signals } = in_hand();
    drop(kept);
    if let (Some(pager), Some(forking)) = (&arena.pager, forking) {
        pager.after_fork_in_parent(forking);
        opening::forks(false);
        arena.set_forkable(false);
    }
    // This happens while signals are still blocked: a handler that forks could mistake `STREAMS`
    // for its own, and release the lock once although it was taken twice.
    if STREAMS.compare_exchange(thread::id(), 0, SeqCst, SeqCst).is_ok() {
        // SAFETY: the lock was taken in `before`.
        unsafe { streams::unlock() };
    }
    after(heaps, &signals);
}

unsafe extern "C" fn in_child() {
    // SAFETY: the child of a fork has one thread.
    unsafe { own_heap::renew() };
    thread::forget_others();
    caches::in_child();
    STREAMS.store(0, SeqCst);
    READY.iter().for_each(|place| place.store(0, SeqCst));
    crate::exit::own();
    crate::borrowed::in_child();
    guard::in_child();
    crate::files::in_child();
    crate::adopted::in_child();
    let internal = thread::Internal::enter();
    // SAFETY: the lock was taken in `before`.
    let arena = unsafe { ARENA.value() };
    let InHand { pager: forking, kept, heaps, signals } = in_hand();
    drop(kept);
    KEPT.lock().clear();
    crate::job::in_child();
    arena.begin_child();
    crate::rereads::in_child(arena);
    if let (Some(pager), Some(forking)) = (&mut arena.pager, forking) {
        let _room = Room::make();
        setup::or_fail(pager.after_fork_in_child(forking));
        arena.set_forkable(false);
        arena.count_in_use();
    }
    // A child does not inherit locks.
    arena.unlock_all();
    // Only its parent is being released.
    arena.let_go();
    crate::untracked::in_child(arena.pager.as_ref().map(Pager::shared));
    crate::summary::in_child();
    drop(internal);
    last::is_first();
    after(heaps, &signals);
}
