//! An LRU cache of whole objects that counts its hits.

use crate::volume::CacheSize;
use hashbrown::HashTable;

const NONE: u32 = u32::MAX;

/// Counts the hits of an LRU cache of objects: an object begins at one byte and has the size of its
/// last request. Evicted objects are remembered, to distinguish first touches from other misses:
/// about 40 bytes for each object.
#[derive(Debug)]
pub struct ObjectLru {
    size: CacheSize,
    table: HashTable<u32>,
    objects: Vec<Object>,
    /// The most recently used object, and the least recently used one.
    newest: u32,
    oldest: u32,
    held_bytes: u64,
    held_objects: u64,
}

#[derive(Clone, Copy, Debug)]
struct Object {
    offset: u64,
    bytes: u32,
    newer: u32,
    older: u32,
    held: bool,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The object was in the cache.
    Hit,
    /// The object was evicted.
    Miss,
    /// The object was never requested before.
    First,
}

impl ObjectLru {
    /// An empty cache.
    pub fn new(size: CacheSize) -> Self {
        let (table, objects) = (HashTable::new(), Vec::new());
        ObjectLru { size, table, objects, newest: NONE, oldest: NONE, held_bytes: 0, held_objects: 0 }
    }

    /// Requests the object at `offset`. An object that is larger than the cache is not kept.
    pub fn access(&mut self, offset: u64, bytes: u32) -> Found {
        let (entry, first) = self.entry(offset, bytes);
        let found = match (first, self.objects[entry as usize].held) {
            (true, _) => Found::First,
            (false, true) => Found::Hit,
            (false, false) => Found::Miss,
        };
        if found == Found::Hit {
            self.unlink(entry);
        }
        self.objects[entry as usize].bytes = bytes;
        self.link(entry);
        self.evict();
        found
    }

    /// The objects that were ever requested.
    pub fn known_objects(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Bytes of all objects that were ever requested, each with the size of its last request.
    pub fn known_bytes(&self) -> u64 {
        self.objects.iter().map(|object| u64::from(object.bytes)).sum()
    }

    fn entry(&mut self, offset: u64, bytes: u32) -> (u32, bool) {
        let objects = &self.objects;
        let found = self.table.find(hash(offset), |&entry| objects[entry as usize].offset == offset);
        if let Some(&entry) = found {
            return (entry, false);
        }
        let entry = u32::try_from(objects.len()).expect("fewer than 2^32 objects");
        self.objects.push(Object { offset, bytes, newer: NONE, older: NONE, held: false });
        let objects = &self.objects;
        self.table.insert_unique(hash(offset), entry, |&entry| hash(objects[entry as usize].offset));
        (entry, true)
    }

    fn evict(&mut self) {
        while match self.size {
            CacheSize::Bytes(bytes) => self.held_bytes > bytes,
            CacheSize::Objects(objects) => self.held_objects > objects,
        } {
            self.unlink(self.oldest);
        }
    }

    fn link(&mut self, entry: u32) {
        let older = std::mem::replace(&mut self.newest, entry);
        let object = &mut self.objects[entry as usize];
        (object.newer, object.older, object.held) = (NONE, older, true);
        self.held_bytes += u64::from(object.bytes);
        self.held_objects += 1;
        match self.objects.get_mut(older as usize) {
            Some(older) => older.newer = entry,
            None => self.oldest = entry,
        }
    }

    fn unlink(&mut self, entry: u32) {
        let object = &mut self.objects[entry as usize];
        object.held = false;
        self.held_bytes -= u64::from(object.bytes);
        self.held_objects -= 1;
        let (newer, older) = (object.newer, object.older);
        match self.objects.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.objects.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }
}

fn hash(offset: u64) -> u64 {
    // Offsets are multiples of 512: the high half of the product mixes all their bits.
    let product = u128::from(offset) * 0x9e37_79b9_7f4a_7c15_u128;
    (product as u64)
        ^ ((product >> 64) as u64).rotate_left(32)
        ^ (offset >> 9).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A naive LRU: a list that is searched.
    fn naive(size: CacheSize, accesses: &[(u64, u32)]) -> Vec<Found> {
        let (mut list, mut known): (Vec<(u64, u32)>, Vec<u64>) = (Vec::new(), Vec::new());
        let one = |&(offset, bytes): &(u64, u32)| {
            let place = list.iter().position(|held| held.0 == offset);
            let found = if place.is_some() {
                Found::Hit
            } else if known.contains(&offset) {
                Found::Miss
            } else {
                Found::First
            };
            place.map(|place| list.remove(place));
            known.push(offset);
            list.insert(0, (offset, bytes));
            while match size {
                CacheSize::Bytes(limit) => list.iter().map(|held| u64::from(held.1)).sum::<u64>() > limit,
                CacheSize::Objects(limit) => list.len() as u64 > limit,
            } {
                list.pop();
            }
            found
        };
        accesses.iter().map(one).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_list_by_last_use(
            accesses in prop::collection::vec((0..30u64, 1..9u32), 0..300), limit in 0..40u64, by_bytes: bool,
        ) {
            let size = if by_bytes { CacheSize::Bytes(limit) } else { CacheSize::Objects(limit / 2) };
            let mut lru = ObjectLru::new(size);
            let found: Vec<Found> = accesses.iter().map(|&(offset, bytes)| lru.access(offset * 512, bytes)).collect();
            let accesses: Vec<_> = accesses.iter().map(|&(offset, bytes)| (offset * 512, bytes)).collect();
            prop_assert_eq!(found, naive(size, &accesses));
        }
    }
}
