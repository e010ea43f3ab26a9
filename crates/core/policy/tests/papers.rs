//! ARC and 2Q, which see each touch here, compared with naive versions of the pseudo code in their
//! papers.

use proptest::prelude::*;
use terapage_policy::belady::simulate;
use terapage_policy::replacement::by_name;

/// Lists with the newest block in front, as the papers draw them.
type List = Vec<u32>;

fn take(list: &mut List, block: u32) -> bool {
    let before = list.len();
    list.retain(|&other| other != block);
    list.len() < before
}

/// Megiddo, Modha, FAST 2003, figure 4: `ARC(c)`.
struct Arc {
    c: usize,
    p: f64,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
}

impl Arc {
    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && (in_b2 && t1 == self.p || t1 > self.p) {
            self.b1.insert(0, self.t1.pop().unwrap());
        } else {
            self.b2.insert(0, self.t2.pop().unwrap());
        }
    }

    /// Whether the block was in memory.
    fn request(&mut self, x: u32) -> bool {
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if take(&mut self.t1, x) || take(&mut self.t2, x) {
            self.t2.insert(0, x);
            return true;
        }
        if self.b1.contains(&x) {
            let step = if b1 >= b2 { 1.0 } else { b2 / b1 };
            self.p = (self.p + step).min(self.c as f64);
            self.replace(false);
            take(&mut self.b1, x);
            self.t2.insert(0, x);
        } else if self.b2.contains(&x) {
            let step = if b2 >= b1 { 1.0 } else { b1 / b2 };
            self.p = (self.p - step).max(0.0);
            self.replace(true);
            take(&mut self.b2, x);
            self.t2.insert(0, x);
        } else {
            let l1 = self.t1.len() + self.b1.len();
            let all = l1 + self.t2.len() + self.b2.len();
            if l1 == self.c {
                if self.t1.len() < self.c {
                    self.b1.pop();
                    self.replace(false);
                } else {
                    self.t1.pop();
                }
            } else if all >= self.c {
                if all == 2 * self.c {
                    self.b2.pop();
                }
                self.replace(false);
            }
            self.t1.insert(0, x);
        }
        false
    }
}

/// Johnson, Shasha, VLDB 1994, the full version: Kin a quarter, Kout half of the slots.
struct TwoQ {
    slots: usize,
    kin: usize,
    kout: usize,
    a1in: List,
    a1out: List,
    am: List,
}

impl TwoQ {
    fn reclaim(&mut self) {
        if self.a1in.len() + self.am.len() < self.slots {
            return;
        }
        if self.a1in.len() > self.kin || self.am.is_empty() {
            self.a1out.insert(0, self.a1in.pop().unwrap());
            self.a1out.truncate(self.kout);
        } else {
            self.am.pop();
        }
    }

    fn request(&mut self, x: u32) -> bool {
        if take(&mut self.am, x) {
            self.am.insert(0, x);
            return true;
        }
        if self.a1in.contains(&x) {
            return true;
        }
        let returns = take(&mut self.a1out, x);
        self.reclaim();
        if returns {
            self.am.insert(0, x)
        } else {
            self.a1in.insert(0, x)
        }
        false
    }
}

/// The number of misses, including first touches.
fn misses(name: &str, refs: &[u32], frames: usize) -> u64 {
    let cost = simulate(by_name(name, frames).unwrap().as_mut(), refs, frames);
    cost.page_ins + cost.first_touches
}

/// Blocks by a power law, a loop, and occasional scans.
fn mixed(seed: u64, blocks: u32, count: usize) -> Vec<u32> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    };
    let mut refs = Vec::new();
    let mut scanned = blocks;
    while refs.len() < count {
        refs.extend((0..300).map(|_| (f64::from(blocks) * next().powi(3)) as u32));
        let from = (f64::from(blocks) * next()) as u32;
        refs.extend((0..3).flat_map(|_| from..from + blocks / 10));
        refs.extend(scanned..scanned + blocks / 5);
        scanned += blocks / 8;
    }
    refs
}

proptest! {
    #[test]
    fn arc_is_the_papers(refs in prop::collection::vec(0_u32..60, 1..2000), c in 1_usize..40) {
        let mut arc = Arc { c, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![] };
        let expected = refs.iter().filter(|&&x| !arc.request(x)).count() as u64;
        prop_assert_eq!(misses("arc", &refs, c), expected);
    }

    #[test]
    fn two_q_is_the_papers(refs in prop::collection::vec(0_u32..60, 1..2000), slots in 4_usize..40) {
        let mut two_q =
            TwoQ { slots, kin: slots / 4, kout: slots / 2, a1in: vec![], a1out: vec![], am: vec![] };
        let expected = refs.iter().filter(|&&x| !two_q.request(x)).count() as u64;
        prop_assert_eq!(misses("2q", &refs, slots), expected);
    }
}

#[test]
fn long_mixed_references_are_served_as_in_the_papers() {
    for (seed, frames) in [(1, 100), (2, 333), (3, 700)] {
        let refs = mixed(seed, 1000, 60_000);
        let mut arc = Arc { c: frames, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![] };
        let expected = refs.iter().filter(|&&x| !arc.request(x)).count() as u64;
        assert_eq!(misses("arc", &refs, frames), expected, "ARC, {frames} frames");
        let (kin, kout) = (frames / 4, frames / 2);
        let mut two_q = TwoQ { slots: frames, kin, kout, a1in: vec![], a1out: vec![], am: vec![] };
        let expected = refs.iter().filter(|&&x| !two_q.request(x)).count() as u64;
        assert_eq!(misses("2q", &refs, frames), expected, "2Q, {frames} frames");
    }
}
