//! The model against theory.

mod support;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::{closed_loop, open_loop, plain_chip};
use terapage_event::{MICROSECOND, Nanos, SECOND};
use terapage_ssd::analytic::{Steady, md1_waiting, write_amplification};
use terapage_ssd::{
    Acknowledge, Command, Config, Counters, Device, Front, GcPolicy, Operation, Precondition, Profile, Slc,
    Ssd, capacity_within,
};

const PAGE_SECTORS: u32 = 8;

#[track_caller]
fn close(what: &str, measured: f64, expected: f64, share: f64) {
    let off = measured / expected - 1.0;
    eprintln!("{what}: {measured:.5} measured, {expected:.5} expected, {:+.2} %", off * 100.0);
    assert!(off.abs() <= share, "{what}: {measured} is not within {share} of {expected}");
}

fn one_die() -> Config {
    let mut config = Config::new(plain_chip(), 16 << 20);
    (config.channels, config.dies_per_channel) = (1, 1);
    config.front = Front::instant();
    config.preconditioning = Precondition::None;
    config
}

#[test]
fn writes_back_to_back_take_the_program_time() {
    for acknowledge in [Acknowledge::Buffered, Acknowledge::Programmed] {
        let mut config = one_die();
        config.acknowledge = acknowledge;
        let mut ssd = Ssd::new(&config).unwrap();
        let writes = 4000;
        let pages = ssd.sectors() / u64::from(PAGE_SECTORS);
        let end = closed_loop(&mut ssd, 1, writes, |at| {
            (Operation::Write, at % pages * u64::from(PAGE_SECTORS), PAGE_SECTORS)
        });
        close("writes per tPROG", writes as f64 * 750_000.0 / end as f64, 1.0, 0.01);
    }
}

#[test]
fn one_shot_programs_take_one_program_time_for_a_write_unit() {
    let mut config = one_die();
    config.nand.write_unit = 4;
    let mut ssd = Ssd::new(&config).unwrap();
    let end = closed_loop(&mut ssd, 16, 4000, |at| (Operation::Write, at % 4096 * 8, PAGE_SECTORS));
    close("pages per tPROG", 4000.0 * 750_000.0 / end as f64, 4.0, 0.01);
}

#[test]
fn planes_program_together() {
    let mut config = one_die();
    (config.nand.planes, config.nand.pages_per_block) = (4, 16);
    let mut ssd = Ssd::new(&config).unwrap();
    let end = closed_loop(&mut ssd, 32, 4000, |at| (Operation::Write, at % 4096 * 8, PAGE_SECTORS));
    close("pages per tPROG", 4000.0 * 750_000.0 / end as f64, 4.0, 0.01);
}

#[test]
fn reads_come_as_fast_as_the_bus() {
    let mut config = one_die();
    config.dies_per_channel = 16;
    config.capacity_bytes = 64 << 20;
    config.nand.bus_bytes_per_second = 200_000_000;
    config.preconditioning = Precondition::Sequential { filled: 1.0 };
    let mut ssd = Ssd::new(&config).unwrap();
    let mut random = SmallRng::seed_from_u64(3);
    let reads = 20_000;
    let end = closed_loop(&mut ssd, 256, reads, |_| {
        (Operation::Read, random.random_range(0..16_384) * 8, PAGE_SECTORS)
    });
    let bandwidth = reads as f64 * 4096.0 / (end as f64 / SECOND as f64);
    close("bytes/s of the bus", bandwidth, 200e6, 0.01);
    let busy = ssd.counters().channel_busy_ns[0];
    close("share of time the bus is busy", busy as f64 / end as f64, 1.0, 0.01);
}

