//! The layout of a stream: the places of its objects, and which objects are popular.

use crate::alias::Alias;
use crate::random::{Random, threshold};
use crate::sizes::Sizes;
use crate::volume::Stream;
use std::sync::Arc;

/// The most objects of a run.
const RUN_OBJECTS_MAX: f64 = 64.0;
/// Runs begin at multiples of this, and one such block between two runs is unused, so that no run
/// begins where another ends.
const BLOCK_SECTORS: u64 = 8;
/// The number of popular runs that are weighed for the mean size: the others are many, and average
/// out.
const WEIGHED_RUNS: usize = 2048;
/// Low-discrepancy steps for sizes and for lengths of runs: from the golden ratio and from the
/// square root of 2.
const STEPS: [f64; 2] = [0.618_033_988_749_895, 0.414_213_562_373_095_1];

/// A run: objects that are requested one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first sector of the first object.
    pub(crate) sector: u32,
    /// Sectors of each object.
    pub(crate) sectors: u16,
    /// The number of objects.
    pub(crate) objects: u16,
}

/// The objects of a stream. Copies share them, and each copy has its own scan.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    runs: Arc<[Run]>,
    /// Popular runs, the most popular one first.
    popular: Arc<[u32]>,
    alias: Arc<Alias>,
    /// The probability that a run is taken by the scan, as 32 random bits.
    scan: u64,
    /// The run at which the scan is.
    cursor: usize,
}

/// The mean of one draw of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Expected {
    /// Requests.
    pub(crate) requests: f64,
    /// Bytes of all requests.
    pub(crate) bytes: f64,
}

impl Layout {
    /// Lays out `objects` objects from `sector` on, and returns the first sector behind them.
    pub(crate) fn new(
        stream: &Stream,
        sizes: &Sizes,
        objects: u64,
        sector: u64,
        random: &mut Random,
    ) -> (Self, u64) {
        let lengths = lengths(objects, stream.run_objects.value);
        let popular_runs =
            ((lengths.len() as f64 * stream.popular_share.value) as usize).clamp(1, lengths.len());
        let weights: Vec<f64> =
            (0..popular_runs).map(|rank| ((rank + 1) as f64).powf(-stream.zipf_exponent.value)).collect();
        let phase = best_phase(sizes, &lengths, &weights, random);
        // `order` has, for each place, a rank of popularity.
        let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
        random.shuffle(&mut order);
        let mut next = sector;
        let mut runs = Vec::with_capacity(lengths.len());
        let mut popular = vec![0; popular_runs];
        for (place, &rank) in order.iter().enumerate() {
            let (sectors, objects) = (size(sizes, phase, rank as usize) / 512, lengths[rank as usize]);
            runs.push(Run { sector: next as u32, sectors: sectors as u16, objects });
            let end = next + u64::from(sectors) * u64::from(objects);
            next = end.div_ceil(BLOCK_SECTORS) * BLOCK_SECTORS + BLOCK_SECTORS;
            if let Some(slot) = popular.get_mut(rank as usize) {
                *slot = place as u32;
            }
        }
        let cursor = random.below(runs.len() as u32) as usize;
        let scan = threshold(stream.scan_share.value);
        let alias = Arc::new(Alias::new(&weights));
        (Layout { runs: runs.into(), popular: popular.into(), alias, scan, cursor }, next)
    }

    /// Draws a run: the next one of the scan, or a popular one.
    pub(crate) fn draw(&mut self, random: &mut Random) -> Run {
        if u64::from(random.next() as u32) >= self.scan {
            return self.draw_popular(random);
        }
        let run = self.runs[self.cursor];
        self.cursor += 1;
        if self.cursor == self.runs.len() {
            self.cursor = 0;
        }
        run
    }

    /// Draws a popular run.
    pub(crate) fn draw_popular(&self, random: &mut Random) -> Run {
        self.runs[self.popular[self.alias.draw(random) as usize] as usize]
    }

    /// The mean of a draw.
    pub(crate) fn expected(&self, exponent: f64) -> Expected {
        let (popular, all) =
            (self.expected_popular(exponent), self.expected_of(|_| 1.0, 0..self.runs.len() as u32));
        let scan = self.scan as f64 / 4_294_967_296.0;
        Expected {
            requests: scan * all.requests + (1.0 - scan) * popular.requests,
            bytes: scan * all.bytes + (1.0 - scan) * popular.bytes,
        }
    }

    /// The mean of a draw of a popular run.
    pub(crate) fn expected_popular(&self, exponent: f64) -> Expected {
        self.expected_of(|rank| ((rank + 1) as f64).powf(-exponent), self.popular.iter().copied())
    }

    fn expected_of(&self, weight: impl Fn(usize) -> f64, runs: impl Iterator<Item = u32>) -> Expected {
        let (mut total, mut requests, mut bytes) = (0.0, 0.0, 0.0);
        for (rank, run) in runs.enumerate() {
            let (weight, run) = (weight(rank), self.runs[run as usize]);
            total += weight;
            requests += weight * f64::from(run.objects);
            bytes += weight * f64::from(run.objects) * f64::from(run.sectors) * 512.0;
        }
        Expected { requests: requests / total, bytes: bytes / total }
    }
}

/// The lengths of runs, by rank: geometric, of mean `mean`, until there are `objects` objects.
fn lengths(objects: u64, mean: f64) -> Vec<u16> {
    let mut lengths = Vec::new();
    let mut sum = 0;
    while sum < objects {
        let quantile = (lengths.len() as f64 + 0.5) * STEPS[1] % 1.0;
        let length = if mean > 1.0 { ((1.0 - quantile).ln() / (1.0 - 1.0 / mean).ln()).ceil() } else { 1.0 };
        let length = (length.clamp(1.0, RUN_OBJECTS_MAX) as u64).min(objects - sum);
        lengths.push(length as u16);
        sum += length;
    }
    lengths
}

/// The size of the objects in the run with this rank.
fn size(sizes: &Sizes, phase: f64, rank: usize) -> u32 {
    sizes.at((phase + rank as f64 * STEPS[0]) % 1.0)
}

/// The offset in the sequence of sizes for which the few runs with most requests have the mean
/// size.
fn best_phase(sizes: &Sizes, lengths: &[u16], weights: &[f64], random: &mut Random) -> f64 {
    let mean: f64 =
        (0..1000).map(|i| f64::from(sizes.at((f64::from(i) + 0.5) / 1000.0))).sum::<f64>() / 1000.0;
    let (mut best, mut error_of_best) = (0.0, f64::INFINITY);
    for _ in 0..64 {
        let phase = random.unit();
        let (mut bytes, mut requests) = (0.0, 0.0);
        for (rank, (weight, length)) in weights.iter().zip(lengths).take(WEIGHED_RUNS).enumerate() {
            bytes += weight * f64::from(*length) * f64::from(size(sizes, phase, rank));
            requests += weight * f64::from(*length);
        }
        let error: f64 = (bytes / requests - mean).abs();
        if error < error_of_best {
            (best, error_of_best) = (phase, error);
        }
    }
    best
}
