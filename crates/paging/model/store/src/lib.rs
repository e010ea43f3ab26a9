//! The stores of `terapage-store` that need no kernel, compiled against the simulated machine, with
//! the names of that crate.

extern crate terapage_model as terapage_sys;

#[path = "../../../store/src/common"]
mod common {
    pub(crate) mod bits;
    pub(crate) mod pieces;
    pub(crate) mod random;
}
#[path = "../../../store/src/kinds"]
mod kinds {
    pub(crate) mod mirror;
}
#[path = "../../../store/src/shelf/mod.rs"]
mod shelf;
#[path = "../../../store/src/testing/mod.rs"]
mod testing;

pub use kinds::mirror::Mirror;
pub use shelf::{
    Below, BelowMut, Ended, Error, Failure, Notes, Op, OpKind, Presence, Redundancy, Spread, Store,
};
pub use shelf::{StoreRing, Why};
pub use terapage_config::Faults;
pub use terapage_model::store::EXTENT;
pub use testing::delayed::Delayed;
pub use testing::faulty::Faulty;

/// Bytes of the budget that stores use as memory: none of these stores does.
pub fn packed_bytes() -> usize {
    0
}
