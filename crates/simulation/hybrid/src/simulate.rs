//! The simulation of a hybrid SSD: from its description and requests to figures.

use serde::Serialize;
use terapage_blocktrace::Request;
use terapage_ssd::{Config, Counters, Front, Ssd};

use crate::cache::{Cache, CacheCounters, CacheOptions};
use crate::error::Error;
use crate::front::Fronted;
use crate::latency::{Latencies, distribution};
use crate::machine::Machine;
use crate::memory::{MemoryOnly, MemoryTiming, SECTOR};
use crate::replay::{Load, Plan, Replayed, replay};

/// The kind of storage.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// NAND flash alone.
    Nand,
    /// NAND flash with a cache of SCM or DRAM in front.
    Cached(CacheOptions),
    /// SCM alone, with the capacity of the SSD.
    Scm(MemoryTiming),
}

/// All that a result depends on, apart from the requests.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// The flash, and the front, which is put in front of the cache. Without flash, only the
    /// capacity and the front matter.
    pub ssd: Config,
    /// The kind of storage, beside the flash.
    pub storage: Storage,
    /// The times at which requests are sent.
    pub load: Load,
    /// The number of requests at the beginning that are not measured.
    pub warm_up: u64,
    /// Whether addresses beyond the capacity wrap around to the beginning; otherwise they are an
    /// error.
    pub wrap: bool,
}

impl Setup {
    /// `ssd` behind a cache, with one request at a time, all measured.
    pub fn new(ssd: Config, cache: CacheOptions) -> Self {
        let load = Load::Closed { depth: 1 };
        Setup { ssd, storage: Storage::Cached(cache), load, warm_up: 0, wrap: false }
    }
}

/// The outcome of a simulation. All counts are without the warm-up.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Requests measured.
    pub requests: u64,
    /// Requests of the warm-up.
    pub warm_up: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Simulated time from the first measured request to the last end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Requests a second.
    pub iops: f64,
    /// Requests per second in the first and in the second half of the measured part: a difference
    /// means that the device's state still changes. `None` if too little was measured.
    #[serde(skip)]
    pub halves_iops: Option<[f64; 2]>,
    /// MiB a second, read and written.
    pub mib_per_s: f64,
    /// Latencies of all requests.
    pub latency: Latencies,
    /// Latencies of reads.
    pub read_latency: Latencies,
    /// Latencies of writes.
    pub write_latency: Latencies,
    /// Shares of requests, and the latency in nanoseconds that they do not exceed.
    pub distribution: Vec<(f64, u64)>,
    /// Requests under way, averaged over time.
    pub queue_mean: f64,
    /// The most requests under way.
    pub queue_max: u64,
    /// The 99th percentile of the requests in flight at an arrival; 0 in a closed loop.
    pub queue_p99: u64,
    /// The counters of the cache; `None` without a cache.
    pub cache: Option<CacheCounters>,
    /// The lines for which the cache has room, including those kept free; 0 without a cache.
    pub cache_lines: u64,
    /// Bytes of the cache's directory on the machine that simulates.
    pub directory_bytes: u64,
    /// The counters of the flash; `None` without flash.
    pub nand: Option<Counters>,
}

impl Outcome {
    /// Bytes read from flash for each byte that the host read; 1 without a cache, 0 without flash
    /// or reads.
    pub fn nand_read_share(&self) -> f64 {
        match (&self.cache, &self.nand) {
            (Some(cache), _) => ratio(cache.below_read_sectors, cache.host_read_sectors),
            (None, Some(_)) => f64::from(u8::from(self.read_bytes > 0)),
            (None, None) => 0.0,
        }
    }

    /// Bytes written to flash by the cache for each byte that the host wrote, without those of
    /// garbage collection; 1 without a cache, 0 without flash or writes.
    pub fn nand_write_share(&self) -> f64 {
        match (&self.cache, &self.nand) {
            (Some(cache), _) => ratio(cache.below_written_sectors, cache.host_written_sectors),
            (None, Some(_)) => f64::from(u8::from(self.written_bytes > 0)),
            (None, None) => 0.0,
        }
    }

    /// The share of lines touched by reads whose wanted sectors were in the cache; 0 without a
    /// cache.
    pub fn read_hit_ratio(&self) -> f64 {
        self.cache.as_ref().map_or(0.0, |cache| ratio(cache.read_line_hits, cache.read_lines))
    }

    /// The share of lines touched by writes that were in the cache; 0 without a cache.
    pub fn write_hit_ratio(&self) -> f64 {
        self.cache.as_ref().map_or(0.0, |cache| ratio(cache.write_line_hits, cache.write_lines))
    }

