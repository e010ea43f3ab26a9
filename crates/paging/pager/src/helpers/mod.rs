//! The threads that save the pager's thread time, on which processor that runs, and whether it
//! looks for work before it sleeps.

pub(crate) mod carriers;
#[cfg(not(terapage_model))]
pub(crate) mod follow;
#[cfg(terapage_model)]
pub(crate) use crate::model::follow;

use carriers::Carriers;
use follow::Follow;
use terapage_policy::luck::Luck;

/// The pager's other threads.
pub(crate) struct Helpers {
    pub carriers: Carriers,
    pub follow: Follow,
    /// Whether the pager's thread looks for work.
    pub luck: Luck,
}

impl Helpers {
    /// None yet.
    pub fn none() -> Helpers {
        Helpers { carriers: Carriers::default(), follow: Follow::nobody(), luck: Luck::default() }
    }

    /// In the child of a fork, which does not have the threads.
    pub fn forget(&mut self) {
        self.carriers = Carriers::default();
        self.follow.forget();
    }
}
