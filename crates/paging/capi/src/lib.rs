//! `terapage.h` for C: the crate `terapage` behind functions that return NULL or -1 on failure.
//!
//! The header is the documentation. A test compiles it together with programs that use all of it.

mod numpy;

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use terapage::{Advice, Error, Options, Result, Uncancelled};

thread_local! {
    /// The message of the last failure in this thread.
    static MESSAGE: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// `struct tera_options`.
#[repr(C)]
pub struct TeraOptions {
    size: usize,
    memory: u64,
    store: *const c_char,
    block: usize,
    policy: *const c_char,
    prefetch: *const c_char,
    address_space: usize,
}

/// `struct tera_stats`.
#[repr(C)]
pub struct TeraStats {
    budget_bytes: u64,
    block_bytes: u64,
    resident_bytes: u64,
    resident_peak_bytes: u64,
    store_bytes: u64,
    first_touches: u64,
    major_faults: u64,
    minor_faults: u64,
    page_in_bytes: u64,
    page_out_bytes: u64,
}

/// Notes a failure for `errno` and `tera_error`.
fn note(error: &Error) {
    let text: Vec<u8> = error.to_string().into_bytes().into_iter().filter(|&byte| byte != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    // A thread that is about to end has lost its message.
    MESSAGE.try_with(|message| *message.borrow_mut() = Some(text)).ok();
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() = error.errno() };
}

fn address<T>(result: Result<*mut T>) -> *mut c_void {
    match result {
        Ok(at) => at.cast(),
        Err(error) => {
            note(&error);
            std::ptr::null_mut()
        }
    }
}

fn status<T>(result: Result<T>) -> c_int {
    match result {
        Ok(_) => 0,
        Err(error) => {
            note(&error);
            -1
        }
    }
}

fn argument<T>(why: &str) -> Result<T> {
    Err(Error::Argument(why.to_owned()))
}

/// # Safety
/// `at` is NULL or a string.
unsafe fn string(at: *const c_char) -> Option<&'static CStr> {
    // SAFETY: the caller passes NULL or a string; it is not kept beyond the call.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) })
}

/// # Safety
/// `options` is NULL or valid, as are its strings.
unsafe fn options(options: *const TeraOptions) -> Result<Options> {
    // SAFETY: the caller passes NULL or valid options.
    let Some(given) = (unsafe { options.as_ref() }) else { return Ok(Options::default()) };
    if given.size != size_of::<TeraOptions>() {
        return argument("tera_options: size is not sizeof(struct tera_options) of this library");
    }
    let text = |at| -> Result<Option<String>> {
        // SAFETY: the strings in the options are NULL or valid.
        let Some(text) = (unsafe { string(at) }) else { return Ok(None) };
        match text.to_str() {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => argument("tera_options: the name of a policy is not UTF-8"),
        }
    };
    Ok(Options {
        memory: (given.memory > 0).then_some(given.memory),
        // SAFETY: the strings in the options are NULL or valid.
        store: unsafe { string(given.store) }.map(path),
        block: (given.block > 0).then_some(given.block),
        policy: text(given.policy)?,
        prefetch: text(given.prefetch)?,
        address_space: (given.address_space > 0).then_some(given.address_space),
    })
}

fn path(text: &CStr) -> PathBuf {
    OsStr::from_bytes(text.to_bytes()).into()
}

/// `tera_init`.
///
/// # Safety
/// `given` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tera_init(given: *const TeraOptions) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: the caller passes NULL or valid options.
    let options = unsafe { options(given) };
    status(options.and_then(|options| terapage::init(&options)))
}

/// `tera_set_budget`.
#[unsafe(no_mangle)]
pub extern "C" fn tera_set_budget(bytes: u64) -> c_int {
    let _uncancelled = Uncancelled::new();
    status(terapage::set_budget(bytes))
}

/// `tera_malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn tera_malloc(len: usize) -> *mut c_void {
    let _uncancelled = Uncancelled::new();
    address(terapage::allocate(len, false))
}

/// `tera_calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn tera_calloc(count: usize, len: usize) -> *mut c_void {
    let _uncancelled = Uncancelled::new();
    let bytes = count.checked_mul(len).ok_or(Error::Room(usize::MAX));
    address(bytes.and_then(|bytes| terapage::allocate(bytes, true)))
}

