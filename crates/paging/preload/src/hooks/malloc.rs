//! Hooks of malloc's family, to which the program's calls come first. A hook passes the call on if
//! the program has an allocator, or a wrapper, [of its own](crate::family). Otherwise the function
//! [behind] all of these serves it, from [this library's heap](super::heap).
//!
//! Some objects come from the library's [own](crate::own_heap) heap in any case, and go back to it:
//! those from before the library's start, those for [some callers](crate::callers), which must not
//! be paged (for this the hooks get the return address), and those of the pager's threads.

use crate::callers::is_unpaged;
use crate::family::{self, Member};
use crate::heap::or_none;
use crate::own_heap;
use terapage_sys::thread;

/// The program's own allocator's function that makes an object, if the call goes there.
fn own<F: Copy>(member: &Member<F>) -> Option<F> {
    member.elsewhere().filter(|_| !thread::is_internal(thread::own_name()))
}

/// The program's own allocator's function for an existing object, if the object may be its.
fn own_for<F: Copy>(member: &Member<F>, at: *mut u8) -> Option<F> {
    member.elsewhere().filter(|_| !own_heap::contains(at as usize))
}

/// `malloc` for `caller`, the return address.
extern "C" fn malloc_for(size: usize, caller: usize) -> *mut u8 {
    if is_unpaged(caller) {
        return or_none(own_heap::allocate(size, 16, false));
    }
    // SAFETY: any size is allowed.
    unsafe { own(&family::malloc).map_or_else(|| behind::malloc(size), |malloc| malloc(size)) }
}

/// `calloc` for `caller`.
extern "C" fn calloc_for(count: usize, size: usize, caller: usize) -> *mut u8 {
    if is_unpaged(caller) {
        return match count.checked_mul(size) {
            Some(bytes) => or_none(own_heap::allocate(bytes, 16, true)),
            None => or_none(std::ptr::null_mut()),
        };
    }
    // SAFETY: any size is allowed.
    unsafe { own(&family::calloc).map_or_else(|| behind::calloc(count, size), |calloc| calloc(count, size)) }
}

/// `realloc` for `caller`.
///
/// # Safety
/// The contract is that of the C library's function.
unsafe extern "C" fn realloc_for(old: *mut u8, size: usize, caller: usize) -> *mut u8 {
    if is_unpaged(caller) && size > 0 {
        if old.is_null() {
            return or_none(own_heap::allocate(size, 16, false));
        }
        if own_heap::contains(old as usize) {
            // SAFETY: the caller passes null or an object that has not been freed.
            return or_none(unsafe { own_heap::resize(old, size) });
        }
    }
    // SAFETY: the caller passes null or an object that has not been freed; the new object is at
    // least as long as the copy.
    unsafe {
        if old.is_null() {
            return malloc_for(size, caller);
        }
        if let Some(realloc) = own_for(&family::realloc, old) {
            return realloc(old, size);
        }
        if size > 0
            && let Some(malloc) = own(&family::malloc)
        {
            // An object from before the start grows among the allocator's.
            let new = malloc(size);
            if !new.is_null() {
                new.copy_from_nonoverlapping(old, own_heap::usable(old).min(size));
                own_heap::free(old);
            }
            return new;
        }
        behind::realloc(old, size)
    }
}

/// A hook that jumps to another function, with the return address as an additional argument.
macro_rules! told_the_caller {
    ($($(#[$doc:meta])* fn $name:ident($($type:ty),*) = $goes_on:ident, $x86:literal, $arm:literal;)*) => {
        $($(#[$doc])*
        /// # Safety
        /// The contract is that of the C library's function.
        #[unsafe(naked)]
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($(_: $type),*) -> *mut u8 {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(concat!("mov ", $x86, ", [rsp]"), "jmp {}", sym $goes_on);
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(concat!("mov ", $arm, ", x30"), "b {}", sym $goes_on);
        })*
    };
}

told_the_caller! {
    /// Hook of the C library's function.
    fn malloc(usize) = malloc_for, "rsi", "x1";

    /// Hook of the C library's function.
    fn calloc(usize, usize) = calloc_for, "rdx", "x2";

    /// Hook of the C library's function.
    fn realloc(*mut u8, usize) = realloc_for, "rdx", "x2";
}

/// Hooks that pass the call on to the program's own allocator, or to the function behind.
macro_rules! passed_on {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? = $own:ident($($which:ident)?), $behind:ident;)*) => {
        $(
        /// Hook of the C library's function.
        ///
        /// # Safety
        /// The contract is that of the C library's function.
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $out)? {
            // SAFETY: the caller keeps the contract of the function, which is that of both.
            unsafe {
                match $own(&family::$name $(, $which)?) {
                    Some(own) => own($($arg),*),
                    None => behind::$behind($($arg),*),
                }
            }
        })*
    };
}

