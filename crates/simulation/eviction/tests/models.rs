//! Compares each policy with a naive model: plain lists that are searched completely.

use proptest::prelude::*;
use terapage_eviction::{Log, POLICIES, all, by_name, known};
use terapage_figures::Long;
use terapage_policy::objects::{Request, simulate};
use terapage_policy::replacement::Replacement;

/// The least misses, by a log of which this many numbers stay in memory.
fn least_keeping(requests: &[Request], capacity: usize, kept: usize) -> (u64, bool) {
    let mut log = Log::new(Long::keeping(kept));
    requests.iter().for_each(|request| log.push(*request).unwrap());
    assert_eq!(log.file_bytes() > 0, requests.len() > kept);
    let next = log.next_uses().unwrap();
    terapage_eviction::least(&log, &next, capacity).unwrap()
}

fn least(requests: &[Request], capacity: usize) -> (u64, bool) {
    least_keeping(requests, capacity, 1 << 20)
}

/// PFOO-L by sorting: the hits with the smallest size x time.
fn sorted(requests: &[Request], capacity: usize) -> u64 {
    let mut costs = Vec::new();
    let mut gets = 0;
    for (now, request) in requests.iter().enumerate() {
        let Request::Get(object, _) = *request else { continue };
        gets += 1;
        let then = requests[now + 1..].iter().position(|later| match *later {
            Request::Get(other, _) | Request::Delete(other) => other == object,
        });
        let again = then.filter(|then| matches!(requests[now + 1 + then], Request::Get(..)));
        // The least size since the object came into being.
        let born = requests[..now].iter().rposition(|before| *before == Request::Delete(object));
        let sizes = requests[born.map_or(0, |born| born + 1)..=now].iter();
        let sizes = sizes.filter_map(|request| match *request {
            Request::Get(other, size) if other == object => Some(size as usize),
            _ => None,
        });
        let size = sizes.min().unwrap();
        costs.extend(again.filter(|_| size <= capacity).map(|then| (then + 1) * size));
    }
    costs.sort_unstable();
    let room = capacity * requests.len();
    let taken = costs.iter().scan(0, |sum, cost| {
        *sum += cost;
        Some(*sum)
    });
    gets - taken.take_while(|sum| *sum <= room).count() as u64
}

fn requests(sizes: u32) -> impl Strategy<Value = Vec<Request>> {
    let one = prop_oneof![
        19 => (0_u32..40, 1..=sizes).prop_map(|(object, bytes)| Request::Get(object, bytes)),
        1 => (0_u32..40).prop_map(Request::Delete),
    ];
    prop::collection::vec(one, 0..900)
}

/// A block of a model.
#[derive(Clone, Copy, Debug)]
struct Entry {
    block: u32,
    size: usize,
    /// Requests since its insertion; for SIEVE the mark.
    uses: u32,
    rank: f64,
}

/// The models of policies with one list or several segments; the next block to leave is first.
struct Model {
    name: &'static str,
    capacity: usize,
    segments: Vec<Vec<Entry>>,
    weight: usize,
    age: f64,
    hand: Option<u32>,
    counts: Vec<u32>,
    counted: usize,
}

impl Model {
    fn new(name: &'static str, capacity: usize) -> Model {
        let count = if name == "slru" { 4 } else { 3 };
        let (segments, counts) = (vec![Vec::new(); count], vec![0; 40]);
        Model { name, capacity, segments, weight: 1, age: 0.0, hand: None, counts, counted: 0 }
    }

    fn size(&self, segment: usize) -> usize {
        self.segments[segment].iter().map(|entry| entry.size).sum()
    }

    fn rank(&self, entry: &Entry) -> f64 {
        match self.name {
            "lfu" => f64::from(entry.uses),
            "lfuda" => self.age + f64::from(entry.uses),
            _ => self.age + f64::from(entry.uses) * 1e6 / entry.size as f64,
        }
    }

    /// Removes a block, wherever it is.
    fn take(&mut self, block: u32) -> Option<(usize, Entry)> {
        for (at, segment) in self.segments.iter_mut().enumerate() {
            if let Some(place) = segment.iter().position(|entry| entry.block == block) {
                if self.hand == Some(block) {
                    self.hand = segment.get(place + 1).map(|entry| entry.block);
                }
                return Some((at, segment.remove(place)));
            }
        }
        None
    }

    fn cool(&mut self, limits: &[usize]) {
        for at in (1..self.segments.len()).rev() {
            while self.size(at) > limits[at] {
                let entry = self.segments[at].remove(0);
                self.segments[at - 1].push(entry);
            }
        }
    }

