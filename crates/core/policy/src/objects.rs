//! A plain cache: objects of different sizes, a capacity, and a policy that sees each request.

use crate::replacement::Replacement;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A request for an object of this many bytes, at least 1.
    Get(u32, u32),
    /// The object is deleted.
    Delete(u32),
}

/// The results of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests for objects.
    pub requests: u64,
    /// Requests that missed.
    pub misses: u64,
    /// Bytes that were requested.
    pub bytes: u64,
    /// Bytes that were missed.
    pub missed_bytes: u64,
    /// Requests for objects larger than the cache, which are missed and not kept.
    pub too_large: u64,
}

impl Outcome {
    /// Misses for each request.
    pub fn object_miss_ratio(&self) -> f64 {
        self.misses as f64 / self.requests.max(1) as f64
    }

    /// Bytes missed for each byte requested.
    pub fn byte_miss_ratio(&self) -> f64 {
        self.missed_bytes as f64 / self.bytes.max(1) as f64
    }
}

/// Runs `policy` over requests for objects numbered from 0, in a cache of `capacity` bytes.
///
/// While an object is in the cache, it keeps the size with which it came in; requests and misses
/// count with the size of the request. Objects leave until the newcomer fits.
///
/// # Panics
/// The policy chooses no victim, or one that is not in the cache.
pub fn simulate(
    policy: &mut dyn Replacement,
    requests: impl IntoIterator<Item = Request>,
    capacity: usize,
) -> Outcome {
    let mut outcome = Outcome::default();
    // The bytes of each object while it is in the cache.
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
