//! A plain cache: objects with sizes of their own, a capacity, a policy that is told of each
//! request.

use crate::replacement::Replacement;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// For an object of so many bytes, at least 1.
    Get(u32, u32),
    /// The object is no more.
    Delete(u32),
}

/// What came of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests for objects.
    pub requests: u64,
    /// Those that did not find theirs.
    pub misses: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Those that were not found.
    pub missed_bytes: u64,
    /// Requests for objects larger than the cache, which are missed and not kept.
    pub too_large: u64,
}

impl Outcome {
    /// Misses to a request.
    pub fn object_miss_ratio(&self) -> f64 {
        self.misses as f64 / self.requests.max(1) as f64
    }

    /// Bytes missed to a byte asked for.
    pub fn byte_miss_ratio(&self) -> f64 {
        self.missed_bytes as f64 / self.bytes.max(1) as f64
    }
}

/// Runs `policy` over requests for objects numbered from 0, in a cache of `capacity` bytes.
///
/// An object keeps the size that it came in with for as long as it is in; what is asked for, and
/// missed, counts with the size of the request. Objects leave until the newcomer fits.
///
/// # Panics
/// If the policy gives no victim, or one that is not in.
pub fn simulate(
    policy: &mut dyn Replacement,
    requests: impl IntoIterator<Item = Request>,
    capacity: usize,
) -> Outcome {
    let mut outcome = Outcome::default();
    // By object: its bytes while it is in.
    let mut inside: Vec<u32> = Vec::new();
    let mut used = 0;
    for request in requests {
        let (Request::Get(object, _) | Request::Delete(object)) = request;
        let at = object as usize;
        if at >= inside.len() {
            inside.resize((at + 1).next_power_of_two(), 0);
        }
        let Request::Get(_, bytes) = request else {
            used -= std::mem::take(&mut inside[at]) as usize;
            policy.remove(object);
            continue;
        };
        outcome.requests += 1;
        outcome.bytes += u64::from(bytes);
        if inside[at] > 0 {
            policy.touched(object);
            continue;
        }
        outcome.misses += 1;
        outcome.missed_bytes += u64::from(bytes);
        if bytes as usize > capacity {
            outcome.too_large += 1;
            continue;
        }
        policy.weigh(object, bytes);
        while used + bytes as usize > capacity {
            let victim = policy.victim_for(object).expect("a full cache has a victim");
            let size = std::mem::take(&mut inside[victim as usize]);
            assert!(size > 0, "victim {victim} is not in");
            used -= size as usize;
            policy.gone(victim);
        }
        inside[at] = bytes;
        used += bytes as usize;
        policy.insert(object);
    }
    outcome
}
