//! Processes, their limits and users; memory; System V's objects; keys.

use crate::world::{Case, World, case, checked};

/// A call that must succeed.
fn prepare(number: i64, arguments: [usize; 4]) -> usize {
    let [a, b, c, d] = arguments;
    // SAFETY: the calls that are made so touch no memory but what the caller gives.
    checked(unsafe { libc::syscall(number, a, b, c, d, 0, 0) } as isize)
}

/// Shared memory of a page, until the call has been made.
fn shared(w: &mut World) -> usize {
    let id = prepare(libc::SYS_shmget, [0, 4096, 0o600, 0]);
    w.later(libc::SYS_shmctl, [id, 0, 0]);
    id
}

/// Four semaphores, until the call has been made.
fn semaphores(w: &mut World) -> usize {
    let id = prepare(libc::SYS_semget, [0, 4, 0o600, 0]);
    w.later(libc::SYS_semctl, [id, 0, 0]);
    id
}

/// A queue of messages, until the call has been made.
fn messages(w: &mut World) -> usize {
    let id = prepare(libc::SYS_msgget, [0, 0o600, 0, 0]);
    w.later(libc::SYS_msgctl, [id, 0, 0]);
    id
}

/// A child that has ended already.
fn ended() -> usize {
    // SAFETY: the child only ends.
    match unsafe { libc::fork() } {
        // SAFETY: as above.
        0 => unsafe { libc::_exit(3) },
        child => child as usize,
    }
}

/// New memory of 64 KiB.
fn page() -> usize {
    // SAFETY: the kernel chooses where.
    unsafe { libc::mmap(std::ptr::null_mut(), 65536, 3, 0x22, -1, 0) as usize }
}

fn itself() -> usize {
    std::process::id() as usize
}

/// `option` of `prctl` with memory as the next argument.
fn prctl(w: &mut World, option: usize) -> [usize; 6] {
    [option, w.out(), 0, 0, 0, 0]
}

