//! The process's settings, and how its pager starts and fails.

use crate::real::Texts;
use crate::{arena, exit, heap, limits, real, sanitizers, statics};
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_config::{DEFAULT_BLOCK, Hosted, Io, Mechanism, Settings, Size, check_block};
use terapage_pager::{Options, Pager};
use terapage_stats::Shared;
use terapage_store::Shelf;
use terapage_sys::fd::Room;
use terapage_sys::userfaultfd::{self, DEVICE_VARIABLE, Kind, Userfaultfd};
use terapage_sys::{last, page_bytes, ring, thread};
use terapage_trace::{Header, Misses};

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The settings, once the library has begun.
pub fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Bytes of the smallest blocks that there may be once blocks are split.
fn least_block() -> usize {
    settings().map_or(DEFAULT_BLOCK, Settings::least_block_bytes)
}

/// Bytes of a block.
pub fn block() -> usize {
    settings().map_or(DEFAULT_BLOCK, Settings::block_bytes)
}

/// Bytes of the budget: within another run, as many as that has.
pub fn budget() -> usize {
    settings().map_or(0, |settings| crate::job::most(settings.memory.size.0) as usize)
}

/// Bytes of the budget now, as of the last tick: the [budget](budget), unless it follows the
/// machine.
pub fn budget_now() -> usize {
    crate::job::in_force().map_or_else(budget, |bytes| bytes as usize)
}

// The loader calls this function with the program's arguments, before any other library is
// initialised (`-z initfirst`).
#[cfg(not(target_env = "musl"))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char, Texts) = begin_with;

#[cfg(not(target_env = "musl"))]
extern "C" fn begin_with(_count: c_int, _arguments: *const *const c_char, environment: Texts) {
    // Functions that this start calls may be those of another preloaded library (fakeroot,
    // libfaketime), which then reads its variables, and remembers what it finds. The C library
    // sets the environment only when it is initialised itself, to the same value.
    // SAFETY: there is no other thread yet.
    unsafe {
        if __environ.is_null() {
            __environ = environment;
        }
    }
    // SAFETY: the loader passes the process's environment.
    unsafe { begin(environment) };
}

#[cfg(not(target_env = "musl"))]
unsafe extern "C" {
    /// The environment, for `getenv`.
    static mut __environ: Texts;
}

/// Begins, before the program does. A host that this crate is linked into calls it first.
///
/// # Safety
/// The environment is an array of texts that ends in a null pointer, and stays as it is.
pub unsafe fn begin(environment: Texts) {
    let start = Start { environment };
    crate::guard::arrive();
    // The first lookup in the loader's data: a process that is not paged needs these functions,
    // too.
    real::find();
    let is_wanted = start.is_wanted();
    // Whether this is a host: some of the following steps differ there.
    if let Some(value) = start.variable(crate::hosted::VARIABLE).filter(|_| is_wanted) {
        crate::hosted::begin(value.as_bytes());
    }
    crate::guard::begin(is_wanted);
    if !is_wanted {
        return stand_back();
    }
    // No step waits, and each allocation would block the signals for itself: 180 times.
    let signals = thread::block_signals();
    thread::begin_quiet(thread::own_name());
    ORDER.iter().for_each(|step| step(&start));
    thread::end_quiet();
    thread::restore_signals(&signals);
}

