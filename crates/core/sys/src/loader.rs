//! The objects of the loader: the program and its libraries.

use std::ffi::{c_int, c_void};

/// A search for the object that contains an address.
struct Search {
    at: usize,
    start: usize,
}

/// The address at which the object begins that contains an address; 0 if there is none. (`dladdr`
/// also looks for a symbol, which takes 40 us in a large library.)
pub fn object_of(at: *const c_void) -> usize {
    let mut search = Search { at: at as usize, start: 0 };
    // SAFETY: the callback gets the search, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.start
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description; `search` is `object_of`'s.
    let (info, search, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, &mut *search.cast::<Search>(), headers)
    };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let starts_and_ends = loaded.map(|header| {
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        (start, start.wrapping_add(header.p_memsz as usize))
    });
    let contains = |(start, end): (usize, usize)| (start..end).contains(&search.at);
    if !starts_and_ends.clone().any(contains) {
        return 0;
    }
    search.start = starts_and_ends.map(|(start, _)| start).min().unwrap_or(0);
    1
}

#[cfg(test)]
mod tests {
    use super::object_of;

    #[test]
    fn functions_of_one_library_are_in_one_object() {
        let of_c = object_of(libc::getpid as *const _);
        assert!(of_c != 0 && of_c == object_of(libc::qsort as *const _));
        assert_ne!(of_c, object_of(object_of as *const _));
        assert_eq!(object_of(std::ptr::null()), 0);
    }
}
