//! Each call with its memory absent: the call must do the same as on memory that is never paged.
//!
//! Natively the test shows that the cases give the same each time. It matters under `terapage run`,
//! with a budget below the size of a zone: threads touch pages at random, so that a call's memory
//! has left when the call is made. `TERAPAGE_RUNS` says how many calls are made so, and
//! `TERAPAGE_SEED` which.

use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

use crate::seen::{self, Descriptor, Seen};
use crate::sockets::CASES as SOCKETS;
use crate::world::{Case, Forbidden, HERE, World, case, directory, tell_panics};
use crate::zone::{FLAWED, Flaw, InZone, SLOTS, Zone};
use terapage_calls::rows;
use terapage_fuzz::Random;

/// Calls that change the process for ever, or wait: each in a child of its own.
const ALONE: &[&str] = &[
    "add_key",
    "bpf",
    "capset",
    "chroot",
    "clock_nanosleep",
    "clone",
    "clone3",
    "getgroups",
    "keyctl",
    "mlock",
    "mlock2",
    "modify_ldt",
    "nanosleep",
    "pidfd_send_signal",
    "pivot_root",
    "prctl",
    "prlimit64",
    "ptrace",
    "request_key",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_tgsigqueueinfo",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setscheduler",
    "seccomp",
    "set_mempolicy",
    "set_robust_list",
    "set_tid_address",
    "setdomainname",
    "setgroups",
    "sethostname",
    "setitimer",
    "setrlimit",
    "sigaltstack",
    "timer_create",
    "timer_gettime",
    "timer_settime",
    "wait4",
    "waitid",
];
/// Calls that guarded mode does not serve, as the documentation says.
const OTHERWISE: &[&str] = &["clone", "clone3", "io_getevents", "io_pgetevents", "madvise"];
/// `FS_IOC_FIEMAP`: its answer depends on when the kernel writes the file.
const PLACES_ON_DISK: usize = 0xc020_660b;
/// One call in this many is made in a child, which costs as much as hundreds of the others.
const SELDOM: usize = 1600;
/// Calls that are prepared together, so that the memory of each has time to leave.
const TOGETHER: usize = 400;
/// Pages that are touched between preparing calls and making them.
const PAGES: usize = 600;
/// This many calls push the memory of one another out.
const MANY: usize = 200;
/// Descriptors below this are not the calls'.
const FIRST: i32 = 64;

/// A call to compare.
#[derive(Clone, Copy, Debug)]
struct Unit {
    case: usize,
    seed: u64,
    flaw: Option<(usize, Flaw)>,
}

/// A call that has been prepared.
struct Ready {
    world: World,
    arguments: [usize; 6],
    place: String,
    descriptors: Vec<Descriptor>,
}

/// A call whose results have differed each time so far.
struct Differing {
    /// The words that did.
    words: HashSet<usize>,
    /// What was seen natively.
    native: Seen,
}

/// What the comparison knows.
struct Driver {
    cases: Vec<(usize, &'static Case)>,
    still: Zone,
    paged: Zone,
    random: Random,
    /// Which pages are touched: apart, so that the calls depend on the seed only.
    pages: Random,
    /// Of each case, words that differ natively, too: times, numbers of processes.
    varying: HashMap<usize, HashSet<usize>>,
    /// Room for what files contain.
    room: Vec<u8>,
    made: u64,
    by_case: BTreeMap<&'static str, u64>,
    different: Vec<String>,
}

/// In place of a word: there are more words of one call than of the other.
const LENGTH: usize = usize::MAX;
/// In place of a word: what lies in the files that a call opened.
const OPEN_FILES: usize = usize::MAX - 1;

/// How many times calls whose results differ are made.
const TRIES: usize = 5;

/// The lowest descriptor that is free.
fn lowest() -> i32 {
    // SAFETY: the calls touch no memory.
    unsafe {
        let fd = libc::fcntl(0, libc::F_DUPFD, FIRST);
        libc::close(fd);
        fd
    }
}

/// Seconds after which a call that waits ends: a flaw may make it one that waits for ever.
const PATIENCE_S: i64 = 2;

/// From now on, or no more, a call that waits is interrupted.
fn interrupt(begin: bool) {
    extern "C" fn nothing(_: i32) {}
    let time = libc::timeval { tv_sec: if begin { PATIENCE_S } else { 0 }, tv_usec: 0 };
    let each = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: plain data, for which zeros are a value; the handler is a function that does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = if begin { nothing as *const () as usize } else { libc::SIG_DFL };
        if !begin {
            libc::setitimer(libc::ITIMER_REAL, &raw const each, std::ptr::null_mut());
        }
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
        if begin {
            libc::setitimer(libc::ITIMER_REAL, &raw const each, std::ptr::null_mut());
        }
    }
}

