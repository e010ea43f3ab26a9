//! Waiting for files, futexes and signals; time and timers.

use crate::world::{Case, World, case, checked};

fn epoll() -> usize {
    // SAFETY: the call touches no memory.
    checked(unsafe { libc::epoll_create1(0) } as isize)
}

/// An event counter that is ready.
fn ready() -> usize {
    // SAFETY: the call touches no memory.
    checked(unsafe { libc::eventfd(1, 0) } as isize)
}

/// An epoll with this number of files that are ready.
fn filled(count: usize) -> usize {
    let poll = epoll();
    for _ in 0..count {
        let mut event = libc::epoll_event { events: 1, u64: 7 };
        // SAFETY: one event.
        checked(unsafe { libc::epoll_ctl(poll as i32, 1, ready() as i32, &mut event) } as isize);
    }
    poll
}

/// An array for `poll` of files that are ready.
fn files(w: &mut World) -> [usize; 2] {
    let count = w.between(1, 20);
    let array: Vec<i32> = (0..count).flat_map(|_| [ready() as i32, 1]).collect();
    [w.ints(&array), count]
}

/// A set with one file that is ready.
fn set(w: &mut World) -> usize {
    // SAFETY: the call touches no memory.
    let fd = checked(unsafe { libc::dup2(ready() as i32, 50) } as isize);
    w.words(&[1 << fd])
}

fn timer() -> usize {
    let mut timer = 0_i32;
    // SAFETY: one number.
    checked(unsafe { libc::syscall(libc::SYS_timer_create, 1, 0, &mut timer) } as isize);
    timer as usize
}

fn timer_file() -> usize {
    // SAFETY: the call touches no memory.
    checked(unsafe { libc::timerfd_create(1, 0) } as isize)
}

/// SIGUSR1 waits to be taken.
fn pending() {
    let mut signals = std::mem::MaybeUninit::uninit();
    // SAFETY: a set of signals, which is made empty before it is used.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut());
        libc::kill(libc::getpid(), libc::SIGUSR1);
    }
}

const USR1: usize = 1 << (libc::SIGUSR1 - 1);
/// An hour.
const LONG: [usize; 4] = [0, 0, 3600, 0];

/// Room for asynchronous reads and writes.
fn operations() -> usize {
    let mut context = 0;
    // SAFETY: one number.
    checked(unsafe { libc::syscall(libc::SYS_io_setup, 8, &mut context) } as isize);
    context
}

fn queue() -> usize {
    let name = std::ffi::CString::new(format!("calls-{}", std::process::id())).unwrap();
    let mut attributes = [0_i64; 8];
    attributes[1..3].copy_from_slice(&[2, 100]);
    // SAFETY: a text; attributes of 64 bytes.
    unsafe {
        let queue = libc::syscall(libc::SYS_mq_open, name.as_ptr(), 0o302, 0o600, attributes.as_ptr());
        libc::syscall(libc::SYS_mq_unlink, name.as_ptr());
        checked(queue as isize)
    }
}

