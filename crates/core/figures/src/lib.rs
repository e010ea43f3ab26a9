//! What simulators, measurements and reports share to make figures: the origin of a value,
//! statistics, seeded random numbers, long lists, and work on all processors.
#![forbid(unsafe_code)]

mod long;
mod origin;
mod parallel;
mod random;
mod statistics;

pub use long::{Long, Numbers, temporary_directory};
pub use origin::{Origin, Sourced};
pub use parallel::{in_parallel, map, processors, try_map};
pub use random::{SplitMix, hash};
pub use statistics::{Mean, Spread, mean, median, quantile, spread, student};
