//! Real traces: compares each policy with libCacheSim.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use terapage_blocktrace::{Options, open};
use terapage_eviction::{Log, by_name, least};
use terapage_policy::objects::{Request, simulate};

/// The traces, as blocks of 4 KiB, or with each request an object of the size in its first request.
fn requests(path: &Path, blocks: bool) -> Vec<Request> {
    let mut numbers: HashMap<(u16, u64), (u32, u32)> = HashMap::new();
    let mut list = Vec::new();
    let mut ask = |key: (u16, u64), size: u32| {
        let next = numbers.len() as u32;
        let &mut (number, size) = numbers.entry(key).or_insert((next, size));
        list.push(Request::Get(number, size));
    };
    for request in open(path, &Options::default()).unwrap() {
        let request = request.unwrap();
        if blocks {
            let range = request.offset / 4096..request.end().div_ceil(4096);
            range.for_each(|at| ask((request.volume, at), 1));
        } else {
            ask((request.volume, request.offset), request.bytes);
        }
    }
    list
}

/// The folder of the traces, beside this checkout.
fn traces() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/traces");
    if !folder.is_dir() {
        println!("SKIPPED: no real traces in {}", folder.display());
        return None;
    }
    Some(folder)
}

/// Misses of libCacheSim at commit aa0fc40914b2b786f4b9f4dafb099f8f332b216a (`cachesim FILE
/// oracleGeneral POLICY SIZE`, for blocks with `--ignore-obj-size=true`). Policies whose rules
/// differ there are left out; `docs/sim-cache.md` has their figures.
struct Reference {
    trace: &'static str,
    blocks: bool,
    size: usize,
    misses: &'static [(&'static str, u64)],
}

const REFERENCES: [Reference; 3] = [
    Reference {
        trace: "arc-P3.lis.zst",
        blocks: true,
        size: 40_000,
        misses: &[
            ("lru", 162_281),
            ("fifo", 199_532),
            ("clock", 160_783),
            ("arc", 155_527),
            ("2q", 181_535),
            ("s3fifo", 166_428),
            ("sieve", 184_755),
            ("slru", 159_929),
            ("lfu", 190_438),
            ("gdsf", 161_440),
            ("lirs", 166_857),
            ("belady", 107_317),
        ],
    },
    Reference {
        trace: "disksim-postmark.trace",
        blocks: true,
        size: 50_000,
        misses: &[
            ("lru", 2_885_528),
            ("fifo", 2_885_545),
            ("clock", 2_884_249),
            ("arc", 2_870_940),
            ("2q", 2_884_260),
            ("s3fifo", 2_882_666),
            ("sieve", 3_202_670),
            ("slru", 2_861_181),
            ("lfu", 3_369_046),
            ("gdsf", 2_885_508),
            ("lirs", 3_223_249),
            ("belady", 2_612_729),
        ],
    },
    Reference {
        trace: "tpcc-small.trace",
        blocks: true,
        size: 500,
        misses: &[
            ("lru", 20_554),
            ("fifo", 20_554),
            ("clock", 20_552),
            ("arc", 20_542),
            ("2q", 20_553),
            ("s3fifo", 20_550),
            ("sieve", 20_542),
            ("slru", 20_581),
            ("lfu", 20_542),
            ("gdsf", 20_552),
            ("lirs", 20_612),
            ("belady", 20_470),
        ],
    },
];

/// Objects with sizes: policies whose rules for sizes are the same.
const SIZED: Reference = Reference {
    trace: "disksim-postmark.trace",
    blocks: false,
    size: 104_857_600,
    misses: &[
        ("lru", 60_438),
        ("fifo", 60_439),
        ("clock", 60_441),
        ("2q", 60_343),
        ("s3fifo", 60_321),
        ("sieve", 60_422),
        ("lfu", 60_584),
        ("gdsf", 59_124),
    ],
};

#[test]
fn real_traces_have_the_misses_of_libcachesim() {
    let Some(folder) = traces() else { return };
    for reference in REFERENCES.iter().chain([&SIZED]) {
        let requests = requests(&folder.join(reference.trace), reference.blocks);
        for &(name, expected) in reference.misses {
            let misses = match name {
                "belady" => {
                    let mut log = Log::default();
                    requests.iter().for_each(|request| log.push(*request).unwrap());
                    least(&log, &log.next_uses().unwrap(), reference.size).unwrap().0
                }
                _ => {
                    let mut policy = by_name(name, reference.size).unwrap();
                    simulate(policy.as_mut(), requests.iter().copied(), reference.size).misses
                }
            };
            // libCacheSim's LIRS shrinks the set of low distance at a hit in the queue alone.
            let most = if name == "lirs" { requests.len() as u64 / 10_000 } else { 0 };
            assert!(
                misses.abs_diff(expected) <= most,
                "{} {name}: {misses}, not {expected}",
                reference.trace
            );
        }
    }
}

