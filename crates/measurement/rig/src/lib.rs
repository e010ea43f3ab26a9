//! The parts of measurements that the lab and the emulated machine share: reads submitted to the
//! kernel in several ways, spinning processors, devices and their settings, arrays, swap, and
//! programs that may be missing.

pub mod calls;
pub mod device;
pub mod driver;
pub mod md;
pub mod spinner;
pub mod swap;
pub mod tools;

/// Something that this machine cannot do, and why; other measurements may continue.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Cannot(pub String);
