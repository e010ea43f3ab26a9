//! The least misses that any policy can have.
//!
//! Objects of one size: Belady, "A Study of Replacement Algorithms for a Virtual-Storage Computer",
//! 1966: a policy that knew the future would reach it. Objects of different sizes: the lower bound
//! PFOO-L of Berger, Beckmann, Harchol-Balter, "Practical Bounds on Optimal Caching with Variable
//! Object Sizes", SIGMETRICS 2018, which perhaps no policy can reach.

use crate::heap::{Heap, Rank};
use crate::log::Log;
use crate::pool::slot;
use std::io;
use std::ops::ControlFlow;
use terapage_figures::Long;
use terapage_policy::objects::Request;

/// Never.
const NEVER: u64 = u64::MAX;

/// The fewest misses of the requests of `log`, with the next uses `next`, in a cache of `capacity`.
/// Each object that misses is inserted, unless it is larger than the cache. The second value says
/// whether a policy can reach this number.
///
/// # Errors
/// A temporary file cannot be read.
pub fn least(log: &Log, next: &Long, capacity: usize) -> io::Result<(u64, bool)> {
    match log.one_size() {
        Some(size) => Ok((belady(log, next, capacity / size.max(1) as usize)?, true)),
        None => Ok((pfoo(log, next, capacity)?, log.gets() == 0)),
    }
}

/// The requests of a log, each with its place and with its next use.
fn each(log: &Log, next: &Long, mut work: impl FnMut(u64, Request, u64)) -> io::Result<()> {
    log.replay(|requests| {
        next.read(|next| {
            for (now, (request, then)) in requests.zip(next).enumerate() {
                work(now as u64, request, then);
            }
        })
    })?
}

/// The object whose next request is last leaves.
fn belady(log: &Log, next: &Long, frames: usize) -> io::Result<u64> {
    let mut heap = Heap::default();
    let mut misses = 0;
    each(log, next, |now, request, then| {
        let Request::Get(object, _) = request else {
            let (Request::Get(object, _) | Request::Delete(object)) = request;
            heap.remove(object);
            return;
        };
        if frames == 0 {
            misses += 1;
            return;
        }
        if !heap.remove(object) {
            misses += 1;
            if heap.len() == frames
                && let Some((_, last)) = heap.least()
            {
                heap.remove(last);
            }
        }
        heap.set(object, Rank(-(then as f64), now));
    })?;
    Ok(misses)
}

/// Keeping an object from one request to the next uses its size for that time. Hits that use least
/// are counted first, until all space and time is used.
fn pfoo(log: &Log, next: &Long, capacity: usize) -> io::Result<u64> {
    let mut left = Left { of: capacity as u128 * log.len() as u128, hits: 0, from: 0, parts: Vec::new() };
    // Parts of the range of costs, each pass smaller ones, until the space ends in a single cost.
    let most = log.len() as u128 * u128::from(log.most_size());
    let mut shift = (u128::BITS - most.leading_zeros()).saturating_sub(PART_BITS);
    loop {
        left.parts.clear();
        left.parts.resize(1 << PART_BITS, (0, 0));
        costs(log, next, capacity, |cost| left.count(cost, shift))?;
        if left.take(shift).is_break() || shift == 0 {
            return Ok(log.gets() - left.hits);
        }
        shift = shift.saturating_sub(PART_BITS);
    }
}

/// Bits by which the range of costs is divided in one pass.
const PART_BITS: u32 = 16;

/// Space and time that are left, and the costs that are not taken yet.
struct Left {
    of: u128,
    hits: u64,
    /// Costs below this are taken.
    from: u128,
    /// The number of costs in each part of the range, and their sum.
    parts: Vec<(u64, u128)>,
}

impl Left {
    /// Counts a cost in its part, parts being `1 << shift` wide.
    fn count(&mut self, cost: u128, shift: u32) {
        let Some(above) = cost.checked_sub(self.from) else { return };
        if let Some(part) = self.parts.get_mut((above >> shift).min(1 << PART_BITS) as usize) {
            part.0 += 1;
            part.1 += cost;
        }
    }

    /// Takes the costs of whole parts, the least first. Breaks if all are taken.
    fn take(&mut self, shift: u32) -> ControlFlow<()> {
        for (at, (count, sum)) in self.parts.iter().enumerate() {
            if *sum <= self.of {
                (self.of, self.hits) = (self.of - sum, self.hits + count);
                continue;
            }
            self.from += (at as u128) << shift;
            if shift == 0 {
                // All costs of this part are the same.
                self.hits += (self.of / self.from.max(1)) as u64;
            }
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(())
    }
}

/// What each hit that is possible takes of space and time.
fn costs(log: &Log, next: &Long, capacity: usize, mut work: impl FnMut(u128)) -> io::Result<()> {
    let mut sizes: Vec<u32> = Vec::new();
    each(log, next, |now, request, then| {
        let Request::Get(object, size) = request else {
            let (Request::Get(object, _) | Request::Delete(object)) = request;
            *slot(&mut sizes, object) = 0;
            return;
        };
        // An object keeps the size with which it was inserted. If it is inserted again, its size
        // may differ; with its least size so far the bound always holds.
        let kept = slot(&mut sizes, object);
        *kept = if *kept == 0 { size } else { size.min(*kept) };
        if then != NEVER && *kept as usize <= capacity {
            work(u128::from(then - now) * u128::from(*kept));
        }
    })
}