/// Nothing of the calls before remains.
fn clear_up(own: &[i32; 2]) {
    // SAFETY: the descriptors are those of calls; signals get their first actions.
    unsafe {
        libc::close_range(own[0] as u32, i32::MAX as u32, 0);
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        let mut none = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        libc::signal(libc::SIGUSR1, libc::SIG_DFL);
        libc::alarm(600);
    }
}

/// Makes a call, by the C library if it has a function that does no more.
fn make(name: &str, number: usize, [a, b, c, d, e, f]: [usize; 6], by_library: bool) -> isize {
    let (at, fd) = (b as *mut libc::c_void, a as i32);
    // SAFETY: the kernel touches the memory of the world. What else the calls of the cases do is
    // undone, or ends with the process.
    let answer = unsafe {
        match name {
            "read" if by_library => libc::read(fd, at, c),
            "write" if by_library => libc::write(fd, at, c),
            "pread64" if by_library => libc::pread(fd, at, c, d as i64),
            "pwrite64" if by_library => libc::pwrite(fd, at, c, d as i64),
            "readv" if by_library => libc::readv(fd, at.cast(), c as i32),
            "writev" if by_library => libc::writev(fd, at.cast(), c as i32),
            "preadv" if by_library => libc::preadv(fd, at.cast(), c as i32, d as i64),
            "pwritev" if by_library => libc::pwritev(fd, at.cast(), c as i32, d as i64),
            "recvfrom" if by_library => libc::recvfrom(fd, at, c, d as i32, e as *mut _, f as *mut _),
            "sendto" if by_library => libc::sendto(fd, at, c, d as i32, e as *const _, f as u32),
            "recvmsg" if by_library => libc::recvmsg(fd, at.cast(), c as i32),
            "sendmsg" if by_library => libc::sendmsg(fd, at.cast(), c as i32),
            // Guarded mode knows these by the C library's functions only.
            "mlock" => libc::mlock(a as *const _, b) as isize,
            "mlock2" => libc::mlock2(a as *const _, b, c as u32) as isize,
            _ => libc::syscall(number as i64, a, b, c, d, e, f) as isize,
        }
    };
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if answer == -1 { -error as isize } else { answer }
}

impl Driver {
    /// Prepares a call; `None` if this process may not.
    fn prepare(&self, unit: Unit, zone: Zone, slot: &Rc<Cell<usize>>, index: usize) -> Option<Ready> {
        let place = format!("{}/{index}", directory());
        std::fs::create_dir(&place).expect("a directory for a call");
        std::env::set_current_dir(&place).expect("the directory of a call");
        let first = lowest();
        let places = InZone::new(zone, slot, index, unit.seed, unit.flaw);
        let mut world = World::new(Box::new(places), unit.seed);
        let case = self.cases[unit.case].1;
        let arguments = catch_unwind(AssertUnwindSafe(|| (case.arguments)(&mut world)));
        let descriptors = seen::open(first, lowest());
        match arguments {
            Ok(arguments) => Some(Ready { world, arguments, place, descriptors }),
            Err(why) if is_forbidden(&*why) => None,
            Err(why) => resume_unwind(why),
        }
    }

