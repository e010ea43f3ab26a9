//! The stores of `terapage-store` that need no kernel, compiled against the simulated machine, with
//! the names of that crate.

extern crate terapage_model as terapage_sys;

#[path = "../../../store/src/bits.rs"]
mod bits;
#[path = "../../../store/src/copies.rs"]
mod copies;
#[path = "../../../store/src/delayed.rs"]
mod delayed;
#[path = "../../../store/src/faulty.rs"]
mod faulty;
#[path = "../../../store/src/mirror.rs"]
mod mirror;
#[path = "../../../store/src/random.rs"]
mod random;
#[path = "../../../store/src/shelf.rs"]
mod shelf;

pub use delayed::Delayed;
pub use faulty::Faulty;
pub use mirror::Mirror;
pub use shelf::{Ended, Error, Failure, Notes, Op, OpKind, Store, StoreRing, Why};
pub use terapage_config::Faults;
pub use terapage_model::store::EXTENT;

/// Bytes of the budget that stores use as memory: none of these stores does.
pub fn packed_bytes() -> usize {
    0
}