/// The steps of the start, in order.
const ORDER: [fn(&Start); 18] = [
    // Forks: this library must be the first that registers for them, so that it takes its locks
    // last. The program's own `malloc`, which later steps call, may register in its first call.
    |_| crate::fork::open(),
    // The settings: all following steps depend on them. From here on, hooks know that there are
    // settings.
    read_settings,
    // Names and passwords of servers: later the process may have lost its rights or directories.
    remember_servers,
    // The process that `terapage run` became; `job` uses this.
    |start| {
        if start.is("TERAPAGE_ROOT", &std::process::id().to_string()) {
            exit::is_root();
        }
    },
    // The data for executed programs: no step before this one executes any.
    |start| crate::exec::open(start.settings(), settings().map_or(Hosted::Off, |settings| settings.hosted)),
    // The inherited descriptor, before the program can close it.
    take_device,
    // The budget's table: `arena` asks it how far this process may grow without a pager.
    join_job,
    // Limits, before the arena is reserved: otherwise the kernel would count the arena as the
    // program's memory.
    |_| limits::begin(),
    // The end of `brk` and the file of standard error, as they were before the program ran.
    |_| crate::untracked::begin(),
    // Standard error is kept for the summary, so that it can be written after the program has
    // closed it.
    |start| crate::summary::begin(start.variable("TERAPAGE_SUMMARY")),
    // Static arrays, which `arena` counts as memory in use.
    |_| statics::find(block()),
    // The functions that begin threads, while no thread can hold the loader's lock and wait for a
    // page.
    |_| thread::find(),
    // The arena: needs the block, the limits and the job's word.
    |_| open_arena(),
    // `malloc`: needs the arena.
    |_| heap::open(settings().map_or(terapage_config::Heap::Off, |settings| settings.heap)),
    // The first mappings of the program's own `malloc`: needs the arena, and all later steps may
    // call `malloc`.
    |_| heap::map_early(),
    // What guarded calls need `malloc` for.
    |_| crate::guard::end_start(),
    // The end of the process: registered first, so called last.
    |_| open_end(),
    // The pager, if it is already due: needs all of the above.
    |_| start_paging(),
];

/// The arguments that the loader passes to the start.
struct Start {
    environment: Texts,
}

impl Start {
    fn texts(&self) -> impl Iterator<Item = &CStr> {
        // SAFETY: the environment is an array of texts that ends in a null pointer.
        unsafe { crate::exec::texts(self.environment) }
    }

    /// The value of a variable of the environment.
    fn variable(&self, name: &str) -> Option<OsString> {
        self.texts().find_map(|entry| {
            let value = entry.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(OsStr::from_bytes(value).to_owned())
        })
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.variable(name).and_then(|value| value.to_str()?.parse().ok())
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.variable(name).is_some_and(|has| has == value)
    }

    /// The texts that are settings of the library.
    fn settings(&self) -> Vec<CString> {
        let is = |text: &&CStr| {
            let text = text.to_bytes();
            text.starts_with(b"TERAPAGE_") && !text.starts_with(crate::hosted::VARIABLE.as_bytes())
        };
        self.texts().filter(is).map(CStr::to_owned).collect()
    }

    /// Whether the process should and can be paged.
    ///
    /// If a sanitizer bars it, what the program executes is paged nonetheless, unless the
    /// sanitizer is linked into the program: then its versions of the C library's functions do not
    /// work yet. The settings are not read as a whole for the same reason.
    fn is_wanted(&self) -> bool {
        if self.variable("TERAPAGE_MEMORY").is_none() || self.is("TERAPAGE", "off") {
            return false;
        }
        if sanitizers::any() {
            thread::say(
                "terapage: the program is built with a sanitizer, which manages the memory itself: \
                 it is not paged\n",
            );
            if sanitizers::are_libraries() {
                let hosted = [Hosted::Off, Hosted::All].into_iter();
                let mut named = hosted.filter(|hosted| self.is("TERAPAGE_STATIC", hosted.name()));
                crate::exec::open(self.settings(), named.next().unwrap_or(Hosted::On));
            }
            return false;
        }
        true
    }
}

fn read_settings(start: &Start) {
    match Settings::from_variables(&terapage_far::shelf(), |name| start.variable(name)) {
        Ok(settings) => SETTINGS.set(settings).ok(),
        Err(error) => fail(&error.to_string()),
    };
}

fn remember_servers(start: &Start) {
    // The C library looks up names of hosts in memory that is paged later.
    terapage_far::no_names();
    let password = start.variable(terapage_far::PASSWORD_FILE).filter(|file| !file.is_empty());
    if let Err(why) = terapage_far::remember_password(password.map(Into::into)) {
        fail(&why);
    }
    let stores = settings().into_iter().flat_map(|settings| &settings.stores);
    stores.flat_map(|store| store.urls()).for_each(terapage_far::remember);
}

fn take_device(start: &Start) {
    if let Some(inherited) = start.number(DEVICE_VARIABLE) {
        userfaultfd::take(inherited);
    }
}

