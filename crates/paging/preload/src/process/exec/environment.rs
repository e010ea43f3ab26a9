//! The environment of an executed program, with the library and the settings in it.

use super::unpaged::{Seen, look};
use super::*;

/// The name of the library's file, by which it is found in `LD_PRELOAD`.
pub(super) const FILE: &[u8] = b"libterapage_preload.so";
pub(super) const PRELOAD: &[u8] = b"LD_PRELOAD=";
pub(super) const OFF: &[u8] = b"TERAPAGE=off";
/// An environment with this setting, which users do not set, has all settings.
pub(super) const SETTINGS: &[u8] = b"TERAPAGE_ROOT=";
pub(super) const SANITIZER: &[u8] = b"ASAN_OPTIONS=";
pub(super) const LINK_ORDER: &[u8] = b"verify_asan_link_order=";

/// Data for executed programs.
pub(super) struct Kept {
    /// The path of the library.
    pub(super) own_path: CString,
    /// The path of the host, if there is one and programs may be hosted.
    pub(super) host: Option<CString>,
    /// Whether dynamic programs are hosted, too.
    pub(super) hosts_all: bool,
    /// The variables `TERAPAGE_*`, as they were at the start.
    pub(super) settings: Vec<CString>,
    /// The file of standard error at the start.
    pub(super) errors: Option<(u64, u64)>,
    /// The hashed names of programs that were reported as not paged. Forked children share them.
    pub(super) reported: &'static [AtomicU64],
}

pub(super) static KEPT: OnceLock<Kept> = OnceLock::new();

/// Remembers the data for executed programs, which get them from now on.
pub fn open(settings: Vec<CString>, hosted: Hosted) {
    let Some(own_path) = own_path() else { return };
    let reported = memory::share(page_bytes()).map_or(&[][..], |at| {
        // SAFETY: the memory was mapped just now, and stays mapped; zeros are valid numbers.
        unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), page_bytes() / size_of::<AtomicU64>()) }
    });
    let host = if hosted == Hosted::Off { None } else { instead::find(&own_path) };
    let Ok(own_path) = CString::new(own_path) else { return };
    // For musl there is no library to load: the host pages all programs.
    let hosts_all = hosted == Hosted::All || cfg!(target_env = "musl");
    KEPT.set(Kept { own_path, host, hosts_all, settings, errors: standard_error(), reported }).ok();
}

/// The path of this library, as given to the loader.
#[cfg(not(target_env = "musl"))]
pub(super) fn own_path() -> Option<Vec<u8>> {
    // SAFETY: the description is plain data, for which zeros are valid; the loader keeps the name.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(own_path as *const () as *const libc::c_void, &raw mut info) != 0;
        if !found || info.dli_fname.is_null() {
            return None;
        }
        let path = std::path::absolute(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())).ok()?;
        Some(path.into_os_string().into_encoded_bytes())
    }
}

/// The path of the host, which this library is a part of, as given to the kernel.
#[cfg(target_env = "musl")]
pub(super) fn own_path() -> Option<Vec<u8>> {
    // SAFETY: the call only queries; the kernel has put a text there.
    let path = unsafe {
        let at = libc::getauxval(libc::AT_EXECFN) as *const c_char;
        (!at.is_null()).then(|| CStr::from_ptr(at).to_bytes())?
    };
    let path = std::path::absolute(OsStr::from_bytes(path)).ok()?;
    Some(path.into_os_string().into_encoded_bytes())
}

/// The device and number of standard error's file.
pub(super) fn standard_error() -> Option<(u64, u64)> {
    // SAFETY: `status` is plain data, for which zeros are a value, and has room for the answer.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(2, &raw mut status) == 0).then_some((status.st_dev, status.st_ino))
    }
}

