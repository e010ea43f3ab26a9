//! The least misses that any policy can have.
//!
//! Objects of one size: Belady, "A Study of Replacement Algorithms for a Virtual-Storage Computer",
//! 1966, which a policy that knew the future would reach. Objects of different sizes: the lower
//! bound PFOO-L of Berger, Beckmann, Harchol-Balter, "Practical Bounds on Optimal Caching with
//! Variable Object Sizes", SIGMETRICS 2018, which none need reach.

use crate::heap::{Heap, Rank};
use crate::pool::slot;
use terapage_policy::objects::Request;

/// Never.
const NEVER: u64 = u64::MAX;

/// The least misses of `requests` in a cache of `capacity`, where each object that is missed comes
/// in, unless it is larger than the cache. The second value says whether they can be reached.
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

/// For each request, when its object is asked for next, if it is not deleted before.
fn next_uses(requests: &[Request]) -> Vec<u64> {
    let mut upcoming: Vec<u64> = Vec::new();
    let mut next = vec![NEVER; requests.len()];
    for (now, request) in requests.iter().enumerate().rev() {
        match *request {
            // Stored one higher, so that 0 is never.
            Request::Get(object, _) => {
                let then = std::mem::replace(slot(&mut upcoming, object), now as u64 + 1);
                next[now] = then.checked_sub(1).unwrap_or(NEVER);
            }
            Request::Delete(object) => *slot(&mut upcoming, object) = 0,
        }
    }
    next
}

/// The object that is asked for last leaves.
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

/// Keeping an object from one request to the next takes its size for that time. The hits that take
/// least, as far as all space and time go.
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
        // An object keeps the size with which it came in. If it comes in again, it may have another
        // one: the least that it had so far makes the bound hold in any case.
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
