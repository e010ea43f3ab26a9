//! The host's beginning: it loads the program, prepares the trap, and becomes the program; or it
//! executes the program unpaged, and says why.

#[cfg(target_env = "musl")]
use crate::adopted;
use crate::image::{Image, Loaded, Odd};
use crate::raw::raw;
use crate::start::Passed;
use crate::{filter, guard, library, machine, place, program, seat, signals, slots, start, trap};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use terapage_sys::hosting::has_filter;
use terapage_sys::page_bytes;

const VARIABLE: &[u8] = b"TERAPAGE_HOSTED";
/// In the variable: the program must not run unpaged (`--require`).
const REQUIRED: u8 = b'r';

/// The kernel's number for the bytes that a signal needs (`AT_MINSIGSTKSZ`).
pub const AT_MINSIGSTKSZ: u64 = 51;

/// The host's beginning. The standard library's start would change the actions for signals, which
/// the program inherits.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn main(count: i32, arguments: *mut usize) -> i32 {
    // SAFETY: these are the arguments of `main`, which nobody has changed.
    let mut passed = unsafe { Passed::of(count, arguments) };
    #[cfg(target_env = "musl")]
    if let Some(report) = adopted::report(&passed) {
        // SAFETY: `terapage adopt` has begun this thread, in a process whose others are stopped.
        unsafe { adopted::adopt(&passed, report, arguments.add(count as usize + 1).cast()) };
    }
    // A loader has begun the library before. SAFETY: the environment is the process's own.
    #[cfg(target_env = "musl")]
    unsafe {
        terapage_preload::begin(arguments.add(count as usize + 1).cast())
    };
    let Some(value) = passed.take(VARIABLE) else {
        say("terapage-host: started by terapage run, in place of a program that loads no library");
        return 125;
    };
    let colon = value.iter().position(|&b| b == b':').unwrap_or(0);
    let (flags, path) = (&value[..colon], &value[colon + 1..]);
    let path = CString::new(path).unwrap_or_default();
    match load(Path::new(OsStr::from_bytes(path.as_bytes())), &passed) {
        Ok(loaded) => begin(passed, &path, loaded, flags),
        Err(why) => go_unpaged(&mut passed, &path, flags, &why),
    }
}

fn say(line: &str) {
    let line = format!("{line}\n");
    // SAFETY: the text has this length.
    unsafe { raw!(libc::SYS_write, 2, line.as_ptr(), line.len()) };
}

/// A loaded program, with its loader.
struct Program {
    image: Loaded,
    loader: Option<Loaded>,
    runs_stack: bool,
    /// Its path, in the kernel's form.
    path: Vec<u8>,
}

/// Loads the program at `path`.
fn load(path: &Path, passed: &Passed) -> Result<Program, Odd> {
    let open = |path: &Path| {
        File::open(path).map_err(|error| format!("cannot be read ({}: {error})", path.display()))
    };
    let file = open(path)?;
    let image = Image::read(&file)?;
    if image.is_fixed && !image.lies_within(&filter::LOW) {
        return Err("must lie at addresses beyond 4 GiB".into());
    }
    let loader = match &image.loader {
        Some(loader) => {
            let file = open(loader)?;
            let image = Image::read(&file)?;
            if image.is_fixed {
                return Err("has a loader that must lie at fixed addresses".into());
            }
            Some((file, image))
        }
        None => None,
    };
    if passed.auxiliary(AT_MINSIGSTKSZ).is_some_and(|bytes| bytes > machine::REGISTERS_MOST) {
        return Err("would run on a processor with more registers than the host knows".into());
    }
    if !library::find() {
        return Err("cannot be paged, since the library was not loaded".into());
    }
    place::begin(random(passed));
    let image_at = |image: &Image, file: &File| image.map(file, place::take(SPAN));
    if image.is_go {
        place::is_go();
    }
    let (runs_stack, image) = (image.runs_stack, image_at(&image, &file)?);
    let loader = loader.map(|(file, image)| image_at(&image, &file)).transpose()?;
    let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let path = name.unwrap_or_else(|_| path.to_owned()).into_os_string().into_encoded_bytes();
    Ok(Program { image, loader, runs_stack, path })
}

/// The addresses reserved for an image and the memory after it.
const SPAN: usize = 16 << 30;

