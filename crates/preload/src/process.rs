//! The process: its settings, and how the pager starts and fails.

use crate::{arena, exit, heap, limits, real, sanitizers, statics};
use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_config::{Io, Settings, Size};
use terapage_pager::{Options, Pager};
use terapage_store::Shelf;
use terapage_sys::fd::Room;
use terapage_sys::userfaultfd::{self, DEVICE_VARIABLE, Kind, Userfaultfd};
use terapage_sys::{last, ring, thread};

/// The block size of `--block auto`: large enough that a scan runs at the device's speed, with
/// neighbours moved together, and small enough for random touches.
const AUTO_BLOCK: usize = 16 << 10;

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The settings, once the library has begun.
pub fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Bytes of a block.
pub fn block() -> usize {
    settings().and_then(|settings| settings.block).map_or(AUTO_BLOCK, |block| block.0 as usize)
}

fn budget() -> usize {
    settings().map_or(0, |settings| settings.memory.0 as usize)
}

// The loader calls this function with the program's arguments, before any other library is
// initialised (`-z initfirst`).
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

extern "C" fn begin(_count: c_int, _arguments: *const *const c_char, environment: *const *const c_char) {
    real::find();
    let variable = |name: &str| -> Option<OsString> {
        // SAFETY: the environment is an array of texts that ends in a null pointer.
        unsafe { crate::exec::texts(environment) }.find_map(|entry| {
            let value = entry.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(OsStr::from_bytes(value).to_owned())
        })
    };
    if variable("TERAPAGE_MEMORY").is_none() || variable("TERAPAGE").is_some_and(|value| value == "off") {
        stand_back();
        return;
    }
    if sanitizers::any() {
        thread::say(
            "terapage: the program is built with a sanitizer, which has the memory to itself: it is not paged\n",
        );
        stand_back();
        return;
    }
    let settings = match Settings::from_variables(&terapage_far::shelf(), variable) {
        Ok(settings) => settings,
        Err(error) => fail(&error.to_string()),
    };
    // Later the program may have lost its rights, or its directories; and names of hosts are looked
    // up by the C library, in memory that is paged by then.
    terapage_far::no_names();
    let password = variable(terapage_far::PASSWORD_FILE).filter(|file| !file.is_empty());
    if let Err(why) = terapage_far::remember_password(password.map(Into::into)) {
        fail(&why);
    }
    settings.stores.iter().flat_map(|store| store.urls()).for_each(terapage_far::remember);
    let hidden = Hidden {
        copy: variable("TERAPAGE_MECHANISM").is_some_and(|value| value == "copy"),
        faults: variable("TERAPAGE_FAULTS").and_then(|value| value.to_str()?.parse().ok()),
        spin_us: variable("TERAPAGE_SPIN_US").and_then(|value| value.to_str()?.parse().ok()),
        soft_per_mille: variable("TERAPAGE_SOFT_PER_MILLE").and_then(|value| value.to_str()?.parse().ok()),
        no_turns: variable("TERAPAGE_TURNS").is_some_and(|value| value == "off"),
        start_bytes: variable("TERAPAGE_START_BYTES").and_then(|value| value.to_str()?.parse().ok()),
    };
    HIDDEN.set(hidden).ok();
    if variable("TERAPAGE_ROOT").is_some_and(|root| root.to_str() == Some(&std::process::id().to_string())) {
        crate::exit::is_root();
    }
    let heap = settings.heap;
    SETTINGS.set(settings).ok();
    // SAFETY: the environment is an array of texts that ends in a null pointer.
    crate::exec::open(
        unsafe { crate::exec::texts(environment) }.filter(is_setting).map(CStr::to_owned).collect(),
    );
    if let Some(handed) = variable(DEVICE_VARIABLE).and_then(|value| value.to_str()?.parse().ok()) {
        userfaultfd::take(handed);
    }
    if !SETTINGS.get().is_some_and(|settings| settings.per_process) {
        crate::job::begin(variable(terapage_lease::JOB_VARIABLE), variable("TERAPAGE_ROOT"));
    }
    limits::begin();
    crate::beside::begin();
    crate::summary::begin(variable("TERAPAGE_SUMMARY"));
    statics::find(block());
    thread::find();
    let start_bytes = start_bytes().unwrap_or_else(|| crate::job::start_bytes(budget()));
    if let Err(why) = arena::open(block(), budget(), start_bytes) {
        fail(&why);
    }
    heap::open(heap);
    crate::fork::open();
    crate::exit::open();
    last::open(|| {
        // As before a fork: room is made under the lock.
        let _arena = arena::ARENA.lock();
        let _room = Room::make();
        last::look().unwrap_or(false)
    });
    let mut arena = arena::ARENA.lock();
    if !heap::stands_in() {
        // To begin a thread takes memory of the program's own `malloc`. If the pager started later,
        // such a `malloc` might ask for memory while it holds a lock that the new thread needs. Its
        // mappings until now are not paged, so the pager's threads do not wait for themselves.
        arena.start();
    }
    arena.start_if_due();
}