#[test]
fn random_arrivals_wait_as_md1_says() {
    let service = 75_000.0 + 1000.0;
    for (load, reads) in [(0.3, 400_000), (0.5, 800_000), (0.8, 3_000_000)] {
        let mut config = one_die();
        config.preconditioning = Precondition::Sequential { filled: 1.0 };
        let mut ssd = Ssd::new(&config).unwrap();
        let mut random = SmallRng::seed_from_u64(4);
        let mut time = 0.0;
        let commands = (0..reads).map(|_| {
            time -= (1.0 - random.random::<f64>()).ln() * service / load;
            (time as u64, Operation::Read, random.random_range(0..4096) * 8, PAGE_SECTORS)
        });
        let latencies = open_loop(&mut ssd, commands);
        let mean = latencies.iter().sum::<u64>() as f64 / latencies.len() as f64;
        close(&format!("waiting at load {load}"), mean / service - 1.0, md1_waiting(load), 0.02);
    }
}

/// Writes pages uniformly at random, `rounds` times the capacity. Returns the write amplification
/// of each round.
fn random_writes(config: &Config, rounds: u32) -> (Ssd, Vec<f64>) {
    let mut ssd = Ssd::new(config).unwrap();
    let mut random = SmallRng::seed_from_u64(5);
    let pages = ssd.sectors() / u64::from(PAGE_SECTORS);
    let mut rates = Vec::new();
    for _ in 0..rounds {
        let before = ssd.counters();
        closed_loop(&mut ssd, 32, pages, |_| {
            (Operation::Write, random.random_range(0..pages) * 8, PAGE_SECTORS)
        });
        rates.push(ssd.counters().since(&before).write_amplification());
    }
    (ssd, rates)
}

fn many_blocks(over_provisioning: f64) -> Config {
    let mut config = Config::new(plain_chip(), 1 << 30);
    (config.channels, config.dies_per_channel) = (2, 1);
    config.nand.pages_per_block = 256;
    config.over_provisioning = over_provisioning;
    config.front = Front::instant();
    config
}

#[test]
fn greedy_collection_amplifies_writes_as_published() {
    for spare in [0.07, 0.15, 0.28, 0.5] {
        let (ssd, rates) = random_writes(&many_blocks(spare), 2);
        let published = write_amplification(ssd.over_provisioning());
        for (round, rate) in rates.iter().enumerate() {
            close(&format!("over-provisioning {spare}, round {round}"), *rate, published, 0.05);
            let finite = Steady::new(256, 1.0 + ssd.over_provisioning()).write_amplification();
            close("  for blocks of 256 pages", *rate, finite, 0.01);
        }
    }
}

/// The chips of the paper in a drive as large as `terapage sim ssd` makes by default: the theory is
/// for many blocks.
#[test]
fn drives_with_enough_blocks_amplify_writes_as_published() {
    for (name, spare) in [("2d-fg-mlc", 0.07), ("2d-fg-mlc", 0.15), ("3d-ct-tlc", 0.07), ("3d-fg-tlc", 0.15)]
    {
        let mut config = Config::new(Profile::by_name(name).unwrap(), 0);
        (config.channels, config.dies_per_channel) = (2, 1);
        (config.front, config.over_provisioning) = (Front::instant(), spare);
        let least = config.stripe_bytes() * 50;
        config.capacity_bytes = capacity_within(&[config.clone()], least, 0.02).unwrap();
        let page_sectors = config.nand.page_bytes / 512;
        let mut ssd = Ssd::new(&config).unwrap();
        let pages = ssd.sectors() / u64::from(page_sectors);
        let mut random = SmallRng::seed_from_u64(7);
        let before = ssd.counters();
        closed_loop(&mut ssd, 32, pages, |_| {
            (Operation::Write, random.random_range(0..pages) * u64::from(page_sectors), page_sectors)
        });
        let measured = ssd.counters().since(&before).write_amplification();
        close(&format!("{name}, {spare}"), measured, write_amplification(spare), 0.05);
    }
}