/// The texts of an environment; null is an empty environment.
///
/// # Safety
/// The environment is null, or an array of texts that ends in a null pointer and outlives the
/// iterator.
pub unsafe fn texts<'a>(environment: Texts) -> impl Iterator<Item = &'a CStr> {
    let mut at = environment;
    std::iter::from_fn(move || {
        // SAFETY: the caller passes an environment that ends in a null pointer.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let text = CStr::from_ptr(*at);
            at = at.add(1);
            Some(text)
        }
    })
}

/// The libraries that a value of `LD_PRELOAD` names.
pub(super) fn libraries(value: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    value.split(|b| b": ".contains(b)).filter(|name| !name.is_empty())
}

/// The name of a variable, with its `=`.
pub(super) fn name_of(text: &[u8]) -> &[u8] {
    &text[..text.iter().position(|&b| b == b'=').map_or(text.len(), |at| at + 1)]
}

pub(super) fn is_ours(library: &[u8]) -> bool {
    library.rsplit(|&b| b == b'/').next() == Some(FILE)
}

/// The variables of an environment that concern the library.
#[derive(Default)]
pub(super) struct Found<'a> {
    pub(super) off: bool,
    pub(super) settings: bool,
    pub(super) preload: Option<&'a [u8]>,
    pub(super) sanitizer: Option<&'a [u8]>,
    pub(super) count: usize,
}

impl<'a> Found<'a> {
    /// # Safety
    /// As for [`texts`].
    pub(super) unsafe fn of(environment: Texts) -> Found<'a> {
        let mut found = Found::default();
        // SAFETY: the caller passes an environment that ends in a null pointer.
        for text in unsafe { texts(environment) } {
            let text = text.to_bytes();
            found.off |= text == OFF;
            found.settings |= text.starts_with(SETTINGS);
            found.preload = found.preload.or(text.strip_prefix(PRELOAD));
            found.sanitizer = found.sanitizer.or(text.strip_prefix(SANITIZER));
            found.count += 1;
        }
        found
    }

    /// Whether the library at this path is named, or will be added.
    pub(super) fn would_load(&self, library: &CStr) -> bool {
        !self.has_library()
            || self.preload.is_some_and(|value| libraries(value).any(|named| named == library.to_bytes()))
    }

    /// Whether there is anything of the library's.
    fn has_any(&self) -> bool {
        self.settings || self.preload.is_some_and(|value| libraries(value).any(is_ours))
    }

    /// Whether the library need not be added.
    pub(super) fn has_library(&self) -> bool {
        cfg!(target_env = "musl") || self.preload.is_some_and(|value| libraries(value).any(is_ours))
    }
}

/// What an executed program gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gets {
    /// The library, and its settings.
    Library,
    /// No library, which it cannot load. What it executes in turn may, so it keeps the settings.
    Settings,
    /// Neither: this process was released.
    Nothing,
}

/// Texts and their array, made in the given memory.
pub(super) struct Made<'a> {
    texts: &'a mut [*const c_char],
    count: usize,
    bytes: &'a mut [u8],
    used: usize,
}

impl Made<'_> {
    fn add(&mut self, text: *const c_char) {
        self.texts[self.count] = text;
        self.count += 1;
    }

    /// Adds a text that is joined from parts without zero bytes.
    fn join<'p>(&mut self, parts: impl Iterator<Item = &'p [u8]>) {
        let from = self.used;
        for part in parts.chain([&b"\0"[..]]) {
            self.bytes[self.used..self.used + part.len()].copy_from_slice(part);
            self.used += part.len();
        }
        let text = self.bytes[from..].as_ptr();
        self.add(text.cast());
    }

    /// Adds `LD_PRELOAD` with these libraries, if there are any.
    fn preload<'p>(&mut self, libraries: impl Iterator<Item = &'p [u8]> + Clone) {
        if libraries.clone().next().is_some() {
            let parts = libraries.enumerate().flat_map(|(index, library)| {
                let before = if index > 0 { &b":"[..] } else { b"" };
                [before, library]
            });
            self.join([PRELOAD].into_iter().chain(parts));
        }
    }
}

