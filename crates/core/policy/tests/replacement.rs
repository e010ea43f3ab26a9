//! Every replacement policy against a naive model.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use proptest::prelude::*;
use terapage_policy::belady::{Cost, Use, belady, simulate, simulate_soft};
use terapage_policy::replacement::{NAMES, Replacement, by_name};
use terapage_policy::soft::SoftFrames;

fn policy(name: &str, frames: usize) -> Box<dyn Replacement> {
    by_name(name, frames).expect("the name is in NAMES")
}

#[test]
fn every_name_is_known() {
    for name in NAMES {
        assert!(by_name(name, 8).is_some(), "{name}");
    }
    assert!(by_name("nonesuch", 8).is_none());
}

/// The pager's next step. The model's state decides which block the step concerns.
#[derive(Clone, Copy, Debug)]
enum Step {
    Touch(u32),
    Victim,
    Leave,
    Discard(u32),
}

fn steps(blocks: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..blocks).prop_map(Step::Touch),
        3 => Just(Step::Victim),
        2 => Just(Step::Leave),
        1 => (0..blocks).prop_map(Step::Discard),
    ];
    prop::collection::vec(step, 1..400)
}

/// The order in which LRU, FIFO and CLOCK must give victims, the next one first.
#[derive(Default)]
struct Order {
    /// A block and its reference bit.
    blocks: Vec<(u32, bool)>,
}

impl Order {
    fn remove(&mut self, block: u32) {
        self.blocks.retain(|&(other, _)| other != block);
    }

    fn rescue(&mut self, name: &str, block: u32) {
        match name {
            "fifo" | "lru" => self.blocks.push((block, false)),
            _ => self.blocks.push((block, true)),
        }
    }

    fn touched(&mut self, name: &str, block: u32) {
        match name {
            "fifo" => {}
            "lru" => {
                self.remove(block);
                self.blocks.push((block, false));
            }
            _ => {
                for entry in self.blocks.iter_mut().filter(|entry| entry.0 == block) {
                    entry.1 = true;
                }
            }
        }
    }

    fn victim(&mut self) -> Option<u32> {
        while let Some(&(block, touched)) = self.blocks.first() {
            self.blocks.remove(0);
            if !touched {
                return Some(block);
            }
            self.blocks.push((block, false));
        }
        None
    }
}

/// Runs `steps`. If `all_touches` is set, touches of blocks in memory are reported to the policy.
fn check(name: &str, frames: usize, steps: &[Step], all_touches: bool) {
    let mut policy = policy(name, frames);
    let exact = ["lru", "fifo", "clock"].contains(&name);
    let mut order = Order::default();
    let mut present = HashSet::new();
    let mut soft = Vec::new();
    for &step in steps {
        match step {
            Step::Touch(block) if present.contains(&block) => {
                if all_touches {
                    policy.touched(block);
                    order.touched(name, block);
                }
            }
            Step::Touch(block) => {
                present.insert(block);
                if soft.contains(&block) {
                    soft.retain(|&other| other != block);
                    policy.rescue(block);
                    order.rescue(name, block);
                    for other in policy.neighbours(block).filter(|other| soft.contains(other)) {
                        present.insert(other);
                        policy.back(other);
                    }
                    soft.retain(|other| !present.contains(other));
                } else {
                    policy.insert(block);
                    order.blocks.push((block, false));
                }
            }
            Step::Victim => {
                let victim = policy.victim();
                assert_eq!(victim.is_none(), present.is_empty(), "{name}: {victim:?}");
                if exact {
                    assert_eq!(victim, order.victim(), "{name}");
                }
                if let Some(victim) = victim {
                    assert!(present.remove(&victim), "{name}: {victim} is not in");
                    soft.push(victim);
                }
            }
            Step::Leave if !soft.is_empty() => policy.gone(soft.remove(0)),
            Step::Leave => {}
            Step::Discard(block) => {
                present.remove(&block);
                soft.retain(|&other| other != block);
                policy.remove(block);
                order.remove(block);
            }
        }
        assert_eq!(policy.len(), present.len(), "{name}");
        assert_eq!(policy.is_empty(), present.is_empty(), "{name}");
    }
    while let Some(victim) = policy.victim() {
        assert!(present.remove(&victim), "{name}: {victim} is not in");
    }
    assert!(present.is_empty(), "{name} never gives {present:?}");
}

