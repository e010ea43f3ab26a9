//! The objects of the loader: the program and its libraries.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;

/// A loaded segment of an object.
pub struct Segment<'a> {
    /// The addresses of the segment.
    pub range: Range<usize>,
    /// Bytes that come from the file; the others begin as zeros.
    pub file_len: usize,
    /// Whether the segment is writable and not executable.
    pub is_data: bool,
    /// Whether the segment is executable.
    pub is_code: bool,
    /// The part of the object that becomes read only after the loader's work (RELRO).
    pub sealed: Range<usize>,
    /// The object's path; empty for the program itself.
    pub path: &'a CStr,
}

/// Calls `each` with every segment. It must not load libraries.
pub fn each_segment(mut each: impl FnMut(Segment)) {
    let mut each: &mut dyn FnMut(Segment) = &mut each;
    // SAFETY: the callback gets the pointer passed here, and keeps nothing of the loader.
    unsafe { libc::dl_iterate_phdr(Some(tell), (&raw mut each).cast()) };
}

unsafe extern "C" fn tell(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description; `data` is the pointer that `each_segment`
    // passed.
    unsafe {
        let each = &mut *data.cast::<&mut dyn FnMut(Segment)>();
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let range_of = |header: &libc::Elf64_Phdr| {
            let start = info.dlpi_addr as usize + header.p_vaddr as usize;
            start..start + header.p_memsz as usize
        };
        let sealed = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO).map_or(0..0, range_of);
        for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
            each(Segment {
                range: range_of(header),
                file_len: header.p_filesz as usize,
                is_data: header.p_flags & (libc::PF_W | libc::PF_X) == libc::PF_W,
                is_code: header.p_flags & libc::PF_X != 0,
                sealed: sealed.clone(),
                path: path_of(info.dlpi_name),
            });
        }
    }
    0
}

/// # Safety
/// `path` is null, or a text that ends in a zero byte and outlives its use.
unsafe fn path_of<'a>(path: *const c_char) -> &'a CStr {
    // SAFETY: the caller passes a text that ends in a zero byte.
    if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } }
}

/// The address at which the object begins that contains an address.
pub fn object_of(at: *const c_void) -> usize {
    // SAFETY: the description is plain data, for which zeros are a value, and has room for the
    // answer.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(at, &raw mut info);
        info.dli_fbase as usize
    }
}

/// `dladdr1`'s request for the symbol itself.
#[cfg(not(target_env = "musl"))]
const RTLD_DL_SYMENT: c_int = 1;

#[cfg(not(target_env = "musl"))]
unsafe extern "C" {
    fn dladdr1(at: *const c_void, info: *mut libc::Dl_info, more: *mut *mut c_void, what: c_int) -> c_int;
}

/// The symbol that contains an address, and the start of its bytes. `None` if unknown.
#[cfg(not(target_env = "musl"))]
pub fn symbol_of(at: *const c_void) -> Option<(usize, libc::Elf64_Sym)> {
    let mut symbol: *mut c_void = std::ptr::null_mut();
    // SAFETY: the description is plain data, for which zeros are a value, and both have room for
    // the answers. The loader keeps the symbol as long as the object is loaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if dladdr1(at, &raw mut info, &raw mut symbol, RTLD_DL_SYMENT) == 0 || symbol.is_null() {
            return None;
        }
        Some((info.dli_saddr as usize, *symbol.cast::<libc::Elf64_Sym>()))
    }
}

/// A static host has no symbols.
#[cfg(target_env = "musl")]
pub fn symbol_of(_at: *const c_void) -> Option<(usize, libc::Elf64_Sym)> {
    None
}

/// Whether the object that contains an address has a function there, and not a jump to another
/// object's.
pub fn is_defined(at: *const c_void) -> bool {
    symbol_of(at).is_none_or(|(_, symbol)| symbol.st_shndx != SHN_UNDEF)
}

/// The section of a symbol that is defined in another object.
const SHN_UNDEF: u16 = 0;