fn join_job(start: &Start) {
    if !settings().is_some_and(|settings| settings.per_process) {
        crate::job::begin(start.variable(terapage_lease::JOB_VARIABLE), start.variable("TERAPAGE_ROOT"));
    }
}

fn open_arena() {
    let start_bytes = start_bytes().unwrap_or_else(|| crate::job::start_bytes(budget()));
    if let Err(why) = arena::open(block(), least_block(), budget(), start_bytes) {
        fail(&why);
    }
}

fn open_end() {
    exit::open();
    crate::signals::open();
    last::open(|| {
        // As before a fork: room is made under the lock.
        let _arena = arena::ARENA.lock();
        let _room = Room::make();
        last::look().unwrap_or(false)
    });
}

fn start_paging() {
    let mut arena = arena::ARENA.lock();
    if !heap::stands_in() {
        // Beginning a thread takes memory from the program's own `malloc`. If the pager started
        // later, such a `malloc` might ask for memory while it holds a lock that the new thread
        // needs. What it uses by now is not paged, so the pager's threads do not wait for
        // themselves.
        arena.start();
        arena.open_early();
    }
    arena.start_if_due();
}

/// Does nothing more: the process runs as without the library.
fn stand_back() {
    limits::hand_back();
    heap::stand_back();
}

/// The bytes in use at which paging starts, if a test or a recording says so.
pub fn start_bytes() -> Option<usize> {
    settings().and_then(|settings| settings.start_bytes).map(|bytes| bytes as usize)
}

/// Ends the process, which cannot run as requested.
pub fn fail(why: &str) -> ! {
    crate::adopted::give_up_if_beginning(why);
    // The message takes memory, which must not come from a heap or arena whose lock may be held
    // here.
    let _internal = thread::Internal::enter();
    thread::say(&format!("terapage: {why}\n"));
    // Not by the hook of `_exit`, which would wait for locks that may be held here. SAFETY: the
    // call ends the process.
    unsafe { libc::syscall(libc::SYS_exit_group, 125i64) };
    std::process::abort()
}

/// The value; an error ends the process.
pub fn or_fail<T>(result: Result<T, terapage_pager::Error>) -> T {
    result.unwrap_or_else(|error| fail(&error.to_string()))
}

fn is_of_trace(error: &terapage_pager::Error) -> bool {
    matches!(error, terapage_pager::Error::Trace { .. })
}

/// Whether the process lacks the rights to page, and continues without paging.
static GOES_UNPAGED: AtomicBool = AtomicBool::new(false);

/// Whether this process has said that it is not paged after all.
pub fn goes_unpaged() -> bool {
    GOES_UNPAGED.load(Relaxed)
}

/// The right to page that this process lacks: it has become another user than `terapage run` was,
/// or was confined.
fn lacking_right() -> Option<String> {
    let copies = settings().is_some_and(|settings| settings.mechanism == Mechanism::Copy);
    if let Err(error) = Userfaultfd::open(Kind::Events { copies })
        && error.is_forbidden()
    {
        return Some(format!("it may not handle page faults ({error})"));
    }
    if settings().is_some_and(|settings| settings.io == Io::Uring) {
        return ring::forbidden().map(|error| format!("it may have no ring of io_uring ({error})"));
    }
    None
}

/// Whether a pager could not start because this process may not open its store.
fn is_shut_out(error: &terapage_pager::Error) -> bool {
    match error {
        terapage_pager::Error::Store(terapage_store::Error::System { source, .. }) => {
            source.is_forbidden() || matches!(source.errno(), libc::EROFS | libc::ENOENT | libc::ENOTDIR)
        }
        _ => false,
    }
}

/// Continues without paging, and says why.
fn go_unpaged(why: &str) {
    crate::adopted::give_up_if_beginning(why);
    GOES_UNPAGED.store(true, Relaxed);
    // SAFETY: the C library has set the name, a text, at the start.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) }.to_string_lossy();
    thread::say(&format!(
        "terapage: {name} goes on, but its memory is not paged: {why} (terapage doctor says how to \
         fix it)\n"
    ));
}

unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
}

