//! Stores for tests: they stand on another, and fail or are late on purpose.

pub(crate) mod delayed;
pub(crate) mod faulty;
