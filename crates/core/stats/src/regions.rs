//! Counters by region, in the memory file behind the counters of the process.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most regions. The first is for memory without a name.
pub const REGIONS: usize = 32;

/// The offset of the regions' counters in the memory file, bytes.
pub const REGIONS_AT: usize = 4096;

/// Words of a name, which ends at its first zero byte.
const NAME_WORDS: usize = 8;

/// Words of one region's counters.
const WORDS: usize = size_of::<RegionCounters>() / 8;

/// Bytes of the memory file that the counters of one pager take.
pub const FILE_BYTES: usize = REGIONS_AT + size_of::<RegionTable>();

/// The counters of one region. They have one writer at a time and any number of readers.
#[repr(C)]
#[derive(Default)]
pub struct RegionCounters {
    name: [AtomicU64; NAME_WORDS],
    /// The first address.
    pub start: AtomicU64,
    /// Bytes that the program may use there; 0 if the region is not in use.
    pub size_bytes: AtomicU64,
    /// Bytes of blocks that have a frame.
    pub resident_bytes: AtomicU64,
    /// Bytes of blocks that only the store has.
    pub stored_bytes: AtomicU64,
    /// Touches of blocks that had to be read from the store.
    pub major_faults: AtomicU64,
    /// Touches of blocks that still had their frame.
    pub minor_faults: AtomicU64,
    /// Bytes read from the store.
    pub page_in_bytes: AtomicU64,
}

/// The counters of all regions, as they lie in the memory file.
pub type RegionTable = [RegionCounters; REGIONS];

/// One region's counters as they were at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Region {
    /// The name of the region.
    pub name: String,
    /// The first address.
    pub start: u64,
    /// Bytes that the program may use there.
    pub size_bytes: u64,
    /// Bytes of blocks that have a frame.
    pub resident_bytes: u64,
    /// Bytes of blocks that only the store has.
    pub stored_bytes: u64,
    /// Touches of blocks that had to be read from the store.
    pub major_faults: u64,
    /// Touches of blocks that still had their frame.
    pub minor_faults: u64,
    /// Bytes read from the store.
    pub page_in_bytes: u64,
}

impl RegionCounters {
    /// Sets the name, cut to the room that there is.
    pub fn set_name(&self, name: &str) {
        let mut bytes = [0; NAME_WORDS * 8];
        let mut end = name.len().min(bytes.len());
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        for (word, bytes) in self.name.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
    }

    /// The counts: all fields except name, place and size.
    fn counts(&self) -> [&AtomicU64; 5] {
        [
            &self.resident_bytes,
            &self.stored_bytes,
            &self.major_faults,
            &self.minor_faults,
            &self.page_in_bytes,
        ]
    }

    /// Adds all counts of `other` to these counters, and sets those of `other` to zero.
    pub fn absorb(&self, other: &RegionCounters) {
        for (to, from) in self.counts().into_iter().zip(other.counts()) {
            to.fetch_add(from.swap(0, Relaxed), Relaxed);
        }
        other.size_bytes.store(0, Relaxed);
        other.start.store(0, Relaxed);
    }

    /// Copies name, place, size and bytes from the same region of another process, but not its
    /// counts of events.
    pub fn inherit(&self, other: &RegionCounters) {
        let same = other.name.iter().zip(&self.name);
        let whole = [
            (&other.start, &self.start),
            (&other.size_bytes, &self.size_bytes),
            (&other.resident_bytes, &self.resident_bytes),
            (&other.stored_bytes, &self.stored_bytes),
        ];
        for (from, to) in same.chain(whole) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
}

impl Region {
    /// Reads the regions of a memory file that are in use or have counts, the largest first.
    pub fn from_bytes(file: &[u8]) -> Vec<Region> {
        let words = file.get(REGIONS_AT..FILE_BYTES).unwrap_or_default();
        let words: Vec<u64> = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let mut regions: Vec<Region> = words.chunks_exact(WORDS).map(Region::from_words).collect();
        regions.retain(|region| region.size_bytes + region.resident_bytes + region.major_faults > 0);
        regions.sort_by_key(|region| std::cmp::Reverse((region.size_bytes, region.resident_bytes)));
        regions
    }

