//! The space: the addresses that are paged, or may be. It contains the arena and the pager over it,
//! the used addresses of the arena, the reasons why pages are not paged, static arrays, and the
//! names by which memory is counted.

pub mod arena;
pub mod files;
pub mod paged;
pub mod places;
pub mod private;
pub mod ranges;
pub mod reasons;
pub mod regions;
pub mod rereads;
pub mod statics;
