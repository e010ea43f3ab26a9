//! The measured cases. Requests are made before the clock starts. The simulators are built after
//! that, except those of flash alone: the time to build those is a separate figure.

use crate::progress::Progress;
use std::cell::Cell;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use anyhow::Context;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terapage_blocktrace::{Kind, Options, Request};
use terapage_hybrid::{
    Cache, CacheOptions, FixedLatency, HitSimulator, Layout, Load, Plan, Setup, Storage, replay, simulate,
};
use terapage_ssd::{Config, Profile, Ssd};

use crate::source::Source;

/// Lines of 4 KiB that requests by the power law touch.
const LINES: u64 = 1 << 20;
/// More lines than the cache has.
const ALL_LINES: u64 = LINES * 13 / 10;
/// Lines that requests of the file touch: 6.4 GiB.
const FILE_LINES: u64 = 1_677_721;

/// A case.
pub struct Case {
    /// Its name.
    pub what: &'static str,
    /// The target, million requests a second.
    pub target: Option<f64>,
    /// Measures the case once, with this many requests.
    pub run: fn(usize) -> anyhow::Result<Figure>,
}

/// The result of a case.
pub struct Figure {
    /// Requests a second.
    pub per_second: f64,
    /// A note for the reader.
    pub note: String,
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |what, target, run| Case { what, target, run };
    // prxy_1 in three minutes.
    let file = Some(super::PRXY_1 / 180.0 / 1e6);
    vec![
        case("hits alone, LRU, 10 % cached", Some(4.1), |count| hits(count, LINES / 10)),
        case("hits alone, LRU, all cached", Some(4.1), |count| hits(count, ALL_LINES)),
        case("cached, depth 32", Some(5.0), |count| cached(count, Load::Closed { depth: 32 })),
        case("cached, by time stamps", Some(5.0), |count| cached(count, Load::Open { speed: 1.0 })),
        case("all cached, NVMe, over flash", Some(6.0), |count| hybrid(count, 4096, ALL_LINES, true)),
        case("the same, of 37 KiB", Some(1.5), |count| hybrid(count, 37 << 10, ALL_LINES, true)),
        case("the same, empty at first", None, |count| hybrid(count, 4096, ALL_LINES, false)),
        case("10 % cached, NVMe, over flash", None, |count| hybrid(count, 4096, LINES / 10, false)),
        case("flash, 28 % spare, reads", Some(1.0), |count| flash(count, 0.28, 1.0)),
        case("flash, 28 % spare, mixed", Some(1.0), |count| flash(count, 0.28, 0.5)),
        case("flash, 28 % spare, writes", Some(1.0), |count| flash(count, 0.28, 0.0)),
        case("flash, 7 % spare, mixed", Some(1.0), |count| flash(count, 0.07, 0.5)),
        case("flash, 7 % spare, writes", Some(1.0), |count| flash(count, 0.07, 0.0)),
        case("file, 97 % hits", file, |count| file_of(count, 0.97)),
        case("file, 65 % hits", file, |count| file_of(count, 0.65)),
    ]
}

fn figure(count: usize, begin: Instant, note: String) -> Figure {
    Figure { per_second: count as f64 / begin.elapsed().as_secs_f64(), note }
}

/// `count` requests of `bytes` bytes each, a third of them reads, at addresses by a power law with
/// exponent 0.9, one per microsecond.
fn power_law(count: usize, bytes: u32) -> Vec<Request> {
    let last = LINES - u64::from(bytes.div_ceil(4096));
    let mut random = SmallRng::seed_from_u64(1);
    let one = |number: usize| {
        // The inverse of the distribution function of a continuous power law on 1..=LINES.
        let rank = (1.0 + random.random::<f64>() * ((LINES as f64).powf(0.1) - 1.0)).powf(10.0) as u64;
        let kind = if random.random_ratio(1, 3) { Kind::Read } else { Kind::Write };
        let offset = (rank.wrapping_mul(0x9e37_79b9) % LINES).min(last) * 4096;
        Request { time_ns: number as u64 * 1_000, offset, bytes, volume: 0, kind }
    };
    (0..count).map(one).collect()
}

fn given(requests: &[Request]) -> impl Iterator<Item = Result<Request, Infallible>> {
    requests.iter().map(|&request| Ok(request))
}

fn hits(count: usize, lines: u64) -> anyhow::Result<Figure> {
    let requests = power_law(count, 4096);
    let mut simulator = HitSimulator::new("lru", lines as usize, 4096)?;
    let begin = Instant::now();
    for request in &requests {
        simulator.request(request)?;
    }
    let bytes = simulator.bytes() as f64 / lines as f64;
    let ratio = simulator.counts().line_hit_ratio();
    Ok(figure(count, begin, format!("hit ratio {ratio:.2}, {bytes:.1} bytes a line")))
}

