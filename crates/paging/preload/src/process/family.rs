//! Malloc's family: who serves each function, and who must not notice that this library does.
//!
//! This library's heap takes the place of the C library's heap, and of no other:
//!
//! - The loader finds this library's hook of a function first, because the library is preloaded. If
//!   it would find the function in another library than the C library (an allocator such as
//!   jemalloc, or a wrapper), the hook passes the call on to that one ([`Member::elsewhere`]). So a
//!   program keeps its own allocator, whose operators and own calls may be mixed with `free`, and
//!   which is paged beneath.
//! - A program may also ask the C library itself: by its handle (as foreign function interfaces
//!   do), by `RTLD_NEXT`, by a version, or by `RTLD_DEEPBIND`. [`replace`] enters this library's
//!   functions into the C library's table of symbols, so all these ways lead to the heap whose
//!   objects the C library returns, too (`strdup`, `getline`). A hook of `dlsym` could not do this:
//!   `RTLD_NEXT` depends on the caller's address. Another namespace (`dlmopen`) has a C library of
//!   its own, which stays as it is.

#[cfg(not(target_env = "musl"))]
use crate::elf::Symbols;
use crate::malloc as malloc_hooks;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_sys::{memory, page_bytes, thread};

/// A function of the family, of type `F`.
pub struct Member<F> {
    name: &'static CStr,
    /// Where the loader finds it behind this library, if that is not the C library; otherwise 0.
    next: AtomicUsize,
    /// The same, once calls are passed on.
    elsewhere: AtomicUsize,
    /// The C library's; 0 until it is found, or if there is none.
    of_libc: AtomicUsize,
    function: PhantomData<F>,
}

impl<F: Copy> Member<F> {
    /// # Safety
    /// `F` is a pointer to a C function, of the type that the function of this name has.
    const unsafe fn named(name: &'static [u8]) -> Self {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let Ok(name) = CStr::from_bytes_with_nul(name) else { panic!("a name without its end") };
        let [next, elsewhere, of_libc] = [const { AtomicUsize::new(0) }; 3];
        Member { name, next, elsewhere, of_libc, function: PhantomData }
    }

    /// The function at an address; `None` for 0.
    fn at(address: usize) -> Option<F> {
        // SAFETY: the loader gave this address for the name, and `named`'s caller has promised the
        // type of the function of this name.
        (address != 0).then(|| unsafe { std::mem::transmute_copy::<usize, F>(&address) })
    }

    /// The function that the program would call without this library, if it is neither the C
    /// library's nor defined by the program itself.
    #[inline]
    pub fn elsewhere(&self) -> Option<F> {
        Self::at(self.elsewhere.load(Relaxed))
    }

    /// The C library's function.
    #[inline]
    pub fn of_libc(&self) -> Option<F> {
        Self::at(self.of_libc.load(Relaxed))
    }
}

/// A member without its type.
struct Places {
    name: &'static CStr,
    next: &'static AtomicUsize,
    elsewhere: &'static AtomicUsize,
    of_libc: &'static AtomicUsize,
    /// This library's hook.
    hook: usize,
    /// This library's function for callers that want the C library's.
    behind: usize,
}

/// The table of the members, each with its hook and the function behind all other allocators.
macro_rules! family {
    ($(fn $name:ident($($type:ty),*) $(-> $out:ty)? = $hook:path, $behind:path;)*) => {
        $(
            #[allow(non_upper_case_globals, reason = "it has the name of its function")]
            pub static $name: Member<unsafe extern "C" fn($($type),*) $(-> $out)?> =
                // SAFETY: the type is that of the C library's headers.
                unsafe { Member::named(concat!(stringify!($name), "\0").as_bytes()) };
        )*

        fn all() -> impl Iterator<Item = Places> {
            [$(Places {
                name: $name.name,
                next: &$name.next,
                elsewhere: &$name.elsewhere,
                of_libc: &$name.of_libc,
                hook: $hook as *const () as usize,
                behind: $behind as *const () as usize,
            }),*].into_iter()
        }
    };
}