/// `tera_realloc`.
///
/// # Safety
/// No code uses `at` from now on, unless the call fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tera_realloc(at: *mut c_void, len: usize) -> *mut c_void {
    let _uncancelled = Uncancelled::new();
    if at.is_null() {
        return tera_malloc(len);
    }
    // SAFETY: the caller promises that no code uses `at`.
    address(unsafe { terapage::reallocate(at.cast(), len) })
}

/// `tera_free`.
///
/// # Safety
/// No code uses `at` from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tera_free(at: *mut c_void) -> c_int {
    let _uncancelled = Uncancelled::new();
    if at.is_null() {
        return 0;
    }
    // SAFETY: the caller promises that no code uses `at`.
    status(unsafe { terapage::free(at.cast()) })
}

/// `teramalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn teramalloc(len: usize) -> *mut c_void {
    tera_malloc(len)
}

/// `terafree`.
///
/// # Safety
/// No code uses `at` from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terafree(at: *mut c_void) {
    // SAFETY: the caller promises that no code uses `at`.
    unsafe { tera_free(at) };
}

/// `tera_advise`.
#[unsafe(no_mangle)]
pub extern "C" fn tera_advise(at: *const c_void, len: usize, advice: c_int) -> c_int {
    let _uncancelled = Uncancelled::new();
    let advice = match advice {
        1 => Advice::WillNeed,
        2 => Advice::DoneWith,
        3 => Advice::Sequential,
        4 => Advice::Random,
        _ => return status(argument::<()>("tera_advise: no such advice")),
    };
    status(terapage::advise(at.cast(), len, advice))
}

/// `tera_map_file`.
///
/// # Safety
/// `path_text` is NULL or a string, `len_out` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tera_map_file(
    path_text: *const c_char,
    offset: u64,
    len: usize,
    flags: c_int,
    len_out: *mut usize,
) -> *mut c_void {
    let _uncancelled = Uncancelled::new();
    // SAFETY: the caller passes NULL or a string.
    let Some(text) = (unsafe { string(path_text) }) else {
        return address::<u8>(argument("tera_map_file: the path is missing"));
    };
    let writable = match flags {
        1 => false,
        2 => true,
        _ => return address::<u8>(argument("tera_map_file: flags are neither TERA_RDONLY nor TERA_RDWR")),
    };
    let mapped = terapage::map_file(&path(text), offset, (len > 0).then_some(len), writable);
    address(mapped.map(|place| {
        // SAFETY: the caller passes NULL or a valid place for the length.
        if let Some(len) = unsafe { len_out.as_mut() } {
            *len = place.len;
        }
        place.at
    }))
}

/// `tera_sync`.
#[unsafe(no_mangle)]
pub extern "C" fn tera_sync(at: *const c_void) -> c_int {
    let _uncancelled = Uncancelled::new();
    status(terapage::sync(at.cast()))
}

/// `tera_unmap`.
///
/// # Safety
/// No code uses the mapping from now on, unless the call fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tera_unmap(at: *mut c_void) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: the caller promises that no code uses the mapping.
    status(unsafe { terapage::unmap(at.cast()) })
}

/// `tera_stats`.
///
/// # Safety
/// `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tera_stats(out: *mut TeraStats) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: the caller passes a valid place for the counters.
    let (Some(out), Some(now)) = (unsafe { out.as_mut() }, terapage::stats()) else {
        return status(argument::<()>(
            "tera_stats: Terapage has not been started, or there is no place for the answer",
        ));
    };
    *out = TeraStats {
        budget_bytes: now.budget_bytes,
        block_bytes: now.block_bytes,
        resident_bytes: now.resident_bytes,
        resident_peak_bytes: now.resident_peak_bytes,
        store_bytes: now.store_bytes,
        first_touches: now.first_touches,
        major_faults: now.major_faults,
        minor_faults: now.minor_faults,
        page_in_bytes: now.page_in_bytes,
        page_out_bytes: now.page_out_bytes,
    };
    0
}

/// `tera_error`.
#[unsafe(no_mangle)]
pub extern "C" fn tera_error() -> *const c_char {
    let message = MESSAGE.try_with(|message| message.borrow().as_ref().map(|text| text.as_ptr()));
    message.ok().flatten().unwrap_or(c"".as_ptr())
}

/// Not for programs: the place where all copies of Terapage in a process count their threads.
#[unsafe(no_mangle)]
pub extern "C" fn terapage_census() -> &'static terapage::census::Census {
    terapage::census::own()
}