#[test]
fn small_blocks_follow_the_mean_field() {
    let mut config = many_blocks(0.15);
    (config.nand.pages_per_block, config.capacity_bytes) = (16, 128 << 20);
    let (ssd, rates) = random_writes(&config, 3);
    let expected = Steady::new(16, 1.0 + ssd.over_provisioning()).write_amplification();
    close("blocks of 16 pages", rates[2], expected, 0.01);
}

#[test]
fn a_drive_that_was_filled_in_order_comes_to_the_same_state() {
    let mut config = many_blocks(0.15);
    config.preconditioning = Precondition::Sequential { filled: 1.0 };
    config.capacity_bytes = 512 << 20;
    let (ssd, rates) = random_writes(&config, 5);
    close("fifth round", rates[4], write_amplification(ssd.over_provisioning()), 0.05);
}

#[test]
fn cost_benefit_is_not_worse_than_greedy_when_some_pages_are_hot() {
    let run = |gc| {
        let mut config = many_blocks(0.15);
        (config.gc, config.capacity_bytes) = (gc, 128 << 20);
        let mut ssd = Ssd::new(&config).unwrap();
        let mut random = SmallRng::seed_from_u64(6);
        let pages = ssd.sectors() / 8;
        let mut write = |_| {
            // A tenth of the pages gets nine tenths of the writes.
            let hot = random.random_bool(0.9);
            let page =
                if hot { random.random_range(0..pages / 10) } else { random.random_range(pages / 10..pages) };
            (Operation::Write, page * 8, PAGE_SECTORS)
        };
        closed_loop(&mut ssd, 32, pages * 5, &mut write);
        let before = ssd.counters();
        closed_loop(&mut ssd, 32, pages * 3, &mut write);
        ssd.counters().since(&before).write_amplification()
    };
    let (greedy, cost_benefit) = (run(GcPolicy::Greedy), run(GcPolicy::CostBenefit));
    eprintln!("greedy {greedy:.3}, cost-benefit {cost_benefit:.3}");
    assert!(cost_benefit < greedy);
}

/// Sectors of a write unit of four pages.
const UNIT: u32 = 32;

/// One die; a write unit takes 3000 us, a page of SLC 200 us; a cache of 4 MiB.
fn with_slc() -> Config {
    let mut chip = plain_chip();
    chip.set_write_unit(4);
    chip.program_ns = vec![3000 * MICROSECOND];
    chip.slc = Some(Slc { read_ns: 20 * MICROSECOND, program_ns: 200 * MICROSECOND, bits: 4 });
    let mut config = Config::new(chip, 32 << 20);
    (config.channels, config.dies_per_channel) = (1, 1);
    (config.front, config.preconditioning) = (Front::instant(), Precondition::None);
    (config.acknowledge, config.slc_cache_bytes) = (Acknowledge::Programmed, 4 << 20);
    config
}

/// Does `count` commands, one after the other, from `now` on. Returns the end.
fn one_by_one(ssd: &mut Ssd, mut now: Nanos, count: u64, command: impl Fn(u64) -> Command) -> Nanos {
    for at in 0..count {
        let mut done = Vec::new();
        ssd.submit(now, command(at), &mut done);
        while done.is_empty() {
            now = ssd.next_time().expect("the command is in the device");
            ssd.step(&mut done);
        }
    }
    now
}

/// A write of the whole write unit with this number.
fn write(unit: u64) -> Command {
    let sector = unit * u64::from(UNIT);
    Command { tag: unit, operation: Operation::Write, sector, sectors: UNIT }
}

/// Runs background work to its end. Returns the time.
fn rest(ssd: &mut Ssd, mut now: Nanos) -> Nanos {
    while let Some(time) = ssd.next_time() {
        now = time;
        ssd.step(&mut Vec::new());
    }
    now
}

