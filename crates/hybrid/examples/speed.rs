//! How fast the simulators are, in requests a second on one core.
//!
//!     cargo run --release -p terapage-hybrid --example speed [-- million requests]
//!
//! Requests are synthetic: 4 KiB, addresses by a power law (exponent 0.9) over a million lines, a third of them reads.
//! They are made before the clock starts.

use std::convert::Infallible;
use std::time::Instant;

use rand::{Rng, SeedableRng, rngs::StdRng};
use terapage_blocktrace::{Kind, Request};
use terapage_hybrid::{
    Cache, CacheOptions, FixedLatency, HitSimulator, Load, MemoryOnly, MemoryTiming, Plan, Setup, replay,
    simulate,
};
use terapage_ssd::{Config, Profile};

const LINES: u64 = 1 << 20;

fn requests(count: usize) -> Vec<Request> {
    let mut rng = StdRng::seed_from_u64(1);
    let one = |n: usize| {
        // The inverse of the distribution function of a continuous power law on 1..=LINES.
        let rank = (1.0 + rng.random::<f64>() * ((LINES as f64).powf(0.1) - 1.0)).powf(10.0) as u64;
        let line = rank.wrapping_mul(0x9e37_79b9) % LINES;
        let kind = if rng.random_ratio(1, 3) { Kind::Read } else { Kind::Write };
        Request { time_ns: n as u64 * 1_000, offset: line * 4096, bytes: 4096, volume: 0, kind }
    };
    (0..count).map(one).collect()
}

fn report(what: &str, count: usize, begin: Instant, more: &str) {
    let seconds = begin.elapsed().as_secs_f64();
    println!("{what:46} {:6.2} M requests/s   {more}", count as f64 / seconds / 1e6);
}

fn hits(requests: &[Request], policy: &str, lines: u64) {
    let mut simulator = HitSimulator::new(policy, lines as usize, 4096).expect("a known policy");
    let begin = Instant::now();
    for request in requests {
        simulator.request(request).expect("the lines are near");
    }
    let counts = simulator.counts();
    let bytes = simulator.bytes() as f64 / lines as f64;
    let more = format!("hit ratio {:.4}, {bytes:.1} bytes a line", counts.line_hit_ratio());
    report(
        &format!("hits: {policy}, {:.0} % of the lines", lines as f64 * 100.0 / LINES as f64),
        requests.len(),
        begin,
        &more,
    );
}

fn timed<D: terapage_ssd::Device>(what: &str, mut device: D, requests: &[Request], load: Load) {
    let plan = Plan { load, warm_up: 0, wrap: false };
    let begin = Instant::now();
    let given = requests.iter().map(|&request| Ok::<_, Infallible>(request));
    let out = replay(&mut device, &plan, given, |_| ()).expect("a good plan");
    let iops = out.requests as f64 / (out.elapsed_ns as f64 / 1e9);
    report(what, requests.len(), begin, &format!("simulated IOPS {iops:.0}"));
}

fn cache(share: u64) -> Cache<FixedLatency> {
    let below = FixedLatency::new(LINES * 8, 100_000, 64);
    Cache::new(below, &CacheOptions { bytes: LINES * 4096 * share / 100, ..CacheOptions::default() })
        .expect("good options")
}

/// The whole engine: link, cache, flash.
fn whole(what: &str, cache_bytes: u64, requests: &[Request], load: Load) {
    let nand = Profile::by_name("3d-ct-tlc").expect("it comes with the crate");
    let cache = CacheOptions { bytes: cache_bytes, ..CacheOptions::default() };
    let setup = Setup { load, ..Setup::new(Config::new(nand, LINES * 4096), cache) };
    let begin = Instant::now();
    let given = requests.iter().map(|&request| Ok::<_, Infallible>(request));
    let out = simulate(&setup, given).expect("a good setup");
    report(what, requests.len(), begin, &format!("simulated IOPS {:.0}", out.iops));
}

fn main() {
    let million = std::env::args().nth(1).and_then(|argument| argument.parse().ok()).unwrap_or(8);
    let requests = requests(million * 1_000_000);
    for share in [1, 10, 50, 130] {
        hits(&requests, "lru", LINES * share / 100);
    }
    for policy in ["auto", "s3fifo", "arc"] {
        hits(&requests, policy, LINES / 10);
    }
    let closed = Load::Closed { depth: 32 };
    let memory = MemoryOnly::new(LINES * 8, &MemoryTiming::default()).expect("good");
    timed("timed: memory alone, depth 32", memory, &requests, closed);
    timed("timed: all cached, depth 32", cache(130), &requests, closed);
    timed("timed: all cached, by time stamps", cache(130), &requests, Load::Open { speed: 1.0 });
    timed("timed: 10 % cached over a fixed latency", cache(10), &requests, closed);
    whole("simulate: all cached, NVMe, depth 32", LINES * 4096 * 130 / 100, &requests, closed);
    whole("simulate: 10 % cached over flash, depth 32", LINES * 4096 / 10, &requests, closed);
}