    /// Makes calls, and gives what was seen of each: nothing if it cannot be prepared.
    fn run(&mut self, units: &[Unit], zone: Zone, alone: bool) -> Vec<Seen> {
        let (slot, mut all) = (Rc::new(Cell::new(0)), Vec::new());
        zone.clear();
        let mut own = [lowest(), 0];
        let ready: Vec<_> =
            units.iter().enumerate().map(|(i, &unit)| self.prepare(unit, zone, &slot, i)).collect();
        own[1] = lowest();
        if units.len() < MANY {
            zone.touch(&mut self.pages, PAGES);
        }
        if !alone {
            interrupt(true);
        }
        for (unit, ready) in units.iter().zip(ready) {
            let mut seen = vec![0];
            if let Some(Ready { world, arguments, place, descriptors }) = ready {
                std::env::set_current_dir(&place).expect("the directory of a call");
                let (number, case) = self.cases[unit.case];
                if case.name == "ioctl" && arguments[1] == PLACES_ON_DISK {
                    all.push(seen);
                    continue;
                }
                let (ends, _) = world.visit(number, &arguments);
                let result = make(case.name, number, arguments, unit.seed % 2 == 0);
                seen.push(if case.varies && result >= 0 { 0 } else { result as u64 });
                seen::signals(&mut seen, &world);
                seen::memory(&mut seen, &world, &ends);
                seen::directory(&mut seen);
                seen[0] = seen.len() as u64;
                seen::descriptors(&mut seen, &descriptors, &mut self.room);
                world.clear_up();
            }
            all.push(seen);
        }
        if !alone {
            interrupt(false);
        }
        clear_up(&own);
        std::env::set_current_dir(directory()).expect("the directory of all calls");
        for index in 0..units.len() {
            std::fs::remove_dir_all(Path::new(directory()).join(index.to_string())).ok();
        }
        all
    }

