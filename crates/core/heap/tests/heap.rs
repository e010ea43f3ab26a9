//! The heap, compared with a naive model, and its promises to a pager.

use proptest::prelude::*;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_heap::{CHUNK, Heap, InUse, Memory, NotAnObject, Table};

/// Memory of the system in one range of addresses, which knows which parts are taken.
struct Range {
    start: usize,
    layout: Layout,
    records: (*mut u8, Layout),
    taken: Mutex<BTreeMap<usize, usize>>,
    takes: AtomicUsize,
    table: Table,
}

// SAFETY: the pointer is only freed at the end.
unsafe impl Sync for Range {}

impl Range {
    fn new(chunks: usize) -> Self {
        let layout = Layout::from_size_align(chunks * CHUNK, CHUNK).unwrap();
        let records = Layout::from_size_align(Table::bytes_for(layout.size()), 4096).unwrap();
        let table = Table::new();
        // SAFETY: neither length is zero; only the table uses the records, while it exists.
        unsafe {
            let start = std::alloc::alloc(layout);
            let memory = std::alloc::alloc_zeroed(records);
            table.open(start as usize, memory);
            let taken = Mutex::new(BTreeMap::new());
            Range {
                start: start as usize,
                layout,
                records: (memory, records),
                taken,
                takes: AtomicUsize::new(0),
                table,
            }
        }
    }

    fn taken(&self) -> usize {
        self.taken.lock().unwrap().values().sum()
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: allocated with these layouts.
        unsafe {
            std::alloc::dealloc(self.start as *mut u8, self.layout);
            std::alloc::dealloc(self.records.0, self.records.1);
        }
    }
}

// SAFETY: ranges do not overlap until they are given back.
unsafe impl Memory for &Range {
    fn take(&self, len: usize) -> Option<usize> {
        assert_eq!(len % CHUNK, 0);
        self.takes.fetch_add(1, Relaxed);
        let mut taken = self.taken.lock().unwrap();
        let mut at = self.start;
        for (&from, &len_taken) in taken.iter() {
            if from - at >= len {
                break;
            }
            at = from + len_taken;
        }
        (at + len <= self.start + self.layout.size()).then(|| {
            taken.insert(at, len);
            at
        })
    }

    fn give(&self, at: usize, len: usize) {
        assert_eq!(self.taken.lock().unwrap().remove(&at), Some(len));
        // Memory that is given back may be unmapped at once. SAFETY: it has no other user.
        unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) }.fill(0xDD);
    }

    fn table(&self) -> &Table {
        &self.table
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { size: usize, align: usize },
    Free { which: usize },
    Resize { which: usize, size: usize },
    FreeTwice { which: usize },
    FreeInside { which: usize, by: usize },
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0usize..130, 4 => 0usize..1100, 2 => 1000usize..9000, 1 => 9000usize..300_000]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (size(), prop_oneof![4 => Just(1usize), 1 => (0u32..13).prop_map(|shift| 1 << shift)])
            .prop_map(|(size, align)| Step::Allocate { size, align }),
        4 => any::<usize>().prop_map(|which| Step::Free { which }),
        2 => (any::<usize>(), size()).prop_map(|(which, size)| Step::Resize { which, size }),
        1 => any::<usize>().prop_map(|which| Step::FreeTwice { which }),
        1 => (any::<usize>(), 1usize..16).prop_map(|(which, by)| Step::FreeInside { which, by }),
    ]
}

/// An object as the model knows it.
struct Object {
    at: *mut u8,
    size: usize,
    fill: u8,
    heap: usize,
}

impl Object {
    fn write(&self) {
        // SAFETY: the heap returned that many bytes.
        unsafe { self.at.write_bytes(self.fill, self.size) };
    }