/// Starts the pager, as the settings say. `None` if this process lacks the rights, which is said
/// once.
///
/// `in_use` is the bytes that the program may have filled.
pub fn start_pager(in_use: usize) -> Option<Pager> {
    if goes_unpaged() {
        return None;
    }
    let Some(settings) = settings() else { fail("paging before the start") };
    let frames = frames();
    if let Some(why) = lacking_right() {
        go_unpaged(&why);
        return None;
    }
    let pager = match start_traced(settings, &options(settings, frames, in_use)) {
        Err(error) if is_shut_out(&error) => {
            crate::untracked::forget();
            go_unpaged(&error.to_string());
            return None;
        }
        started => or_fail(started),
    };
    if settings.verbose {
        let block = Size(block() as u64);
        let budget = Size(budget() as u64);
        thread::say(&format!("terapage: paging within {budget} in blocks of {block}\n"));
    }
    Some(pager)
}

/// The most frames that this process may have. Too small a budget ends the process.
fn frames() -> usize {
    let memory = Size(budget() as u64);
    if let Err(error) = check_block(memory, Size(block() as u64)) {
        fail(&error.to_string());
    }
    memory.0 as usize / block()
}

/// The pager's options, except the trace.
fn options(settings: &Settings, frames: usize, in_use: usize) -> Options {
    let usual = Options::default();
    Options {
        block: block(),
        frames,
        splits: settings.splits(),
        policy: settings.policy.clone(),
        prefetch: settings.prefetch.clone(),
        verify: settings.verify,
        io: terapage_store::io_engine(settings.io),
        trace: None,
        learn: learnt(settings),
        copy: settings.mechanism == Mechanism::Copy,
        begins: Some(begins),
        each_second: Some(crate::untracked::each_second),
        releases: Some(arena::release::turn),
        share: crate::job::share(in_use),
        turns: settings.turns,
        // A host does not see how threads begin. Elsewhere hooks do (`hooks/processors.rs`).
        follows: !crate::hosted::is_host(),
        pins: crate::guard::pins(),
        soft_per_mille: settings.soft_per_mille.map_or(usual.soft_per_mille, |share| share as usize),
        spin_us: settings.spin_us.unwrap_or(usual.spin_us),
        ..usual
    }
}

/// A pager is about to begin.
fn begins(shared: &'static Shared) {
    crate::untracked::is_paged(shared);
    arena::release::is_paged(shared);
}

/// What the last run of this program has left, if this run is to use it, or to leave something.
fn learnt(settings: &Settings) -> Option<Misses> {
    let path = settings.learn.as_deref()?;
    let program = Header::hash_of(&std::env::current_exe().unwrap_or_default());
    let nothing = || Some(Misses { program, ..Misses::default() });
    let why = match Misses::read(path) {
        Ok(Some(last)) if last.program == program && last.page_bytes == page_bytes() as u32 => {
            return Some(last);
        }
        Ok(Some(last)) if last.program == program => return nothing(),
        Ok(None) => return nothing(),
        Ok(Some(_)) if exit::is_run() => "is another program's".to_owned(),
        Ok(Some(_)) => return None,
        Err(error) => error.to_string(),
    };
    thread::say(&format!(
        "terapage: --learn: {} {why}; this process goes on without the file\n",
        path.display()
    ));
    None
}

/// Starts the pager with the trace that the settings name, or, if that cannot be written, without
/// one.
fn start_traced(settings: &Settings, options: &Options) -> Result<Pager, terapage_pager::Error> {
    let Some(path) = settings.trace.as_deref() else { return start_with(settings, options, None) };
    let started = match start_with(settings, options, Some(exit::own_name(path))) {
        // Another process of the run may just have begun to write to the same file.
        Err(error) if is_of_trace(&error) => start_with(settings, options, Some(exit::with_number(path))),
        started => started,
    };
    match started {
        Err(error) if is_of_trace(&error) => {
            thread::say(&format!("terapage: {error}; the program goes on without a trace\n"));
            start_with(settings, options, None)
        }
        started => started,
    }
}

fn start_with(
    settings: &Settings,
    options: &Options,
    trace: Option<PathBuf>,
) -> Result<Pager, terapage_pager::Error> {
    let open = Shelf { faults: settings.faults, ..terapage_far::shelf() }.opener(settings, options.block);
    let make_store = move || Ok(open()?);
    Pager::start(Options { trace, ..options.clone() }, Box::new(make_store))
}