    /// The same in a child, of one call.
    fn run_alone(&mut self, unit: Unit, zone: Zone) -> Vec<Seen> {
        const ROOM: usize = 1 << 20;
        let (shared, rights) = (libc::MAP_SHARED | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: new memory; the child uses what it has, and ends by `_exit`.
        unsafe {
            let room = libc::mmap(std::ptr::null_mut(), ROOM, rights, shared, -1, 0).cast::<u64>();
            let child = libc::fork();
            if child == 0 {
                let mine = libc::getpid();
                let seen = self.run(&[unit], zone, true).remove(0);
                if libc::getpid() == mine {
                    room.write(seen.len() as u64);
                    room.add(1).copy_from_nonoverlapping(seen.as_ptr(), seen.len().min(ROOM / 8 - 1));
                }
                libc::_exit(0);
            }
            let mut status = 0;
            libc::waitpid(child, &raw mut status, 0);
            let mut seen = std::slice::from_raw_parts(room.add(1), room.read() as usize).to_vec();
            seen.push(status as u64);
            libc::munmap(room.cast(), ROOM);
            std::fs::remove_dir_all(Path::new(directory()).join("0")).ok();
            vec![seen]
        }
    }

    fn run_these(&mut self, units: &[Unit], zone: Zone, alone: bool) -> Vec<Seen> {
        if alone { self.run_alone(units[0], zone) } else { self.run(units, zone, false) }
    }

    /// Words of a call that differ, though they do not vary natively.
    fn differing(&self, unit: Unit, one: &Seen, other: &Seen) -> Vec<usize> {
        let varying = self.varying.get(&unit.case);
        let is_fixed = |index: &usize| !varying.is_some_and(|varying| varying.contains(index));
        if one[0] != other[0] {
            return [LENGTH].into_iter().filter(is_fixed).collect();
        }
        let (one, open) = one.split_at((one[0] as usize).max(1));
        let (other, others) = other.split_at((other[0] as usize).max(1));
        let words = (1..one.len()).filter(|&index| one[index] != other[index]);
        words.chain((open != others).then_some(OPEN_FILES)).filter(is_fixed).collect()
    }

    /// Compares calls in both zones.
    fn compare(&mut self, units: &[Unit], alone: bool) {
        let (still, paged) = (self.still, self.paged);
        self.made += units.len() as u64;
        for unit in units {
            *self.by_case.entry(self.cases[unit.case].1.name).or_default() += 1;
        }
        // What differs from one native run to the next is no difference, and what does not differ
        // each time is the clock, the number of a file, or a descriptor that the pager had open. So
        // calls that differ are made again.
        let mut left: Vec<(Unit, Option<Differing>)> = units.iter().map(|&unit| (unit, None)).collect();
        let mut lines = Vec::new();
        for _ in 0..TRIES {
            let units: Vec<Unit> = left.iter().map(|&(unit, _)| unit).collect();
            let native = self.run_these(&units, still, alone);
            let guarded = self.run_these(&units, paged, alone);
            lines.clear();
            let mut again = Vec::new();
            for (((unit, before), native), guarded) in left.into_iter().zip(native).zip(guarded) {
                if let Some(before) = &before {
                    let varying = self.differing(unit, &before.native, &native);
                    self.varying.entry(unit.case).or_default().extend(varying);
                }
                let now: HashSet<_> = self.differing(unit, &native, &guarded).into_iter().collect();
                let words = before.map_or(now.clone(), |before| &before.words & &now);
                lines.extend(words.iter().map(|&index| self.line(unit, index, &native, &guarded)));
                if !words.is_empty() {
                    again.push((unit, Some(Differing { words, native })));
                }
            }
            if again.is_empty() {
                return;
            }
            left = again;
        }
        lines.iter().for_each(|line| say(line));
        self.different.append(&mut lines);
    }

    /// A difference, in words.
    fn line(&self, unit: Unit, index: usize, native: &Seen, guarded: &Seen) -> String {
        let word = |seen: &Seen| seen.get(index).copied().unwrap_or(seen.len() as u64);
        let (name, one, other) = (self.cases[unit.case].1.name, word(native), word(guarded));
        format!(
            "{name}: word {index} is {other:#x} ({}), not {one:#x} ({}); {unit:?}",
            other as i64, one as i64
        )
    }

    fn flaw(&mut self) -> Option<(usize, Flaw)> {
        if self.random.below(4) != 0 {
            return None;
        }
        let flaw = match self.random.below(8) {
            0 => Flaw::At(0),
            1 => Flaw::At(8),
            2 => Flaw::At(self.random.one(&[usize::MAX - 7, 0x8000_0000_0000, 0x3fff_ffff_f000, 1 << 45])),
            _ => {
                let most = self.random.one(&[9, 33, 300, 5000]);
                Flaw::Short(self.random.below(most))
            }
        };
        Some((self.random.below(4), flaw))
    }

    /// Compares some calls.
    fn round(&mut self) {
        let alone = self.random.below(SELDOM / TOGETHER + 1) == 0;
        let mut units = Vec::new();
        while units.len() < if alone { 1 } else { TOGETHER } {
            let case = self.random.below(self.cases.len());
            if ALONE.contains(&self.cases[case].1.name) == alone {
                let flaw = self.flaw().filter(|_| units.len() < FLAWED);
                units.push(Unit { case, seed: self.random.number(), flaw });
            }
        }
        self.compare(&units, alone);
    }
}

fn is_forbidden(why: &(dyn Any + Send)) -> bool {
    why.is::<Forbidden>()
}

static OVER: AtomicBool = AtomicBool::new(false);

/// The cases of calls that this machine has and that are compared, with their numbers.
fn numbered(cases: impl Iterator<Item = &'static Case>) -> Vec<(usize, &'static Case)> {
    let number = |case: &Case| rows(HERE).find(|(_, row)| row.name == case.name).map(|(number, _)| number);
    let cases = cases.filter(|case| !OTHERWISE.contains(&case.name));
    cases.filter_map(|case| Some((number(case)?, case))).collect()
}

impl Driver {
    fn new(cases: Vec<(usize, &'static Case)>, seed: u64) -> Driver {
        Driver {
            cases,
            still: Zone::still(),
            paged: Zone::paged(),
            random: Random::from_seed(seed),
            pages: Random::from_seed(seed),
            varying: HashMap::new(),
            room: vec![0; 32768],
            made: 0,
            by_case: BTreeMap::new(),
            different: Vec::new(),
        }
    }
}

/// Compares this number of calls, and gives the differences.
fn compare(groups: &[&'static [Case]], seed: u64, rounds: u64) -> Vec<String> {
    let mut driver = Driver::new(numbered(groups.iter().copied().flatten()), seed);
    let paged = driver.paged;
    let adversary = std::thread::spawn(move || {
        let mut random = Random::from_seed(seed);
        while !OVER.load(Relaxed) {
            paged.touch(&mut random, 4);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    let began = std::time::Instant::now();
    while driver.made < rounds {
        driver.round();
        if driver.made % 10_000 < TOGETHER as u64 {
            say(&format!("{} calls, {} s", driver.made, began.elapsed().as_secs()));
        }
    }
    OVER.store(true, Relaxed);
    adversary.join().expect("the thread that touches pages");
    let (made, names, differences) = (driver.made, driver.by_case.len(), driver.different.len());
    say(&format!("{made} calls of {names} names, {differences} differences, seed {seed}"));
    driver.different
}

/// Says a line at once: what `println` says in a test is kept in memory, and lost with the child.
/// Another thread may have held the lock of `stdout` when the child was forked.
fn say(line: &str) {
    let line = format!("{line}\n");
    // SAFETY: the pointer and the length are those of the line.
    let written = unsafe { libc::write(libc::STDOUT_FILENO, line.as_ptr().cast(), line.len()) };
    assert_eq!(written, line.len() as isize, "standard output");
}

/// Runs the comparison in a child, whose descriptors and directory are its own.
pub fn run(groups: &[&'static [Case]], seed: u64, rounds: u64) -> bool {
    in_child(|| compare(groups, seed, rounds).is_empty())
}

/// Whether this gives `true` in a child, whose descriptors and directory are its own.
fn in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses what it has, and ends by `_exit`.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut most = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut most);
            most.rlim_cur = most.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const most);
            for fd in 3..FIRST {
                if libc::fcntl(fd, libc::F_GETFD) < 0 {
                    libc::dup2(0, fd);
                }
            }
            tell_panics();
            let done = catch_unwind(AssertUnwindSafe(work));
            libc::_exit(i32::from(!done.unwrap_or(false)));
        }
        let mut status = 0;
        while libc::waitpid(child, &raw mut status, 0) != child {}
        println!("status {status:#x}");
        status == 0
    }
}

/// A descriptor that somebody else has open while a call is prepared.
static FOREIGN: AtomicI32 = AtomicI32::new(-1);

const HANDED_ON: &[Case] = &[
    case("uname", |w| {
        // SAFETY: the call touches no memory.
        FOREIGN.store(unsafe { libc::dup(0) }, Relaxed);
        [w.out(), 0, 0, 0, 0, 0]
    }),
    case("recvmsg", |w| {
        let received = SOCKETS.iter().find(|case| case.name == "recvmsg").expect("a case");
        // SAFETY: the call touches no memory.
        unsafe { libc::close(FOREIGN.load(Relaxed)) };
        let arguments = (received.arguments)(w);
        assert_eq!(arguments[0], FOREIGN.load(Relaxed) as usize, "the number goes to the next call");
        arguments
    }),
];

/// Whether a call that waits for a datagram gets it, if somebody else had its socket's number while
/// the call before was prepared.
pub fn gets_its_datagram() -> bool {
    in_child(|| {
        let mut driver = Driver::new(numbered(HANDED_ON.iter()), 1);
        let units = [0, 1].map(|case| Unit { case, seed: 1, flaw: None });
        let zone = driver.still;
        let seen = driver.run(&units, zone, false);
        println!("the results are {} and {}", seen[0][1] as i64, seen[1][1] as i64);
        seen[1][1] as i64 > 0
    })
}

const _: () = assert!(TOGETHER * 5 < SLOTS);