/// Policies that draw at random, or whose rules differ from libCacheSim's: their misses are close
/// to its misses, or fewer.
#[test]
fn other_policies_are_near_those_of_libcachesim() {
    let Some(folder) = traces() else { return };
    let requests = requests(&folder.join("arc-P3.lis.zst"), true);
    for (name, theirs) in
        [("hyperbolic", 159_445), ("lhd", 162_549), ("lfuda", 168_359), ("wtinylfu", 182_607)]
    {
        let mut policy = by_name(name, 40_000).unwrap();
        let misses = simulate(policy.as_mut(), requests.iter().copied(), 40_000).misses;
        assert!(misses <= theirs * 103 / 100, "{name}: {misses}, and {theirs} there");
    }
}

/// Objects by rank, those that came to a rank first in front; and where each object is.
#[derive(Default)]
struct Ranks {
    ranks: BTreeMap<u64, BTreeMap<u64, u32>>,
    places: HashMap<u32, (u64, u64)>,
    now: u64,
}

impl Ranks {
    fn put(&mut self, object: u32, rank: u64) {
        self.now += 1;
        self.ranks.entry(rank).or_default().insert(self.now, object);
        self.places.insert(object, (rank, self.now));
    }

    /// Takes an object out; returns whether it was the last of its rank.
    fn take(&mut self, object: u32) -> bool {
        let (rank, since) = self.places.remove(&object).expect("it is there");
        let peers = self.ranks.get_mut(&rank).expect("its rank");
        peers.remove(&since);
        let is_empty = peers.is_empty();
        if is_empty {
            self.ranks.remove(&rank);
        }
        is_empty
    }

    fn first(&self) -> (u64, u32) {
        let (rank, objects) = self.ranks.first_key_value().expect("an object");
        (*rank, *objects.first_key_value().expect("an object").1)
    }
}

/// The misses of LFU with dynamic ageing. The paper (Arlitt and others, 2000) ranks an object by
/// its requests and the rank of the last victim at its last request. With `theirs` it is done as in
/// libCacheSim, where a hit adds the least rank that there is instead of one, so that a few hits
/// keep an object for very long, and hits before the first victim count for nothing.
fn misses_of_lfuda(requests: &[Request], capacity: usize, theirs: bool) -> u64 {
    let mut all = Ranks::default();
    let mut uses: HashMap<u32, u64> = HashMap::new();
    let (mut least, mut misses) = (0, 0);
    for request in requests {
        let Request::Get(object, _) = *request else { continue };
        if let Some((rank, _)) = all.places.get(&object).copied() {
            let used = uses.entry(object).or_default();
            *used += 1;
            let new = if theirs { rank + least } else { least + *used };
            if all.take(object) && theirs && rank == least {
                least = all.ranks.keys().next().copied().unwrap_or(least);
            }
            all.put(object, new);
            continue;
        }
        misses += 1;
        if all.places.len() == capacity {
            let (rank, leaves) = all.first();
            least = rank;
            if all.take(leaves) && theirs {
                least = all.ranks.keys().next().copied().unwrap_or(least);
            }
        }
        uses.insert(object, 1);
        all.put(object, least + 1);
    }
    misses
}

/// LFU with dynamic ageing is the paper's here: the same traces have libCacheSim's misses with
/// libCacheSim's rule, and this crate's with the paper's.
#[test]
fn lfuda_is_that_of_its_paper() {
    let Some(folder) = traces() else { return };
    let requests = requests(&folder.join("arc-P3.lis.zst"), true);
    assert_eq!(misses_of_lfuda(&requests, 40_000, true), 168_359);
    let mut policy = by_name("lfuda", 40_000).unwrap();
    let misses = simulate(policy.as_mut(), requests.iter().copied(), 40_000).misses;
    assert_eq!(misses_of_lfuda(&requests, 40_000, false), misses);
}

/// Blocks in the order of their last requests, the next to leave first.
#[derive(Default)]
struct Order {
    times: BTreeMap<u64, u32>,
    places: HashMap<u32, u64>,
    now: u64,
}

impl Order {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn push(&mut self, block: u32) {
        self.take(block);
        self.now += 1;
        self.times.insert(self.now, block);
        self.places.insert(block, self.now);
    }

    fn take(&mut self, block: u32) -> bool {
        let found = self.places.remove(&block);
        found.is_some_and(|at| self.times.remove(&at).is_some())
    }

    fn first(&self) -> Option<u32> {
        self.times.first_key_value().map(|(_, block)| *block)
    }
}

/// libCacheSim's sketch: each count stands in ten places, which blocks share; 14.4 places for each
/// block of the cache. Each place is increased, not only the least. Which blocks share places
/// depends on the hash and on the numbers of the blocks, here counted from 1.
struct Sketch {
    counts: Vec<u32>,
    seeds: [u64; 2],
}