/// The most texts of an environment, and of a script's arguments, that are made on the stack.
pub(super) const TEXTS: usize = 384;
/// The most bytes of new texts on the stack.
pub(super) const BYTES: usize = 3 << 10;

const NEEDS_HOST: &str = "terapage: a static executable cannot be executed here, in what a paged static program has \
                          begun: terapage-host is missing, or TERAPAGE=off is set (try: --static off)\n";

/// Calls `execute` with the environment that the program at `path` gets instead of `environment`,
/// and with the program to execute instead, if that is the host. Returns -1, with ENOEXEC as the
/// error, if the program cannot be executed here.
///
/// # Safety
/// As for [`texts`], of both.
pub(in crate::process) unsafe fn with_library(
    path: Option<&CStr>,
    arguments: Texts,
    environment: Texts,
    execute: impl FnOnce(Option<Instead>, Texts) -> c_int,
) -> c_int {
    let execute = |instead: Option<Instead>, environment| {
        if instead.is_none() && path.is_some_and(instead::is_barred) {
            thread::say(NEEDS_HOST);
            crate::set_errno(libc::ENOEXEC);
            return -1;
        }
        execute(instead, environment)
    };
    // SAFETY: the caller passes an environment that ends in a null pointer.
    let found = unsafe { Found::of(environment) };
    let is_left = crate::arena::is_released() && !path.is_some_and(instead::is_barred);
    let Some(kept) = KEPT.get().filter(|_| !found.off && (!is_left || found.has_any())) else {
        return execute(None, environment);
    };
    let seen = path.filter(|_| !is_left).and_then(|path| look(kept, path));
    let hosted = match (seen, path) {
        (Some(Seen { is_hosted: true, .. }), Some(path)) => instead::Hosted::of(path),
        _ => None,
    };
    let bars = |seen: Seen| seen.why.is_some_and(|why| why.bars_library());
    let barred = hosted.is_none() && seen.is_some_and(bars);
    let is_loaded = !is_left && hosted.is_none() && seen.is_none() && found.would_load(&kept.own_path);
    let guarded = path.filter(|_| is_loaded);
    let execute = |instead: Option<Instead>, environment| {
        guard::executing(guarded, &kept.own_path, || execute(instead, environment))
    };
    let (gets, is_fine) = match (is_left, barred) {
        (true, _) => (Gets::Nothing, false),
        (_, true) => (Gets::Settings, !found.has_library()),
        _ => (Gets::Library, found.has_library() && found.settings),
    };
    if is_fine && hosted.is_none() {
        return execute(None, environment);
    }
    let change = Change { kept, found: &found, environment, arguments, gets, hosted: hosted.as_ref() };
    let preload = found.preload.unwrap_or_default().len() + kept.own_path.count_bytes();
    // SAFETY: the caller passes arguments that end in a null pointer.
    let more = hosted.as_ref().map_or(0, |hosted| unsafe { hosted.arguments_of_script(arguments) });
    let need =
        (found.count + kept.settings.len() + 4, preload + found.sanitizer.unwrap_or_default().len() + 128);
    if need.0.max(more) <= TEXTS && need.1 <= BYTES {
        // SAFETY: the caller passes an environment that ends in a null pointer.
        return unsafe { on_stack(&change, execute) };
    }
    // If a child of vfork succeeds, this memory remains in its parent: a few pages, and only if the
    // environment is this large and lacked the library.
    let len = ((need.0 + more) * size_of::<*const c_char>() + need.1).next_multiple_of(page_bytes());
    let Ok(at) = memory::reserve(len) else { return execute(None, environment) };
    // SAFETY: the memory was mapped just now, is aligned to pages and has this length; zeros are
    // null pointers.
    let answer = unsafe {
        let texts = std::slice::from_raw_parts_mut(at.cast::<*const c_char>(), need.0);
        let others = std::slice::from_raw_parts_mut(at.cast::<*const c_char>().add(need.0), more);
        let bytes = at.add(size_of_val(texts) + size_of_val(others));
        let bytes = std::slice::from_raw_parts_mut(bytes, need.1);
        change.execute(texts, others, bytes, execute)
    };
    let errno = std::io::Error::last_os_error().raw_os_error();
    // SAFETY: the memory is no longer used.
    unsafe { memory::unmap(at, len) }.ok();
    crate::set_errno(errno.unwrap_or(0));
    answer
}