    /// W-TinyLFU's window and main cache.
    fn parts(&self) -> (usize, usize) {
        let window = (self.capacity / 100).max(1);
        (window, self.capacity.saturating_sub(window))
    }

    fn settle(&mut self) {
        let (window, main) = self.parts();
        while self.size(0) > window && self.size(1) + self.size(2) + self.segments[0][0].size <= main {
            let entry = self.segments[0].remove(0);
            self.segments[1].push(entry);
        }
    }

    fn count(&mut self, block: u32) {
        self.counts[block as usize] = (self.counts[block as usize] + 1).min(15);
        self.counted += 1;
        if self.counted >= 10 * self.len().max(100) {
            self.counted = 0;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }
}

impl Replacement for Model {
    fn insert(&mut self, block: u32) {
        let mut entry = Entry { block, size: self.weight, uses: 1, rank: 0.0 };
        entry.rank = self.rank(&entry);
        let mut at = 0;
        match self.name {
            "sieve" => entry.uses = 0,
            "slru" => {
                let fits = |at: &usize| self.size(*at) + entry.size <= self.capacity / 4;
                at = (0..4).find(fits).unwrap_or(0);
            }
            "wtinylfu" => self.count(block),
            _ => {}
        }
        self.segments[at].push(entry);
        if self.name == "wtinylfu" {
            self.settle();
        }
    }

    fn rescue(&mut self, _block: u32) {
        unreachable!("caches rescue nothing");
    }

    fn touched(&mut self, block: u32) {
        if self.name == "sieve" {
            let entry = self.segments[0].iter_mut().find(|entry| entry.block == block).unwrap();
            entry.uses = 1;
            return;
        }
        if self.name == "wtinylfu" {
            self.count(block);
        }
        let (at, mut entry) = self.take(block).unwrap();
        entry.uses += 1;
        entry.rank = self.rank(&entry);
        match self.name {
            "slru" => {
                self.segments[(at + 1).min(3)].push(entry);
                self.cool(&[usize::MAX, self.capacity / 4, self.capacity / 4, self.capacity / 4]);
            }
            "wtinylfu" if at == 0 => self.segments[0].push(entry),
            "wtinylfu" => {
                self.segments[2].push(entry);
                self.cool(&[usize::MAX, usize::MAX, self.parts().1 / 5 * 4]);
            }
            _ => self.segments[0].push(entry),
        }
    }

    fn victim(&mut self) -> Option<u32> {
        let first = &self.segments[0];
        let block = match self.name {
            "mru" => first.last()?.block,
            "sieve" => {
                let hand = self.hand.and_then(|hand| first.iter().position(|entry| entry.block == hand));
                let (mut at, count) = (hand.unwrap_or(0), first.len());
                if count == 0 {
                    return None;
                }
                while self.segments[0][at].uses > 0 {
                    self.segments[0][at].uses = 0;
                    at = (at + 1) % count;
                }
                self.hand = Some(self.segments[0][at].block);
                self.segments[0][at].block
            }
            "slru" => self.segments.iter().find_map(|segment| segment.first())?.block,
            "wtinylfu" => {
                self.settle();
                let main = self.segments[1].first().or(self.segments[2].first()).map(|entry| entry.block);
                match (self.segments[0].first().map(|entry| entry.block), main) {
                    (Some(one), Some(main)) => {
                        let more = self.counts[one as usize] > self.counts[main as usize];
                        if more { main } else { one }
                    }
                    (one, main) => one.or(main)?,
                }
            }
            _ => {
                let least =
                    first.iter().reduce(|best, other| if other.rank < best.rank { other } else { best })?;
                self.age = least.rank;
                least.block
            }
        };
        self.take(block);
        Some(block)
    }

    fn weigh(&mut self, _block: u32, size: u32) {
        self.weight = size as usize;
    }

    fn remove(&mut self, block: u32) {
        self.take(block);
    }

    fn len(&self) -> usize {
        self.segments.iter().map(Vec::len).sum()
    }
}

/// LIRS for blocks of one size, with its stack and queue as lists; the next block to leave is
/// first.
struct Stacks {
    frames: usize,
    /// Blocks, and whether each is of low distance.
    stack: Vec<(u32, bool)>,
    queue: Vec<u32>,
    ghosts: Vec<u32>,
}

impl Stacks {
    fn prune(&mut self) {
        while let Some(&(block, false)) = self.stack.first() {
            self.stack.remove(0);
            self.ghosts.retain(|ghost| *ghost != block);
        }
    }