    /// The share of lines touched by requests that were in the cache; 0 without a cache.
    pub fn hit_ratio(&self) -> f64 {
        self.cache.as_ref().map_or(0.0, |cache| {
            ratio(cache.read_line_hits + cache.write_line_hits, cache.read_lines + cache.write_lines)
        })
    }

    /// The write amplification of the flash, see [`Counters::write_amplification`]; 0 without
    /// flash.
    pub fn write_amplification(&self) -> f64 {
        self.nand.as_ref().map_or(0.0, Counters::write_amplification)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Builds the SSD that `setup` describes and replays `requests` on it, one after the other: memory
/// depends on the SSD and its cache, not on the number of requests. The same setup and requests
/// give the same outcome, to the bit.
///
/// Wrap the iterator for a progress bar or a limit.
///
/// # Errors
/// The setup is impossible, `requests` has an error, a request is beyond the device, or there is
/// nothing to measure.
///
/// # Examples
/// ```
/// use terapage_blocktrace::{Kind, Request};
/// use terapage_hybrid::{CacheOptions, Setup, simulate};
/// use terapage_ssd::{Config, Profile};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ssd = Config::new(Profile::by_name("3d-ct-tlc")?, 1 << 30);
/// let setup = Setup::new(ssd, CacheOptions { bytes: 32 << 20, ..CacheOptions::default() });
/// let requests = (0..1000).map(|n| {
///     let request = Request { time_ns: 0, offset: n % 100 * 4096, bytes: 4096, volume: 0, kind: Kind::Write };
///     Ok::<_, std::convert::Infallible>(request)
/// });
/// let outcome = simulate(&setup, requests)?;
/// assert_eq!(outcome.requests, 1000);
/// assert_eq!(outcome.write_hit_ratio(), 0.9);
/// # Ok(())
/// # }
/// ```
pub fn simulate<I, E>(setup: &Setup, requests: I) -> Result<Outcome, Error>
where
    I: IntoIterator<Item = Result<Request, E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut device = Fronted::new(build(setup)?, &setup.ssd.front);
    let plan = Plan { load: setup.load, warm_up: setup.warm_up, wrap: setup.wrap };
    let mut before = (None, None);
    let replayed = replay(&mut device, &plan, requests, |device| before = counters(device.inner()))?;
    let (cache, nand) = counters(device.inner());
    let mut outcome = outcome(setup, &replayed);
    outcome.cache = cache.zip(before.0).map(|(now, then)| now.since(&then));
    outcome.nand = nand.zip(before.1).map(|(now, then)| now.since(&then));
    if let Some(cache) = device.inner().cache() {
        outcome.directory_bytes = cache.directory_bytes() as u64;
    }
    Ok(outcome)
}

fn build(setup: &Setup) -> Result<Machine<Ssd>, Error> {
    setup.ssd.check()?;
    if let Storage::Scm(timing) = &setup.storage {
        let sectors = setup.ssd.capacity_bytes.div_ceil(SECTOR);
        return Ok(Machine::Memory(MemoryOnly::new(sectors, timing)?));
    }
    let nand = Ssd::new(&Config { front: Front::instant(), ..setup.ssd.clone() })?;
    Ok(match &setup.storage {
        Storage::Cached(options) => Machine::Cached(Box::new(Cache::new(nand, options)?)),
        _ => Machine::Nand(nand),
    })
}

fn counters(machine: &Machine<Ssd>) -> (Option<CacheCounters>, Option<Counters>) {
    (machine.cache().map(Cache::counters), machine.nand().map(Ssd::counters))
}

fn outcome(setup: &Setup, replayed: &Replayed) -> Outcome {
    let seconds = replayed.elapsed_ns as f64 / 1e9;
    let rate = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
    let mut all = replayed.reads.clone();
    all += &replayed.writes;
    all += &replayed.trims;
    let bytes = replayed.read_bytes + replayed.written_bytes;
    Outcome {
        requests: replayed.requests,
        warm_up: setup.warm_up,
        read_bytes: replayed.read_bytes,
        written_bytes: replayed.written_bytes,
        elapsed_ns: replayed.elapsed_ns,
        iops: rate(replayed.requests as f64),
        halves_iops: replayed.course.halves(),
        mib_per_s: rate(bytes as f64 / (1 << 20) as f64),
        latency: Latencies::of(&all),
        read_latency: Latencies::of(&replayed.reads),
        write_latency: Latencies::of(&replayed.writes),
        distribution: distribution(&all),
        queue_mean: replayed.queue_mean,
        queue_max: replayed.queue_max,
        queue_p99: replayed.queue_seen.value_at_quantile(0.99),
        cache: None,
        cache_lines: match &setup.storage {
            Storage::Cached(options) => options.lines(),
            _ => 0,
        },
        directory_bytes: 0,
        nand: None,
    }
}
