//! Static arrays (bss) of the program and its libraries, which are paged if they are large.

use crate::elf::each_segment;
use crate::guard;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::OnceLock;
use terapage_sys::machine::CALL;
use terapage_sys::page_bytes;

/// Static memory smaller than this is not paged.
const LEAST: usize = 1 << 20;

/// The static arrays of one object: their start, their bytes, and the object's name.
struct Arrays {
    start: usize,
    len: usize,
    object: String,
}

static RANGES: OnceLock<Vec<Arrays>> = OnceLock::new();

/// The static arrays of a hosted program.
static HOSTED: [OnceLock<Arrays>; 4] = [const { OnceLock::new() }; 4];

/// Finds the static arrays: the anonymous part of each data segment, in whole blocks, behind the
/// part that the loader has made read only.
pub fn find(block: usize) {
    let mut found = Vec::new();
    each_segment(|segment| {
        let Range { start, end } = segment.range;
        let mut from = start + segment.file_len;
        if from < segment.sealed.end && segment.sealed.start < end {
            from = segment.sealed.end;
        }
        let from = from.next_multiple_of(page_bytes()).next_multiple_of(block);
        let to = end / block * block;
        if segment.is_data && to > from && to - from >= LEAST {
            found.push(Arrays { start: from, len: to - from, object: name_of(segment.path) });
        }
    });
    if guard::is_on() && !found.is_empty() && program_makes_calls() {
        // Such calls with pointers to static arrays cannot be trapped: the filter cannot tell them
        // from those of other programs, which lie at the same addresses.
        found.clear();
    }
    if guard::is_on() {
        let guarded = guard::watch(found.iter().map(|arrays| arrays.start..arrays.start + arrays.len));
        found.retain(|arrays| guarded.iter().any(|range| range.start == arrays.start));
    }
    RANGES.set(found).ok();
}

/// Whether the program's own file, not a library, may contain instructions that make system calls.
/// Other instructions may have the same bytes.
fn program_makes_calls() -> bool {
    let mut found = false;
    each_segment(|segment| {
        if segment.is_code && segment.path.is_empty() {
            let Range { start, end } = segment.range;
            // SAFETY: the segment is mapped, and nobody changes code.
            let code = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
            found |= memchr::memmem::find(code, CALL).is_some();
        }
    });
    found
}

/// Adds static arrays of a hosted program, which has not begun.
pub fn add(start: usize, len: usize, block: usize) {
    let (from, to) =
        (start.next_multiple_of(page_bytes()).next_multiple_of(block), (start + len) / block * block);
    if to > from
        && to - from >= LEAST
        && let Some(place) = HOSTED.iter().find(|place| place.get().is_none())
    {
        place.set(Arrays { start: from, len: to - from, object: "the program".to_owned() }).ok();
    }
}

/// The memory of an adopted program that is paged where it lies.
static ADOPTED: OnceLock<Vec<Arrays>> = OnceLock::new();

/// Adds memory of an adopted program: the whole blocks of each range, if they are not small.
pub fn adopt(ranges: &[(usize, usize)], block: usize) {
    let blocks = |&(from, to): &(usize, usize)| (from.next_multiple_of(block), to / block * block);
    let large = ranges.iter().map(blocks).filter(|(from, to)| *to > *from && to - from >= LEAST);
    let name = || "memory from before".to_owned();
    let adopted = large.map(|(from, to)| Arrays { start: from, len: to - from, object: name() });
    ADOPTED.set(adopted.collect()).ok();
}

/// The last part of an object's path.
fn name_of(path: &CStr) -> String {
    let path = path.to_string_lossy();
    match path.rsplit('/').next() {
        // For the loader, the program itself has no name.
        None | Some("") => "the program".to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// The start, length and object of each range of static arrays.
pub fn named_ranges() -> impl Iterator<Item = (usize, usize, &'static str)> {
    let hosted = HOSTED.iter().filter_map(OnceLock::get);
    let adopted = ADOPTED.get().into_iter().flatten();
    RANGES
        .get()
        .into_iter()
        .flatten()
        .chain(hosted)
        .chain(adopted)
        .map(|arrays| (arrays.start, arrays.len, &*arrays.object))
}

/// The start and length of each range of static arrays.
pub fn ranges() -> impl Iterator<Item = (usize, usize)> {
    named_ranges().map(|(start, len, _)| (start, len))
}

/// The parts of a range that are static arrays: from, to.
pub fn within(at: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = at.saturating_add(len);
    ranges().map(move |(start, len)| (start.max(at), (start + len).min(end))).filter(|(from, to)| from < to)
}

/// Whether a range contains any part of static arrays.
pub fn meets(at: usize, len: usize) -> bool {
    within(at, len).next().is_some()
}

/// Bytes of all static arrays that are paged.
pub fn bytes() -> usize {
    ranges().map(|(_, len)| len).sum()
}
