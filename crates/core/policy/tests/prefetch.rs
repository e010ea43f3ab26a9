//! Prefetch policies under a small model of the pager, which reports touches as the pager does.

use std::collections::HashSet;

use proptest::prelude::*;
use terapage_policy::prefetch::{Ahead, NAMES, Prefetch, by_name};

fn policy(name: &str, run: u32, ahead: u32) -> Box<dyn Prefetch> {
    by_name(name, 1 << 16, run, ahead).expect("the name is in NAMES")
}

fn blocks(ahead: Ahead) -> impl Iterator<Item = u32> {
    (0..i64::from(ahead.count)).map(move |i| {
        let block = i64::from(ahead.first) + i * i64::from(ahead.step);
        u32::try_from(block).expect("a run stays within the numbers of blocks")
    })
}

/// A small model of the pager, with enough memory. It reports faults and markers to a policy.
struct Pager {
    policy: Box<dyn Prefetch>,
    present: HashSet<u32>,
    markers: HashSet<u32>,
    asked: HashSet<u32>,
    /// Touches whose block was absent.
    faults: u32,
    /// The longest run that the policy asked for.
    run: u32,
    /// Whether runs may contain blocks that are in memory.
    overlaps: bool,
}

impl Pager {
    fn new(policy: Box<dyn Prefetch>) -> Self {
        let (present, markers, asked) = Default::default();
        Pager { policy, present, markers, asked, faults: 0, run: 0, overlaps: false }
    }

    fn touch(&mut self, block: u32) {
        let fault = self.present.insert(block);
        self.faults += u32::from(fault);
        if fault {
            self.policy.missing();
        } else if !self.markers.remove(&block) {
            return;
        }
        let Some(ahead) = self.policy.touched(block) else { return };
        assert!(ahead.count > 0 && ahead.step != 0, "{ahead:?}");
        self.run = self.run.max(ahead.count);
        self.markers.insert(ahead.first);
        for block in blocks(ahead) {
            assert!(self.asked.insert(block) || self.overlaps, "{block} is asked for twice: {ahead:?}");
            self.present.insert(block);
        }
    }
}

#[test]
fn every_name_is_known() {
    for name in NAMES {
        assert_eq!(policy(name, 8, 32).name(), *name);
    }
    assert!(by_name("nonesuch", 1 << 16, 8, 32).is_none());
}

#[test]
fn the_window_doubles_up_to_the_run() {
    for name in ["auto", "sequential"] {
        let mut policy = policy(name, 16, 64);
        let mut runs = Vec::new();
        let mut touch = 100;
        assert_eq!(policy.touched(touch), None);
        touch += 1;
        while let Some(ahead) = policy.touched(touch) {
            runs.push(ahead.count);
            touch = ahead.first;
            if runs.len() == 6 {
                break;
            }
        }
        assert_eq!(runs, [2, 4, 8, 16, 16, 16], "{name}");
    }
}

#[test]
fn a_run_longer_than_ahead_does_not_stop_the_stream() {
    for name in ["auto", "sequential"] {
        let mut pager = Pager::new(policy(name, 64, 4));
        (0..1000).for_each(|block| pager.touch(block));
        assert_eq!(pager.faults, 2, "{name}");
        assert_eq!(pager.run, 2, "{name}");
    }
}

#[test]
fn a_descending_stream_reaches_block_0() {
    for name in ["auto", "sequential"] {
        let mut pager = Pager::new(policy(name, 16, 64));
        (0..1000).rev().for_each(|block| pager.touch(block));
        assert_eq!(pager.faults, 2, "{name}");
        assert!(pager.asked.contains(&0), "{name}");
    }
}

#[test]
fn three_arrays_by_two_threads() {
    for name in ["auto", "sequential"] {
        let mut pager = Pager::new(policy(name, 16, 64));
        for i in 0..500 {
            for array in [10_000, 20_000, 30_000] {
                pager.touch(array + i);
                pager.touch(array + 5000 + i);
            }
        }
        assert_eq!(pager.faults, 6 * 2, "{name}");
    }
}

#[test]
fn a_program_that_goes_back_is_followed_again() {
    for name in ["auto", "sequential"] {
        let mut policy = policy(name, 8, 64);
        let mut asked = [0, 0, 0];
        for pass in &mut asked {
            for block in 0..40 {
                *pass += policy.touched(block).map_or(0, |ahead| ahead.count);
            }
        }
        assert!(asked.iter().all(|&asked| asked >= 20), "{name}: {asked:?}");
    }
}