family! {
    fn malloc(usize) -> *mut u8 = malloc_hooks::malloc, malloc_hooks::behind::malloc;
    fn calloc(usize, usize) -> *mut u8 = malloc_hooks::calloc, malloc_hooks::behind::calloc;
    fn realloc(*mut u8, usize) -> *mut u8 = malloc_hooks::realloc, malloc_hooks::behind::realloc;
    fn reallocarray(*mut u8, usize, usize) -> *mut u8 = malloc_hooks::reallocarray, malloc_hooks::behind::reallocarray;
    fn free(*mut u8) = malloc_hooks::free, malloc_hooks::behind::free;
    fn malloc_usable_size(*mut u8) -> usize = malloc_hooks::malloc_usable_size, malloc_hooks::behind::malloc_usable_size;
    fn posix_memalign(*mut *mut u8, usize, usize) -> i32 = malloc_hooks::posix_memalign, malloc_hooks::behind::posix_memalign;
    fn aligned_alloc(usize, usize) -> *mut u8 = malloc_hooks::aligned_alloc, malloc_hooks::behind::aligned_alloc;
    fn memalign(usize, usize) -> *mut u8 = malloc_hooks::memalign, malloc_hooks::behind::memalign;
    fn valloc(usize) -> *mut u8 = malloc_hooks::valloc, malloc_hooks::behind::valloc;
    fn pvalloc(usize) -> *mut u8 = malloc_hooks::pvalloc, malloc_hooks::behind::pvalloc;
    fn __libc_malloc(usize) -> *mut u8 = malloc_hooks::__libc_malloc, malloc_hooks::behind::malloc;
    fn __libc_calloc(usize, usize) -> *mut u8 = malloc_hooks::__libc_calloc, malloc_hooks::behind::calloc;
    fn __libc_realloc(*mut u8, usize) -> *mut u8 = malloc_hooks::__libc_realloc, malloc_hooks::behind::realloc;
    fn __libc_free(*mut u8) = malloc_hooks::__libc_free, malloc_hooks::behind::free;
    fn __libc_memalign(usize, usize) -> *mut u8 = malloc_hooks::__libc_memalign, malloc_hooks::behind::memalign;
    fn __libc_valloc(usize) -> *mut u8 = malloc_hooks::__libc_valloc, malloc_hooks::behind::valloc;
    fn __libc_pvalloc(usize) -> *mut u8 = malloc_hooks::__libc_pvalloc, malloc_hooks::behind::pvalloc;
}

#[cfg(not(target_env = "musl"))]
mod questions {
    use super::*;
    use crate::hooks::mallinfo as hooks;

    family! {
        fn mallinfo() -> libc::mallinfo = hooks::mallinfo, hooks::behind::mallinfo;
        fn mallinfo2() -> libc::mallinfo2 = hooks::mallinfo2, hooks::behind::mallinfo2;
        fn malloc_stats() = hooks::malloc_stats, hooks::behind::malloc_stats;
    }

    pub(super) fn each() -> impl Iterator<Item = Places> {
        all()
    }
}

#[cfg(not(target_env = "musl"))]
pub use questions::{mallinfo, mallinfo2, malloc_stats};

/// Whether a library of the program serves `malloc`, and not the C library.
pub fn is_elsewhere() -> bool {
    malloc.elsewhere().is_some()
}

/// From now on hooks pass calls on. The allocators that get these look up the functions behind
/// them, so [`replace`] comes first.
pub fn pass_on() {
    for member in everything() {
        member.elsewhere.store(member.next.load(Relaxed), Relaxed);
    }
}

#[cfg(not(target_env = "musl"))]
fn everything() -> impl Iterator<Item = Places> {
    all().chain(questions::each())
}

#[cfg(target_env = "musl")]
use all as everything;

/// A static host has no loader, and no other allocator.
#[cfg(target_env = "musl")]
pub fn find() {}

/// As [`find`].
#[cfg(target_env = "musl")]
pub fn find_next() {}

/// As [`find`].
#[cfg(target_env = "musl")]
pub fn replace() {}

#[cfg(not(target_env = "musl"))]
fn libc_symbols() -> Option<Symbols> {
    // Not this function's own address here: for a program that is not position independent, that
    // may be the program's jump to the function. SAFETY: the name ends in a zero byte.
    let inside = unsafe { libc::dlsym(libc::RTLD_NEXT, c"gnu_get_libc_version".as_ptr()) };
    Symbols::around(inside)
}

