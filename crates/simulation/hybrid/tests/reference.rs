//! Hits on real traces, request by request, against the simplest possible cache.
//!
//! The traces are in the folder named by `TERAPAGE_TRACES`, or else in `../shared/traces` beside
//! the repository.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use terapage_blocktrace::{Kind, Options, Request, open};
use terapage_hybrid::{Cache, CacheOptions, FixedLatency, HitSimulator};
use terapage_ssd::{Command, Device, Operation};

const TRACES: [&str; 6] = [
    "tpcc-small.trace",
    "wsrch-small.trace",
    "disksim-postmark.trace",
    "msr-hm_0-head.csv",
    "ssdsim-example.ascii",
    "arc-P3.lis.zst",
];

/// The first requests of a trace, at most `most`; `None`, with a message, if there is no such
/// trace.
fn requests(name: &str, most: usize) -> Option<Vec<Request>> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/traces");
    let folder = std::env::var_os("TERAPAGE_TRACES").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let path = folder.join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    let reader = open(&path, &Options::default()).expect("the trace opens");
    Some(reader.take(most).map(|request| request.expect("the trace is good")).collect())
}

/// Lines in order of use: the line to its stamp, and the stamp to its line.
#[derive(Default)]
struct Naive {
    stamps: HashMap<u64, u64>,
    lines: BTreeMap<u64, u64>,
    valid: HashMap<u64, Vec<bool>>,
    clock: u64,
}

impl Naive {
    fn touch(&mut self, line: u64) {
        self.clock += 1;
        if let Some(old) = self.stamps.insert(line, self.clock) {
            self.lines.remove(&old);
        }
        self.lines.insert(self.clock, line);
    }

    /// Touches `line`, and returns whether it was in the cache. If it was not and the cache is
    /// full, the oldest line leaves first.
    fn access(&mut self, line: u64, capacity: usize) -> bool {
        let hit = self.stamps.contains_key(&line);
        if !hit && self.stamps.len() == capacity {
            let (_, oldest) = self.lines.pop_first().expect("it is full");
            self.stamps.remove(&oldest);
            self.valid.remove(&oldest);
        }
        self.touch(line);
        hit
    }
}

#[test]
fn lru_without_time_hits_where_a_naive_one_does() {
    for name in TRACES {
        let Some(requests) = requests(name, 200_000) else { continue };
        for (capacity, line) in [(16, 4096), (1_000, 4096), (20_000, 512)] {
            let mut naive = Naive::default();
            let mut simulator = HitSimulator::new("lru", capacity, line).expect("good");
            let mut hits = 0;
            for (number, request) in requests.iter().enumerate() {
                let lines = request.offset / u64::from(line)..request.end().div_ceil(u64::from(line));
                let mut hit = true;
                for line in lines {
                    hit &= naive.access(line, capacity);
                }
                hits += u64::from(hit);
                let found = simulator.request(request).expect("near");
                assert_eq!(found, hit, "{name}, request {number}, {capacity} lines of {line}");
            }
            assert_eq!(simulator.counts().request_hits, hits);
        }
    }
}

/// The whole cache, with sectors, water marks and time, has the same hits as a naive cache with
/// sectors.
#[test]
fn nv_wb_hits_where_a_naive_one_does() {
    for name in TRACES {
        let Some(requests) = requests(name, 100_000) else { continue };
        for lines in [50_usize, 5_000] {
            let options = CacheOptions { bytes: lines as u64 * 4096, ..CacheOptions::default() };
            let resident = lines - lines / 5;
            let sectors = requests.iter().map(Request::end).max().unwrap_or(1).div_ceil(512);
            let mut cache = Cache::new(FixedLatency::new(sectors, 75_000, 8), &options).expect("good");
            let (mut naive, mut done, mut now) = (Naive::default(), Vec::new(), 0);
            for (number, request) in requests.iter().enumerate() {
                let before = cache.counters();
                now = send(&mut cache, now, request, &mut done);
                let after = cache.counters();
                let found = after.read_hits + after.write_hits > before.read_hits + before.write_hits;
                let hit = naive_sectors(&mut naive, request, resident);
                assert_eq!(found, hit, "{name}, request {number}: {request:?}, {lines} lines");
            }
        }
    }
}

/// Sends a request. The cache gets time to work only after some requests.
fn send(
    cache: &mut Cache<FixedLatency>,
    now: u64,
    request: &Request,
    done: &mut Vec<terapage_ssd::Done>,
) -> u64 {
    let now = now + request.offset % 1000;
    while cache.next_time().is_some_and(|time| time <= now) {
        cache.step(done);
    }
    let operation = if request.kind == Kind::Read { Operation::Read } else { Operation::Write };
    let sector = request.offset / 512;
    let sectors = (request.end().div_ceil(512) - sector) as u32;
    cache.submit(now, Command { tag: 0, operation, sector, sectors }, done);
    done.clear();
    now
}

/// Whether all lines of a write, or all sectors of a read, are in the cache.
fn naive_sectors(naive: &mut Naive, request: &Request, capacity: usize) -> bool {
    let (first, end) = (request.offset / 512, request.end().div_ceil(512));
    let mut all = true;
    for line in first / 8..end.div_ceil(8) {
        let wanted = first.max(line * 8)..end.min(line * 8 + 8);
        let known = naive.access(line, capacity);
        let valid = naive.valid.entry(line).or_insert_with(|| vec![false; 8]);
        let there = wanted.clone().all(|sector| valid[sector as usize % 8]);
        all &= if request.kind == Kind::Read { there } else { known };
        // The sectors that a read misses are fetched as one run, from the first to the last of
        // them.
        let missing: Vec<u64> = wanted.clone().filter(|&sector| !valid[sector as usize % 8]).collect();
        let filled = match (request.kind, missing.first(), missing.last()) {
            (Kind::Read, Some(&from), Some(&to)) => from..to + 1,
            (Kind::Read, _, _) => 0..0,
            _ => wanted,
        };
        for sector in filled {
            valid[sector as usize % 8] = true;
        }
    }
    all
}