/// The fewest page-ins, by trying every victim at every miss.
fn brute_force(refs: &[u32], frames: usize, present: &[u32], seen: u32) -> u64 {
    let Some((&block, rest)) = refs.split_first() else { return 0 };
    if present.contains(&block) {
        return brute_force(rest, frames, present, seen);
    }
    let cost = u64::from(seen & (1 << block) != 0);
    let seen = seen | 1 << block;
    let mut with = present.to_vec();
    with.push(block);
    if present.len() < frames {
        return cost + brute_force(rest, frames, &with, seen);
    }
    let best = (0..present.len()).map(|victim| {
        let mut left = with.clone();
        left.swap_remove(victim);
        brute_force(rest, frames, &left, seen)
    });
    cost + best.min().expect("a full memory has victims")
}

proptest! {
    #[test]
    fn keeps_the_contract(steps in steps(24), frames in 1_usize..16, all_touches: bool) {
        for name in NAMES {
            check(name, frames, &steps, all_touches);
        }
    }

    #[test]
    fn belady_is_the_optimum(
        refs in prop::collection::vec(0_u32..6, 0..14),
        frames in 1_usize..4,
    ) {
        prop_assert_eq!(belady(&refs, frames), brute_force(&refs, frames, &[], 0));
    }

    #[test]
    fn no_policy_is_better_than_belady(
        refs in prop::collection::vec(0_u32..60, 1..600),
        frames in 1_usize..40,
        soft_share in 0_usize..10,
    ) {
        let best = belady(&refs, frames);
        let first_touches = refs.iter().collect::<HashSet<_>>().len() as u64;
        for name in NAMES {
            let full = simulate(policy(name, frames).as_mut(), &refs, frames);
            let soft_frames = SoftFrames::exactly(frames * soft_share / 10);
            let soft = simulate_soft(policy(name, frames).as_mut(), &refs, frames, soft_frames);
            for cost in [full, soft] {
                prop_assert!(cost.page_ins >= best, "{}: {:?} < {}", name, cost, best);
                prop_assert_eq!(cost.first_touches, first_touches);
            }
            prop_assert_eq!(full.minor_faults, 0);
        }
    }

    #[test]
    fn nothing_leaves_while_there_is_room(refs in prop::collection::vec(0_u32..30, 1..300)) {
        let first_touches = refs.iter().collect::<HashSet<_>>().len() as u64;
        let expected = Cost { first_touches, ..Cost::default() };
        prop_assert_eq!(belady(&refs, 30), 0);
        for name in NAMES {
            prop_assert_eq!(simulate(policy(name, 30).as_mut(), &refs, 30), expected);
            prop_assert_eq!(simulate_soft(policy(name, 30).as_mut(), &refs, 30, SoftFrames::exactly(3)), expected);
        }
    }
}

#[test]
fn few_frames_may_all_be_soft() {
    let refs: Vec<u32> = (0..200_u32).map(|i| i * i % 7).collect();
    for name in NAMES {
        for frames in 1..4 {
            let cost = simulate_soft(
                policy(name, frames).as_mut(),
                &refs,
                frames,
                SoftFrames::new(frames, 4096, 20),
            );
            assert!(cost.page_ins >= belady(&refs, frames), "{name} with {frames}: {cost:?}");
        }
    }
}

#[test]
fn all_frames_but_one_soft_is_lru() {
    // If all frames but one are soft, the policy sees every touch, except repeated ones. The first
    // touches fill the memory: until then nothing is soft.
    let refs: Vec<u32> = (0..21).chain((0..4000_u32).map(|i| (i * i + i / 7) % 61)).collect();
    let lru = simulate(policy("lru", 20).as_mut(), &refs, 20);
    let soft = simulate_soft(policy("fifo", 20).as_mut(), &refs, 20, SoftFrames::exactly(19));
    assert_eq!(lru.page_ins, soft.page_ins);
    assert!(soft.minor_faults > 0);
}

#[test]
fn what_is_given_up_leaves_its_frame_and_is_not_read_again() {
    for name in NAMES {
        let uses = [Use::Touch(1), Use::Touch(2), Use::Free(1), Use::Touch(3), Use::Touch(2), Use::Touch(1)];
        let cost = simulate(policy(name, 2).as_mut(), uses, 2);
        // The last touch displaces one of the other blocks; none comes back.
        assert_eq!(cost, Cost { page_ins: 0, first_touches: 4, minor_faults: 0 }, "{name}");
    }
}

