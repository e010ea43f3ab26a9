//! Measures properties of a sequence of requests.

use crate::lru::{Found, ObjectLru};
use crate::volume::CacheSize;
use serde::Serialize;
use terapage_blocktrace::{Kind, Request};

/// Properties of a sequence of requests. Shares are 0..1, and 0 if there is nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Properties {
    /// The number of requests.
    pub requests: u64,
    /// The share of writes.
    pub write_share: f64,
    /// Mean bytes of all requests.
    pub mean_bytes: f64,
    /// Mean bytes of reads.
    pub read_bytes: f64,
    /// Mean bytes of writes.
    pub write_bytes: f64,
    /// Different first bytes.
    pub objects: u64,
    /// Bytes of the objects, each with the size of its last request.
    pub footprint_bytes: u64,
    /// The share of requests that begin where the one before ended.
    pub sequential_share: f64,
    /// Requests a second.
    pub rate: f64,
    /// The coefficient of variation of the times between requests.
    pub inter_arrival_cv: f64,
    /// For each cache: the hits among all requests, among reads, and among writes.
    pub hit_ratios: Vec<[f64; 3]>,
    /// The share of first touches: no cache can hit these.
    pub first_share: f64,
}

/// Measures `requests`. `caches` are empty at first, and their hits are counted after the first
/// `warm_up` requests; all other properties are of all requests. Trims count neither as reads nor
/// as writes.
pub fn measure(requests: impl Iterator<Item = Request>, caches: &[CacheSize], warm_up: u64) -> Properties {
    let mut lrus: Vec<ObjectLru> = caches.iter().map(|&size| ObjectLru::new(size)).collect();
    if lrus.is_empty() {
        lrus.push(ObjectLru::new(CacheSize::Objects(1)));
    }
    let mut hits = vec![[0u64; 2]; lrus.len()];
    let (mut counts, mut counted, mut bytes) = ([0u64; 2], [0u64; 2], [0u64; 2]);
    let (mut first, mut sequential, mut end, mut total) = (0u64, 0u64, None, 0u64);
    let mut times = Times::default();
    for request in requests {
        total += 1;
        times.add(request.time_ns);
        sequential += u64::from(end == Some(request.offset));
        end = Some(request.end());
        let kind = match request.kind {
            Kind::Read => 0,
            Kind::Write => 1,
            Kind::Trim => continue,
        };
        counts[kind] += 1;
        bytes[kind] += u64::from(request.bytes);
        counted[kind] += u64::from(total > warm_up);
        for (index, (lru, hits)) in lrus.iter_mut().zip(&mut hits).enumerate() {
            let found = lru.access(request.offset, request.bytes);
            hits[kind] += u64::from(found == Found::Hit && total > warm_up);
            first += u64::from(index == 0 && found == Found::First);
        }
    }
    let hit_ratios = hits.iter().take(caches.len()).map(|[reads, writes]| {
        [
            share(reads + writes, counted[0] + counted[1]),
            share(*reads, counted[0]),
            share(*writes, counted[1]),
        ]
    });
    Properties {
        requests: total,
        write_share: share(counts[1], total),
        mean_bytes: share(bytes[0] + bytes[1], counts[0] + counts[1]),
        read_bytes: share(bytes[0], counts[0]),
        write_bytes: share(bytes[1], counts[1]),
        objects: lrus[0].known_objects(),
        footprint_bytes: lrus[0].known_bytes(),
        sequential_share: share(sequential, total),
        rate: times.rate(),
        inter_arrival_cv: times.variation(),
        hit_ratios: hit_ratios.collect(),
        first_share: share(first, total),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Mean and variation of times between requests, by Welford's method.
#[derive(Default)]
struct Times {
    last_ns: Option<u64>,
    gaps: f64,
    mean_ns: f64,
    squares: f64,
}

impl Times {
    fn add(&mut self, time_ns: u64) {
        let Some(last_ns) = self.last_ns.replace(time_ns) else { return };
        let gap_ns = time_ns as f64 - last_ns as f64;
        self.gaps += 1.0;
        let difference = gap_ns - self.mean_ns;
        self.mean_ns += difference / self.gaps;
        self.squares += difference * (gap_ns - self.mean_ns);
    }

    fn rate(&self) -> f64 {
        if self.mean_ns > 0.0 { 1e9 / self.mean_ns } else { 0.0 }
    }

    fn variation(&self) -> f64 {
        if self.mean_ns > 0.0 { (self.squares / self.gaps).sqrt() / self.mean_ns } else { 0.0 }
    }
}
