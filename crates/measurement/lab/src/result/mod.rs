//! The results, and their meaning.

pub mod answers;
pub mod checks;
pub mod compare;
pub mod findings;
pub mod journal;
pub mod kept;
pub mod language;
pub mod number;
pub mod pairs;
pub mod plots;
pub mod prices;
pub mod remarks;
pub mod solve;
pub mod steady;
pub mod study;
pub mod tables;
pub mod target;
pub mod verdict;
