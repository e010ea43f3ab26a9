//! What is shown of paged processes: `terapage stat`, `top`, `metrics`.

pub mod metrics;
pub mod process;
mod regions;
pub mod stat;
pub mod sums;
pub mod top;