/// With few frames, such a block would leave each time before the waiting thread has run.
#[test]
fn arc_keeps_a_block_that_alone_was_rescued() {
    let mut arc = policy("arc", 8);
    (0..8).for_each(|block| arc.insert(block));
    // Blocks that come back soon after they left enlarge ARC's part for blocks that were seen once.
    for _ in 0..4 {
        let gone = arc.victim().unwrap();
        arc.gone(gone);
        arc.insert(gone);
    }
    (0..8).for_each(|block| arc.remove(block));
    arc.insert(20);
    assert_eq!(arc.victim(), Some(20));
    (30..33).for_each(|block| arc.insert(block));
    arc.rescue(20);
    assert_eq!(arc.victim(), Some(30));
}

/// Rounds over the same blocks, with a scan of new blocks between the rounds.
fn with_scans(hot: u32, rounds: u32, scan: u32) -> Vec<u32> {
    let mut refs = Vec::new();
    for round in 0..rounds {
        refs.extend((0..3).flat_map(|_| 0..hot));
        refs.extend((0..scan).map(|i| hot + round * scan + i));
    }
    refs
}

#[test]
fn scans_do_not_flush_the_resistant() {
    let refs = with_scans(60, 40, 80);
    let lru = simulate(policy("lru", 100).as_mut(), &refs, 100);
    for name in ["s3fifo", "2q", "arc"] {
        let cost = simulate(policy(name, 100).as_mut(), &refs, 100);
        assert!(cost.page_ins * 4 < lru.page_ins, "{name}: {cost:?}, LRU {lru:?}");
    }
    // The pager's setup: many blocks, and a fiftieth of the frames soft.
    let refs = with_scans(2400, 20, 3200);
    let lru = simulate_soft(policy("lru", 4000).as_mut(), &refs, 4000, SoftFrames::exactly(80));
    let auto = simulate_soft(policy("auto", 4000).as_mut(), &refs, 4000, SoftFrames::exactly(80));
    assert!(auto.page_ins * 5 < lru.page_ins * 3, "{auto:?}, LRU {lru:?}");
    assert!(auto.minor_faults * 10 < refs.len() as u64, "{auto:?}: samples are few");
}

/// A merge sort of lines: two streams over a table of 6000 blocks, from block 4000 on, and touches
/// of the lines, which lie anywhere in their part of the 4000 blocks of text.
fn merge_sort(refs: &mut Vec<u32>, seed: &mut u64, from: u32, to: u32) {
    let middle = from.midpoint(to);
    if to - from > 64 {
        merge_sort(refs, seed, from, middle);
        merge_sort(refs, seed, middle, to);
    }
    let (first, reach) = (from * 2 / 3, (to - from) * 2 / 3 + 1);
    for (left, right) in (from..middle).zip(middle..to) {
        for line in [left, right] {
            refs.push(4000 + line);
            for _ in 0..32 {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let text = (*seed >> 33) as u32 % reach;
                refs.push((first + text).min(3999));
            }
        }
    }
}

#[test]
fn an_extent_in_use_comes_back_together() {
    // Extents of eight blocks.
    let mut auto = policy("auto", 8 * 512);
    (0..96).for_each(|block| auto.insert(block));
    let gone: Vec<u32> = std::iter::from_fn(|| auto.victim()).take(16).collect();
    let victims: Vec<u32> = std::iter::from_fn(|| auto.victim()).take(8).collect();
    let first = victims[0];
    auto.rescue(victims[3]);
    assert!(auto.neighbours(victims[3]).is_empty(), "one touch says little");
    auto.rescue(victims[5]);
    assert!(auto.neighbours(victims[5]).is_empty(), "nothing is gone yet: all may be in use");
    gone.iter().for_each(|&block| auto.gone(block));
    assert_eq!(auto.neighbours(victims[5]), first..first + 8);
    for other in [0, 1, 2, 4, 6, 7] {
        auto.back(first + other);
    }
    assert_eq!(auto.len(), 80);
    let next: Vec<u32> = std::iter::from_fn(|| auto.victim()).take(8).collect();
    assert!(next.iter().all(|block| !victims.contains(block)), "{next:?}");
}

/// A loop over more blocks than memory has frames: LRU never has a hit.
#[test]
fn rounds_over_more_than_memory_find_what_came_first() {
    let (frames, data, rounds) = (4000, 16_000, 5);
    let refs: Vec<u32> = (0..rounds).flat_map(|_| 0..data).collect();
    let page_ins =
        |name| simulate_soft(policy(name, frames).as_mut(), &refs, frames, SoftFrames::exactly(80)).page_ins;
    let again = u64::from((rounds - 1) * data);
    assert_eq!(page_ins("lru"), again);
    // At least two thirds of the quarter that fits are hits.
    assert!(page_ins("auto") * 6 < again * 5, "{} of {again}", page_ins("auto"));
}

