//! The behaviour of an SSD that a user can see.

mod support;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::{closed_loop, open_loop, plain_chip};
use terapage_event::{MICROSECOND, MILLISECOND};
use terapage_ssd::{
    Acknowledge, Config, ConfigError, Counters, Device, Front, Operation, Precondition, Profile, Ssd,
};

fn small() -> Config {
    let mut config = Config::new(plain_chip(), 32 << 20);
    (config.channels, config.dies_per_channel) = (2, 2);
    config.front = Front::instant();
    config
}

/// Runs a mix of all commands. Returns every latency and the counters.
fn mixed(config: &Config) -> (Vec<u64>, Counters) {
    let mut ssd = Ssd::new(config).unwrap();
    let mut random = SmallRng::seed_from_u64(8);
    let sectors = ssd.sectors();
    let commands = (0..20_000u64).map(|at| {
        let operation = match random.random_range(0..10) {
            0..5 => Operation::Read,
            5..9 => Operation::Write,
            _ => Operation::Trim,
        };
        (at * 60 * MICROSECOND, operation, random.random_range(0..sectors - 40), random.random_range(1..40))
    });
    let latencies = open_loop(&mut ssd, commands);
    (latencies, ssd.counters())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let config = small();
    assert_eq!(mixed(&config), mixed(&config));
    let other = Config { seed: 2, ..config.clone() };
    assert_ne!(mixed(&config), mixed(&other));
}

#[test]
fn a_read_passes_through_its_phases() {
    let mut config = small();
    (config.nand.command_ns, config.nand.bus_bytes_per_second) = (300, 400_000_000);
    config.front = Front::Sata { depth: 32, bytes_per_second: 500_000_000, latency_ns: 10_000 };
    let mut ssd = Ssd::new(&config).unwrap();
    let latencies = open_loop(&mut ssd, [(0, Operation::Read, 0, 8)].into_iter());
    // The times of controller, command, array, bus and link.
    assert_eq!(latencies, [10_000 + 300 + 75_000 + 10_240 + 8_192]);
}

#[test]
fn less_than_a_page_moves_whole_codewords() {
    let mut config = small();
    config.nand.page_bytes = 16 << 10;
    config.nand.bus_bytes_per_second = 1_000_000_000;
    let read = |sector, sectors| {
        let mut ssd = Ssd::new(&config).unwrap();
        open_loop(&mut ssd, [(0, Operation::Read, sector, sectors)].into_iter())[0] - 75_000
    };
    assert_eq!(read(0, 32), 16_384);
    assert_eq!(read(0, 1), 4096);
    assert_eq!(read(7, 2), 8192);
}

#[test]
fn planes_read_together() {
    let mut config = small();
    (config.nand.planes, config.channels, config.dies_per_channel) = (2, 1, 1);
    config.preconditioning = Precondition::Sequential { filled: 1.0 };
    let mut ssd = Ssd::new(&config).unwrap();
    let latencies = open_loop(&mut ssd, [(0, Operation::Read, 0, 16)].into_iter());
    assert_eq!(latencies, [75_000 + 2 * 1000]);
}

#[test]
fn a_write_ends_when_its_acknowledgement_says() {
    let mut config = small();
    let one = [(0, Operation::Write, 0, 8)];
    let latency = |config: &Config| open_loop(&mut Ssd::new(config).unwrap(), one.into_iter())[0];
    assert_eq!(latency(&config), 0);
    config.acknowledge = Acknowledge::Programmed;
    assert_eq!(latency(&config), 1000 + 750_000);
}

#[test]
fn a_lone_page_of_a_write_unit_waits_and_is_padded() {
    let mut config = small();
    config.nand.write_unit = 4;
    config.acknowledge = Acknowledge::Programmed;
    config.flush_after_ns = Some(3 * MILLISECOND);
    let mut ssd = Ssd::new(&config).unwrap();
    let commands = [(0, 0), (MILLISECOND, 100), (2 * MILLISECOND, 200)];
    let latencies =
        open_loop(&mut ssd, commands.iter().map(|&(time, page)| (time, Operation::Write, page * 8, 8)));
    // All pages are programmed when the first has waited 3 ms.
    let end = 3 * MILLISECOND + 4 * 1000 + 750_000;
    assert_eq!(latencies, [end, end - MILLISECOND, end - 2 * MILLISECOND]);
    let counters = ssd.counters();
    assert_eq!((counters.padded_units, counters.nand_programs - counters.nand_gc_programs), (1, 4));
}

#[test]
fn a_partial_write_reads_the_rest_first() {
    let mut config = small();
    config.acknowledge = Acknowledge::Programmed;
    let mut ssd = Ssd::new(&config).unwrap();
    let latencies = open_loop(&mut ssd, [(0, Operation::Write, 3, 2)].into_iter());
    assert_eq!(latencies, [75_000 + 1000 + 1000 + 750_000]);
    assert_eq!(ssd.counters().nand_fill_reads, 1);
}

