//! Eviction policies of caches that are not for a pager, one per file, and the fewest misses that
//! any policy can have. They learn of each request, as their papers assume.
//!
//! `docs/sim-cache.md` says how each differs from its paper.
#![forbid(unsafe_code)]

mod bound;
mod heap;
mod hyperbolic;
mod lhd;
mod lirs;
mod log;
mod mru;
mod pool;
mod random;
mod ranked;
mod sieve;
mod slru;
mod wtinylfu;

use terapage_policy::replacement::{self, Known, Replacement};

pub use bound::least;
pub use log::{Log, Requests};

/// The policies that only simulators have. Their names are defined only here.
pub const POLICIES: &[Known] = &[
    Known { name: "sieve", sized: true, make: |_| Box::<sieve::Sieve>::default() },
    Known { name: "slru", sized: true, make: |frames| Box::new(slru::Slru::new(frames)) },
    Known { name: "lirs", sized: true, make: |frames| Box::new(lirs::Lirs::new(frames)) },
    Known { name: "wtinylfu", sized: true, make: |frames| Box::new(wtinylfu::WTinyLfu::new(frames)) },
    Known { name: "lfu", sized: true, make: |_| Box::new(ranked::Ranked::new(ranked::lfu)) },
    Known { name: "lfuda", sized: true, make: |_| Box::new(ranked::Ranked::new(ranked::lfuda)) },
    Known { name: "gdsf", sized: true, make: |_| Box::new(ranked::Ranked::new(ranked::gdsf)) },
    Known { name: "hyperbolic", sized: true, make: |_| Box::<hyperbolic::Hyperbolic>::default() },
    Known { name: "lhd", sized: true, make: |_| Box::<lhd::Lhd>::default() },
    Known { name: "random", sized: true, make: |_| Box::<random::Random>::default() },
    Known { name: "mru", sized: true, make: |_| Box::<mru::Mru>::default() },
];

/// Those of them that could serve a pager: blocks of one size, of which only arrivals and touches
/// soon after leaving are seen. `gdsf` is `lfuda` there.
pub const FOR_PAGERS: [&str; 8] = ["sieve", "slru", "lirs", "wtinylfu", "lfu", "lfuda", "hyperbolic", "lhd"];

/// Other names of policies: FIFO with reinsertion is CLOCK with one bit.
const OTHER_NAMES: &[(&str, &str)] = &[("fifo-reinsertion", "clock"), ("second-chance", "clock")];

/// All policies that a cache can be simulated with: the pager's, then these.
pub fn all() -> impl Iterator<Item = &'static Known> {
    replacement::POLICIES.iter().chain(POLICIES)
}

/// The policy called `name`, by any of its names.
pub fn known(name: &str) -> Option<&'static Known> {
    let name = OTHER_NAMES.iter().find(|(other, _)| *other == name).map_or(name, |(_, name)| *name);
    all().find(|known| known.name == name)
}

/// The policy called `name`, for a cache of `frames` blocks, or of that number of bytes.
pub fn by_name(name: &str, frames: usize) -> Option<Box<dyn Replacement>> {
    known(name).map(|known| (known.make)(frames))
}
