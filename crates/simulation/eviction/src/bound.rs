//! The least misses that any policy can have.
//!
//! Objects of one size: Belady, "A Study of Replacement Algorithms for a Virtual-Storage Computer",
//! 1966: a policy that knew the future would reach it. Objects of different sizes: the lower bound
//! PFOO-L of Berger, Beckmann, Harchol-Balter, "Practical Bounds on Optimal Caching with Variable
//! Object Sizes", SIGMETRICS 2018, which perhaps no policy can reach.

use crate::heap::{Heap, Rank};
use crate::pool::slot;
use terapage_policy::objects::Request;

/// Never.
const NEVER: u64 = u64::MAX;

/// The fewest misses of `requests` in a cache of `capacity`. Each object that misses is inserted,
/// unless it is larger than the cache. The second value says whether a policy can reach this
/// number.
pub fn least(requests: &[Request], capacity: usize) -> (u64, bool) {
    let mut sizes = requests.iter().filter_map(|request| match request {
        Request::Get(_, size) => Some(*size),
        Request::Delete(_) => None,
    });
    let Some(size) = sizes.next() else { return (0, true) };
    if sizes.all(|other| other == size) {
        return (belady(requests, capacity / size.max(1) as usize), true);
    }
    (pfoo(requests, capacity), false)
}

/// For each request, the next request for its object, if the object is not deleted before.
fn next_uses(requests: &[Request]) -> Vec<u64> {
    let mut upcoming: Vec<u64> = Vec::new();
    let mut next = vec![NEVER; requests.len()];
    for (now, request) in requests.iter().enumerate().rev() {
        match *request {
            // Stored plus one, so that 0 means never.
            Request::Get(object, _) => {
                let then = std::mem::replace(slot(&mut upcoming, object), now as u64 + 1);
                next[now] = then.checked_sub(1).unwrap_or(NEVER);
            }
            Request::Delete(object) => *slot(&mut upcoming, object) = 0,
        }
    }
    next
}

/// The object whose next request is last leaves.
fn belady(requests: &[Request], frames: usize) -> u64 {
    let next = next_uses(requests);
    let mut heap = Heap::default();
    let mut misses = 0;
    for (now, request) in requests.iter().enumerate() {
        let Request::Get(object, _) = *request else {
            let (Request::Get(object, _) | Request::Delete(object)) = *request;
            heap.remove(object);
            continue;
        };
        if frames == 0 {
            misses += 1;
            continue;
        }
        if !heap.remove(object) {
            misses += 1;
            if heap.len() == frames
                && let Some((_, last)) = heap.least()
            {
                heap.remove(last);
            }
        }
        heap.set(object, Rank(-(next[now] as f64), now as u64));
    }
    misses
}

/// Keeping an object from one request to the next uses its size for that time. Hits that use least
/// are counted first, until all space and time is used.
fn pfoo(requests: &[Request], capacity: usize) -> u64 {
    let next = next_uses(requests);
    let mut gets = 0;
    let mut costs: Vec<u128> = Vec::new();
    let mut sizes: Vec<u32> = Vec::new();
    for (now, request) in requests.iter().enumerate() {
        let Request::Get(object, size) = *request else {
            let (Request::Get(object, _) | Request::Delete(object)) = *request;
            *slot(&mut sizes, object) = 0;
            continue;
        };
        gets += 1;
        // An object keeps the size with which it was inserted. If it is inserted again, its size
        // may differ; with its least size so far the bound always holds.
        let kept = slot(&mut sizes, object);
        *kept = if *kept == 0 { size } else { size.min(*kept) };
        if next[now] != NEVER && *kept as usize <= capacity {
            costs.push(u128::from(next[now] - now as u64) * u128::from(*kept));
        }
    }
    costs.sort_unstable();
    let mut left = capacity as u128 * requests.len() as u128;
    let mut hits = 0;
    for cost in costs {
        if cost > left {
            break;
        }
        left -= cost;
        hits += 1;
    }
    gets - hits
}
