//! Recordings made by hand: references at several block sizes, touches that were not recorded,
//! damaged traces, and the replay of the pager.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use terapage_advise::policies::Comparison;
use terapage_advise::recording::{After, What};
use terapage_advise::replay::{Setup, Timing, compute_us, replay};
use terapage_advise::{Costs, Device, Recording};
use terapage_policy::belady::{Use, simulate_soft};
use terapage_policy::replacement;
use terapage_policy::soft::SoftFrames;
use terapage_trace::{Event, Header, Misses, PageOut, Reader, Record, Writer, references};

const BLOCK: u64 = 16 << 10;

/// A file with a trace of these events, 10 us apart.
fn trace(events: &[Event]) -> tempfile::NamedTempFile {
    let header = Header {
        block_bytes: BLOCK as u32,
        budget_bytes: 8 * BLOCK,
        program: "made".into(),
        ..Header::default()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Writer::new(file.reopen().unwrap(), &header).unwrap();
    let region = Event::RegionAdd { start: 0x7f00_0000_0000, len: 1 << 30, first: 0 };
    for (at, event) in [region].iter().chain(events).enumerate() {
        writer.record(&Record { time_us: at as u64 * 10, event: *event }).unwrap();
    }
    writer.finish().unwrap();
    file
}

#[test]
fn a_file_of_learn_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    Misses { page_bytes: 4096, keys: vec![1, 2], ..Misses::default() }.write(file.path()).unwrap();
    let error = Recording::open(file.path()).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("a file of --learn has misses only") && !error.contains('\n'), "{error}");
}

fn first(block: u32) -> Event {
    Event::FirstTouch { block }
}

fn hard(block: u32) -> Event {
    Event::MajorFault { block }
}

fn out(block: u32, how: PageOut) -> Event {
    Event::PageOut { block, how }
}

fn open(events: &[Event]) -> Recording {
    Recording::open(trace(events).path()).unwrap()
}

/// References as the trace crate returns them: a block that begins again gets a new name.
fn renamed(uses: &[Use]) -> Vec<u32> {
    let mut names = HashMap::new();
    let mut next = 0..;
    let mut references = Vec::new();
    for one in uses {
        match one {
            Use::Touch(block) => {
                references.push(*names.entry(*block).or_insert_with(|| next.next().unwrap()))
            }
            Use::Free(block) => drop(names.remove(block)),
        }
    }
    references
}

#[test]
fn references_are_those_of_the_trace_crate() {
    let events = [
        first(5),
        Event::FreshAhead { block: 6 },
        out(5, PageOut::Dirty),
        hard(5),
        out(6, PageOut::Zero),
        first(6),
        Event::Discard { block: 5, count: 2 },
        first(5),
        first(6),
        Event::MinorFault { block: 6 },
        Event::Prefetched { block: 9 },
        out(9, PageOut::Clean),
        Event::PutBack { block: 9 },
    ];
    let file = trace(&events);
    let ours = Recording::open(file.path()).unwrap().uses(0);
    let theirs = references(Reader::open(file.path()).unwrap()).unwrap();
    // Only the names differ.
    let theirs: Vec<Use> = theirs.into_iter().map(Use::Touch).collect();
    assert_eq!(renamed(&ours.list), renamed(&theirs));
}

#[test]
fn freed_memory_is_free() {
    // 64 blocks stay; 32 others come and go twenty times, at separate places.
    let mut events: Vec<Event> = (0..64).map(first).collect();
    for round in 0..20 {
        let from = 64 + round * 32;
        events.extend((from..from + 32).flat_map(|block| [first(block), out(block, PageOut::Dirty)]));
        events.extend((0..64).flat_map(|block| [hard(block), out(block, PageOut::Clean)]));
        events.push(Event::Discard { block: from, count: 32 });
    }
    let uses = open(&events).uses(0);
    assert_eq!((uses.live_blocks, uses.touched_blocks), (96, 64 + 20 * 32));
    let comparison = Comparison {
        frames: vec![95, 96, 100],
        policies: replacement::NAMES.iter().map(|name| (*name).to_owned()).collect(),
        make: replacement::by_name,
        block_bytes: BLOCK,
        soft_per_mille: None,
        rate: 1.0,
        seed: 0,
    };
    let compared = comparison.run(&uses, 0, |_, _| {}).unwrap();
    assert_eq!((compared.footprint, compared.touched), (96.0, 704.0));
    assert!(compared.rows[0].lru > 0.0);
    for row in &compared.rows[1..] {
        assert_eq!((row.lru, row.optimum), (0.0, 0.0), "{row:?}");
        assert!(row.policies.iter().all(|outcome| outcome.page_ins == 0.0), "{row:?}");
    }
}