/// Passes over slightly more blocks than memory has frames: LRU never has a hit, and the optimum
/// misses only the excess. Then passes over other blocks begin, and the first blocks leave.
#[test]
fn a_little_too_much_costs_little() {
    let (frames, soft) = (4000, 80);
    for data in [4080, 4400, 5000, 8000] {
        let passes = |first: u32| (0..8).flat_map(move |_| first..first + data);
        let cost = |refs: Vec<u32>| {
            let soft = SoftFrames::exactly(soft);
            simulate_soft(policy("auto", frames).as_mut(), &refs, frames, soft).page_ins
        };
        // The first pass reads nothing again. In each later pass, the soft frames are useless, and
        // less than a fifth of the frames is for newcomers and blocks under way.
        let least = u64::from(data - frames as u32) + soft as u64;
        let most = least * 7 + frames as u64 * 5 / 4;
        let once = cost(passes(0).collect());
        assert!(once <= most, "{data}: {once} of {most} page-ins");
        // The blocks of the first passes leave within two passes.
        let twice = cost(passes(0).chain(passes(data)).collect());
        assert!(twice <= 2 * most + u64::from(data) * 3 / 2, "{data}: {twice} of {most} page-ins twice");
    }
}

/// Blocks that nearly fill memory are touched at random, and streams pass by, as in a merge of
/// sorted lines: the streams must not drive out what is in use.
#[test]
fn streams_take_little_from_blocks_that_just_fit() {
    let (text, table) = (2390, 3010);
    // Lehmer's generator, modulo a prime.
    let mut drawn = 1_u64;
    let mut line = || {
        drawn = drawn * 48_271 % 0x7fff_ffff;
        (drawn % u64::from(text)) as u32
    };
    let mut refs = Vec::new();
    for block in text..text + table {
        refs.push(block);
        refs.extend(std::iter::repeat_with(&mut line).take(512));
    }
    for frames in [2484, 2538] {
        assert_eq!(belady(&refs, frames), 0, "there is room for the text");
        let soft = SoftFrames::exactly(frames / 50);
        let page_ins = simulate_soft(policy("auto", frames).as_mut(), &refs, frames, soft).page_ins;
        assert!(page_ins < u64::from(text) / 2, "{page_ins} page-ins in {frames} frames");
    }
}

/// Blocks in memory, of which a stream is read ahead in runs. Each run's first block is a marker.
struct Streamed {
    policy: Box<dyn Replacement>,
    here: HashSet<u32>,
    soft: VecDeque<u32>,
    markers: HashSet<u32>,
    /// What was touched, and of that, what is watched.
    used: HashSet<u32>,
    watched: HashSet<u32>,
    read: usize,
}

impl Streamed {
    fn new(frames: usize) -> Streamed {
        Streamed {
            policy: policy("auto", frames),
            here: HashSet::new(),
            soft: VecDeque::new(),
            markers: HashSet::new(),
            used: HashSet::new(),
            watched: HashSet::new(),
            read: 0,
        }
    }

    fn has(&self, block: u32) -> bool {
        self.here.contains(&block) || self.soft.contains(&block)
    }

    /// Reads those of some blocks that are not in memory. `most_soft` of the frames are soft.
    fn read(&mut self, blocks: Range<u32>, frames: usize, most_soft: usize) {
        let wanted: Vec<u32> = blocks.filter(|&block| !self.has(block)).collect();
        self.read += wanted.len();
        self.markers.extend(wanted.first());
        for block in wanted {
            self.policy.insert(block);
            self.here.insert(block);
            while self.policy.len() + most_soft > frames {
                let victim = self.policy.victim().expect("a full memory has a victim");
                self.here.remove(&victim);
                self.used.remove(&victim);
                self.watched.remove(&victim);
                if self.markers.remove(&victim) {
                    self.policy.unused(victim);
                }
                self.soft.push_back(victim);
                if self.soft.len() > most_soft
                    && let Some(gone) = self.soft.pop_front()
                {
                    self.policy.gone(gone);
                }
            }
            let to_watch = std::iter::from_fn(|| self.policy.watch());
            self.watched.extend(to_watch.filter(|block| self.used.contains(block)));
        }
    }

    fn touch(&mut self, block: u32) {
        self.used.insert(block);
        if self.watched.remove(&block) {
            self.policy.seen(block);
        }
        if let Some(at) = self.soft.iter().position(|&other| other == block) {
            self.soft.remove(at);
            self.here.insert(block);
            self.policy.rescue(block);
        }
        if self.markers.remove(&block) {
            self.policy.streamed();
        }
    }
}