#[test]
fn passes_over_what_has_left_memory_are_followed_at_once() {
    for name in ["auto", "sequential"] {
        let mut policy = policy(name, 16, 64);
        for pass in 0..40 {
            // In each pass, the same two parts of an array are no longer in memory.
            let mut pager = Pager { overlaps: true, ..Pager::new(policy) };
            (1000..1032).chain(1100..1132).for_each(|block| pager.touch(block));
            let misses = pager.faults;
            policy = pager.policy;
            assert!(misses <= 8, "{name}, pass {pass}: {misses}");
        }
    }
}

#[test]
fn a_stride_is_found_and_followed() {
    for (name, faults_max) in [("auto", 4), ("stride", 4), ("trend", 8)] {
        for step in [2, 7, 1000, -3] {
            let mut pager = Pager::new(policy(name, 16, 64));
            for i in 0..300 {
                pager.touch((500_000 + i * step) as u32);
            }
            assert!(pager.faults <= faults_max, "{name}, step {step}: {}", pager.faults);
        }
    }
}

#[test]
fn a_trend_is_found_in_noise() {
    let mut pager = Pager::new(policy("trend", 16, 64));
    for i in 0..2000_u32 {
        pager.touch(10_000 + i * 3);
        if i % 5 == 4 {
            pager.touch(1_000_000 + i.wrapping_mul(2_654_435_761) % 1_000_000);
        }
    }
    assert!(pager.faults < 400 + 100, "{} faults, 400 of them noise", pager.faults);
}

#[test]
fn waste_shrinks_the_windows_and_use_grows_them() {
    let mut policy = policy("auto", 16, 64);
    let longest = |policy: &mut Box<dyn Prefetch>, from: u32| {
        let runs = (from..from + 300).filter_map(|block| policy.touched(block));
        runs.map(|ahead| ahead.count).max()
    };
    assert_eq!(longest(&mut policy, 0), Some(16));
    policy.outcome(10, 90);
    assert_eq!(longest(&mut policy, 10_000), Some(8));
    (0..10).for_each(|_| policy.outcome(10, 90));
    assert_eq!(longest(&mut policy, 20_000), Some(1));
    (0..10).for_each(|_| policy.outcome(90, 10));
    assert_eq!(longest(&mut policy, 30_000), Some(16));
}

/// The blocks from 0 on in random order, each once.
fn in_no_order(blocks: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..blocks).collect();
    let mut seed = 0x9e37_79b9_u64;
    for at in (1..order.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(at, (seed >> 33) as usize % (at + 1));
    }
    order
}

#[test]
fn a_part_that_is_touched_all_over_is_read_by_neighbourhoods() {
    let mut pager = Pager::new(policy("auto", 64, 1024));
    pager.overlaps = true;
    in_no_order(300 * 64).into_iter().for_each(|block| pager.touch(block));
    assert!(pager.faults < 300 * 8, "{} faults for 300 neighbourhoods", pager.faults);
}

/// The most blocks beyond its last touch that a scan has requested. Each marker is touched, in time
/// or `late`.
fn reach(policy: &mut dyn Prefetch, from: u32, late: bool) -> u32 {
    let (mut markers, mut asked, mut most) = (vec![from, from + 1], 0, 0);
    let mut at = 0;
    while at < markers.len() && at < 200 {
        let touch = markers[at];
        at += 1;
        if late && at > 2 {
            policy.late();
        }
        let first = policy.touched(touch);
        let runs: Vec<Ahead> = first.into_iter().chain(policy.more()).collect();
        for run in runs {
            markers.push(run.first);
            asked = run.first + run.count;
        }
        most = most.max(asked.saturating_sub(touch));
    }
    most
}

#[test]
fn a_stream_is_no_further_ahead_than_it_needs() {
    for name in ["auto", "sequential"] {
        let mut policy = policy(name, 16, 256);
        let in_time = reach(&mut *policy, 1000, false);
        assert!((16..=3 * 16).contains(&in_time), "{name}: {in_time}");
        let late = reach(&mut *policy, 100_000, true);
        assert!(late > 128, "{name}: {late}");
    }
}

