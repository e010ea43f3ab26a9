//! Hooks for questions about the heap: `mallinfo` and its kin. As in [malloc's](super::malloc)
//! hooks, a program's own allocator answers, if it has these functions.

use crate::family;

/// Hooks that pass the call on to the program's own allocator, or to the function behind.
macro_rules! passed_on {
    ($(fn $name:ident() $(-> $out:ty)?;)*) => {
        $(
        /// Hook of the C library's function.
        ///
        /// # Safety
        /// The contract is that of the C library's function.
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name() $(-> $out)? {
            // SAFETY: the calls only query.
            unsafe { family::$name.elsewhere().map_or_else(|| behind::$name(), |own| own()) }
        })*
    };
}

passed_on! {
    fn mallinfo2() -> libc::mallinfo2;
    fn mallinfo() -> libc::mallinfo;
    fn malloc_stats();
}

/// The functions in the place of the C library's.
pub mod behind {
    use crate::{family, heap};
    use libc::c_int;
    use terapage_sys::thread;

    /// The C library's numbers about its own heap, if that serves requests, too: those that the
    /// user does not want paged, for example.
    fn of_libc() -> libc::mallinfo2 {
        match family::mallinfo2.of_libc() {
            // SAFETY: the call only queries.
            Some(mallinfo2) if !heap::serves_all() => unsafe { mallinfo2() },
            // SAFETY: the fields are plain numbers, for which zeros are valid.
            _ => unsafe { std::mem::zeroed() },
        }
    }

    /// In the place of the C library's function.
    ///
    /// # Safety
    /// The contract is that of the C library's function.
    pub unsafe extern "C" fn mallinfo2() -> libc::mallinfo2 {
        let (mut info, ours) = (of_libc(), heap::figures());
        info.arena += ours.heap_bytes;
        info.ordblks = info.ordblks.max(1);
        info.hblks += ours.large;
        info.hblkhd += ours.large_bytes;
        info.uordblks += ours.object_bytes.min(ours.heap_bytes);
        info.fordblks += ours.heap_bytes.saturating_sub(ours.object_bytes);
        info
    }

    /// In the place of the C library's function. Its numbers have 32 bits: larger ones are
    /// truncated.
    ///
    /// # Safety
    /// The contract is that of the C library's function.
    pub unsafe extern "C" fn mallinfo() -> libc::mallinfo {
        // SAFETY: the caller keeps the contract of `mallinfo`.
        let info = unsafe { mallinfo2() };
        libc::mallinfo {
            arena: info.arena as c_int,
            ordblks: info.ordblks as c_int,
            smblks: info.smblks as c_int,
            hblks: info.hblks as c_int,
            hblkhd: info.hblkhd as c_int,
            usmblks: info.usmblks as c_int,
            fsmblks: info.fsmblks as c_int,
            uordblks: info.uordblks as c_int,
            fordblks: info.fordblks as c_int,
            keepcost: info.keepcost as c_int,
        }
    }

    /// In the place of the C library's function: all heaps appear as one arena.
    ///
    /// # Safety
    /// The contract is that of the C library's function.
    pub unsafe extern "C" fn malloc_stats() {
        if !heap::serves_all() {
            if let Some(malloc_stats) = family::malloc_stats.of_libc() {
                // SAFETY: the call only queries.
                unsafe { malloc_stats() }
            }
            return;
        }
        let ours = heap::figures();
        let _internal = thread::Internal::enter();
        thread::say(&format!(
            "Arena 0:\nsystem bytes     = {:10}\nin use bytes     = {:10}\nTotal (incl. mmap):\nsystem bytes     = {:10}\n\
             in use bytes     = {:10}\nmmap regions     = {:10}\nmmap bytes       = {:10}\n",
            ours.heap_bytes,
            ours.object_bytes,
            ours.heap_bytes + ours.large_bytes,
            ours.object_bytes + ours.large_bytes,
            ours.large,
            ours.large_bytes
        ));
    }
}