#[test]
fn a_cache_of_slc_is_fast_until_it_is_full() {
    let config = with_slc();
    assert_eq!(config.provision().unwrap().slc_bytes, 4 << 20);
    let mut ssd = Ssd::new(&config).unwrap();
    let near = |from: Nanos, to: Nanos, count: u64, us: u64| {
        assert_eq!((to - from) / count, us * MICROSECOND, "{count} writes");
    };
    // Four pages over the bus, then four programs of SLC.
    let full = one_by_one(&mut ssd, 0, 256, write);
    near(0, full, 256, 4 + 4 * 200);
    // One program of four bits a cell.
    let end = one_by_one(&mut ssd, full, 256, |at| write(at + 256));
    near(full, end, 256, 4 + 3000);
    let counters = ssd.counters();
    assert_eq!((counters.slc_units, counters.folded_units), (1024, 0));
    assert_eq!(counters.write_amplification(), 1.0);
    // In idle time all of it moves: each unit of the cache is programmed twice.
    let empty = rest(&mut ssd, end);
    let counters = ssd.counters();
    assert_eq!((counters.slc_units, counters.folded_units), (1024, 1024));
    assert_eq!(counters.write_amplification(), 1.5);
    let again = one_by_one(&mut ssd, empty, 200, |at| write(at + 512));
    near(empty, again, 200, 4 + 4 * 200);
}

#[test]
fn what_is_overwritten_in_the_cache_is_never_moved() {
    let mut ssd = Ssd::new(&with_slc()).unwrap();
    // The same four write units, 50 times: 3.1 MiB.
    let end = one_by_one(&mut ssd, 0, 200, |at| write(at % 4));
    rest(&mut ssd, end);
    let counters = ssd.counters();
    assert_eq!((counters.slc_units, counters.host_units), (800, 800));
    assert!(counters.folded_units <= 16, "{}", counters.folded_units);
}

#[test]
fn reads_of_slc_take_its_time() {
    let mut ssd = Ssd::new(&with_slc()).unwrap();
    let begin = one_by_one(&mut ssd, 0, 1, write);
    let read = Command { tag: 1, operation: Operation::Read, sector: 0, sectors: 8 };
    let end = one_by_one(&mut ssd, begin, 1, |_| read);
    assert_eq!(end - begin, 20 * MICROSECOND + 1000);
}

/// Writes both halves in order, again and again: the second a twelfth as often.
fn two_lives(placements: Vec<u64>) -> Counters {
    let capacity = 32 << 20;
    let mut config = Config::new(plain_chip(), capacity);
    (config.channels, config.dies_per_channel, config.front) = (2, 2, Front::instant());
    (config.preconditioning, config.placements) = (Precondition::None, placements);
    let mut ssd = Ssd::new(&config).unwrap();
    let half = capacity / 2 / 4096;
    let page = |at: u64| {
        let (rare, often) = (at / 13, at - at / 13);
        let page = if at % 13 == 12 { half + rare % half } else { often % half };
        (Operation::Write, page * 8, 8)
    };
    let first = 30 * half;
    closed_loop(&mut ssd, 16, first, page);
    let before = ssd.counters();
    closed_loop(&mut ssd, 16, 60 * half, |at| page(first + at));
    ssd.counters().since(&before)
}

#[test]
fn data_of_one_life_kept_apart_are_written_once() {
    let apart = two_lives(vec![16 << 20]).write_amplification();
    assert!((1.0..1.005).contains(&apart), "{apart}");
    let mixed = two_lives(Vec::new()).write_amplification();
    assert!(mixed > 1.2, "{mixed}");
}

#[test]
fn what_cannot_be_is_refused() {
    let said = |config: &Config| Ssd::new(config).unwrap_err().to_string();
    let mut config = with_slc();
    config.placements = vec![1 << 20];
    assert!(said(&config).contains("a cache of SLC mixes the data"));
    config.slc_cache_bytes = 0;
    config.placements = vec![2 << 20, 1 << 20];
    assert!(said(&config).contains("placements: 3 parts: must ascend"));
    let mut config = with_slc();
    config.nand.slc = None;
    assert!(said(&config).contains("has no times of SLC blocks"));
}