#[test]
fn neighbourhoods_that_do_not_last_are_read_no_more() {
    // Few blocks at once, but other blocks displace them before they are used again.
    let frames = 1 << 12;
    let mut policy = by_name("auto", frames, 64, 1024).expect("the default");
    let (mut asked, mut touched) = (0, 0);
    for round in 0..200_u32 {
        let part = (round % 2) * 40 * 64;
        for block in in_no_order(40 * 64).into_iter().take(40 * 8) {
            touched += 1;
            asked += policy.touched(part + block).map_or(0, |ahead| ahead.count);
        }
    }
    assert!(asked < touched, "{asked} blocks asked for in {touched} touches");
}

#[test]
fn neighbourhoods_that_do_not_fit_into_memory_are_not_read() {
    let (frames, blocks) = (1 << 12, 1 << 14);
    let mut policy = by_name("auto", frames, 64, 1024).expect("the default");
    let asked: u32 = in_no_order(blocks)
        .into_iter()
        .filter_map(|block| policy.touched(block))
        .map(|ahead| ahead.count)
        .sum();
    assert!(asked < blocks / 20, "{asked} blocks asked for in {blocks} touches");
}

/// Streams that are too far apart to meet: first block, step, touches.
fn streams() -> impl Strategy<Value = Vec<(u32, i32)>> {
    let stream = prop_oneof![Just(1), Just(-1)];
    prop::collection::vec(stream, 1..8).prop_map(|steps| {
        let starts = (1_u32..).map(|i| i * 100_000);
        starts.zip(steps).collect()
    })
}

proptest! {
    #[test]
    fn streams_cost_two_faults_and_nothing_is_asked_twice(
        streams in streams(),
        order in prop::collection::vec(0_usize..8, 1..3000),
        run in 1_u32..40,
        ahead in 1_u32..200,
    ) {
        for name in ["auto", "sequential"] {
            let mut pager = Pager::new(policy(name, run, ahead));
            let mut at: Vec<i64> = streams.iter().map(|&(start, _)| i64::from(start)).collect();
            for index in order.iter().map(|index| index % streams.len()) {
                pager.touch(at[index] as u32);
                at[index] += i64::from(streams[index].1);
            }
            prop_assert!(pager.run <= run.min(ahead));
            prop_assert!(pager.faults as usize <= 2 * streams.len());
            for &block in &pager.asked {
                let near = streams.iter().zip(&at).any(|(&(_, step), &at)| {
                    let beyond = (i64::from(block) - at) * i64::from(step);
                    beyond < i64::from(ahead)
                });
                prop_assert!(near, "{} is too far ahead", block);
            }
        }
    }

    #[test]
    fn a_stream_out_of_order_is_asked_for_once(
        swaps in prop::collection::vec(any::<bool>(), 250),
        run in 1_u32..20,
    ) {
        // Two threads that share a stream; the first touches come in order.
        let mut order: Vec<u32> = (1000..1504).collect();
        for (pair, _) in order[4..].chunks_mut(2).zip(swaps).filter(|(_, swap)| *swap) {
            pair.swap(0, 1);
        }
        let mut pager = Pager::new(policy("sequential", run, 64));
        order.into_iter().for_each(|block| pager.touch(block));
    }

    #[test]
    fn random_touches_ask_for_little(touches in prop::collection::vec(0_u32..1_000_000, 2000)) {
        for name in NAMES {
            let mut policy = policy(name, 16, 64);
            let asked: u32 = touches
                .iter()
                .filter_map(|&block| policy.touched(block))
                .map(|ahead| ahead.count)
                .sum();
            prop_assert!(asked <= 100, "{} asks for {} blocks", name, asked);
        }
    }

    #[test]
    fn any_touches_get_runs_within_the_limits(
        touches in prop::collection::vec(prop_oneof![0_u32..50, Just(u32::MAX - 1), 0_u32..=u32::MAX - 1], 0..500),
        run in 0_u32..20,
        ahead in 0_u32..20,
    ) {
        for name in NAMES {
            let mut policy = policy(name, run, ahead);
            for &touch in &touches {
                let Some(run_asked) = policy.touched(touch) else { continue };
                prop_assert!(run_asked.count > 0);
                prop_assert!(run_asked.count <= run.max(1).min(ahead.max(1)));
                // The policy asks for a whole neighbourhood.
                let whole = name == &"auto" && run_asked.count >= 16;
                prop_assert!(whole || blocks(run_asked).all(|block| block != touch));
            }
        }
    }
}