    fn check(&self, size: usize) {
        // SAFETY: the heap returned that many bytes, which have been written.
        let bytes = unsafe { std::slice::from_raw_parts(self.at, size.min(self.size)) };
        assert!(bytes.iter().all(|&byte| byte == self.fill), "an object of {} bytes changed", self.size);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_keep_their_bytes(steps in prop::collection::vec(step(), 1..400)) {
        let range = Range::new(64);
        let mut heaps = [Heap::new(&range, 0), Heap::new(&range, 1)];
        let mut objects: Vec<Object> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let fill = (number % 251) as u8;
            match step {
                Step::Allocate { size, align } => {
                    let heap = number % 2;
                    let at = heaps[heap].allocate(size, align);
                    prop_assert!(!at.is_null());
                    prop_assert_eq!(at as usize % align.max(16), 0);
                    prop_assert_eq!(range.table.heap_of(at as usize), Some(heap as u8));
                    // SAFETY: the object was allocated just now.
                    let usable = unsafe { range.table.usable(at) };
                    prop_assert!(usable >= size);
                    let object = Object { at, size, fill, heap };
                    object.write();
                    objects.push(object);
                }
                _ if objects.is_empty() => {}
                Step::Free { which } => {
                    let object = objects.swap_remove(which % objects.len());
                    object.check(object.size);
                    // SAFETY: it is an object.
                    prop_assert_eq!(unsafe { heaps[object.heap].free(object.at) }, Ok(()));
                }
                Step::Resize { which, size } => {
                    let which = which % objects.len();
                    let object = &mut objects[which];
                    // SAFETY: it is an object.
                    object.at = unsafe { heaps[object.heap].resize(object.at, size) }.unwrap();
                    prop_assert!(!object.at.is_null());
                    object.check(size);
                    (object.size, object.fill) = (size, fill);
                    object.write();
                }
                Step::FreeTwice { which } => {
                    let object = objects.swap_remove(which % objects.len());
                    // SAFETY: the first time it is an object; the second time it is a small one,
                    // for which no promise is needed.
                    unsafe {
                        let small = range.table.is_small(object.at as usize);
                        prop_assert!(!small || heaps[object.heap].is_object(object.at as usize));
                        prop_assert_eq!(heaps[object.heap].free(object.at), Ok(()));
                        if small {
                            prop_assert!(!heaps[object.heap].is_object(object.at as usize));
                            prop_assert_eq!(heaps[object.heap].free(object.at), Err(NotAnObject));
                        }
                    }
                }
                Step::FreeInside { which, by } => {
                    let object = &objects[which % objects.len()];
                    // SAFETY: small objects need no promise.
                    unsafe {
                        if range.table.is_small(object.at as usize) {
                            let inside = object.at.add(by);
                            prop_assert_eq!(heaps[object.heap].free(inside), Err(NotAnObject));
                        }
                    }
                }
            }
        }
        for object in &objects {
            object.check(object.size);
        }
        for (number, heap) in heaps.iter().enumerate() {
            let of_heap = objects.iter().filter(|object| object.heap == number);
            // SAFETY: they are objects.
            let bytes = of_heap.clone().map(|object| unsafe { range.table.usable(object.at) }).sum();
            prop_assert_eq!(heap.in_use(), InUse { objects: of_heap.count(), bytes });
        }
    }
}

#[test]
fn objects_of_one_size_lie_together() {
    let range = Range::new(64);
    let mut heap = Heap::new(&range, 0);
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for _ in 0..20_000 {
        keys.push(heap.allocate(24, 1) as usize);
        values.push(heap.allocate(200, 1) as usize);
    }
    let pages = |all: &[usize]| {
        let mut pages: Vec<_> = all.iter().map(|at| at / 4096).collect();
        pages.sort_unstable();
        pages.dedup();
        pages.len()
    };
    assert!(pages(&keys) <= 20_000 * 32 / 4096 + 2, "{} pages of keys", pages(&keys));
    assert!(pages(&values) <= 20_000 * 208 / 4000 + 2, "{} pages of values", pages(&values));
    // Many objects of one size follow one another within a chunk.
    let turns = values.windows(2).filter(|pair| pair[1].abs_diff(pair[0]) > 2 * 208 + 64).count();
    assert!(turns <= 16, "{turns} gaps");
}

#[test]
fn what_was_freed_last_is_given_first() {
    let range = Range::new(64);
    let mut heap = Heap::new(&range, 0);
    let all: Vec<_> = (0..50_000).map(|_| heap.allocate(64, 1)).collect();
    for &at in all.iter().step_by(997) {
        // SAFETY: it is an object, of 64 bytes. Nothing is written to the object: its page may have
        // left memory.
        unsafe {
            at.write_bytes(0xA5, 64);
            heap.free(at).unwrap();
            assert_eq!(heap.allocate(64, 1), at);
            assert_eq!(std::slice::from_raw_parts(at, 64), [0xA5; 64]);
        }
    }
}

#[test]
fn memory_without_an_object_goes_back() {
    let range = Range::new(64);
    let mut heap = Heap::new(&range, 0);
    let all: Vec<_> = (0..200_000).map(|_| heap.allocate(100, 1)).collect();
    let most = range.taken();
    assert!(most >= 200_000 * 112);
    for &at in &all {
        // SAFETY: it is an object.
        unsafe { heap.free(at) }.unwrap();
    }
    assert!(range.taken() <= 4 * CHUNK, "{} of {most} bytes kept", range.taken());
    // And is for any other size.
    let others: Vec<_> = (0..200_000).map(|_| heap.allocate(30, 1)).collect();
    assert!(others.iter().all(|at| !at.is_null()));
    assert!(range.taken() <= 200_000 * 32 + 4 * CHUNK);
}