    fn from_words(words: &[u64]) -> Region {
        let (name, rest) = words.split_at(NAME_WORDS);
        let name: Vec<u8> = name.iter().flat_map(|word| word.to_le_bytes()).take_while(|&b| b != 0).collect();
        let name = if name.is_empty() { "other".into() } else { String::from_utf8_lossy(&name) };
        Region {
            name: name.chars().filter(|c| !c.is_control()).collect(),
            start: rest[0],
            size_bytes: rest[1],
            resident_bytes: rest[2],
            stored_bytes: rest[3],
            major_faults: rest[4],
            minor_faults: rest[5],
            page_in_bytes: rest[6],
        }
    }

    /// The first `count` regions, and, if there are more, the sum of the rest as one more.
    pub fn largest(mut regions: Vec<Region>, count: usize) -> Vec<Region> {
        if regions.len() <= count + 1 {
            return regions;
        }
        let rest = regions.split_off(count);
        let sum = |what: fn(&Region) -> u64| rest.iter().map(what).sum();
        regions.push(Region {
            name: format!("{} others", rest.len()),
            start: 0,
            size_bytes: sum(|region| region.size_bytes),
            resident_bytes: sum(|region| region.resident_bytes),
            stored_bytes: sum(|region| region.stored_bytes),
            major_faults: sum(|region| region.major_faults),
            minor_faults: sum(|region| region.minor_faults),
            page_in_bytes: sum(|region| region.page_in_bytes),
        });
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(name: &str, size_bytes: u64) -> Region {
        Region { name: name.into(), size_bytes, major_faults: 1, ..Region::default() }
    }

    /// A memory file with these counters as its first regions.
    fn file(regions: &[&RegionCounters]) -> Vec<u8> {
        let mut file = vec![0; REGIONS_AT];
        for region in regions {
            let words = region.name.iter().chain([&region.start, &region.size_bytes]).chain(region.counts());
            file.extend(words.flat_map(|word| word.load(Relaxed).to_le_bytes()));
        }
        file.resize(FILE_BYTES, 0);
        file
    }

    #[test]
    fn regions_are_read_as_they_were_written_the_largest_first() {
        let (small, large) = (RegionCounters::default(), RegionCounters::default());
        small.set_name("heap");
        small.size_bytes.store(5, Relaxed);
        small.minor_faults.store(7, Relaxed);
        large.set_name(&"é".repeat(60));
        large.size_bytes.store(6, Relaxed);
        large.page_in_bytes.store(9, Relaxed);
        let regions = Region::from_bytes(&file(&[&small, &large]));
        assert_eq!(regions.len(), 2);
        assert_eq!((&*regions[0].name, regions[0].page_in_bytes), (&*"é".repeat(32), 9));
        assert_eq!((&*regions[1].name, regions[1].minor_faults, regions[1].size_bytes), ("heap", 7, 5));
        assert_eq!(Region::from_bytes(&[0; REGIONS_AT]), [], "a file of a process without them");
    }

    #[test]
    fn what_ends_is_counted_where_it_was_part_of() {
        let (whole, part) = (RegionCounters::default(), RegionCounters::default());
        part.major_faults.store(3, Relaxed);
        part.size_bytes.store(4096, Relaxed);
        whole.major_faults.store(2, Relaxed);
        whole.absorb(&part);
        assert_eq!(whole.major_faults.load(Relaxed), 5);
        let regions = Region::from_bytes(&file(&[&whole, &part]));
        assert_eq!((regions.len(), &*regions[0].name), (1, "other"));
    }

    #[test]
    fn the_rest_is_summed() {
        let all: Vec<_> = (0..5).map(|i| region(&i.to_string(), 50 - i)).collect();
        let few = Region::largest(all.clone(), 2);
        assert_eq!(few[..2], all[..2]);
        assert_eq!(few[2], Region { major_faults: 3, ..region("3 others", 48 + 47 + 46) });
        assert_eq!(Region::largest(all[..3].to_vec(), 2).len(), 3, "one region is shown rather than summed");
    }
}
