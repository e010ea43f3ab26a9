//! What was measured, and what it means.

pub mod findings;
pub mod journal;
pub mod language;
pub mod pairs;
pub mod remarks;
pub mod report;
pub mod solve;
pub mod statistics;
pub mod study;
