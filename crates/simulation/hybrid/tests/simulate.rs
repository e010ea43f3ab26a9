//! The whole engine over simulated flash.

use std::convert::Infallible;

use rand::{Rng, SeedableRng, rngs::StdRng};
use terapage_blocktrace::{Kind, Request};
use terapage_hybrid::{CacheKind, CacheOptions, Load, MemoryTiming, Outcome, Setup, Storage, simulate};
use terapage_ssd::{Config, Front, Profile};

const CAPACITY: u64 = 1 << 30;

fn requests(seed: u64, count: u64, reads: f64) -> impl Iterator<Item = Result<Request, Infallible>> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..count).map(move |n| {
        let near = rng.random_bool(0.7);
        let line = rng.random_range(0..if near { 4_000 } else { CAPACITY / 4096 - 8 });
        let kind = if rng.random_bool(reads) { Kind::Read } else { Kind::Write };
        let bytes = rng.random_range(1..=16_384);
        Ok(Request { time_ns: n * 50_000, offset: line * 4096, bytes, volume: 0, kind })
    })
}

fn setup(nand: &str) -> Setup {
    let ssd = Config::new(Profile::by_name(nand).expect("it comes with the crate"), CAPACITY);
    let cache = CacheOptions { bytes: 32 << 20, ..CacheOptions::default() };
    Setup { load: Load::Closed { depth: 8 }, warm_up: 2_000, ..Setup::new(ssd, cache) }
}

fn run(setup: &Setup) -> Outcome {
    simulate(setup, requests(5, 30_000, 0.4)).expect("it runs")
}

fn json(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).expect("it is plain data")
}

#[test]
fn the_same_comes_out_each_time() {
    for load in [Load::Closed { depth: 8 }, Load::Open { speed: 2.0 }] {
        for kind in [CacheKind::NvWb, CacheKind::Dram] {
            let mut setup = Setup { load, ..setup("3d-ct-tlc") };
            if let Storage::Cached(options) = &mut setup.storage {
                options.kind = kind;
                options.flush_after_ns = 20_000_000;
            }
            assert_eq!(json(&run(&setup)), json(&run(&setup)), "{load:?} {kind:?}");
        }
    }
}

/// Hits do not depend on the flash if no command overtakes another on its way to the device. Behind
/// a link, reads overtake writes that wait for it, and the time at which a command is sent depends
/// on the flash; then a few hits differ.
#[test]
fn hits_do_not_depend_on_the_flash_or_the_load() {
    let setup = |nand, load, front| {
        let setup = setup(nand);
        Setup { ssd: Config { front, ..setup.ssd }, load, ..setup }
    };
    let hits = |setup: &Setup| {
        let cache = run(setup).cache.expect("there is one");
        [cache.read_line_hits, cache.write_line_hits, cache.below_read_sectors, cache.below_written_sectors]
    };
    let (one, eight) = (Load::Closed { depth: 1 }, Load::Closed { depth: 8 });
    let first = hits(&setup("2d-fg-mlc", one, Front::instant()));
    assert!(first.iter().all(|&count| count > 0));
    assert_eq!(hits(&setup("2d-fg-tlc", one, Front::nvme())), first);
    let others = [("2d-fg-tlc", eight), ("3d-fg-tlc", one), ("3d-ct-tlc", Load::Open { speed: 0.5 })];
    for (nand, load) in others {
        assert_eq!(hits(&setup(nand, load, Front::instant())), first, "{nand} {load:?}");
    }
    assert!(hits(&setup("3d-ct-tlc", eight, Front::sata()))[0].abs_diff(first[0]) <= first[0] / 500);
}

#[test]
fn memory_is_faster_than_a_hybrid_and_that_faster_than_flash() {
    let hybrid = run(&setup("2d-fg-mlc"));
    let flash = run(&Setup { storage: Storage::Nand, ..setup("2d-fg-mlc") });
    let memory = run(&Setup { storage: Storage::Scm(MemoryTiming::default()), ..setup("2d-fg-mlc") });
    assert!(memory.iops > hybrid.iops && hybrid.iops > flash.iops);
    assert_eq!((flash.nand_read_share(), flash.nand_write_share(), flash.hit_ratio()), (1.0, 1.0, 0.0));
    assert!(flash.write_amplification() >= 1.0);
    assert!(flash.cache.is_none() && memory.nand.is_none());
    for out in [&hybrid, &flash, &memory] {
        assert_eq!((out.requests, out.warm_up), (28_000, 2_000));
        assert_eq!(out.latency.count, 28_000);
        assert_eq!(out.read_latency.count + out.write_latency.count, 28_000);
        let order = [out.latency.p50_ns, out.latency.p90_ns, out.latency.p99_ns, out.latency.p999_ns];
        assert!(order.is_sorted() && order[3] <= out.latency.max_ns);
        // Little's law relates three figures that are measured separately.
        let under_way = out.iops * out.latency.mean_ns / 1e9;
        assert!((under_way / out.queue_mean - 1.0).abs() < 0.02, "{under_way} and {}", out.queue_mean);
    }
}

#[test]
fn slower_memory_makes_slower_hybrids() {
    let mut before = f64::INFINITY;
    for latency_ns in [100, 1_000, 10_000] {
        let mut setup = setup("3d-ct-tlc");
        if let Storage::Cached(options) = &mut setup.storage {
            options.memory.latency_ns = latency_ns;
        }
        let iops = run(&setup).iops;
        assert!(iops < before, "{iops} at {latency_ns} ns");
        before = iops;
    }
}

#[test]
fn a_write_that_hits_costs_link_controller_and_memory() {
    let latency_ns = 5_000;
    let front = Front::Sata { depth: 32, bytes_per_second: 512_000_000, latency_ns };
    let ssd = Config { front, ..setup("3d-ct-tlc").ssd };
    let setup = Setup { ssd, load: Load::Closed { depth: 1 }, warm_up: 1, ..setup("3d-ct-tlc") };
    let one = Request { time_ns: 0, offset: 0, bytes: 4096, volume: 0, kind: Kind::Write };
    let out = simulate(&setup, (0..101).map(|_| Ok::<_, Infallible>(one))).expect("it runs");
    assert_eq!(out.elapsed_ns, 100 * (8_000 + latency_ns + 800));
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let mut bad = setup("3d-ct-tlc");
    bad.ssd.over_provisioning = -1.0;
    let error = simulate(&bad, requests(1, 10, 0.5)).expect_err("it is impossible");
    assert!(error.to_string().contains("over-provisioning"), "{error}");
    let mut small = setup("3d-ct-tlc");
    small.ssd.capacity_bytes = 1 << 28;
    let error = simulate(&small, requests(1, 1_000, 0.5)).expect_err("requests are beyond");
    assert!(error.to_string().contains("wrap=yes"), "{error}");
}