/// Calls `execute` with an environment on the stack. This is a separate function, because the stack
/// of a signal handler may be small, and most environments need no change.
///
/// # Safety
/// As for [`texts`].
#[inline(never)]
unsafe fn on_stack<R>(change: &Change, execute: impl FnOnce(Option<Instead>, Texts) -> R) -> R {
    let (mut texts, mut others, mut bytes) = ([null(); TEXTS], [null(); TEXTS], [0; BYTES]);
    // SAFETY: the caller passes an environment that ends in a null pointer.
    unsafe { change.execute(&mut texts, &mut others, &mut bytes, execute) }
}

/// A change of an environment, and of the executed program.
struct Change<'a> {
    kept: &'a Kept,
    found: &'a Found<'a>,
    environment: Texts,
    arguments: Texts,
    gets: Gets,
    hosted: Option<&'a instead::Hosted<'a>>,
}

impl Change<'_> {
    /// Calls `execute` with the changed environment, and the program to execute instead.
    ///
    /// # Safety
    /// As for [`texts`], of environment and arguments. There is room for both.
    unsafe fn execute<R>(
        &self,
        texts: &mut [*const c_char],
        others: &mut [*const c_char],
        bytes: &mut [u8],
        execute: impl FnOnce(Option<Instead>, Texts) -> R,
    ) -> R {
        let Change { kept, found, environment, arguments, gets, hosted } = *self;
        // SAFETY: the caller passes texts, and arrays that end in a null pointer.
        unsafe {
            let variable = hosted.map(instead::Hosted::variable);
            let environment = make(kept, found, environment, gets, texts, bytes, variable);
            let host = hosted.and(kept.host.as_deref());
            let instead = hosted
                .zip(host)
                .map(|(hosted, path)| Instead { path, arguments: hosted.arguments(arguments, others) });
            execute(instead, environment)
        }
    }
}

