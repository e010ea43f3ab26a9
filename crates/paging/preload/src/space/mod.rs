//! The space: the addresses that are paged, or may be. The arena and the pager over it, which of
//! its addresses are in use, why pages are not paged, static arrays, and the names by which memory
//! is counted.

pub mod arena;
pub mod paged;
pub mod places;
pub mod ranges;
pub mod reasons;
pub mod regions;
pub mod statics;
