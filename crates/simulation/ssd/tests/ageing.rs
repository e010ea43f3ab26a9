//! Bad blocks, wear levelling and collection in idle time, against simple reasoning.

mod support;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::{closed_loop, open_loop, plain_chip};
use terapage_event::{MICROSECOND, MILLISECOND, SECOND};
use terapage_ssd::analytic::Steady;
use terapage_ssd::{Config, ConfigError, Counters, Device, Front, IdleCollection, Operation, Ssd};

const BLOCK_PAGES: u32 = 64;

fn drive(mib: u64, over_provisioning: f64) -> Config {
    let mut config = Config::new(plain_chip(), mib << 20);
    (config.channels, config.dies_per_channel) = (2, 2);
    (config.front, config.over_provisioning) = (Front::instant(), over_provisioning);
    config
}

/// Writes the capacity `times` times, page by page at random, in the first `share` of the drive.
fn write_at_random(ssd: &mut Ssd, times: u64, share: f64) -> Counters {
    let mut random = SmallRng::seed_from_u64(3);
    let pages = ssd.sectors() / 8;
    let hot = (pages as f64 * share) as u64;
    closed_loop(ssd, 32, pages * times, |_| (Operation::Write, random.random_range(0..hot) * 8, 8));
    ssd.counters()
}

#[test]
fn a_drive_with_bad_blocks_is_one_with_less_over_provisioning() {
    let mut config = drive(256, 0.28);
    config.bad_blocks = 0.08;
    let mut ssd = Ssd::new(&config).unwrap();
    // A die of 64 MiB has 256 blocks; with 28 % spare 328, and two more. 8 % of these are 26.
    assert_eq!(ssd.counters().bad_blocks, 4 * 26);
    let effective = f64::from(328 - 26) / 256.0 - 1.0;
    assert!((ssd.over_provisioning() - effective).abs() < 1e-9, "{}", ssd.over_provisioning());
    let found = write_at_random(&mut ssd, 2, 1.0).write_amplification();
    let expected = Steady::new(BLOCK_PAGES, 1.0 + effective).write_amplification();
    assert!((found / expected - 1.0).abs() < 0.03, "{found} for {expected}");
}

#[test]
fn too_many_bad_blocks_are_refused() {
    let mut config = drive(32, 0.07);
    config.bad_blocks = 0.5;
    assert!(matches!(Ssd::new(&config), Err(ConfigError::Field { field: "bad-blocks", .. })));
}

#[test]
fn erases_fail_as_often_as_they_should_and_cost_spare_blocks() {
    let mut config = drive(64, 0.28);
    config.erase_failures = 0.01;
    let mut ssd = Ssd::new(&config).unwrap();
    let before = ssd.over_provisioning();
    let counters = write_at_random(&mut ssd, 2, 1.0);
    let (erases, failed) = (counters.nand_erases as f64, counters.failed_erases as f64);
    let deviation = (erases * 0.01 * 0.99).sqrt();
    assert!((failed - erases * 0.01).abs() < 5.0 * deviation, "{failed} of {erases}");
    assert!(counters.bad_blocks > 0 && u64::from(counters.bad_blocks) <= counters.failed_erases);
    let lost = f64::from(counters.bad_blocks * BLOCK_PAGES) / (ssd.sectors() / 8) as f64;
    assert!((before - ssd.over_provisioning() - lost).abs() < 1e-9);
}

#[test]
fn a_drive_whose_spare_blocks_have_all_failed_still_takes_writes() {
    let mut config = drive(32, 0.1);
    config.erase_failures = 0.5;
    let mut ssd = Ssd::new(&config).unwrap();
    let counters = write_at_random(&mut ssd, 4, 1.0);
    assert_eq!(counters.host_writes, ssd.sectors() / 8 * 4);
    assert!(ssd.over_provisioning() > 0.0, "{counters:?}");
}

#[test]
fn the_gap_between_most_and_least_worn_blocks_is_bounded() {
    let spread = |wear_gap| {
        let config = Config { wear_gap, channels: 1, dies_per_channel: 1, ..drive(16, 0.15) };
        let mut ssd = Ssd::new(&config).unwrap();
        let counters = write_at_random(&mut ssd, 30, 0.1);
        (counters.wear_max - counters.wear_min, counters)
    };
    let (free, without) = spread(None);
    assert!(free > 100 && without.levelling_erases == 0, "what is never written keeps its blocks: {free}");
    let (bounded, with) = spread(Some(8));
    // Every second block that is collected can be a block with little wear, so the gap grows
    // slightly beyond its limit.
    assert!(bounded <= 8 + 4, "{bounded}");
    assert!(with.levelling_erases > 0);
    assert!(with.write_amplification() > without.write_amplification(), "levelling has its price");
}

#[test]
fn what_is_collected_in_idle_time_need_not_be_collected_later() {
    let burst = |idle_collection| {
        let config = Config { idle_collection, ..drive(64, 0.28) };
        let mut ssd = Ssd::new(&config).unwrap();
        let mut random = SmallRng::seed_from_u64(5);
        let pages = ssd.sectors() / 8;
        let mut writes = |from: u64, count: u64| -> Vec<_> {
            let at = |n| from + n * 300 * MICROSECOND;
            (0..count).map(|n| (at(n), Operation::Write, random.random_range(0..pages) * 8, 8)).collect()
        };
        let (first, second) = (writes(0, 2_000), writes(1_000 * SECOND, 700));
        open_loop(&mut ssd, first.into_iter());
        let before = ssd.counters();
        let latencies = open_loop(&mut ssd, second.into_iter());
        assert!(!latencies.is_empty());
        (before.clone(), ssd.counters().since(&before))
    };
    let (_, busy) = burst(None);
    assert!(busy.nand_gc_reads > 0);
    // A die has six free blocks. Four of these can be filled before fewer than two are free: 1024
    // pages in four dies.
    let idle = IdleCollection { after_ns: 10 * MILLISECOND, free_blocks: 6 };
    let (before, rested) = burst(Some(idle));
    assert!(before.nand_idle_reads > 0);
    assert_eq!(rested.nand_gc_reads, rested.nand_idle_reads, "the burst itself has nothing collected");
}
