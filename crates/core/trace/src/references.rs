//! The reference string of a trace.

use crate::{Error, Event, Record};
use std::collections::HashMap;

/// The blocks in the order of their references, as far as the pager saw them: first touches, major
/// and minor faults, and touches of prefetch markers. Blocks that were put into the program without
/// a touch count at that moment.
///
/// A block keeps its number, with one exception: a block that was discarded, or was all zero, gets
/// a new number, above all others, at its next first touch, which costs no page-in. So the minimum
/// number of page-ins for these references (Belady) never exceeds the pager's.
///
/// # Errors
/// The first error of the records, or too many blocks.
pub fn references(records: impl IntoIterator<Item = Result<Record, Error>>) -> Result<Vec<u32>, Error> {
    // New numbers are counted from 0 until the highest old number is known.
    let mut references = Vec::new();
    let mut names: HashMap<u32, Name> = HashMap::new();
    let mut end = 0u64;
    let mut again = 0u64;
    for record in records {
        let event = record?.event;
        let block = event.block();
        let begins = match event {
            Event::FirstTouch { .. } | Event::FreshAhead { .. } | Event::Present { .. } => true,
            Event::MajorFault { .. }
            | Event::MinorFault { .. }
            | Event::PrefetchMarker { .. }
            | Event::Prefetched { .. }
            | Event::PutBack { .. } => false,
            Event::PageOut { .. } | Event::Discard { .. } | Event::RegionAdd { .. } => continue,
        };
        end = end.max(u64::from(block) + 1);
        let name = match names.get(&block) {
            None => Name::Own(block),
            Some(_) if begins => {
                again += 1;
                Name::Again(again - 1)
            }
            Some(&name) => name,
        };
        names.insert(block, name);
        references.push(name);
    }
    if end + again > 1 << 32 {
        return Err(Error::Blocks);
    }
    Ok(references
        .into_iter()
        .map(|name| match name {
            Name::Own(block) => block,
            Name::Again(index) => (end + index) as u32,
        })
        .collect())
}

/// The number under which a block is listed.
#[derive(Clone, Copy)]
enum Name {
    /// Its own number.
    Own(u32),
    /// A new number, counted from 0.
    Again(u64),
}
