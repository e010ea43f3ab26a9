//! The profile of a trace: its mix, sizes, alignment, sequence, times, and how often it returns to
//! the same blocks.

mod histogram;
mod reuse;
mod sequence;
mod sketch;
mod study;
mod windows;

pub use histogram::Histogram;
pub use windows::Window;

use crate::error::Error;
use crate::format::Format;
use crate::gate::Counts;
use crate::reader::{Meta, Reader};
use crate::request::{Kind, Request};
use reuse::Reuse;
use sequence::Sequence;
use windows::Windows;

/// The options of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Bytes of a block: footprint and reuse are counted in blocks.
    pub block_bytes: u32,
    /// The number of blocks that are tracked individually. If the trace touches more, a sample of
    /// them represents all.
    pub tracked_blocks_max: usize,
}

impl Default for ProfileOptions {
    /// Blocks of 4 KiB, 4 Mi of them: exact for footprints of up to 16 GiB, in about 320 MB.
    fn default() -> Self {
        ProfileOptions { block_bytes: 4096, tracked_blocks_max: 4 << 20 }
    }
}

/// The alignments that are counted, in bytes.
pub const ALIGNMENTS: [u64; 5] = [512, 4096, 8192, 16384, 65536];

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Mix {
    /// How many.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their lengths in bytes.
    pub sizes: Histogram,
    /// Requests that begin where the previous one on their volume ended, whatever its kind.
    pub sequential: u64,
    /// Requests that begin where one of the previous 32 on their volume ended.
    pub nearly_sequential: u64,
    /// Requests whose offset and length are multiples of 512, 4096, 8192, 16384 and 65536 bytes.
    pub aligned: [u64; ALIGNMENTS.len()],
}

/// The profile of a trace.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Profile {
    /// The properties of the trace as a whole.
    pub meta: Meta,
    /// The reader's counts.
    pub counts: Counts,
    /// Volumes by name, and their requests.
    pub volumes: Vec<(String, u64)>,
    /// Time of the last request, in nanoseconds after the first.
    pub duration_ns: u64,
    /// The byte after the last one that was requested, on any volume.
    pub end_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Reads.
    pub reads: Mix,
    /// Writes.
    pub writes: Mix,
    /// Trims.
    pub trims: Mix,
    /// Nanoseconds between one request and the next.
    pub gaps_ns: Histogram,
    /// The share of blocks that were tracked. With 1 the following values are exact, otherwise they
    /// are estimates.
    pub sample_rate: f64,
    /// Distinct blocks that were tracked.
    pub sampled_blocks: u64,
    /// Distinct blocks that were read or written.
    pub footprint_blocks: f64,
    /// Distinct blocks that were read.
    pub read_blocks: f64,
    /// Distinct blocks that were written.
    pub written_blocks: f64,
    /// References to blocks: a read or write makes one to each block that it touches.
    pub references: u64,
    /// Cache sizes in blocks, and the share of references that an LRU cache of this size misses.
    pub lru_miss_ratios: Vec<(f64, f64)>,
    /// The misses of LRU caches whose sizes are shares of the footprint: the share, the size in
    /// blocks, the share of references that miss. They are exact while all blocks are tracked;
    /// otherwise they are estimates, for a size within a sixteenth.
    pub lru_at_shares: Vec<(f64, f64, f64)>,
    /// Reuse distances: sizes in blocks, and the references to blocks that were used again after
    /// that number of other blocks.
    pub reuse_blocks: Vec<(f64, f64)>,
    /// The trace in pieces of equal time, or of equal numbers of requests for formats without
    /// times.
    pub windows: Vec<Window>,
    /// The length of a window, in nanoseconds or requests.
    pub window_length: u64,
}

/// Computes a profile from requests, one after the other.
pub struct Profiler {
    options: ProfileOptions,
    mixes: [Mix; 3],
    volume_requests: Vec<u64>,
    sequence: Sequence,
    gaps_ns: Histogram,
    last_ns: Option<u64>,
    end_bytes: u64,
    reuse: Reuse,
    windows: Windows,
    has_times: bool,
}

impl Profiler {
    /// For a trace of a format with or without times ([`Format::has_times`]).
    pub fn new(has_times: bool, options: ProfileOptions) -> Profiler {
        Profiler {
            options: ProfileOptions { block_bytes: options.block_bytes.max(1), ..options },
            mixes: Default::default(),
            volume_requests: Vec::new(),
            sequence: Sequence::default(),
            gaps_ns: Histogram::default(),
            last_ns: None,
            end_bytes: 0,
            reuse: Reuse::new(options.tracked_blocks_max),
            windows: Windows::new(if has_times { 1_000_000 } else { 100 }),
            has_times,
        }
    }