fn cached(count: usize, load: Load) -> anyhow::Result<Figure> {
    let requests = power_law(count, 4096);
    let begin = Instant::now();
    let below = FixedLatency::new(LINES * 8, 100_000, 64);
    let options = CacheOptions { bytes: ALL_LINES * 4096, ..CacheOptions::default() };
    let mut device = Cache::new(below, &options)?;
    let plan = Plan { load, warm_up: 0, wrap: false };
    let out = replay(&mut device, &plan, given(&requests), |_| ())?;
    let iops = out.requests as f64 / (out.elapsed_ns as f64 / 1e9);
    Ok(figure(count, begin, format!("{iops:.0} simulated IOPS")))
}

/// The whole engine: link, cache, flash. With `warm`, only requests that find their lines are
/// timed: all lines are written before.
fn hybrid(count: usize, bytes: u32, cache_lines: u64, warm: bool) -> anyhow::Result<Figure> {
    let requests = power_law(count, bytes);
    let warm_up = if warm { LINES } else { 0 };
    let first = (0..warm_up).map(|line| Request {
        time_ns: 0,
        offset: line * 4096,
        bytes: 4096,
        volume: 0,
        kind: Kind::Write,
    });
    let begin = Cell::new(Instant::now());
    let start = std::iter::from_fn(|| {
        begin.set(Instant::now());
        None
    });
    let cache = CacheOptions { bytes: cache_lines * 4096, ..CacheOptions::default() };
    let ssd = Config::new(Profile::by_name("3d-ct-tlc")?, LINES * 4096);
    let setup = Setup { load: Load::Closed { depth: 32 }, warm_up, ..Setup::new(ssd, cache) };
    let warming = first.map(Ok).chain(start.take(usize::from(warm)));
    let out = simulate(&setup, warming.chain(given(&requests)))?;
    Ok(figure(count, begin.get(), format!("hit ratio {:.2}", out.hit_ratio())))
}

/// Requests of 4 KiB at random places of a drive of 64 GiB with a mapping unit of 16 KiB and MLC,
/// in its steady state, with 64 requests under way.
fn flash(count: usize, over_provisioning: f64, reads: f64) -> anyhow::Result<Figure> {
    let mut config = Config::new(Profile::by_name("2d-fg-mlc")?, 64 << 30);
    config.over_provisioning = over_provisioning;
    let mut random = SmallRng::seed_from_u64(1);
    let one = |number: usize| {
        let kind = if random.random_bool(reads) { Kind::Read } else { Kind::Write };
        let offset = random.random_range(0..config.capacity_bytes / 4096) * 4096;
        Request { time_ns: number as u64, offset, bytes: 4096, volume: 0, kind }
    };
    let requests: Vec<Request> = (0..count).map(one).collect();
    let begin = Instant::now();
    let mut ssd = Ssd::new(&config)?;
    let build = begin.elapsed().as_secs_f64();
    let plan = Plan { load: Load::Closed { depth: 64 }, warm_up: 0, wrap: false };
    let begin = Instant::now();
    replay(&mut ssd, &plan, given(&requests), |_| ())?;
    let amplification = ssd.counters().write_amplification();
    Ok(figure(count, begin, format!("WA {amplification:.2}, built in {build:.2} s")))
}

/// A file in MSR's format. A third of its requests are writes, and most requests go to a hot part
/// that the cache holds.
fn file_of(count: usize, hot: f64) -> anyhow::Result<Figure> {
    let mut random = SmallRng::seed_from_u64(1);
    let mut file = tempfile::Builder::new().suffix(".csv").tempfile().context("a temporary file")?;
    let mut text = String::new();
    for number in 0..count as u64 {
        let among = if random.random_bool(hot) { FILE_LINES / 40 } else { FILE_LINES };
        let offset = random.random_range(0..among) * 4096;
        let kind = if random.random_ratio(1, 3) { "Write" } else { "Read" };
        let time = 128_166_372_000_000_000 + number * 100;
        writeln!(text, "{time},prxy,1,{kind},{offset},4096,1000")?;
        if text.len() > 1 << 20 || number + 1 == count as u64 {
            file.write_all(text.as_bytes()).context("a temporary file")?;
            text.clear();
        }
    }
    let begin = Instant::now();
    let progress = Progress::endless("reading");
    let options = Options::default();
    let source = Source::survey(file.path(), &options, u64::MAX, 4096, Layout::Packed, &progress)?;
    let ssd = Config::new(Profile::by_name("3d-ct-tlc")?, source.device_bytes().max(1 << 30));
    let cache = CacheOptions { bytes: FILE_LINES * 4096 / 10, ..CacheOptions::default() };
    let load = Load::Closed { depth: 32 };
    let setup = Setup { load, storage: Storage::Cached(cache.clone()), ..Setup::new(ssd, cache) };
    // The file is read again, like a file that is too long to keep in memory.
    let out = simulate(&setup, source.reread()?)?;
    let per_second = count as f64 / begin.elapsed().as_secs_f64();
    let note = format!("hit ratio {:.2}; prxy_1's in {:.0} s", out.hit_ratio(), super::PRXY_1 / per_second);
    Ok(Figure { per_second, note })
}
