//! Large static arrays (bss) of the program and its libraries.

use crate::objects::each_segment;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_sys::PAGE;

/// Static memory smaller than this is left alone.
const LEAST: usize = 1 << 20;

/// One object's: where they begin, their bytes, and the object's name.
struct Arrays {
    start: usize,
    len: usize,
    object: String,
    /// They are the kernel's now.
    left: AtomicBool,
}

static RANGES: OnceLock<Vec<Arrays>> = OnceLock::new();

/// Finds them: the anonymous part of each writable segment, in whole blocks.
pub fn find(block: usize) {
    let mut found = Vec::new();
    each_segment(|segment| {
        let Range { start, end } = segment.range;
        let from = (start + segment.file_len).next_multiple_of(PAGE).next_multiple_of(block);
        let to = end / block * block;
        if segment.writable && to > from && to - from >= LEAST {
            found.push(Arrays {
                start: from,
                len: to - from,
                object: name_of(segment.path),
                left: AtomicBool::new(false),
            });
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
    let all = RANGES.get().into_iter().flatten().filter(|arrays| !arrays.left.load(Relaxed));
    all.map(|arrays| (arrays.start, arrays.len, &*arrays.object))
}

/// The range that begins there is not paged any more.
pub fn leave(start: usize) {
    let all = RANGES.get().into_iter().flatten();
    all.filter(|arrays| arrays.start == start).for_each(|arrays| arrays.left.store(true, Relaxed));
}

/// Their places and lengths.
pub fn ranges() -> impl Iterator<Item = (usize, usize)> {
    named_ranges().map(|(start, len, _)| (start, len))
}

/// The one that a range meets: where it begins, and where it ends.
pub fn met_by(at: usize, len: usize) -> Option<(usize, usize)> {
    let end = at.checked_add(len)?;
    ranges().map(|(start, len)| (start, start + len)).find(|&(from, to)| at < to && end > from)
}

/// Their bytes.
pub fn bytes() -> usize {
    ranges().map(|(_, len)| len).sum()
}