passed_on! {
    fn free(old: *mut u8) = own_for(old), free;
    fn malloc_usable_size(at: *mut u8) -> usize = own_for(at), malloc_usable_size;
    fn reallocarray(old: *mut u8, count: usize, size: usize) -> *mut u8 = own_for(old), reallocarray;
    fn posix_memalign(out: *mut *mut u8, align: usize, size: usize) -> i32 = own(), posix_memalign;
    fn aligned_alloc(align: usize, size: usize) -> *mut u8 = own(), aligned_alloc;
    fn memalign(align: usize, size: usize) -> *mut u8 = own(), memalign;
    fn valloc(size: usize) -> *mut u8 = own(), valloc;
    fn pvalloc(size: usize) -> *mut u8 = own(), pvalloc;
    fn __libc_malloc(size: usize) -> *mut u8 = own(), malloc;
    fn __libc_calloc(count: usize, size: usize) -> *mut u8 = own(), calloc;
    fn __libc_realloc(old: *mut u8, size: usize) -> *mut u8 = own_for(old), realloc;
    fn __libc_free(old: *mut u8) = own_for(old), free;
    fn __libc_memalign(align: usize, size: usize) -> *mut u8 = own(), memalign;
    fn __libc_valloc(size: usize) -> *mut u8 = own(), valloc;
    fn __libc_pvalloc(size: usize) -> *mut u8 = own(), pvalloc;
}

/// Hook of the C library's function, an old name of `free`. (The loader does not find it by
/// `dlsym`, so nobody knows another one.)
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn cfree(old: *mut u8) {
    // SAFETY: the caller passes null or an object that has not been freed.
    unsafe { free(old) }
}

/// The functions behind all other allocators: those that stand in the place of the C library's.
pub mod behind {
    use crate::arena;
    use crate::caches;
    use crate::heap::{allocate, or_none, release, resize, usable};
    use crate::set_errno;
    use terapage_sys::page_bytes;

    /// Functions with the C library's contracts.
    macro_rules! family {
        ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? $body:block)*) => {
            $(
            /// In the place of the C library's function.
            ///
            /// # Safety
            /// The contract is that of the C library's function.
            pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $out)? $body)*
        };
    }

    family! {
        fn malloc(size: usize) -> *mut u8 {
            allocate(size, 16, false)
        }

        fn calloc(count: usize, size: usize) -> *mut u8 {
            count.checked_mul(size).map_or_else(|| or_none(std::ptr::null_mut()), |bytes| allocate(bytes, 16, true))
        }

        fn realloc(old: *mut u8, size: usize) -> *mut u8 {
            if old.is_null() {
                return allocate(size, 16, false);
            }
            if size == 0 {
                // SAFETY: the caller passes an object that has not been freed.
                unsafe { release(old) };
                return std::ptr::null_mut();
            }
            // SAFETY: the caller passes an object that has not been freed.
            unsafe { resize(old, size) }
        }

        fn reallocarray(old: *mut u8, count: usize, size: usize) -> *mut u8 {
            match count.checked_mul(size) {
                // As in the C library, another allocator's `realloc` takes part. SAFETY: the caller
                // passes null or an object that has not been freed.
                Some(bytes) => unsafe { super::realloc(old, bytes) },
                None => or_none(std::ptr::null_mut()),
            }
        }

        fn free(old: *mut u8) {
            if arena::contains(old as usize) && caches::put(old as usize) {
                return;
            }
            // `free` must not change the program's `errno`. SAFETY: `errno` belongs to this thread.
            let errno = unsafe { *libc::__errno_location() };
            // SAFETY: the caller passes null or an object that has not been freed.
            unsafe { release(old) };
            set_errno(errno);
        }

        fn malloc_usable_size(at: *mut u8) -> usize {
            if at.is_null() {
                return 0;
            }
            // SAFETY: the caller passes an object that has not been freed.
            unsafe { usable(at) }
        }

        fn posix_memalign(out: *mut *mut u8, align: usize, size: usize) -> i32 {
            if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
                return libc::EINVAL;
            }
            // SAFETY: `errno` belongs to this thread.
            let errno = unsafe { *libc::__errno_location() };
            let at = allocate(size, align, false);
            set_errno(errno);
            if at.is_null() {
                return libc::ENOMEM;
            }
            // SAFETY: the caller passes a valid place for the address.
            unsafe { *out = at };
            0
        }

        fn aligned_alloc(align: usize, size: usize) -> *mut u8 {
            if !align.is_power_of_two() {
                set_errno(libc::EINVAL);
                return std::ptr::null_mut();
            }
            allocate(size, align, false)
        }

        fn memalign(align: usize, size: usize) -> *mut u8 {
            let Some(align) = align.checked_next_power_of_two() else {
                set_errno(libc::EINVAL);
                return std::ptr::null_mut();
            };
            allocate(size, align, false)
        }

        fn valloc(size: usize) -> *mut u8 {
            allocate(size, page_bytes(), false)
        }

        fn pvalloc(size: usize) -> *mut u8 {
            match size.checked_next_multiple_of(page_bytes()) {
                Some(size) => allocate(size, page_bytes(), false),
                None => or_none(std::ptr::null_mut()),
            }
        }
    }
}
