//! Where the program's code lies: in [`AREA`], where the filter sees its calls.

use crate::filter::AREA;
use crate::machine;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use terapage_sys::runtimes::GO;

/// The next free address.
static NEXT: AtomicUsize = AtomicUsize::new(AREA.start);

/// Between two pieces of code.
const GAP: usize = 2 << 20;
/// The first piece lies after one of this number of steps of [`GAP`].
const STEPS: usize = 1 << 21;

/// Chooses the place of the first piece, by a number that others cannot guess.
pub fn begin(random: usize) {
    NEXT.store(AREA.start + GAP + random % STEPS * GAP, Relaxed);
}

/// A place for `len` bytes.
pub fn take(len: usize) -> usize {
    NEXT.fetch_add(len.next_multiple_of(GAP).saturating_add(GAP), Relaxed)
}

/// Changes the arguments of an `mmap` of a file or of code that names no place: they then name one
/// in the area. The kernel uses another place if that place is not free.
pub fn of_mapping(mut arguments: [usize; 6]) -> [usize; 6] {
    let [at, len, rights, flags, fd, _] = arguments;
    let flags = flags as i32;
    let is_file = flags & libc::MAP_ANONYMOUS == 0 && fd as i32 >= 0;
    let is_private = flags & libc::MAP_PRIVATE != 0 && flags & libc::MAP_SHARED == 0;
    let may_be_code = is_file && is_private || rights as i32 & libc::PROT_EXEC != 0;
    if at == 0 && may_be_code && flags & FIXED == 0 {
        arguments[0] = place_for(len);
    }
    arguments
}

/// The flags of mappings that do not go to any place.
const FIXED: i32 = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | machine::MAP_LOW;

/// A place in the area for `len` bytes; 0 if there is none.
fn place_for(len: usize) -> usize {
    if len >= AREA.len() / 4 {
        return 0;
    }
    let place = take(len);
    if AREA.contains(&(place + len)) { place } else { 0 }
}

/// Where the program's loader lies.
static LOADER: OnceLock<Range<usize>> = OnceLock::new();

/// Notes where the program's loader lies.
pub fn note_loader(pages: Range<usize>) {
    LOADER.set(pages).ok();
}

/// If the loader, whose call comes from the address `from`, reserves addresses for a library: a
/// place in the area. The GNU C library's does so for a library whose alignment is larger than a
/// page, as on 64-bit Arm, and then maps the file there.
pub fn of_reserved([at, len, rights, flags, ..]: [usize; 6], from: usize) -> Option<usize> {
    let is_loader = LOADER.get().is_some_and(|loader| loader.contains(&from));
    let flags = flags as i32;
    let is_reserved = rights as i32 == libc::PROT_NONE && flags & libc::MAP_ANONYMOUS != 0;
    (at == 0 && is_loader && is_reserved && flags & FIXED == 0).then(|| place_for(len)).filter(|&at| at != 0)
}

/// Whether the program is a Go program.
static IS_GO: AtomicBool = AtomicBool::new(false);
/// The number of refused places for its heap; at least [`Go::places_most`] once it accepts any
/// place.
///
/// [`Go::places_most`]: terapage_sys::runtimes::Go
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Notes that the program is a Go program.
pub fn is_go() {
    IS_GO.store(true, Relaxed);
}

/// Whether the program is a Go program.
pub fn has_go() -> bool {
    IS_GO.load(Relaxed)
}

/// Whether to refuse an `mmap` of Go's, as if there were no memory ([`terapage_sys::runtimes`] says
/// why).
pub fn is_refused([at, len, rights, flags, ..]: [usize; 6]) -> bool {
    let fixed = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
    let reserves = rights as i32 == libc::PROT_NONE && flags as i32 & fixed == 0 && len >= GO.heap_least;
    if !IS_GO.load(Relaxed) || !reserves {
        return false;
    }
    if at == 0 {
        if REFUSED.load(Relaxed) > 0 {
            REFUSED.store(GO.places_most, Relaxed);
        }
        return false;
    }
    REFUSED
        .fetch_update(Relaxed, Relaxed, |refused| (refused < GO.places_most).then_some(refused + 1))
        .is_ok()
}

/// Whether an `mmap` is for the table of the arenas of Go's heap, which the kernel then maps.
pub fn is_table([at, len, rights, flags, ..]: [usize; 6]) -> bool {
    static SEEN: AtomicBool = AtomicBool::new(false);
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let is_new = flags as i32 == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let is_such = at == 0 && len == GO.table && rights as i32 == writable && is_new;
    is_such && IS_GO.load(Relaxed) && !SEEN.swap(true, Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARENA: usize = GO.heap_least;
    const TABLE: usize = GO.table;

    #[test]
    fn go_has_its_table_and_is_refused_the_places_that_it_names_until_it_takes_any() {
        let asks = |at: usize, len: usize| is_refused([at, len, 0, 0x22, usize::MAX, 0]);
        assert!(!asks(1 << 40, ARENA));
        let table = [0, TABLE, 3, 0x22, usize::MAX, 0];
        assert!(!is_table(table));
        is_go();
        assert!(!is_table([0, TABLE + 1, 3, 0x22, usize::MAX, 0]));
        assert!(is_table(table) && !is_table(table));
        assert!(!asks(0, 8 * ARENA) && !asks(1 << 40, ARENA / 2));
        assert!((1..100).all(|i| asks(i << 40, ARENA)));
        assert!(!asks(0, 2 * ARENA));
        assert!(!asks(1 << 40, ARENA));
    }

    #[test]
    fn code_and_files_are_placed_and_data_is_not() {
        begin(7);
        let placed = |rights: i32, flags: i32, fd: i32| {
            of_mapping([0, 4096, rights as usize, flags as usize, fd as usize, 0])[0]
        };
        let (private, anonymous) = (libc::MAP_PRIVATE, libc::MAP_ANONYMOUS);
        assert_eq!(placed(3, private | anonymous, -1), 0);
        assert_eq!(placed(3, libc::MAP_SHARED, 5), 0);
        assert_eq!(placed(5, private | libc::MAP_FIXED, 5), 0);
        let (one, other) = (placed(1, private, 5), placed(7, private | anonymous, -1));
        assert!(AREA.contains(&one) && AREA.contains(&other) && one != other);
    }
}