pub const CASES: &[Case] = &[
    case("poll", |w| {
        let [array, count] = files(w);
        [array, count, 0, 0, 0, 0]
    }),
    case("ppoll", |w| {
        let [array, count] = files(w);
        [array, count, w.words(&[0, 0]), w.words(&[0]), 8, 0]
    }),
    case("select", |w| [51, set(w), w.words(&[0]), w.words(&[0]), w.words(&[0, 0]), 0]),
    case("pselect6", |w| {
        let mask = w.words(&[0]);
        [51, set(w), w.words(&[0]), w.words(&[0]), w.words(&[0, 0]), w.words(&[mask, 8])]
    }),
    case("epoll_ctl", |w| {
        let event = if cfg!(target_arch = "aarch64") { w.words(&[1, 7]) } else { w.ints(&[1, 7, 0]) };
        [epoll(), 1, ready(), event, 0, 0]
    }),
    case("epoll_wait", |w| [filled(3), w.out(), 3, 0, 0, 0]),
    case("epoll_pwait", |w| [filled(3), w.out(), 3, 0, w.words(&[0]), 8]),
    case("epoll_pwait2", |w| [filled(3), w.out(), 3, w.words(&[0, 0]), w.words(&[0]), 8]),
    case("signalfd", |w| [usize::MAX, w.words(&[USR1]), 8, 0, 0, 0]),
    case("signalfd4", |w| [usize::MAX, w.words(&[USR1]), 8, 0, 0, 0]),
    // The word has another value: EAGAIN. Or nobody is woken.
    case("futex", |w| [w.aligned(4).ints(&[1]), 128, 2, w.words(&[0, 0]), 0, 0]).fails(),
    case("futex", |w| [w.aligned(4).ints(&[1]), 1, 1, 0, 0, 0]),
    case("futex", |w| [w.aligned(4).ints(&[1]), 4, 1, 1, w.aligned(4).ints(&[1]), 1]),
    case("futex", |w| [w.aligned(4).ints(&[1]), 5, 1, 1, w.aligned(4).ints(&[1]), 0]),
    case("futex", |w| [w.aligned(4).ints(&[0]), 6, 0, w.words(&[0, 0]), 0, 0]),
    case("futex_waitv", |w| {
        let (a, b) = (w.aligned(4).ints(&[1]), w.aligned(4).ints(&[2]));
        [w.words(&[1, a, 2, 3, b, 2]), 2, 0, w.words(&[0, 0]), 1, 0]
    })
    .fails(),
    case("futex_wake", |w| [w.aligned(4).ints(&[1]), 0xffff_ffff, 1, 2, 0, 0]),
    case("futex_wait", |w| [w.aligned(4).ints(&[1]), 2, 0xffff_ffff, 2 | 128, w.words(&[0, 0]), 1]).fails(),
    case("futex_requeue", |w| {
        let (a, b) = (w.aligned(4).ints(&[1]), w.aligned(4).ints(&[2]));
        [w.words(&[1, a, 2, 2, b, 2]), 0, 1, 1, 0, 0]
    }),
    case("rt_sigaction", |w| [10, w.words(&[1, 0, 0, 0]), w.out(), 8, 0, 0]),
    case("rt_sigprocmask", |w| [0, w.words(&[USR1]), w.out(), 8, 0, 0]),
    case("rt_sigpending", |w| [w.out(), 8, 0, 0, 0, 0]),
    case("rt_sigpending", |w| [w.out(), 4, 0, 0, 0, 0]),
    case("rt_sigtimedwait", |w| {
        pending();
        [w.words(&[USR1]), w.out(), w.words(&[1, 0]), 8, 0, 0]
    }),
    case("rt_sigqueueinfo", |w| {
        pending();
        let info = w.ints(&[0, 0, -1]);
        w.loose();
        [std::process::id() as usize, libc::SIGUSR1 as usize, info, 0, 0, 0]
    }),
    case("rt_tgsigqueueinfo", |w| {
        pending();
        let (info, id) = (w.ints(&[0, 0, -1]), std::process::id() as usize);
        w.loose();
        [id, id, libc::SIGUSR1 as usize, info, 0, 0]
    }),
    case("pidfd_send_signal", |w| {
        pending();
        let info = w.ints(&[libc::SIGUSR1, 0, -1]);
        w.loose();
        // SAFETY: the call touches no memory.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) } as usize;
        [process, libc::SIGUSR1 as usize, info, 0, 0, 0]
    }),
    case("rt_sigsuspend", |w| {
        pending();
        // SAFETY: the handler is a function that does nothing.
        unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as usize) };
        [w.words(&[0]), 8, 0, 0, 0, 0]
    })
    .fails(),
    case("sigaltstack", |w| {
        let stack = w.out();
        w.loose();
        [w.words(&[stack, 0, 65536]), w.out(), 0, 0, 0, 0]
    }),
    case("gettimeofday", |w| [w.out(), w.out(), 0, 0, 0, 0]),
    case("settimeofday", |w| [w.words(&[0, usize::MAX]), 0, 0, 0, 0, 0]).fails(),
    case("time", |w| [w.out(), 0, 0, 0, 0, 0]).varies(),
    case("adjtimex", |w| [w.out(), 0, 0, 0, 0, 0]),
    case("clock_adjtime", |w| [0, w.out(), 0, 0, 0, 0]),
    case("clock_settime", |w| [0, w.words(&[0, usize::MAX]), 0, 0, 0, 0]).fails(),
    case("clock_gettime", |w| [1, w.out(), 0, 0, 0, 0]),
    case("clock_getres", |w| [1, w.out(), 0, 0, 0, 0]),
    case("nanosleep", |w| interrupted(w, |time, rest| [time, rest, 0, 0, 0, 0])).fails(),
    case("clock_nanosleep", |w| interrupted(w, |time, rest| [1, 0, time, rest, 0, 0])).fails(),
    case("getitimer", |w| [0, w.out(), 0, 0, 0, 0]),
    case("setitimer", |w| [2, w.words(&LONG), w.out(), 0, 0, 0]),
    case("timer_create", |w| [1, w.words(&[0, 1 << 32, 0, 0, 0, 0, 0, 0]), w.out(), 0, 0, 0]),
    case("timer_settime", |w| [timer(), 0, w.words(&LONG), w.out(), 0, 0]),
    case("timer_gettime", |w| [timer(), w.out(), 0, 0, 0, 0]),
    case("timerfd_settime", |w| [timer_file(), 0, w.words(&LONG), w.out(), 0, 0]),
    case("timerfd_gettime", |w| [timer_file(), w.out(), 0, 0, 0, 0]),
    case("mq_open", |w| {
        let name = w.text(&format!("calls-{}", std::process::id()));
        [name, 0, 0, 0, 0, 0]
    })
    .fails(),
    case("mq_timedsend", |w| [queue(), w.mem(b"message"), 7, 1, w.words(&[0, 0]), 0]),
    case("mq_timedreceive", |w| {
        let queue = queue();
        // SAFETY: a message of 100 bytes.
        unsafe { libc::syscall(libc::SYS_mq_timedsend, queue, [7_u8; 100].as_ptr(), 100, 1, 0) };
        [queue, w.out(), 100, w.out(), w.words(&[0, 0]), 0]
    }),
    case("io_getevents", |w| {
        let events = w.out();
        w.loose();
        [operations(), 0, 3, events, w.words(&[0, 0]), 0]
    }),
    case("io_pgetevents", |w| {
        let events = w.out();
        w.loose();
        let mask = w.words(&[0]);
        [operations(), 0, 3, events, w.words(&[0, 0]), w.words(&[mask, 8])]
    }),
    case("mq_notify", |w| {
        // With SIGEV_THREAD, a socket gets what the value points to.
        let cookie = w.out();
        // SAFETY: the call touches no memory.
        let socket = unsafe { libc::socket(16, 3, 0) } as usize;
        [queue(), w.words(&[cookie, socket | 2 << 32, 0, 0, 0, 0, 0, 0]), 0, 0, 0, 0]
    }),
    case("mq_notify", |w| [queue(), w.words(&[0, 1 << 32, 0, 0, 0, 0, 0, 0]), 0, 0, 0, 0]),
    case("mq_getsetattr", |w| [queue(), w.words(&[0; 8]), w.out(), 0, 0, 0]),
];

extern "C" fn nothing(_: i32) {}

/// A sleep that a signal ends, which comes soon, and again.
fn interrupted(w: &mut World, arguments: fn(usize, usize) -> [usize; 6]) -> [usize; 6] {
    // SAFETY: the handler is a function that does nothing; a timer of 50 ms.
    unsafe {
        libc::signal(libc::SIGALRM, nothing as *const () as usize);
        let soon = libc::itimerval {
            it_interval: libc::timeval { tv_sec: 0, tv_usec: 50_000 },
            it_value: libc::timeval { tv_sec: 0, tv_usec: 50_000 },
        };
        libc::setitimer(libc::ITIMER_REAL, &soon, std::ptr::null_mut());
    }
    let (time, rest) = (w.words(&[3600, 0]), w.out());
    arguments(time, rest)
}
