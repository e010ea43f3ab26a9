//! Large static arrays (bss) of the program and its libraries.

use crate::objects::each_segment;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::OnceLock;
use terapage_sys::PAGE;

/// Static memory smaller than this is left alone.
const LEAST: usize = 1 << 20;

/// One object's: where they begin, their bytes, and the object's name.
struct Arrays {
    start: usize,
    len: usize,
    object: String,
}

static RANGES: OnceLock<Vec<Arrays>> = OnceLock::new();

/// Finds them: the anonymous part of each segment of data, in whole blocks, behind what the loader
/// has sealed.
pub fn find(block: usize) {
    let mut found = Vec::new();
    each_segment(|segment| {
        let Range { start, end } = segment.range;
        let mut from = start + segment.file_len;
        if from < segment.sealed.end && segment.sealed.start < end {
            from = segment.sealed.end;
        }
        let from = from.next_multiple_of(PAGE).next_multiple_of(block);
        let to = end / block * block;
        if segment.is_data && to > from && to - from >= LEAST {
            found.push(Arrays { start: from, len: to - from, object: name_of(segment.path) });
        }
    });
    RANGES.set(found).ok();
}

/// The last part of an object's path.
fn name_of(path: &CStr) -> String {
    let path = path.to_string_lossy();
    match path.rsplit('/').next() {
        // The loader gives the program itself no name.
        None | Some("") => "the program".to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// Their places, lengths and objects.
pub fn named_ranges() -> impl Iterator<Item = (usize, usize, &'static str)> {
    RANGES.get().into_iter().flatten().map(|arrays| (arrays.start, arrays.len, &*arrays.object))
}

/// Their places and lengths.
pub fn ranges() -> impl Iterator<Item = (usize, usize)> {
    named_ranges().map(|(start, len, _)| (start, len))
}

/// What a range has of them: from, to.
pub fn within(at: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = at.saturating_add(len);
    ranges().map(move |(start, len)| (start.max(at), (start + len).min(end))).filter(|(from, to)| from < to)
}

/// Whether a range has any of them.
pub fn meets(at: usize, len: usize) -> bool {
    within(at, len).next().is_some()
}

/// Their bytes.
pub fn bytes() -> usize {
    ranges().map(|(_, len)| len).sum()
}
