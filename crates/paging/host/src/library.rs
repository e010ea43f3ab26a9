//! The paging library, which the loader has put into this process: the host's requests to it.
//!
//! All but [`find`], [`add_array`], [`lend`] and [`has_leases`] are called with the
//! [seat](crate::seat).

#[cfg(not(target_env = "musl"))]
use std::ffi::CStr;
use std::ffi::{c_char, c_long};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_sys::hosting::GuardedCall;

/// Arguments, or an environment: texts, and a null pointer at the end.
pub type Texts = *const *const c_char;

type Call = unsafe extern "C" fn(c_long, *const [usize; 6]) -> isize;
/// Receives the arguments of an exec for the kernel, and the number that came with the request.
pub type Take = unsafe extern "C" fn(usize, *const c_char, Texts, Texts);
type Prepare = unsafe extern "C" fn(*const c_char, Texts, Texts, Take, usize) -> i32;
type Leave = unsafe extern "C" fn(*const c_char) -> i32;
type Stay = unsafe extern "C" fn(i32);
type Note = unsafe extern "C" fn();
type Asks = unsafe extern "C" fn() -> bool;
type AddArray = unsafe extern "C" fn(usize, usize);
type Pin = unsafe extern "C" fn(*mut GuardedCall) -> isize;
type Unpin = unsafe extern "C" fn(*mut GuardedCall, isize) -> isize;
type Forget = unsafe extern "C" fn(*mut GuardedCall);
type Thread = unsafe extern "C" fn(usize, usize, &[usize; 2]) -> i32;
type Copy = unsafe extern "C" fn(usize, usize, usize, bool) -> usize;

/// The functions' addresses.
static CALL: AtomicUsize = AtomicUsize::new(0);
static PREPARE: AtomicUsize = AtomicUsize::new(0);
static LEAVE: AtomicUsize = AtomicUsize::new(0);
static STAY: AtomicUsize = AtomicUsize::new(0);
static ADD_ARRAY: AtomicUsize = AtomicUsize::new(0);
static LEND: AtomicUsize = AtomicUsize::new(0);
static IS_BACK: AtomicUsize = AtomicUsize::new(0);
static HAS_LEASES: AtomicUsize = AtomicUsize::new(0);
static GIVE_WAY: AtomicUsize = AtomicUsize::new(0);
static GUARDS: AtomicUsize = AtomicUsize::new(0);
static PIN: AtomicUsize = AtomicUsize::new(0);
static UNPIN: AtomicUsize = AtomicUsize::new(0);
static FORGET: AtomicUsize = AtomicUsize::new(0);
static THREAD: AtomicUsize = AtomicUsize::new(0);
static COPY: AtomicUsize = AtomicUsize::new(0);

#[cfg(not(target_env = "musl"))]
const NAMES: [(&CStr, &AtomicUsize); 15] = [
    (c"terapage_hosted_call", &CALL),
    (c"terapage_hosted_prepare", &PREPARE),
    (c"terapage_hosted_leave", &LEAVE),
    (c"terapage_hosted_stay", &STAY),
    (c"terapage_hosted_array", &ADD_ARRAY),
    (c"terapage_hosted_lend", &LEND),
    (c"terapage_hosted_is_back", &IS_BACK),
    (c"terapage_hosted_has_leases", &HAS_LEASES),
    (c"terapage_hosted_give_way", &GIVE_WAY),
    (c"terapage_hosted_guards", &GUARDS),
    (c"terapage_hosted_pin", &PIN),
    (c"terapage_hosted_unpin", &UNPIN),
    (c"terapage_hosted_forget", &FORGET),
    (c"terapage_hosted_thread", &THREAD),
    (c"terapage_hosted_copy", &COPY),
];

/// Finds the library's functions. Returns whether the library is there and has all of them.
#[cfg(not(target_env = "musl"))]
pub fn find() -> bool {
    NAMES.iter().all(|(name, place)| {
        // SAFETY: the name ends in a zero byte.
        let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
        place.store(at, Relaxed);
        at != 0
    })
}

/// Finds the library's functions. A static host has them in itself.
#[cfg(target_env = "musl")]
pub fn find() -> bool {
    use terapage_preload::guard::{
        terapage_hosted_copy, terapage_hosted_forget, terapage_hosted_guards, terapage_hosted_pin,
        terapage_hosted_thread, terapage_hosted_unpin,
    };
    use terapage_preload::hosted::{
        terapage_hosted_array, terapage_hosted_call, terapage_hosted_give_way, terapage_hosted_has_leases,
        terapage_hosted_is_back, terapage_hosted_leave, terapage_hosted_lend, terapage_hosted_prepare,
        terapage_hosted_stay,
    };
    CALL.store(terapage_hosted_call as *const () as usize, Relaxed);
    PREPARE.store(terapage_hosted_prepare as *const () as usize, Relaxed);
    LEAVE.store(terapage_hosted_leave as *const () as usize, Relaxed);
    STAY.store(terapage_hosted_stay as *const () as usize, Relaxed);
    ADD_ARRAY.store(terapage_hosted_array as *const () as usize, Relaxed);
    LEND.store(terapage_hosted_lend as *const () as usize, Relaxed);
    IS_BACK.store(terapage_hosted_is_back as *const () as usize, Relaxed);
    HAS_LEASES.store(terapage_hosted_has_leases as *const () as usize, Relaxed);
    GIVE_WAY.store(terapage_hosted_give_way as *const () as usize, Relaxed);
    GUARDS.store(terapage_hosted_guards as *const () as usize, Relaxed);
    PIN.store(terapage_hosted_pin as *const () as usize, Relaxed);
    UNPIN.store(terapage_hosted_unpin as *const () as usize, Relaxed);
    FORGET.store(terapage_hosted_forget as *const () as usize, Relaxed);
    THREAD.store(terapage_hosted_thread as *const () as usize, Relaxed);
    COPY.store(terapage_hosted_copy as *const () as usize, Relaxed);
    true
}