pub const CASES: &[Case] = &[
    case("wait4", |w| [ended(), w.out(), 0, w.out(), 0, 0]).varies(),
    case("waitid", |w| {
        let child = ended();
        let info = w.out();
        w.loose();
        [1, child, info, 4, w.out(), 0]
    }),
    case("clone3", |w| {
        // A thread that shares nothing: `fork`, with the number of the child.
        let (pidfd, parent) = (w.out(), w.out());
        // The kernel ignores that it cannot write this.
        w.loose();
        [w.words(&[0x10_1000, pidfd, 0, parent, 17, 0, 0, 0]), 64, 0, 0, 0, 0]
    })
    .varies(),
    case("clone", |w| [0x1000 | 17, 0, w.out(), 0, 0, 0]).varies(),
    case("execveat", |w| {
        std::fs::write("f", "no program").unwrap();
        std::fs::set_permissions("f", std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let (argument, variable) = (w.text("one"), w.text("A=b"));
        let (path, arguments) = (w.text("f"), w.words(&[argument, 0]));
        [libc::AT_FDCWD as usize, path, arguments, w.words(&[variable, 0]), 0, 0]
    })
    .fails(),
    case("execve", |w| {
        std::fs::write("f", "no program").unwrap();
        std::fs::set_permissions("f", std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let (first, second, variable) = (w.text("one"), w.text("two"), w.text("A=b"));
        [w.text("f"), w.words(&[first, second, 0]), w.words(&[variable, 0]), 0, 0, 0]
    })
    .fails(),
    case("set_tid_address", |w| {
        let memory = w.out();
        w.loose();
        [memory, 0, 0, 0, 0, 0]
    })
    .varies(),
    case("set_robust_list", |w| {
        let memory = w.out();
        w.loose();
        [memory, 24, 0, 0, 0, 0]
    }),
    case("get_robust_list", |w| [0, w.out(), w.out(), 0, 0, 0]),
    case("prctl", |w| prctl(w, 2)),
    case("prctl", |w| [15, w.text("name"), 0, 0, 0, 0]),
    case("prctl", |w| [15, w.mem(b"fifteen bytes and more"), 0, 0, 0, 0]),
    case("prctl", |w| prctl(w, 16)),
    case("prctl", |w| prctl(w, 25)),
    case("prctl", |w| prctl(w, 37)),
    case("prctl", |w| prctl(w, 40)),
    case("prctl", |w| {
        let instructions = w.words(&[0x7fff_0000_0000_0006]);
        prepare(libc::SYS_prctl, [38, 1, 0, 0]);
        [22, 2, w.words(&[1, instructions]), 0, 0, 0]
    }),
    case("prctl", |w| {
        let memory = w.out();
        w.loose();
        [0x4155_5856, memory, 500, 0, 0, 0]
    }),
    case("arch_prctl", |w| [0x1003, w.out(), 0, 0, 0, 0]),
    case("arch_prctl", |w| [0x1022, w.out(), 0, 0, 0, 0]),
    case("seccomp", |w| {
        let instructions = w.words(&[0x7fff_0000_0000_0006]);
        prepare(libc::SYS_prctl, [38, 1, 0, 0]);
        [1, 0, w.words(&[1, instructions]), 0, 0, 0]
    }),
    case("seccomp", |w| [2, 0, w.ints(&[0]), 0, 0, 0]),
    case("seccomp", |w| [3, 0, w.out(), 0, 0, 0]),
    case("sched_setparam", |w| [0, w.ints(&[0]), 0, 0, 0, 0]),
    case("sched_getparam", |w| [0, w.out(), 0, 0, 0, 0]),
    case("sched_setscheduler", |w| [0, 0, w.ints(&[0]), 0, 0, 0]),
    case("sched_rr_get_interval", |w| [0, w.out(), 0, 0, 0, 0]),
    case("sched_setaffinity", |w| [0, 8, w.words(&[1]), 0, 0, 0]),
    case("sched_getaffinity", |w| [0, 8, w.out(), 0, 0, 0]),
    case("sched_setattr", |w| [0, w.words(&[48, 0, 0, 0, 0, 0]), 0, 0, 0, 0]),
    case("sched_setattr", |w| [0, w.words(&[0; 6]), 0, 0, 0, 0]),
    case("sched_getattr", |w| [0, w.out(), 48, 0, 0, 0]),
    case("getcpu", |w| [w.out(), w.out(), 0, 0, 0, 0]),
    case("getrlimit", |w| [7, w.out(), 0, 0, 0, 0]),
    case("setrlimit", |w| [7, w.words(&[100, 100]), 0, 0, 0, 0]),
    case("prlimit64", |w| [0, 7, w.words(&[100, 100]), w.out(), 0, 0]),
    case("getrusage", |w| [0, w.out(), 0, 0, 0, 0]),
    case("times", |w| [w.out(), 0, 0, 0, 0, 0]).varies(),
    case("perf_event_open", |w| {
        let mut attr = [0; 8];
        attr[0] = 1 | 64 << 32;
        [w.words(&attr), 0, usize::MAX, usize::MAX, 0, 0]
    }),
    case("uname", |w| [w.out(), 0, 0, 0, 0, 0]),
    case("sysinfo", |w| {
        let memory = w.out();
        [memory, 0, 0, 0, 0, 0]
    }),
    case("getrandom", |w| {
        let len = w.between(1, 5000);
        [w.out(), len, 0, 0, 0, 0]
    }),
    case("sethostname", |w| {
        prepare(libc::SYS_unshare, [0x400_0000, 0, 0, 0]);
        [w.mem(b"name"), 4, 0, 0, 0, 0]
    }),
    case("setdomainname", |w| {
        prepare(libc::SYS_unshare, [0x400_0000, 0, 0, 0]);
        [w.mem(b"name"), 4, 0, 0, 0, 0]
    }),
    case("delete_module", |w| [w.text("nowhere"), 0, 0, 0, 0, 0]).fails(),
    case("syslog", |w| {
        let memory = w.out();
        w.loose();
        [3, memory, 100, 0, 0, 0]
    }),
    case("getresuid", |w| [w.out(), w.out(), w.out(), 0, 0, 0]),
    case("getresgid", |w| [w.out(), w.out(), w.out(), 0, 0, 0]),
    case("setgroups", |w| [3, w.ints(&[1, 2, 3]), 0, 0, 0, 0]),
    case("getgroups", |w| {
        // SAFETY: two numbers.
        let set = unsafe { libc::setgroups(2, [1, 2].as_ptr()) };
        let memory = w.out();
        if set != 0 {
            w.loose();
        }
        [if set == 0 { 2 } else { 65536 }, memory, 0, 0, 0, 0]
    }),
    case("capget", |w| [w.ints(&[0x2008_0522, 0]), w.out(), 0, 0, 0, 0]),
    case("capget", |w| [w.ints(&[0x1998_0330, 0]), w.out(), 0, 0, 0, 0]),
    case("capset", |w| [w.ints(&[0x2008_0522, 0]), w.words(&[0; 3]), 0, 0, 0, 0]),
    case("landlock_create_ruleset", |w| [w.words(&[1]), 8, 0, 0, 0, 0]),
    case("landlock_add_rule", |w| {
        let attr = [1_u64];
        // SAFETY: the attributes have 8 bytes.
        let rules = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attr.as_ptr(), 8, 0) } as usize;
        let directory =
            prepare(libc::SYS_openat, [libc::AT_FDCWD as usize, c".".as_ptr() as usize, 0x20_0000, 0]);
        let mut rule = [0; 12];
        rule[0] = 1;
        rule[8] = directory as u8;
        [rules, 1, w.mem(&rule), 0, 0, 0]
    }),
    case("lsm_list_modules", |w| {
        let memory = w.out();
        w.loose();
        [memory, w.ints(&[512]), 0, 0, 0, 0]
    }),
    case("mincore", |w| {
        let memory = page();
        let bytes = w.out();
        // Pages may be larger than 4 KiB.
        if cfg!(target_arch = "aarch64") {
            w.loose();
        }
        [memory, 65536, bytes, 0, 0, 0]
    }),
    case("madvise", |w| {
        // The whole page, whose end is the end of memory.
        [w.aligned(4096).out(), 4096, 23, 0, 0, 0]
    }),
    case("mlock", |w| [w.aligned(4096).out(), 4096, 0, 0, 0, 0]),
    case("mlock2", |w| [w.aligned(4096).out(), 4096, 0, 0, 0, 0]),
    case("mbind", |w| {
        let memory = page();
        [memory, 65536, 1, w.words(&[1]), 64, 0]
    }),
    case("set_mempolicy", |w| [1, w.words(&[1, 0]), 100, 0, 0, 0]),
    case("get_mempolicy", |w| [w.out(), w.out(), 1024, 0, 0, 0]),
    case("migrate_pages", |w| [0, 64, w.words(&[1]), w.words(&[1]), 0, 0]),
    case("move_pages", |w| {
        let page = page();
        [0, 2, w.words(&[page, page]), w.ints(&[0, 0]), w.out(), 0]
    }),
    case("process_madvise", |w| {
        let page = page();
        let process = prepare(libc::SYS_pidfd_open, [itself(), 0, 0, 0]);
        [process, w.words(&[page, 65536]), 1, 20, 0, 0]
    }),
    case("process_vm_readv", |w| {
        let (here, there) = (w.out(), w.out());
        [itself(), w.words(&[here, 50]), 1, w.words(&[there, 50]), 1, 0]
    }),
    case("process_vm_writev", |w| {
        let (here, there) = (w.out(), w.out());
        [itself(), w.words(&[here, 50]), 1, w.words(&[there, 50]), 1, 0]
    }),
    case("modify_ldt", |w| [1, w.ints(&[0, 0, 0, 0x28]), 16, 0, 0, 0]),
    case("shmctl", |w| [shared(w), 2, w.out(), 0, 0, 0]),
    case("shmctl", |w| [0, 3, w.out(), 0, 0, 0]).varies(),
    case("shmctl", |w| [0, 14, w.out(), 0, 0, 0]).varies(),
    case("semctl", |w| [semaphores(w), 0, 2, w.out(), 0, 0]),
    case("semctl", |w| [0, 0, 3, w.out(), 0, 0]).varies(),
    case("semctl", |w| {
        let set = semaphores(w);
        let memory = w.out();
        w.loose();
        [set, 0, 13, memory, 0, 0]
    }),
    case("semop", |w| {
        let set = semaphores(w);
        [set, w.mem(&[0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0]), 2, 0, 0, 0]
    }),
    case("semtimedop", |w| {
        let set = semaphores(w);
        [set, w.mem(&[0, 0, 1, 0, 0, 0]), 1, w.words(&[1, 0]), 0, 0]
    }),
    case("msgctl", |w| [messages(w), 2, w.out(), 0, 0, 0]),
    case("msgctl", |w| [0, 3, w.out(), 0, 0, 0]).varies(),
    case("msgsnd", |w| {
        let queue = messages(w);
        let len = w.between(1, 3000);
        [queue, w.words(&[1]), len, 0, 0, 0]
    }),
    case("msgrcv", |w| {
        let queue = messages(w);
        let len = w.between(1, 3000);
        let mut message = vec![0_u64; 400];
        message[0] = 1;
        prepare(libc::SYS_msgsnd, [queue, message.as_ptr() as usize, len, 0]);
        [queue, w.out(), len, 0, 0, 0]
    }),
    case("add_key", |w| [w.text("user"), w.text("a key"), w.mem(b"payload"), 7, usize::MAX - 1, 0]).varies(),
    case("request_key", |w| [w.text("user"), w.text("no key"), 0, 0, 0, 0]).fails(),
    case("keyctl", |w| [1, w.text("ring"), 0, 0, 0, 0]).varies(),
    case("keyctl", |w| {
        let memory = w.out();
        w.loose();
        [6, usize::MAX - 3, memory, 200, 0, 0]
    }),
    case("keyctl", |w| {
        let memory = w.out();
        w.loose();
        [31, memory, 10, 0, 0, 0]
    }),
    case("bpf", |w| {
        let path = w.text("nowhere");
        [7, w.words(&[path, 0]), 16, 0, 0, 0]
    })
    .fails(),
    case("kcmp", |w| {
        // SAFETY: the calls touch one event.
        let (epoll, event) = unsafe {
            let (epoll, event) = (libc::epoll_create1(0), libc::eventfd(0, 0));
            libc::epoll_ctl(epoll, 1, event, &mut libc::epoll_event { events: 1, u64: 0 });
            (epoll, event)
        };
        [itself(), itself(), 7, event as usize, w.ints(&[epoll, event, 0]), 0]
    }),
    case("lsm_set_self_attr", |w| [100, w.words(&[0, 0, 32, 0]), 32, 0, 0, 0]).fails(),
    case("ptrace", |w| {
        // SAFETY: the child stops itself, and ends with its parent.
        let child = unsafe { libc::fork() };
        if child == 0 {
            prepare(libc::SYS_prctl, [1, 9, 0, 0]);
            prepare(libc::SYS_ptrace, [0, 0, 0, 0]);
            prepare(libc::SYS_kill, [itself_now(), libc::SIGSTOP as usize, 0, 0]);
        }
        // SAFETY: the child is this process's.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WUNTRACED) };
        [0x4202, child as usize, 0, w.out(), 0, 0]
    }),
];

fn itself_now() -> usize {
    prepare(libc::SYS_getpid, [0; 4])
}