/// A number that others cannot guess; 0 if addresses must not be random.
pub fn random(passed: &Passed) -> usize {
    // SAFETY: the call only queries.
    let is_random = unsafe { libc::personality(0xffff_ffff) } & libc::ADDR_NO_RANDOMIZE == 0;
    let at = passed.auxiliary(libc::AT_RANDOM).filter(|_| is_random);
    // SAFETY: the kernel has put 16 bytes there.
    at.map_or(0, |at| unsafe { (at as *const usize).read_unaligned() } >> 8)
}

/// Becomes the program.
fn begin(mut passed: Passed, path: &CString, program: Program, flags: &[u8]) -> ! {
    let is_filtered = has_filter();
    guard::begin();
    if !machine::open() || !slots::open() || !seat::open() || !trap::open() {
        trap::stop("cannot be loaded, since the host has no memory");
    }
    signals::begin();
    close_named(flags);
    program::set_path(&program.path);
    let name = path.as_bytes().rsplit(|&b| b == b'/').next().unwrap_or_default();
    let mut comm = [0; 16];
    let len = name.len().min(15);
    comm[..len].copy_from_slice(&name[..len]);
    passed.take_library();
    passed.describe(&program.image, program.loader.as_ref(), path);
    if let Some(loader) = &program.loader {
        place::note_loader(loader.pages.clone());
    }
    filter::find_own_code();
    let images = [Some(&program.image), program.loader.as_ref()];
    // In guarded mode, calls with pointers to static arrays are not trapped.
    let images = images.into_iter().filter(|_| !guard::is_active());
    for array in images.flatten().flat_map(|image| &image.arrays) {
        library::add_array(array.start, array.len());
    }
    let entry = program.loader.as_ref().map_or(program.image.entry, |loader| loader.entry);
    // SAFETY: the program is loaded, the handler is set, and this is the process's first thread.
    unsafe {
        program::set_name(&comm);
        if program.runs_stack {
            let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC | libc::PROT_GROWSDOWN;
            let page = &raw const comm as usize / page_bytes() * page_bytes();
            raw!(libc::SYS_mprotect, page, page_bytes(), rights);
        }
        let also = guard::is_active() && !guard::has_filter();
        let filters = if is_filtered { Ok(()) } else { filter::install(least_descriptor()) };
        let filters = filters.and_then(|()| if also { filter::install_guarded() } else { Ok(()) });
        if let Err(errno) = filters {
            let error = std::io::Error::from_raw_os_error(errno);
            go_unpaged(&mut passed, path, flags, &format!("cannot have a filter of system calls ({error})"));
        }
        start::jump(&passed, entry)
    }
}

/// Closes the descriptor in the variable, which kept the program's file open.
fn close_named(flags: &[u8]) {
    let digits: String = flags.iter().filter(|b| b.is_ascii_digit()).map(|&b| char::from(b)).collect();
    if let Ok(fd) = digits.parse::<i32>() {
        // SAFETY: the descriptor has no other user.
        unsafe { raw!(libc::SYS_close, fd) };
    }
}

/// The lowest number of the pager's descriptors: they are high, if the limit allows it.
pub fn least_descriptor() -> u32 {
    const HIGH: u32 = 700;
    const SPARE: u64 = 100;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` has room for the answer.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    if asked && limit.rlim_cur >= u64::from(HIGH) + SPARE { HIGH } else { 3 }
}

/// Executes the program without paging, and says why. A process that already has the filter cannot
/// execute a fixed program in this way: its calls would be trapped.
fn go_unpaged(passed: &mut Passed, path: &CString, flags: &[u8], why: &str) -> ! {
    let name = path.to_string_lossy();
    let name = name.rsplit('/').next().unwrap_or_default();
    let is_barred = has_filter();
    if flags.contains(&REQUIRED) || is_barred {
        say(&format!("terapage: {name} is not run, since its memory would not be paged: it {why}"));
        // SAFETY: ends the process.
        unsafe { raw!(libc::SYS_exit_group, 125) };
    }
    say(&format!("terapage: {name} runs, but its memory is not paged: it {why}"));
    passed.take_library();
    let (arguments, environment) = (passed.arguments(), passed.environment());
    // SAFETY: texts, and arrays that end in a zero; the library does not see the call.
    let answer = unsafe { raw!(libc::SYS_execve, path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    let error = std::io::Error::from_raw_os_error(-answer as i32);
    say(&format!("terapage: {name}: {error}"));
    let status = if -answer as i32 == libc::ENOENT { 127 } else { 126 };
    // SAFETY: ends the process.
    unsafe { raw!(libc::SYS_exit_group, status) };
    std::process::abort()
}
