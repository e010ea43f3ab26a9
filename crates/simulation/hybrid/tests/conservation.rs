//! Every byte that was acknowledged is in the cache or below it, whatever happens.
//!
//! The device below notes the version of each sector that it received. The cache must agree: a
//! sector is dirty in the cache, or its newest version is below.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;
use terapage_event::Nanos;
use terapage_hybrid::{Cache, CacheKind, CacheOptions, FixedLatency, MemoryTiming};
use terapage_ssd::{Command, Device, Done, Operation};

const SECTORS: u64 = 400;

/// Versions by sector: the one that the host wrote last, and the one below.
#[derive(Default)]
struct Versions {
    newest: Vec<u32>,
    below: Vec<u32>,
    reads_below: u64,
}

struct Recording {
    device: FixedLatency,
    versions: Rc<RefCell<Versions>>,
}

impl Device for Recording {
    fn sectors(&self) -> u64 {
        self.device.sectors()
    }

    fn submit(&mut self, now: Nanos, command: Command, done: &mut Vec<Done>) {
        let mut versions = self.versions.borrow_mut();
        let range = command.sector as usize..command.sector as usize + command.sectors as usize;
        let Versions { newest, below, reads_below } = &mut *versions;
        match command.operation {
            Operation::Write => below[range.clone()].copy_from_slice(&newest[range]),
            Operation::Trim => below[range].fill(u32::MAX),
            Operation::Read => *reads_below += u64::from(command.sectors),
        }
        drop(versions);
        self.device.submit(now, command, done);
    }

    fn next_time(&self) -> Option<Nanos> {
        self.device.next_time()
    }

    fn step(&mut self, done: &mut Vec<Done>) {
        self.device.step(done);
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    operation: Operation,
    sector: u64,
    sectors: u32,
    /// The time that passes before the command.
    pause_ns: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let operation =
        prop_oneof![5 => Just(Operation::Write), 4 => Just(Operation::Read), 1 => Just(Operation::Trim)];
    let step = (operation, 0..SECTORS, 1_u32..80, prop_oneof![Just(0_u64), 0_u64..3_000]).prop_map(
        |(operation, sector, sectors, pause_ns)| {
            let sectors = sectors.min((SECTORS - sector) as u32);
            Step { operation, sector, sectors, pause_ns }
        },
    );
    prop::collection::vec(step, 1..300)
}

fn options() -> impl Strategy<Value = CacheOptions> {
    let kind = prop_oneof![
        Just(CacheKind::NvWb),
        Just(CacheKind::WriteOnly),
        Just(CacheKind::Space),
        Just(CacheKind::Dram)
    ];
    let policy =
        prop_oneof![Just("lru"), Just("auto"), Just("fifo"), Just("s3fifo"), Just("2q"), Just("arc")];
    let marks = prop_oneof![Just((0.2, 0.2)), Just((0.0, 0.0)), Just((0.1, 0.6))];
    (kind, policy, marks, 1_u64..40, 0_u32..6, 1_u32..5, any::<(bool, bool)>()).prop_map(
        |(kind, policy, (low_water, high_water), lines, shift, unit, (pad, whole_lines))| {
            let line_bytes = 512 << shift;
            CacheOptions {
                kind,
                bytes: lines * u64::from(line_bytes),
                line_bytes,
                evict_bytes: line_bytes * unit,
                pad,
                whole_lines,
                low_water,
                high_water,
                copy_above: 0.4,
                policy: policy.to_owned(),
                memory: MemoryTiming { latency_ns: 10, banks: 2, ..MemoryTiming::default() },
                flush_after_ns: 2_000,
            }
        },
    )
}

fn check(cache: &Cache<Recording>, versions: &RefCell<Versions>) -> Result<(), TestCaseError> {
    let versions = versions.borrow();
    for sector in 0..SECTORS {
        let (newest, below) = (versions.newest[sector as usize], versions.below[sector as usize]);
        match cache.dirty(sector) {
            Some(true) => {}
            Some(false) | None => prop_assert_eq!(newest, below, "sector {} is nowhere", sector),
        }
    }
    Ok(())
}

/// Lets the device work until `time`, and acknowledges the commands that end.
fn work(cache: &mut Cache<Recording>, until: Nanos, open: &mut Vec<u64>) -> Result<(), TestCaseError> {
    let mut done = Vec::new();
    while let Some(time) = cache.next_time().filter(|&time| time <= until) {
        cache.step(&mut done);
        for end in done.drain(..) {
            prop_assert_eq!(end.time, time);
            let at = open.iter().position(|&tag| tag == end.tag);
            prop_assert!(at.is_some(), "command {} ended twice", end.tag);
            open.swap_remove(at.unwrap_or_default());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_that_was_written_is_lost(options in options(), steps in steps(), below_ns in 0_u64..5_000) {
        let versions = Rc::new(RefCell::new(Versions::default()));
        versions.borrow_mut().newest = vec![0; SECTORS as usize];
        versions.borrow_mut().below = vec![0; SECTORS as usize];
        let below = Recording { device: FixedLatency::new(SECTORS, below_ns, 3), versions: versions.clone() };
        let mut cache = Cache::new(below, &options).expect("the options are good");
        let low = (options.low_water * options.lines() as f64 + 1e-9) as u64;
        let low = low.min(options.lines() - 1);
        let (mut now, mut open, mut done) = (0, Vec::new(), Vec::new());
        for (tag, step) in (1..).zip(steps) {
            now += step.pause_ns;
            work(&mut cache, now, &mut open)?;
            let range = step.sector as usize..step.sector as usize + step.sectors as usize;
            match step.operation {
                Operation::Write => versions.borrow_mut().newest[range].fill(tag as u32),
                Operation::Trim => versions.borrow_mut().newest[range].fill(u32::MAX),
                Operation::Read => {}
            }
            let Step { operation, sector, sectors, .. } = step;
            open.push(tag);
            cache.submit(now, Command { tag, operation, sector, sectors }, &mut done);
            for end in done.drain(..) {
                open.retain(|&tag| tag != end.tag);
            }
            check(&cache, &versions)?;
            prop_assert!(cache.free_lines() as u64 >= low, "{} lines free", cache.free_lines());
        }
        work(&mut cache, Nanos::MAX, &mut open)?;
        prop_assert!(open.is_empty(), "{open:?} never ended");
        let counters = cache.counters();
        prop_assert_eq!(counters.below_read_sectors, versions.borrow().reads_below);
        prop_assert_eq!(counters.lines, options.lines() - cache.free_lines() as u64);
        let dirty = (0..SECTORS).filter(|&sector| cache.dirty(sector) == Some(true)).count();
        prop_assert_eq!(counters.unsafe_sectors, dirty as u64, "all writes below have ended");
        if options.kind == CacheKind::Dram {
            prop_assert_eq!(dirty, 0, "a volatile cache is clean when it has had time");
        }
    }
}