/// Passes over four times as many blocks as there are frames, of which a sixth are read ahead: no
/// block is read twice in a pass because it has left before its use.
#[test]
fn blocks_that_were_read_ahead_wait_for_their_use() {
    let (frames, data, run, ahead, passes) = (6400, 25_600, 128, 1024, 8);
    let mut memory = Streamed::new(frames);
    for block in (0..passes).flat_map(|_| 0..data) {
        if !memory.has(block) {
            memory.read(block..block + run, frames, frames / 50);
        }
        if block.is_multiple_of(run) {
            let [first, end] = [ahead, ahead + run].map(|ahead| (block + ahead).min(data));
            memory.read(first..end, frames, frames / 50);
        }
        memory.touch(block);
    }
    let once = (passes * data) as usize;
    assert!(memory.read < once, "{} blocks were read in passes over {once}", memory.read);
}

/// Blocks that nearly fill memory are touched at random, and a stream is read so far ahead that its
/// blocks leave before their use. They must not get more frames: kept blocks are needed sooner.
#[test]
fn reads_ahead_take_nothing_from_blocks_that_are_needed_sooner() {
    let (frames, text, table, run, ahead) = (4000, 3600, 16_000, 32, 300);
    let most_soft = frames / 50;
    let mut memory = Streamed::new(frames);
    // Lehmer's generator, modulo a prime.
    let mut drawn = 1_u64;
    for block in text..text + table {
        if !memory.has(block) {
            memory.read(block..block + run, frames, most_soft);
        }
        if block.is_multiple_of(run) {
            memory.read(block + ahead..block + ahead + run, frames, most_soft);
        }
        memory.touch(block);
        for _ in 0..512 {
            drawn = drawn * 48_271 % 0x7fff_ffff;
            let line = (drawn % u64::from(text)) as u32;
            if !memory.has(line) {
                memory.read(line..line + 1, frames, most_soft);
                memory.markers.remove(&line);
            }
            memory.touch(line);
        }
    }
    // Each block of the table is read twice, and a few of the text leave for it. If reads ahead got
    // all the frames that would hold them, 20 would leave.
    let most = (text + 10 * table) as usize;
    assert!(memory.read <= most, "{} of {most} blocks were read", memory.read);
}

/// Blocks that came first and are no longer used make room for blocks in use.
#[test]
fn what_is_used_no_more_gives_way() {
    let frames = 4000;
    let rounds = 30;
    // Nine tenths of memory hold the blocks that came last.
    let refs: Vec<u32> = (0..8000).chain((0..rounds).flat_map(|_| 8000..11_600)).collect();
    let auto = simulate_soft(policy("auto", frames).as_mut(), &refs, frames, SoftFrames::exactly(80));
    // The number of page-ins is not much larger than that of frames: after a while every touch is a
    // hit.
    assert!(auto.page_ins < frames as u64 * 3 / 2, "{auto:?}");
}

#[test]
fn auto_sorts_with_no_more_page_ins_than_lru() {
    let mut refs = Vec::new();
    merge_sort(&mut refs, &mut 1, 0, 6000);
    let page_ins = |name: &str| -> u64 {
        let budgets = [3000, 4000, 5000, 6000, 8000];
        let costs = budgets.map(|frames| {
            simulate_soft(policy(name, frames).as_mut(), &refs, frames, SoftFrames::exactly(frames / 50))
                .page_ins
        });
        costs.iter().sum()
    };
    let (auto, lru) = (page_ins("auto"), page_ins("lru"));
    assert!(auto * 10 <= lru * 9, "auto {auto}, LRU {lru}");
}

#[test]
fn where_all_is_in_use_little_is_watched() {
    // Blocks of nine tenths of the frames are touched at random all the time, and a stream passes.
    let (frames, hot) = (4096, 3686);
    let mut auto = policy("auto", frames);
    (0..hot).for_each(|block| auto.insert(block));
    let (mut inserted, mut watched) = (hot as usize, 0);
    for block in hot..hot + 40_000 {
        if auto.len() >= frames - 80 {
            let victim = auto.victim().expect("a full memory has a victim");
            if victim < hot {
                auto.rescue(victim);
            } else {
                auto.gone(victim);
            }
        }
        auto.insert(block);
        inserted += 1;
        // Watched blocks that are in use are touched soon. The pager takes out a few of them at a
        // time.
        for block in std::iter::from_fn(|| auto.watch()).take(4).collect::<Vec<_>>() {
            watched += 1;
            if block < hot {
                auto.seen(block);
            }
        }
    }
    assert!(watched > 0 && watched <= (frames + inserted) / 4, "{watched} watched, {inserted} came in");
}