impl Sketch {
    fn places(&self, block: u32) -> impl Iterator<Item = usize> + use<> {
        let [first, step] = self.seeds.map(|seed| xxh64(u64::from(block) + 1, seed) as u32);
        let all = self.counts.len();
        (0..10_u32).map(move |at| first.wrapping_add(at.wrapping_mul(step)) as usize % all)
    }

    fn count(&mut self, block: u32) {
        self.places(block).for_each(|at| self.counts[at] += 1);
    }

    fn of(&self, block: u32) -> u32 {
        self.places(block).map(|at| self.counts[at]).min().unwrap_or_default()
    }
}

/// XXH64 of a number of eight bytes.
fn xxh64(number: u64, seed: u64) -> u64 {
    const PRIMES: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    let word = number.wrapping_mul(PRIMES[1]).rotate_left(31).wrapping_mul(PRIMES[0]);
    let hash = seed.wrapping_add(PRIMES[4]).wrapping_add(8) ^ word;
    let hash = hash.rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(PRIMES[1]);
    let hash = (hash ^ (hash >> 29)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 32)
}

/// libCacheSim's W-TinyLFU. It counts requests that hit the main cache, requests that bring a block
/// in, and each block that it compares for the main cache; counts are halved after 32 hits for each
/// block. While the window's blocks win, it goes on to compare the next one; if all have won, the
/// main cache's first block leaves, too.
struct Theirs {
    /// The window, then the lower and the upper segment.
    lists: [Order; 3],
    counts: Sketch,
    hits: usize,
}

impl Theirs {
    fn misses(requests: &[Request], capacity: usize, seeds: [u64; 2]) -> u64 {
        let lists = [Order::default(), Order::default(), Order::default()];
        let main = capacity - capacity / 100;
        let places = main as f64 * 0.001_f64.ln() / -(2_f64.ln().powi(2));
        let counts = Sketch { counts: vec![0; places.ceil() as usize], seeds };
        let mut cache = Theirs { lists, counts, hits: 0 };
        let mut misses = 0;
        for request in requests {
            let Request::Get(block, _) = *request else { continue };
            if cache.lists[0].places.contains_key(&block) {
                cache.lists[0].push(block);
            } else if cache.lists[1].take(block) || cache.lists[2].take(block) {
                cache.hit(block, main);
            } else {
                misses += 1;
                while cache.lists.iter().map(Order::len).sum::<usize>() >= capacity {
                    cache.evict(main);
                }
                cache.counts.count(block);
                cache.lists[0].push(block);
            }
        }
        misses
    }

    fn hit(&mut self, block: u32, main: usize) {
        self.lists[2].push(block);
        while self.lists[2].len() > main / 5 * 4 {
            let first = self.lists[2].first().expect("it is not empty");
            self.lists[2].take(first);
            self.lists[1].push(first);
        }
        self.counts.count(block);
        self.hits += 1;
        if self.hits == 32 * main {
            self.hits = 0;
            self.counts.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    fn evict(&mut self, main: usize) {
        while let Some(candidate) = self.lists[0].first() {
            self.lists[0].take(candidate);
            let is_full = self.lists[1].len() + self.lists[2].len() == main;
            let loser = self.lists[1].first().or(self.lists[2].first()).filter(|_| is_full);
            let wins = loser.is_none_or(|loser| self.counts.of(candidate) > self.counts.of(loser));
            self.counts.count(candidate);
            if !wins {
                return;
            }
            if let Some(loser) = loser {
                let _ = self.lists[1].take(loser) || self.lists[2].take(loser);
            }
            let lower = self.lists[1].len() < main / 5;
            self.lists[if lower || self.lists[2].len() >= main / 5 * 4 { 1 } else { 2 }].push(candidate);
        }
        if let Some(first) = self.lists[1].first().or(self.lists[2].first()) {
            let _ = self.lists[1].take(first) || self.lists[2].take(first);
        }
    }
}

/// W-TinyLFU counts every request, as its paper says, and libCacheSim does not: by libCacheSim's
/// rule, the same trace has libCacheSim's misses. With other seeds of its hash that rule has other
/// misses, since other blocks share their counts.
#[test]
fn wtinylfu_counts_every_request() {
    let Some(folder) = traces() else { return };
    let requests = requests(&folder.join("arc-P3.lis.zst"), true);
    let theirs = Theirs::misses(&requests, 40_000, [0x1234_5678, 0x1234_4321]);
    assert_eq!(theirs, 182_607);
    let mut policy = by_name("wtinylfu", 40_000).unwrap();
    let misses = simulate(policy.as_mut(), requests.iter().copied(), 40_000).misses;
    for seeds in [[1, 2], [3, 4]] {
        let others = Theirs::misses(&requests, 40_000, seeds);
        assert!(others.abs_diff(theirs) < theirs / 10 && others != theirs, "{seeds:?}: {others}");
        assert!(misses < others.min(theirs), "{misses}, and {others} with {seeds:?}");
    }
}