/// Finds who serves each function, in the order in which the loader searches.
#[cfg(not(target_env = "musl"))]
pub fn find() {
    let symbols = libc_symbols();
    let is_of_libc = |at: usize| symbols.as_ref().is_some_and(|symbols| symbols.range.contains(&at));
    for member in everything() {
        // A lookup that fails allocates an error text, which the program would find.
        let of_libc = symbols.as_ref().and_then(|symbols| symbols.address(member.name));
        let Some(of_libc) = of_libc else { continue };
        member.of_libc.store(of_libc, Relaxed);
        // SAFETY: the name ends in a zero byte.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, member.name.as_ptr()) } as usize;
        let is_elsewhere = next != member.hook && !is_of_libc(next);
        member.next.store(if is_elsewhere { next } else { 0 }, Relaxed);
    }
}

/// Finds the function that the program would call without this library, the C library's too: for a
/// process that is not paged. If that has a sanitizer, few functions work yet, so this one calls
/// only `dlsym`.
#[cfg(not(target_env = "musl"))]
pub fn find_next() {
    let mut is_missing = false;
    for member in everything() {
        // SAFETY: the name ends in a zero byte.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, member.name.as_ptr()) } as usize;
        is_missing |= next == 0;
        member.next.store(next, Relaxed);
    }
    if is_missing {
        // The program must not find the error text. SAFETY: the calls take and free it.
        unsafe {
            libc::dlerror();
            libc::dlerror();
        }
    }
}

/// Enters this library's functions into the C library's table of symbols. Call it after [`find`],
/// while the process has one thread.
#[cfg(not(target_env = "musl"))]
pub fn replace() {
    let Some(symbols) = libc_symbols() else { return };
    // The hook's address is found by its name, so it may be that of the program's own function.
    let ours = Symbols::around(replace as *const c_void).map_or(0..0, |symbols| symbols.range);
    let mut entries = Vec::new();
    for member in everything() {
        let is_hook = member.next.load(Relaxed) == 0 && ours.contains(&member.hook);
        let function = if is_hook { member.hook } else { member.behind };
        let names = [Some(member.name), (member.name == c"free").then_some(c"cfree")];
        let found = names.into_iter().flatten().flat_map(|name| symbols.named(name));
        entries.extend(found.map(|entry| (entry, function)));
    }
    let (Some(first), Some(last)) = (entries.iter().map(|e| e.0).min(), entries.iter().map(|e| e.0).max())
    else {
        return;
    };
    let from = first as usize / page_bytes() * page_bytes();
    let len = (last as usize + size_of::<libc::Elf64_Sym>() - from).next_multiple_of(page_bytes());
    // SAFETY: the pages belong to the table, which only this thread uses now: the library has begun
    // before any other code of the program.
    unsafe {
        let write = |entries: &[(*mut libc::Elf64_Sym, usize)]| {
            for &(entry, function) in entries {
                (*entry).st_value = function.wrapping_sub(symbols.base) as u64;
            }
        };
        if let Err(error) = memory::protect(from, len, symbols.protection | libc::PROT_WRITE) {
            thread::say(&format!(
                "terapage: malloc: the C library's table of functions cannot be changed: {error} (if the \
                 program looks up free in the C library by dlsym, set --heap off)\n"
            ));
            return;
        }
        write(&entries);
        memory::protect(from, len, symbols.protection).ok();
    }
}

#[cfg(all(test, not(target_env = "musl")))]
mod tests {
    use super::*;

    #[test]
    fn lookups_in_the_c_library_find_the_hooks() {
        find();
        let real = free.of_libc().unwrap() as *const () as usize;
        assert!(libc_symbols().unwrap().range.contains(&real));
        assert!(mallinfo.of_libc().is_some() && __libc_free.of_libc().is_some());
        // SAFETY: the names end in zero bytes. In this process all calls come to the hooks anyway.
        let look_up = |name: &CStr| unsafe {
            let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY);
            [libc::dlsym(libc, name.as_ptr()), libc::dlsym(libc::RTLD_NEXT, name.as_ptr())]
        };
        assert_eq!(look_up(c"free"), [real as *mut _; 2]);
        replace();
        assert_eq!(look_up(c"free"), [malloc_hooks::free as *const () as *mut _; 2]);
        assert_eq!(look_up(c"__libc_malloc"), [malloc_hooks::__libc_malloc as *const () as *mut _; 2]);
        // Not the family's.
        assert_eq!(look_up(c"getpid"), [libc::getpid as *const () as *mut _; 2]);
        // What was found before stays the C library's.
        assert_eq!(free.of_libc().unwrap() as *const () as usize, real);
    }
}