/// Makes an environment with what the program gets.
///
/// # Safety
/// As for [`texts`].
pub(super) unsafe fn make(
    kept: &Kept,
    found: &Found,
    environment: Texts,
    gets: Gets,
    texts: &mut [*const c_char],
    bytes: &mut [u8],
    hosted: Option<&CStr>,
) -> Texts {
    let loads = gets == Gets::Library;
    let mut made = Made { texts, count: 0, bytes, used: 0 };
    let others = libraries(found.preload.unwrap_or_default()).filter(|library| !is_ours(library));
    let adds = loads && !found.has_library();
    if !loads {
        made.preload(others);
    } else if adds {
        made.preload([kept.own_path.to_bytes()].into_iter().chain(others));
    }
    let options = found.sanitizer.unwrap_or_default();
    let orders = adds && !options.windows(LINK_ORDER.len()).any(|part| part == LINK_ORDER);
    if orders {
        // Existing options come later, and win.
        let between = if options.is_empty() { &b""[..] } else { b":" };
        made.join([SANITIZER, LINK_ORDER, b"0", between, options].into_iter());
    }
    if loads && !found.settings {
        for text in &kept.settings {
            let name = name_of(text.to_bytes());
            // SAFETY: the caller passes an environment that ends in a null pointer.
            if !unsafe { self::texts(environment) }.any(|other| other.to_bytes().starts_with(name)) {
                made.add(text.as_ptr());
            }
        }
    }
    if let Some(variable) = hosted {
        made.add(variable.as_ptr());
    }
    // SAFETY: the caller passes an environment that ends in a null pointer.
    for text in unsafe { self::texts(environment) } {
        let is = |name: &[u8]| text.to_bytes().starts_with(name);
        let replaced = (!loads || adds) && is(PRELOAD)
            || gets == Gets::Nothing && kept.settings.iter().any(|setting| **setting == *text)
            || orders && is(SANITIZER)
            || hosted.is_some() && is(instead::VARIABLE);
        if !replaced {
            made.add(text.as_ptr());
        }
    }
    made.add(null());
    made.texts.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::super::unpaged::is_news;
    use super::{BYTES, Found, Gets, Kept, TEXTS, make, texts};
    use std::ffi::{CStr, CString, c_char};
    use std::ptr::null;
    use std::sync::atomic::AtomicU64;

    /// The environment that results from `environment`.
    fn made(environment: &[&CStr], gets: Gets) -> Vec<String> {
        let settings = [c"TERAPAGE_ROOT=1", c"TERAPAGE_MEMORY=5"].map(CStr::to_owned).to_vec();
        let own_path = c"/l/libterapage_preload.so".to_owned();
        let kept = Kept { own_path, host: None, settings, hosts_all: false, errors: None, reported: &[] };
        let given: Vec<*const c_char> =
            environment.iter().map(|text| text.as_ptr()).chain([null()]).collect();
        let (mut room, mut bytes) = ([null(); TEXTS], [0; BYTES]);
        // SAFETY: both are arrays of texts that end in a null pointer.
        unsafe {
            let found = Found::of(given.as_ptr());
            let made = make(&kept, &found, given.as_ptr(), gets, &mut room, &mut bytes, None);
            texts(made).map(|text| CString::from(text).into_string().unwrap()).collect()
        }
    }

    #[test]
    fn what_is_missing_is_put_back() {
        let ours = "LD_PRELOAD=/l/libterapage_preload.so";
        let order = "ASAN_OPTIONS=verify_asan_link_order=0";
        let settings = ["TERAPAGE_ROOT=1", "TERAPAGE_MEMORY=5"];
        assert_eq!(made(&[], Gets::Library), [ours, order, settings[0], settings[1]]);
        let with = made(
            &[c"A=b", c"LD_PRELOAD=x.so y.so", c"ASAN_OPTIONS=c=d", c"TERAPAGE_MEMORY=7"],
            Gets::Library,
        );
        let preload = format!("{ours}:x.so:y.so");
        let order = format!("{order}:c=d");
        assert_eq!(with, [&*preload, &*order, "TERAPAGE_ROOT=1", "A=b", "TERAPAGE_MEMORY=7"]);
        let stripped = made(&[c"LD_PRELOAD=/other/libterapage_preload.so", c"A=b"], Gets::Library);
        let other = "LD_PRELOAD=/other/libterapage_preload.so";
        assert_eq!(stripped, [settings[0], settings[1], other, "A=b"]);
    }

    #[test]
    fn the_library_is_taken_out_where_it_is_barred() {
        let given = [c"LD_PRELOAD=x.so:/l/libterapage_preload.so", c"TERAPAGE_MEMORY=7"];
        assert_eq!(made(&given, Gets::Settings), ["LD_PRELOAD=x.so", "TERAPAGE_MEMORY=7"]);
        assert_eq!(made(&[c"A=b", c"LD_PRELOAD=/l/libterapage_preload.so"], Gets::Settings), ["A=b"]);
    }

    #[test]
    fn nothing_of_the_library_is_left_for_programs_of_a_released_one() {
        let given = [
            c"TERAPAGE_ROOT=1",
            c"LD_PRELOAD=/l/libterapage_preload.so:x.so",
            c"TERAPAGE_MEMORY=7",
            c"A=b",
            c"TERAPAGE_MEMORY=5",
        ];
        assert_eq!(made(&given, Gets::Nothing), ["LD_PRELOAD=x.so", "TERAPAGE_MEMORY=7", "A=b"]);
    }

    #[test]
    fn news_are_news_once() {
        let reported = [const { AtomicU64::new(0) }; 2];
        let news = [1, 2, 1, 3, 2].map(|number| is_news(&reported, number));
        assert_eq!(news, [true, true, false, false, false]);
    }
}