#[test]
fn a_slab_that_one_size_left_is_for_another() {
    let range = Range::new(6);
    let mut heap = Heap::new(&range, 0);
    for size in (16..=1024).step_by(16).cycle().take(400) {
        let all: Vec<_> = (0..500_000 / size).map(|_| heap.allocate(size, 1)).collect();
        assert!(all.iter().all(|at| !at.is_null()), "{size} bytes");
        for at in all {
            // SAFETY: it is an object.
            unsafe { heap.free(at) }.unwrap();
        }
    }
}

#[test]
fn there_is_no_more() {
    let range = Range::new(3);
    let mut heap = Heap::new(&range, 0);
    let all: Vec<_> = std::iter::from_fn(|| Some(heap.allocate(512, 1)).filter(|at| !at.is_null())).collect();
    assert_eq!(all.len(), 2 * CHUNK / 512);
    // SAFETY: it is an object, and remains one if there is no room.
    unsafe {
        all[7].write_bytes(7, 512);
        assert!(heap.resize(all[7], 1024).unwrap().is_null());
        assert_eq!(*all[7].add(511), 7);
        heap.free(all[8]).unwrap();
    }
    assert_eq!(heap.allocate(500, 1), all[8]);
}

#[test]
fn an_address_that_was_never_given_is_refused() {
    let range = Range::new(8);
    let mut heap = Heap::new(&range, 0);
    let at = heap.allocate(1000, 1);
    // SAFETY: all addresses are in the slab of small objects, or in a slab without objects.
    unsafe {
        assert_eq!(heap.free(at.add(1024)), Err(NotAnObject));
        assert_eq!(heap.free(at.add(64 << 10)), Err(NotAnObject));
        assert_eq!(heap.resize(at.add(64 << 10), 10), Err(NotAnObject));
    }
    assert_eq!(range.table.heap_of(range.start + 7 * CHUNK), None);
}

#[test]
fn what_one_heap_gave_back_is_another_s() {
    let range = Range::new(16);
    let mut heaps = [Heap::new(&range, 0), Heap::new(&range, 1)];
    let fill = |heap: &mut Heap<&Range>| -> Vec<usize> {
        (0..100_000).map(|_| heap.allocate(48, 1) as usize).filter(|&at| at != 0).collect()
    };
    for turn in 0..6 {
        let one = turn % 2;
        let mine = fill(&mut heaps[one]);
        let theirs: Vec<_> = (0..3000).map(|_| heaps[1 - one].allocate(48, 1) as usize).collect();
        // Forwards and backwards, so that in each slab the remembered cells are once those freed
        // last.
        let order: Vec<_> = if turn < 3 { mine.clone() } else { mine.iter().rev().copied().collect() };
        for at in order {
            // SAFETY: it is an object.
            unsafe { heaps[one].free(at as *mut u8) }.unwrap();
        }
        let others = fill(&mut heaps[1 - one]);
        let again = fill(&mut heaps[one]);
        let mut all: Vec<_> = others.iter().chain(&again).chain(&theirs).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "an object was given twice");
        for (heap, objects) in
            [(1 - one, others.iter().chain(&theirs).collect()), (one, again.iter().collect::<Vec<_>>())]
        {
            for &at in objects {
                // SAFETY: it is an object.
                unsafe { heaps[heap].free(at as *mut u8) }.unwrap();
            }
        }
    }
}

#[test]
fn what_comes_and_goes_by_the_chunk_is_kept() {
    let range = Range::new(16);
    let mut heap = Heap::new(&range, 0);
    let mut all: Vec<_> = (0..4 * CHUNK / 1024).map(|_| heap.allocate(1024, 1)).collect();
    let takes = range.takes.load(Relaxed);
    for _ in 0..10 {
        for at in all.drain(2 * CHUNK / 1024..3 * CHUNK / 1024) {
            // SAFETY: it is an object.
            unsafe { heap.free(at) }.unwrap();
        }
        all.extend((0..CHUNK / 1024).map(|_| heap.allocate(1024, 1)));
        all.sort_unstable();
    }
    assert!(range.takes.load(Relaxed) <= takes + 1, "{} more", range.takes.load(Relaxed) - takes);
}