#[test]
fn blocks_put_back_are_in_place_again() {
    let around = [first(0), first(1), first(2), out(1, PageOut::Clean), out(2, PageOut::Clean)];
    let back = [Event::MinorFault { block: 1 }, Event::PutBack { block: 2 }, first(3)];
    let recording = open(&[&around[..], &back[..]].concat());
    assert_eq!(recording.window, 4);
    assert_eq!(recording.did.minor_faults, 1);
}

#[test]
fn merged_blocks_begin_again_only_when_all_parts_are_gone() {
    let recording = open(&[
        first(0),
        first(1),
        first(4),
        Event::Discard { block: 0, count: 1 },
        first(0),
        Event::Discard { block: 0, count: 2 },
        first(1),
    ]);
    assert_eq!(renamed(&recording.uses(0).list), [0, 1, 2, 3, 4]);
    // Blocks 0 and 1 are one merged block. A part of it survives the first discard.
    assert_eq!(renamed(&recording.uses(1).list), [0, 0, 1, 0, 2]);
    assert_eq!(renamed(&recording.uses(3).list), [0, 0, 0, 0, 0]);
    assert_eq!(recording.shift(64 << 10).unwrap(), 2);
    for wrong in [8 << 10, 48 << 10, 4 << 20] {
        let error = recording.shift(wrong).err().unwrap().to_string();
        assert!(error.contains("16384 times 2, 4, 8") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn merged_blocks_are_aligned_by_address() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let header = Header {
        block_bytes: BLOCK as u32,
        budget_bytes: 1 << 20,
        program: "made".into(),
        ..Header::default()
    };
    let mut writer = Writer::new(file.reopen().unwrap(), &header).unwrap();
    let events = [
        // Three blocks that begin in the middle of a block of 64 KiB, and then others.
        Event::RegionAdd { start: 2 * BLOCK, len: 3 * BLOCK, first: 0 },
        Event::RegionAdd { start: 64 * BLOCK, len: 64 * BLOCK, first: 3 },
        first(0),
        first(1),
        first(2),
        first(3),
        first(7),
    ];
    for event in events {
        writer.record(&Record { time_us: 1, event }).unwrap();
    }
    writer.finish().unwrap();
    let recording = Recording::open(file.path()).unwrap();
    assert_eq!(renamed(&recording.uses(2).list), [0, 0, 1, 2, 3]);
    let merger = recording.merger(2);
    assert_eq!(merger.within(3, 8), 2..4);
    assert_eq!(merger.within(4, 7), 3..4);
    assert_eq!(merger.within(0, 1), 1..1);
}

#[test]
fn the_window_is_the_most_that_was_in_place() {
    let recording = open(&[
        first(0),
        first(1),
        first(2),
        out(0, PageOut::Dirty),
        out(1, PageOut::Clean),
        hard(0),
        Event::Discard { block: 0, count: 3 },
        first(3),
    ]);
    assert_eq!(recording.window, 3);
    assert_eq!(recording.steps[0].after, After::Dirty);
    assert_eq!(recording.steps[1].after, After::Clean);
    assert_eq!(recording.steps[4].what, What::Discard(3));
    assert_eq!((recording.did.first_touches, recording.did.major_faults), (4, 1));
}

#[test]
fn broken_traces_are_refused_in_one_line() {
    let good = std::fs::read(trace(&[first(0), hard(0)]).path()).unwrap();
    let refused = |bytes: &[u8], part: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let error = Recording::open(file.path()).err().expect(part).to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    };
    refused(b"", "cut short");
    refused(b"no trace at all, but long enough to look like a header", "expected");
    let mut changed = good.clone();
    let middle = changed.len() - 30;
    changed[middle] ^= 1;
    refused(&changed, "at byte");
    let empty = std::fs::read(trace(&[]).path()).unwrap();
    refused(&empty, "no references");
    let error = Recording::open(Path::new("/nowhere/at/all")).err().unwrap().to_string();
    assert!(error.starts_with("/nowhere/at/all:") && !error.contains('\n'), "{error}");
    // A trace without an end is read as far as possible.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&good[..good.len() - 16]).unwrap();
    assert!(Recording::open(file.path()).unwrap().cut_short.is_some());
}

fn machine() -> Timing {
    let device = Device::stated("d", 100.0, 1e9, 1e9);
    let costs = Costs {
        block_bytes: BLOCK,
        minor_us: 10.0,
        demand_us: 120.0,
        first_us: 5.0,
        native_us: 4.0,
        fresh_us: 1.0,
        recycled_us: 2.0,
        read_bytes_s: 1e9,
        write_bytes_s: 1e9,
        device_bytes_s: (1e9, 1e9),
        block_cpu_us: 1.0,
        wake_us: 0.0,
    };
    Timing {
        native_us: 1e6,
        parallelism: 1.0,
        processors: 4,
        costs,
        device: device.clone(),
        measured: device,
    }
}

/// Passes over `blocks` blocks. Either all passes write, or only the first one does.
fn passes(blocks: u32, count: usize, later: PageOut) -> Vec<Event> {
    let mut events: Vec<Event> =
        (0..blocks).flat_map(|block| [first(block), out(block, PageOut::Dirty)]).collect();
    for _ in 1..count {
        events.extend((0..blocks).flat_map(|block| [hard(block), out(block, later)]));
    }
    events
}

#[test]
fn the_programs_own_time_adds_up() {
    let recording = open(&passes(50, 4, PageOut::Dirty));
    let compute = compute_us(&recording, 1e6);
    let sum: f64 = compute.iter().map(|us| f64::from(*us)).sum();
    assert_eq!(compute.len(), recording.steps.len());
    assert!((sum - 1e6).abs() < 1.0, "{sum}");
}

#[test]
fn what_fits_is_never_read() {
    let recording = open(&passes(200, 5, PageOut::Dirty));
    let compute = compute_us(&recording, 1e6);
    let setup = |frames| Setup { shift: 0, frames, policy: "auto".into(), prefetch: "off".into() };
    let roomy = replay(&recording, &compute, &setup(1000), &machine());
    assert_eq!((roomy.page_ins(), roomy.written, roomy.minor_faults), (0, 0, 0));
    // If paging never began, the prediction is exactly the native time.
    assert!((roomy.total_us - 1e6).abs() < 1.0, "{}", roomy.total_us);
    let tight = replay(&recording, &compute, &setup(50), &machine());
    assert!(tight.page_ins() > 500 && tight.written > 500, "{tight:?}");
    let parts = tight.demand_us + tight.stream_us + tight.minor_us + tight.first_us + tight.write_us;
    assert!((tight.total_us - 1e6 - parts).abs() < 10.0, "{tight:?}");
    // Without prefetch, the program waits for each page-in.
    assert!((tight.demand_us - 120.0 * tight.demand as f64).abs() < 1.0, "{tight:?}");
}

#[test]
fn a_pager_that_sleeps_is_woken_at_a_price() {
    let recording = open(&passes(200, 5, PageOut::Dirty));
    let setup = Setup { shift: 0, frames: 50, policy: "lru".into(), prefetch: "off".into() };
    // The cost of all wake-ups together, if the program takes this long natively.
    let price = |native_us: f64| {
        let compute = vec![(native_us / recording.steps.len() as f64) as f32; recording.steps.len()];
        let total = |wake_us: f64| {
            let mut timing = Timing { native_us, ..machine() };
            timing.costs.wake_us = wake_us;
            replay(&recording, &compute, &setup, &timing)
        };
        let (with, without) = (total(60.0), total(0.0));
        assert_eq!(with.page_ins(), without.page_ins());
        (with.total_us - without.total_us) / (60.0 * with.demand as f64)
    };
    let (rare, frequent) = (price(1e8), price(1e3));
    assert!(rare > 0.9, "faults that are 100 ms apart find it asleep: {rare}");
    assert!(frequent < 0.1, "faults that follow at once find it awake: {frequent}");
}

#[test]
fn prefetch_hides_latency_of_streams_and_costs_bandwidth() {
    let recording = open(&passes(16_000, 4, PageOut::Clean));
    let compute = compute_us(&recording, 1e5);
    let setup =
        |prefetch: &str| Setup { shift: 0, frames: 4000, policy: "auto".into(), prefetch: prefetch.into() };
    let timing = Timing { native_us: 1e5, ..machine() };
    let (off, on) = (
        replay(&recording, &compute, &setup("off"), &timing),
        replay(&recording, &compute, &setup("auto"), &timing),
    );
    assert!(on.demand * 3 < off.demand, "{on:?} {off:?}");
    assert!(on.total_us < off.total_us / 2.0, "{on:?} {off:?}");
    // The prediction is no faster than the device transfers the bytes.
    let bytes = (on.page_ins() + on.written) as f64 * BLOCK as f64;
    assert!(on.total_us * 1e-6 >= bytes / 1e9 * 0.95, "{on:?}");
}

#[test]
fn the_replay_reads_what_the_soft_model_reads() {
    // Skewed touches without order: the result depends on the policies, which both models run.
    let mut events: Vec<Event> =
        (0..400).flat_map(|block| [first(block), out(block, PageOut::Dirty)]).collect();
    let mut seed = 5u64;
    for _ in 0..8000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let u = (seed >> 33) as f64 / f64::from(1u32 << 31);
        let block = (400.0 * u * u) as u32;
        events.extend([hard(block), out(block, PageOut::Clean)]);
    }
    let recording = open(&events);
    let compute = compute_us(&recording, 1e6);
    let references = recording.uses(0).list;
    for policy in replacement::NAMES {
        let setup = Setup { shift: 0, frames: 200, policy: (*policy).into(), prefetch: "off".into() };
        let replayed = replay(&recording, &compute, &setup, &machine()).page_ins() as f64;
        let mut simple = replacement::by_name(policy, 200).unwrap();
        let modelled = simulate_soft(&mut *simple, &references, 200, SoftFrames::new(200, BLOCK as usize, 20))
            .page_ins as f64;
        // The pager pages out in batches, ahead of need.
        assert!((replayed / modelled - 1.0).abs() < 0.1, "{policy}: {replayed} {modelled}");
    }
}

#[test]
fn comparisons_bracket_the_optimum() {
    let recording = open(&passes(300, 6, PageOut::Clean));
    let comparison = Comparison {
        frames: vec![50, 100, 200],
        policies: replacement::NAMES.iter().map(|name| (*name).to_owned()).collect(),
        make: replacement::by_name,
        block_bytes: BLOCK,
        soft_per_mille: None,
        rate: 1.0,
        seed: 0,
    };
    let compared = comparison.run(&recording.uses(0), recording.window, |_, _| {}).unwrap();
    assert_eq!(compared.footprint, 300.0);
    for row in &compared.rows {
        assert!(row.optimum <= row.optimum_at_most.unwrap() && row.optimum <= row.lru);
        assert!(
            row.policies.len() == 7 && row.policies.iter().all(|outcome| outcome.page_ins >= row.optimum),
            "{row:?}"
        );
    }
    let unknown = Comparison { policies: vec!["best".into()], ..comparison };
    let error = unknown.run(&recording.uses(0), 1, |_, _| {}).err().unwrap().to_string();
    assert!(error.contains("'best' is unknown"), "{error}");
}