    fn low(&self) -> usize {
        self.stack.iter().filter(|entry| entry.1).count()
    }

    fn raise(&mut self, block: u32, low: bool) {
        self.stack.retain(|entry| entry.0 != block);
        self.stack.push((block, low));
        let most = self.frames.saturating_sub((self.frames / 100).max(1)).max(1);
        while self.low() > most {
            self.prune();
            let (bottom, _) = self.stack.remove(0);
            self.queue.push(bottom);
        }
        self.prune();
        while self.stack.len() > 2 * self.frames && !self.ghosts.is_empty() {
            let ghost = self.ghosts.remove(0);
            self.stack.retain(|entry| entry.0 != ghost);
        }
    }
}

impl Replacement for Stacks {
    fn insert(&mut self, block: u32) {
        let ghost = self.ghosts.contains(&block);
        let room = self.low() < self.frames.saturating_sub((self.frames / 100).max(1));
        self.ghosts.retain(|other| *other != block);
        if !(ghost || room) {
            self.queue.push(block);
        }
        self.raise(block, ghost || room);
    }

    fn rescue(&mut self, _block: u32) {
        unreachable!("caches rescue nothing");
    }

    fn touched(&mut self, block: u32) {
        let at = self.stack.iter().find(|entry| entry.0 == block).map(|entry| entry.1);
        if at != Some(true) {
            self.queue.retain(|other| *other != block);
        }
        if at.is_none() {
            self.queue.push(block);
        }
        self.raise(block, at.is_some());
    }

    fn victim(&mut self) -> Option<u32> {
        if !self.queue.is_empty() {
            let block = self.queue.remove(0);
            if self.stack.iter().any(|entry| entry.0 == block) {
                self.ghosts.push(block);
            }
            return Some(block);
        }
        self.prune();
        let block = if self.stack.is_empty() { None } else { Some(self.stack.remove(0).0) };
        self.prune();
        block
    }

    fn weigh(&mut self, _block: u32, size: u32) {
        assert_eq!(size, 1);
    }

    fn remove(&mut self, block: u32) {
        self.stack.retain(|entry| entry.0 != block);
        self.queue.retain(|other| *other != block);
        self.ghosts.retain(|other| *other != block);
        self.prune();
    }