    /// Takes the next request.
    pub fn add(&mut self, request: &Request) {
        let volume = usize::from(request.volume);
        if self.volume_requests.len() <= volume {
            self.volume_requests.resize(volume + 1, 0);
        }
        self.volume_requests[volume] += 1;
        self.end_bytes = self.end_bytes.max(request.end());
        self.add_mix(request);
        if let Some(last_ns) = self.last_ns.replace(request.time_ns) {
            self.gaps_ns.add(request.time_ns.saturating_sub(last_ns));
        }
        self.add_blocks(request);
    }

    fn add_mix(&mut self, request: &Request) {
        let (sequential, nearly) = self.sequence.add(request);
        let mix = &mut self.mixes[request.kind as usize];
        mix.requests += 1;
        mix.bytes += u64::from(request.bytes);
        mix.sizes.add(u64::from(request.bytes));
        mix.sequential += u64::from(sequential);
        mix.nearly_sequential += u64::from(nearly);
        let unit = request.offset | u64::from(request.bytes);
        for (count, alignment) in mix.aligned.iter_mut().zip(ALIGNMENTS) {
            *count += u64::from(unit.is_multiple_of(alignment));
        }
    }

    /// Adds each block that the request touches. A trim touches no block, since it transfers no
    /// data.
    fn add_blocks(&mut self, request: &Request) {
        let place = if self.has_times { request.time_ns } else { self.windows.requests() };
        let window = self.windows.at(place);
        window.add(request);
        if request.kind == Kind::Trim {
            return;
        }
        let block_bytes = u64::from(self.options.block_bytes);
        let (first, last) = (request.offset / block_bytes, (request.end() - 1) / block_bytes);
        for block in first..=last {
            let hash = reuse::hash(request.volume, block);
            window.touch(hash);
            self.reuse.touch(request.volume, block, hash, request.kind == Kind::Write);
        }
    }

    /// The profile of the requests so far, with the properties that the reader knows.
    pub fn finish(self, reader: &Reader) -> Profile {
        let names = reader.volumes().iter().cloned();
        let [reads, writes, trims] = self.mixes;
        let blocks = self.reuse.blocks();
        let (windows, window_length) = self.windows.finish();
        let lru_miss_ratios = self.reuse.miss_ratios();
        let sizes = CACHE_SHARES.map(|share| share * blocks.all);
        let exact = self.reuse.exact_miss_ratios(&sizes);
        let near = || sizes.iter().map(|size| miss_ratio(&lru_miss_ratios, *size)).collect();
        let ratios: Vec<f64> = exact.unwrap_or_else(near);
        let lru_at_shares = CACHE_SHARES.into_iter().zip(sizes).zip(ratios);
        Profile {
            lru_at_shares: lru_at_shares.map(|((share, size), ratio)| (share, size, ratio)).collect(),
            meta: reader.meta().clone(),
            counts: reader.counts(),
            volumes: names.zip(self.volume_requests.iter().copied().chain(std::iter::repeat(0))).collect(),
            duration_ns: self.last_ns.unwrap_or(0),
            end_bytes: self.end_bytes,
            block_bytes: self.options.block_bytes,
            reads,
            writes,
            trims,
            gaps_ns: self.gaps_ns,
            sample_rate: self.reuse.rate(),
            sampled_blocks: blocks.sampled,
            footprint_blocks: blocks.all,
            read_blocks: blocks.read,
            written_blocks: blocks.written,
            references: self.reuse.references(),
            lru_miss_ratios,
            reuse_blocks: self.reuse.distances(),
            windows,
            window_length,
        }
    }
}

/// Shares of the footprint in the LRU table.
const CACHE_SHARES: [f64; 9] = [0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 1.0];

/// The misses of an LRU cache of this number of blocks, as a share of the references; the size is
/// exact within a sixteenth.
fn miss_ratio(ratios: &[(f64, f64)], blocks: f64) -> f64 {
    let smaller = ratios.iter().take_while(|(size, _)| *size <= blocks);
    smaller.last().map_or(1.0, |(_, ratio)| *ratio)
}

impl Profile {
    /// Reads a whole trace.
    ///
    /// # Errors
    /// The trace's own.
    pub fn of(mut reader: Reader, options: ProfileOptions) -> Result<Profile, Error> {
        let mut profiler = Profiler::new(reader.meta().format.has_times(), options);
        for request in reader.by_ref() {
            profiler.add(&request?);
        }
        Ok(profiler.finish(&reader))
    }

    /// All requests.
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests + self.trims.requests
    }

    /// The standard error of estimates from the sample of blocks, as a share; 0 if they are exact.
    pub fn sample_error(&self) -> f64 {
        if self.sample_rate == 1.0 { 0.0 } else { 1.0 / (self.sampled_blocks.max(1) as f64).sqrt() }
    }

    /// Whether its format has times.
    pub fn has_times(&self) -> bool {
        Format::has_times(self.meta.format)
    }
}