/// A function of the library, of type `F`.
///
/// # Safety
/// The function has this type, and [`find`] has found it.
unsafe fn function<F: std::marker::Copy>(place: &AtomicUsize) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: the caller promises the type.
    unsafe { std::mem::transmute_copy(&place.load(Relaxed)) }
}

/// Makes a system call as the library does for a program that calls the C library's function.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn call(number: i64, arguments: &[usize; 6]) -> isize {
    // SAFETY: the library has this function; the caller is responsible for the call.
    unsafe { function::<Call>(&CALL)(number, arguments) }
}

/// Calls `take` with the path, the arguments and the environment with which a program is executed.
/// Returns an error (`errno`) if the program cannot be executed.
///
/// # Safety
/// The arguments are those of an exec.
pub unsafe fn prepare(
    path: *const c_char,
    arguments: Texts,
    environment: Texts,
    take: Take,
    to: usize,
) -> i32 {
    // SAFETY: the library has this function; the caller is responsible for the arguments.
    unsafe { function::<Prepare>(&PREPARE)(path, arguments, environment, take, to) }
}

/// Says that this process is about to execute a program. Returns the argument for [`stay`].
///
/// # Safety
/// The path is a text.
pub unsafe fn leave(path: *const c_char) -> i32 {
    // SAFETY: the library has this function; the caller is responsible for the path.
    unsafe { function::<Leave>(&LEAVE)(path) }
}

/// Says that there was no exec after all.
pub fn stay(left: i32) {
    // SAFETY: the library has this function.
    unsafe { function::<Stay>(&STAY)(left) };
}

/// Says that a child is about to begin which borrows this process's memory.
pub fn lend() {
    // SAFETY: the library has this function, which only counts.
    unsafe { function::<Note>(&LEND)() };
}

/// Says that such a child has gone.
pub fn is_back() {
    // SAFETY: the library has this function.
    unsafe { function::<Note>(&IS_BACK)() };
}

/// Lets the library page a static array of the program.
pub fn add_array(start: usize, len: usize) {
    // SAFETY: the library has this function.
    unsafe { function::<AddArray>(&ADD_ARRAY)(start, len) };
}

/// Whether the library may have leases of files, because of which the kernel refuses to open them
/// at once.
pub fn has_leases() -> bool {
    // SAFETY: the library has this function, which only reads a word.
    unsafe { function::<Asks>(&HAS_LEASES)() }
}

/// Has the library give up the leases for which somebody waits.
pub fn give_way() {
    // SAFETY: the library has this function.
    unsafe { function::<Note>(&GIVE_WAY)() };
}

/// Whether the filter of guarded mode is in force.
pub fn guards() -> bool {
    // SAFETY: the library has this function.
    unsafe { function::<Asks>(&GUARDS)() }
}

/// Pins what a call touches. Returns the call's answer, or that the thread makes the call.
///
/// # Safety
/// The call has no other user.
pub unsafe fn pin(call: *mut GuardedCall) -> isize {
    // SAFETY: the library has this function.
    unsafe { function::<Pin>(&PIN)(call) }
}

/// Unpins after a call with this answer of the kernel. Returns the call's answer, or that the
/// thread makes another piece.
///
/// # Safety
/// As for [`pin`].
pub unsafe fn unpin(call: *mut GuardedCall, answer: isize) -> isize {
    // SAFETY: the library has this function.
    unsafe { function::<Unpin>(&UNPIN)(call, answer) }
}

/// Unpins for a call that a handler has left.
pub fn forget(call: *mut GuardedCall) {
    // SAFETY: the library has this function.
    unsafe { function::<Forget>(&FORGET)(call) };
}

/// Keeps what a new thread needs in memory. Returns an error (`errno`), or 0.
pub fn thread(stack: usize, most: usize, words: &[usize; 2]) -> i32 {
    // SAFETY: the library has this function.
    unsafe { function::<Thread>(&THREAD)(stack, most, words) }
}

/// Copies memory of the program from or, if `writes`, to `at`. Returns the number of bytes.
///
/// # Safety
/// `own` has `len` bytes.
pub unsafe fn copy(at: usize, own: usize, len: usize, writes: bool) -> usize {
    // SAFETY: the library has this function.
    unsafe { function::<Copy>(&COPY)(at, own, len, writes) }
}

/// Whether a range has memory that is paged, or will be. It is called with any thread pointer.
#[cfg(target_env = "musl")]
pub fn meets(at: usize, len: usize) -> bool {
    terapage_preload::guard::meets(at, len)
}

/// Only the host for musl adopts programs.
#[cfg(not(target_env = "musl"))]
pub fn meets(_at: usize, _len: usize) -> bool {
    true
}

/// Whether the program was adopted and released: its memory is not paged any more.
pub fn is_released() -> bool {
    #[cfg(target_env = "musl")]
    return terapage_preload::release::is_released();
    #[cfg(not(target_env = "musl"))]
    return false;
}
