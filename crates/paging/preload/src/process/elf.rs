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

/// The functions of an object, as the loader finds them by their names.
#[cfg(not(target_env = "musl"))]
pub struct Symbols {
    /// What the loader adds to a symbol's value.
    pub base: usize,
    /// The addresses of the object.
    pub range: Range<usize>,
    /// The protection of the table's pages.
    pub protection: c_int,
    table: *mut libc::Elf64_Sym,
    names: *const c_char,
    /// The table of hashes: four numbers, the filter, the buckets, the chains.
    hashes: *const u32,
}

/// Tags of an object's dynamic section.
#[cfg(not(target_env = "musl"))]
mod tag {
    pub const END: u64 = 0;
    pub const NAMES: u64 = 5;
    pub const TABLE: u64 = 6;
    pub const HASHES: u64 = 0x6fff_fef5;
}

#[cfg(not(target_env = "musl"))]
impl Symbols {
    /// The symbols of the object that contains an address. `None` if there is none, or the object
    /// has no table of GNU hashes.
    pub fn around(at: *const c_void) -> Option<Symbols> {
        let mut search = (at as usize, None);
        // SAFETY: the callback gets the pointer passed here, and keeps nothing of the loader.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        search.1
    }

    /// # Safety
    /// The loader passes a valid description.
    unsafe fn of(info: &libc::dl_phdr_info, at: usize) -> Option<Symbols> {
        let base = info.dlpi_addr as usize;
        // SAFETY: the description names this many headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let range_of = |header: &libc::Elf64_Phdr| {
            let start = base + header.p_vaddr as usize;
            start..start + header.p_memsz as usize
        };
        let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        loaded().find(|header| range_of(header).contains(&at))?;
        let range = loaded().map(|header| range_of(header).start).min()?
            ..loaded().map(|header| range_of(header).end).max()?;
        let section = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let mut entry = range_of(section).start as *const [u64; 2];
        let [mut table, mut names, mut hashes] = [0; 3];
        loop {
            // SAFETY: the section's last entry has the tag 0.
            let [tag, value] = unsafe { entry.read() };
            // The loader of some systems has added the base already.
            let place = value as usize + if (value as usize) < base { base } else { 0 };
            match tag {
                tag::END => break,
                tag::NAMES => names = place,
                tag::TABLE => table = place,
                tag::HASHES => hashes = place,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        let segment = loaded().find(|header| range_of(header).contains(&table))?;
        let allowed =
            [(libc::PF_R, libc::PROT_READ), (libc::PF_W, libc::PROT_WRITE), (libc::PF_X, libc::PROT_EXEC)];
        let of_segment = allowed.iter().filter(|(flag, _)| segment.p_flags & flag != 0);
        let protection = of_segment.fold(0, |all, (_, right)| all | right);
        (names != 0 && hashes != 0).then_some(Symbols {
            base,
            range,
            protection,
            table: table as *mut libc::Elf64_Sym,
            names: names as *const c_char,
            hashes: hashes as *const u32,
        })
    }

    /// The entries of the symbols that are defined with this name, one for each version.
    pub fn named(&self, name: &CStr) -> Vec<*mut libc::Elf64_Sym> {
        const WORDS: usize = 2;
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
        let mut found = Vec::new();
        // SAFETY: the tables are laid out as the format says, and stay while the object is loaded.
        unsafe {
            let [buckets, first, filter] = [0, 1, 2].map(|at| *self.hashes.add(at) as usize);
            let heads = self.hashes.add(4 + filter * WORDS);
            let mut index = *heads.add(hash as usize % buckets) as usize;
            // A bucket without symbols has 0; the lowest bit of a hash marks the end of a chain.
            while index >= first {
                let at = *heads.add(buckets + index - first);
                let entry = self.table.add(index);
                let is_it = (at | 1) == (hash | 1) && (*entry).st_shndx != SHN_UNDEF;
                if is_it && CStr::from_ptr(self.names.add((*entry).st_name as usize)) == name {
                    found.push(entry);
                }
                if at & 1 != 0 {
                    break;
                }
                index += 1;
            }
        }
        found
    }

    /// The address of the first symbol with this name.
    pub fn address(&self, name: &CStr) -> Option<usize> {
        let entry = *self.named(name).first()?;
        // SAFETY: the entry lies in the table, which stays while the object is loaded.
        Some(self.base.wrapping_add(unsafe { (*entry).st_value } as usize))
    }
}

/// Stops at the object that contains the address searched for.
#[cfg(not(target_env = "musl"))]
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description; `data` is the pointer that `around` passed.
    unsafe {
        let (at, found) = &mut *data.cast::<(usize, Option<Symbols>)>();
        *found = Symbols::of(&*info, *at);
        c_int::from(found.is_some())
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

#[cfg(all(test, not(target_env = "musl")))]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_names() {
        // SAFETY: the name ends in a zero byte.
        let inside = unsafe { libc::dlsym(libc::RTLD_NEXT, c"gnu_get_libc_version".as_ptr()) };
        let symbols = Symbols::around(inside).unwrap();
        assert_eq!(symbols.address(c"gnu_get_libc_version"), Some(inside as usize));
        // SAFETY: as above.
        let free = unsafe { libc::dlsym(libc::RTLD_NEXT, c"free".as_ptr()) };
        assert_eq!(symbols.address(c"free"), Some(free as usize));
        assert_eq!((symbols.address(c"no_such_function"), symbols.address(c"")), (None, None));
        assert!(symbols.range.contains(&(inside as usize)) && symbols.protection & libc::PROT_READ != 0);
        assert!(Symbols::around(std::ptr::null()).is_none());
    }
}