    fn len(&self) -> usize {
        self.low() + self.queue.len()
    }
}

/// The fewest misses, by trying each object that could leave.
fn brute(requests: &[Request], frames: usize, inside: &[u32]) -> u64 {
    let Some((first, rest)) = requests.split_first() else { return 0 };
    let without = |gone: u32| inside.iter().copied().filter(|other| *other != gone).collect::<Vec<u32>>();
    match *first {
        Request::Delete(object) => brute(rest, frames, &without(object)),
        Request::Get(object, _) if inside.contains(&object) => brute(rest, frames, inside),
        Request::Get(object, _) if inside.len() < frames => {
            1 + brute(rest, frames, &[inside, &[object][..]].concat())
        }
        Request::Get(object, _) => {
            let each =
                inside.iter().map(|&gone| brute(rest, frames, &[without(gone), vec![object]].concat()));
            1 + each.min().unwrap_or_else(|| brute(rest, frames, &[]))
        }
    }
}

proptest! {
    #[test]
    fn policies_are_as_their_models(requests in requests(9), capacity in 1_usize..200) {
        for name in ["mru", "sieve", "slru", "lfu", "lfuda", "gdsf", "wtinylfu"] {
            let mut policy = by_name(name, capacity).unwrap();
            let found = simulate(policy.as_mut(), requests.iter().copied(), capacity);
            let mut model = Model::new(name, capacity);
            let expected = simulate(&mut model, requests.iter().copied(), capacity);
            prop_assert_eq!(found, expected, "{}", name);
            prop_assert_eq!(policy.len(), model.len(), "{}", name);
        }
    }

    #[test]
    fn lirs_is_as_its_model(requests in requests(1), frames in 1_usize..40) {
        let mut policy = by_name("lirs", frames).unwrap();
        let found = simulate(policy.as_mut(), requests.iter().copied(), frames);
        let mut model = Stacks { frames, stack: Vec::new(), queue: Vec::new(), ghosts: Vec::new() };
        prop_assert_eq!(found, simulate(&mut model, requests.iter().copied(), frames));
        prop_assert_eq!(policy.len(), model.len());
    }

    /// There is always a victim, and it is always in the cache: otherwise `simulate` panics. No
    /// policy has fewer misses than the bound.
    #[test]
    fn no_policy_is_better_than_the_bound(requests in requests(30), unit in any::<bool>(), capacity in 1_usize..300) {
        let requests: Vec<Request> = requests
            .into_iter()
            .map(|request| match request {
                Request::Get(object, _) if unit => Request::Get(object, 3),
                other => other,
            })
            .collect();
        let (bound, _) = least(&requests, capacity);
        for known in all().filter(|known| known.sized) {
            let mut policy = (known.make)(capacity);
            let found = simulate(policy.as_mut(), requests.iter().copied(), capacity);
            prop_assert!(found.misses >= bound, "{}: {} < {}", known.name, found.misses, bound);
        }
    }

    #[test]
    fn the_bound_for_other_sizes_is_that_of_the_paper(requests in requests(3000), capacity in 1_usize..9000) {
        let sizes = requests.iter().filter_map(|request| match request {
            Request::Get(_, size) => Some(size),
            Request::Delete(_) => None,
        });
        prop_assume!(sizes.clone().any(|size| Some(size) != sizes.clone().next()));
        prop_assert_eq!(least(&requests, capacity), (sorted(&requests, capacity), false));
    }

    #[test]
    fn the_bound_for_one_size_is_the_least(
        objects in prop::collection::vec((0_u32..6, 0_u32..9), 0..12),
        frames in 0_usize..4,
    ) {
        let request = |&(object, kind): &(u32, u32)| match kind {
            0 => Request::Delete(object),
            _ => Request::Get(object, 2),
        };
        let requests: Vec<Request> = objects.iter().map(request).collect();
        prop_assert_eq!(least(&requests, frames * 2), (brute(&requests, frames, &[]), true));
    }
}

/// A log in a file gives the same bounds and misses as one in memory.
#[test]
fn a_log_in_a_file_is_as_one_in_memory() {
    let mut random = terapage_figures::SplitMix(7);
    for sizes in [1, 900] {
        let request = |_| match random.next() {
            number if number.is_multiple_of(19) => Request::Delete((number >> 40) as u32 % 3000),
            number => Request::Get((number >> 40) as u32 % 3000, 1 + (number >> 20) as u32 % sizes),
        };
        let requests: Vec<Request> = (0..200_000).map(request).collect();
        let found = least_keeping(&requests, 700 * sizes as usize, 1000);
        assert_eq!(found, least_keeping(&requests, 700 * sizes as usize, 1 << 20));
        let mut log = Log::new(Long::keeping(0));
        requests.iter().for_each(|request| log.push(*request).unwrap());
        assert!(log.file_bytes() > 1 << 20);
        let again: Vec<Request> = log.replay(|requests| requests.collect()).unwrap();
        assert!(again == requests);
        log.renumber((0..3000).rev().collect());
        let turned = log.replay(|requests| requests.next()).unwrap();
        let expected = match requests[0] {
            Request::Get(object, size) => Request::Get(2999 - object, size),
            Request::Delete(object) => Request::Delete(2999 - object),
        };
        assert_eq!(turned, Some(expected));
    }
}

/// Policies that draw at random make the same choices in each run, and keep the most requested
/// blocks.
#[test]
fn sampling_policies_keep_what_is_hot() {
    let hot = |at: u32| at.wrapping_mul(2_654_435_761) % 10;
    let cold = |at: u32| 10 + at.wrapping_mul(2_246_822_519) % 4000;
    let ask = |at: u32| Request::Get(if at.is_multiple_of(2) { hot(at / 2) } else { cold(at) }, 1);
    let requests: Vec<Request> = (0..200_000).map(ask).collect();
    let misses = |name: &str| {
        let mut policy = by_name(name, 100).unwrap();
        simulate(policy.as_mut(), requests.iter().copied(), 100).misses
    };
    let random = misses("random");
    for name in ["hyperbolic", "lhd"] {
        assert_eq!(misses(name), misses(name), "{name}");
        assert!(misses(name) < random, "{name}: {} {random}", misses(name));
        // Half of the requests are for ten blocks.
        assert!(misses(name) < 105_000, "{name}: {}", misses(name));
    }
}

#[test]
fn names_stand_once_and_others_lead_to_them() {
    let mut names: Vec<&str> = all().map(|known| known.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(POLICIES.iter().all(|known| by_name(known.name, 8).is_some()));
    assert_eq!(known("fifo-reinsertion").map(|known| known.name), Some("clock"));
    assert!(known("best").is_none());
}