#[test]
fn what_was_never_written_or_was_trimmed_is_not_read() {
    let mut config = small();
    config.preconditioning = Precondition::Sequential { filled: 0.5 };
    let mut ssd = Ssd::new(&config).unwrap();
    let last = ssd.sectors() - 8;
    let commands = [
        (0, Operation::Read, last, 8),
        (1, Operation::Trim, 4, 20),
        (2, Operation::Read, 8, 8),
        (3, Operation::Read, 0, 8),
    ];
    let latencies = open_loop(&mut ssd, commands.into_iter());
    // The trim covers the second page and a part of the others.
    assert_eq!(latencies, [0, 0, 0, 76_000]);
    assert_eq!((ssd.counters().unmapped_reads, ssd.counters().nand_host_reads), (2, 1));
}

#[test]
fn reads_pass_a_program_only_by_suspending_it() {
    let mut config = small();
    (config.channels, config.dies_per_channel) = (1, 1);
    let latency = |config: &Config| {
        let mut ssd = Ssd::new(config).unwrap();
        let commands = [(0, Operation::Write, 0, 8), (100 * MICROSECOND, Operation::Read, 8000, 8)];
        open_loop(&mut ssd, commands.into_iter())[1]
    };
    let alone = 76 * MICROSECOND;
    assert!(latency(&config) > alone + 500 * MICROSECOND);
    config.suspend = true;
    assert_eq!(latency(&config), alone + config.nand.program_suspend_ns);
}

#[test]
fn the_depth_of_the_front_limits_what_is_in_the_device() {
    let mut config = small();
    config.front = Front::Sata { depth: 1, bytes_per_second: 4_096_000_000, latency_ns: 0 };
    let mut ssd = Ssd::new(&config).unwrap();
    let reads = (0..10).map(|at| (0, Operation::Read, at * 800, 8));
    let latencies = open_loop(&mut ssd, reads);
    let one = 75_000 + 1000 + 1000;
    assert_eq!(latencies, (1..=10).map(|at| at * one).collect::<Vec<u64>>());
}

#[test]
fn a_full_drive_with_little_room_still_takes_writes() {
    for nand in ["3d-ct-tlc", "2d-fg-mlc", "zn540-fit"] {
        let mut config = Config::new(Profile::by_name(nand).unwrap(), 64 << 20);
        config.over_provisioning = 0.01;
        let mut ssd = Ssd::new(&config).unwrap();
        let mut random = SmallRng::seed_from_u64(9);
        let sectors = ssd.sectors();
        closed_loop(&mut ssd, 16, 20_000, |_| (Operation::Write, random.random_range(0..sectors - 64), 64));
        assert_eq!(ssd.counters().host_writes, 20_000);
    }
}

#[test]
fn wear_is_even_under_even_writes() {
    let mut config = small();
    config.over_provisioning = 0.2;
    let mut ssd = Ssd::new(&config).unwrap();
    let mut random = SmallRng::seed_from_u64(10);
    let pages = ssd.sectors() / 8;
    closed_loop(&mut ssd, 32, pages * 20, |_| (Operation::Write, random.random_range(0..pages) * 8, 8));
    let counters = ssd.counters();
    assert!(counters.wear_mean > 20.0);
    assert!(f64::from(counters.wear_max) < counters.wear_mean * 2.0, "{counters:?}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let refuse = |change: fn(&mut Config), field: &str| {
        let mut config = small();
        change(&mut config);
        let error = Ssd::new(&config).expect_err(field);
        assert!(error.to_string().contains(field), "{error}");
        assert!(matches!(error, ConfigError::Field { .. } | ConfigError::Nand(_)));
    };
    refuse(|config| config.channels = 0, "channels");
    refuse(|config| config.over_provisioning = f64::NAN, "over-provisioning");
    refuse(|config| config.over_provisioning = 0.0, "over-provisioning");
    refuse(|config| config.mapping_bytes = Some(8192), "mapping_bytes");
    refuse(|config| config.capacity_bytes = 0, "capacity");
    refuse(|config| config.capacity_bytes = 1 << 60, "capacity");
    refuse(|config| config.buffer_bytes = Some(1), "buffer_bytes");
    refuse(|config| config.nand.page_bytes = 3000, "page");
    refuse(|config| config.front = Front::Sata { depth: 0, bytes_per_second: 1, latency_ns: 0 }, "front");
    refuse(|config| config.preconditioning = Precondition::Steady { filled: 1.5 }, "preconditioning");
    refuse(
        |config| (config.acknowledge, config.flush_after_ns) = (Acknowledge::Programmed, None),
        "flush_after_ns",
    );
}
