//! Objects of different sizes, compared with naive caches.

use proptest::prelude::*;
use terapage_policy::belady;
use terapage_policy::objects::{Outcome, Request, simulate};
use terapage_policy::replacement::{SIZED, by_name};

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let one = prop_oneof![
        9 => (0_u32..40, 1_u32..30).prop_map(|(object, bytes)| Request::Get(object, bytes)),
        1 => (0_u32..40).prop_map(Request::Delete),
    ];
    prop::collection::vec(one, 0..1500)
}

/// LRU as a list of objects with their bytes; the first leaves next.
fn lru(requests: &[Request], capacity: usize) -> Outcome {
    let mut inside: Vec<(u32, usize)> = Vec::new();
    let mut outcome = Outcome::default();
    for request in requests {
        let (Request::Get(object, _) | Request::Delete(object)) = *request;
        let found = inside.iter().position(|other| other.0 == object).map(|at| inside.remove(at));
        let Request::Get(_, bytes) = *request else { continue };
        outcome.requests += 1;
        outcome.bytes += u64::from(bytes);
        if let Some(found) = found {
            inside.push(found);
            continue;
        }
        outcome.misses += 1;
        outcome.missed_bytes += u64::from(bytes);
        if bytes as usize > capacity {
            outcome.too_large += 1;
            continue;
        }
        while inside.iter().map(|other| other.1).sum::<usize>() + bytes as usize > capacity {
            inside.remove(0);
        }
        inside.push((object, bytes as usize));
    }
    outcome
}

proptest! {
    #[test]
    fn lru_is_that_of_a_list(requests in requests(), capacity in 1_usize..300) {
        let mut policy = by_name("lru", capacity).unwrap();
        prop_assert_eq!(simulate(policy.as_mut(), requests.iter().copied(), capacity), lru(&requests, capacity));
    }

    /// There is always a victim, and it is always in the cache: `simulate` panics otherwise.
    #[test]
    fn every_policy_takes_sizes(requests in requests(), capacity in 1_usize..300) {
        let gets = requests.iter().filter(|request| matches!(request, Request::Get(..))).count() as u64;
        for name in SIZED {
            let mut policy = by_name(name, capacity).unwrap();
            let outcome = simulate(policy.as_mut(), requests.iter().copied(), capacity);
            prop_assert_eq!(outcome.requests, gets, "{}", name);
            prop_assert!(outcome.misses <= gets && outcome.too_large <= outcome.misses, "{}", name);
        }
    }

    /// Objects of one size behave as blocks.
    #[test]
    fn objects_of_one_size_are_blocks(
        blocks in prop::collection::vec(0_u32..60, 1..1200),
        frames in 1_usize..50,
        bytes in 1_u32..5,
    ) {
        for name in SIZED {
            let cost = belady::simulate(by_name(name, frames).unwrap().as_mut(), &blocks, frames);
            let gets = blocks.iter().map(|&block| Request::Get(block, 1));
            let outcome = simulate(by_name(name, frames).unwrap().as_mut(), gets, frames);
            prop_assert_eq!(outcome.misses, cost.page_ins + cost.first_touches, "{}", name);
            let capacity = frames * bytes as usize;
            let gets = blocks.iter().map(|&block| Request::Get(block, bytes));
            let outcome = simulate(by_name("lru", capacity).unwrap().as_mut(), gets, capacity);
            prop_assert_eq!(outcome.missed_bytes, outcome.misses * u64::from(bytes));
        }
    }
}