/// Whether a text of the environment is a setting of the library.
fn is_setting(text: &&CStr) -> bool {
    text.to_bytes().starts_with(b"TERAPAGE_")
}

/// Does nothing more: the process runs as without the library.
fn stand_back() {
    limits::hand_back();
    heap::stand_back();
}

/// Settings for tests and recordings, which only have variables.
struct Hidden {
    copy: bool,
    faults: Option<terapage_store::Faults>,
    soft_per_mille: Option<usize>,
    spin_us: Option<u64>,
    no_turns: bool,
    /// Paging starts when more bytes than this are in use: a recording must see a program's first
    /// touches.
    start_bytes: Option<usize>,
}

static HIDDEN: OnceLock<Hidden> = OnceLock::new();

/// The bytes in use at which paging starts, if a test or a recording says so.
pub fn start_bytes() -> Option<usize> {
    HIDDEN.get().and_then(|hidden| hidden.start_bytes)
}

/// Ends the process: it cannot run as asked.
pub fn fail(why: &str) -> ! {
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
    if let Err(error) = Userfaultfd::open(Kind::Waiting)
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
    GOES_UNPAGED.store(true, Relaxed);
    // SAFETY: the C library has set the name, a text, at the start.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) }.to_string_lossy();
    thread::say(&format!(
        "terapage: {name} goes on, but its memory is not paged: {why} (terapage doctor says what mends that)\n"
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
    let block = block();
    // Stores in memory have their part of the budget.
    let frames = crate::job::most(settings.frames().0) as usize / block;
    if frames < 8 {
        fail(&format!(
            "a budget of {} holds only {frames} blocks of {}; 8 is the least: raise --memory or lower --block",
            settings.frames(),
            Size(block as u64)
        ));
    }
    if let Some(why) = lacking_right() {
        go_unpaged(&why);
        return None;
    }
    let options = Options {
        block,
        frames,
        policy: settings.policy.clone(),
        prefetch: settings.prefetch.clone(),
        verify: settings.verify,
        threads: settings.threads as usize,
        io: terapage_store::io_engine(settings.io),
        trace: None,
        copy: HIDDEN.get().is_some_and(|hidden| hidden.copy),
        each_second: Some(crate::beside::each_second),
        share: crate::job::share(in_use),
        turns: !HIDDEN.get().is_some_and(|hidden| hidden.no_turns),
        soft_per_mille: HIDDEN
            .get()
            .and_then(|hidden| hidden.soft_per_mille)
            .unwrap_or(Options::default().soft_per_mille),
        spin_us: HIDDEN.get().and_then(|hidden| hidden.spin_us).unwrap_or(Options::default().spin_us),
        ..Options::default()
    };
    let start = |trace| {
        let faults = HIDDEN.get().and_then(|hidden| hidden.faults);
        let open = Shelf { faults, ..terapage_far::shelf() }.opener(settings, block);
        let make_store = move || Ok(open()?);
        Pager::start(Options { trace, ..options.clone() }, Box::new(make_store))
    };
    let pager = match settings.trace.as_deref() {
        None => start(None),
        Some(path) => start(Some(exit::own_name(path)))
            // Another process of the run may just have begun to write to the same file.
            .or_else(
                |error| if is_of_trace(&error) { start(Some(exit::with_number(path))) } else { Err(error) },
            )
            .or_else(|error| {
                if !is_of_trace(&error) {
                    return Err(error);
                }
                thread::say(&format!("terapage: {error}; the program goes on without a trace\n"));
                start(None)
            }),
    };
    let pager = match pager {
        Err(error) if is_shut_out(&error) => {
            go_unpaged(&format!("{error}"));
            return None;
        }
        other => or_fail(other),
    };
    crate::beside::is_paged(pager.counters());
    if settings.verbose {
        thread::say(&format!(
            "terapage: paging within {} in blocks of {}\n",
            settings.memory,
            Size(block as u64)
        ));
    }
    Some(pager)
}
