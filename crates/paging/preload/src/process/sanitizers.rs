//! Sanitizers: their runtimes replace functions of the C library, as this library does, and must
//! manage the memory alone.

use crate::heap;
use memchr::memmem;
use terapage_sys::file::Early;

/// Names of the runtimes' initialisation functions.
const NAMES: [&str; 5] = ["__asan_init", "__hwasan_init", "__lsan_init", "__msan_init", "__tsan_init"];

/// The number of bytes that are searched at once.
const PART: usize = 64 << 10;
/// The most bytes of symbol names that are searched: more would delay a program's start too much.
const MOST: u64 = 64 << 20;

/// The address of a symbol, or 0, as found by the loader when it loads this library. (If there is
/// none, `dlsym` allocates an error text, by the program's own `malloc`, which may not be ready.)
macro_rules! weak {
    ($name:literal) => {{
        let at: usize;
        // SAFETY: reads this library's own table of addresses.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) at,
                options(nostack, pure, readonly),
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {at}, :got:", $name),
                concat!("ldr {at}, [{at}, :got_lo12:", $name, "]"),
                at = out(reg) at,
                options(nostack, pure, readonly),
            );
        }
        at
    }};
}

/// Whether the program has a sanitizer's runtime.
pub fn any() -> bool {
    // A runtime that is linked into the program exports its `malloc`, but not always its
    // initialisation.
    are_libraries() || !heap::stands_in() && is_linked_in()
}

/// Whether a runtime is loaded that exports its initialisation: a library, for example. The
/// functions of the C library work then, though the runtime has not begun yet.
pub fn are_libraries() -> bool {
    let loaded = [
        weak!("__asan_init"),
        weak!("__hwasan_init"),
        weak!("__lsan_init"),
        weak!("__msan_init"),
        weak!("__tsan_init"),
    ];
    loaded != [0; 5]
}

/// Whether the program's own symbols include the initialisation of a runtime.
fn is_linked_in() -> bool {
    Early::open(c"/proc/self/exe").and_then(|file| names_one(&file)).unwrap_or(false)
}

/// Whether the symbols of a 64-bit ELF file include the initialisation of a runtime. `None` if it
/// is another file, or was stripped.
fn names_one(file: &Early) -> Option<bool> {
    const SYMBOLS: u32 = 2;
    let head = read::<64>(file, 0)?;
    head.starts_with(b"\x7fELF\x02\x01").then_some(())?;
    let (table, size, count) = (long(&head, 40)?, u64::from(half(&head, 58)?), u64::from(half(&head, 60)?));
    let section = |index: u64| read::<64>(file, table.checked_add(index.checked_mul(size)?)?);
    let symbols = (0..count).filter_map(section).find(|section| section[4..8] == SYMBOLS.to_le_bytes())?;
    let names = section(long(&symbols, 40)? & u64::from(u32::MAX))?;
    let places = places_of_names(file, long(&names, 24)?, long(&names, 32)?.min(MOST));
    Some(!places.is_empty() && defines_one(file, long(&symbols, 24)?, long(&symbols, 32)?, &places))
}

/// The offsets of [`NAMES`] in a table of names that end in zero bytes.
fn places_of_names(file: &Early, from: u64, len: u64) -> Vec<u32> {
    let whole = NAMES.map(|name| format!("\0{name}\0"));
    let overlap = whole.iter().map(String::len).max().unwrap_or(0) as u64;
    let mut part = vec![0; PART];
    let (mut at, mut places) = (0, Vec::new());
    while at < len {
        let most = PART.min((len - at) as usize);
        let got = file.read_at(&mut part[..most], from.saturating_add(at));
        let found = whole.iter().filter_map(|name| memmem::find(&part[..got], name.as_bytes()));
        places.extend(found.map(|place| (at + place as u64 + 1) as u32));
        if got as u64 <= overlap {
            break;
        }
        at += got as u64 - overlap;
    }
    places
}

/// Whether a table of symbols defines a symbol whose name is at one of these offsets.
fn defines_one(file: &Early, from: u64, len: u64, places: &[u32]) -> bool {
    const SYMBOL: usize = 24;
    let mut part = vec![0; PART / SYMBOL * SYMBOL];
    let mut at = 0;
    while at < len {
        let got = file.read_at(&mut part, from.saturating_add(at));
        let (symbols, _) = part[..got.min((len - at) as usize)].as_chunks::<SYMBOL>();
        let is_one = |symbol: &[u8; SYMBOL]| {
            let name = u32::from_le_bytes([symbol[0], symbol[1], symbol[2], symbol[3]]);
            let is_defined = symbol[6..8] != [0, 0];
            is_defined && places.contains(&name)
        };
        if symbols.iter().any(is_one) {
            return true;
        }
        if got == 0 {
            break;
        }
        at += got as u64;
    }
    false
}

fn read<const LEN: usize>(file: &Early, at: u64) -> Option<[u8; LEN]> {
    let mut bytes = [0; LEN];
    (file.read_at(&mut bytes, at) == LEN).then_some(bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    fn file(bytes: &[u8]) -> Early {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, bytes).unwrap();
        Early::open(&CString::new(file.path().as_os_str().as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn a_name_is_found_wherever_it_lies() {
        let name = b"\0__lsan_init\0";
        for at in [0, 1, PART - 20, PART - 5, PART, 3 * PART + 7] {
            let mut bytes = vec![b'x'; 4 * PART];
            bytes[at..at + name.len()].copy_from_slice(name);
            let places = |bytes: &[u8]| places_of_names(&file(bytes), 0, bytes.len() as u64);
            assert!(places(&bytes).iter().all(|&place| place as usize == at + 1), "{at}");
            assert!(!places(&bytes).is_empty(), "{at}");
            bytes[at + 3] = b'-';
            assert!(places(&bytes).is_empty(), "{at}");
        }
    }

    #[test]
    fn a_symbol_counts_where_it_is_defined() {
        let mut bytes = vec![0; 24 * 10_000];
        let at = 24 * 9_000;
        bytes[at..at + 4].copy_from_slice(&77u32.to_le_bytes());
        let defines = |bytes: &[u8], len: u64| defines_one(&file(bytes), 0, len, &[5, 77]);
        assert!(!defines(&bytes, bytes.len() as u64));
        bytes[at + 6] = 3;
        assert!(defines(&bytes, bytes.len() as u64));
        assert!(!defines(&bytes, at as u64));
        // A table whose stated length exceeds its file.
        bytes[at + 6] = 0;
        assert!(!defines(&bytes, u64::MAX));
    }

    #[test]
    fn what_is_no_program_has_none() {
        // This test's own file has the names, but does not define them.
        assert_eq!(names_one(&Early::open(c"/proc/self/exe").unwrap()), Some(false));
        let mut bytes = vec![0; 4096];
        assert_eq!(names_one(&file(&bytes)), None);
        // Sections beyond the end of the file.
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes[58] = 64;
        bytes[60] = 3;
        assert_eq!(names_one(&file(&bytes)), None);
        assert_eq!(names_one(&file(b"")), None);
    }
}
