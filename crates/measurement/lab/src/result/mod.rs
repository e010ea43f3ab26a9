//! What was measured, and what it means.

pub mod findings;
pub mod journal;
pub mod language;
pub mod number;
pub mod pairs;
pub mod remarks;
pub mod solve;
pub mod study;
pub mod target;
