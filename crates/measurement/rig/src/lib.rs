//! What measurements ask of a machine, in the lab and in an emulated machine alike: reads handed
//! to the kernel in several ways, processors that spin, devices and how they are set, arrays, swap,
//! and programs that may be missing.

pub mod calls;
pub mod device;
pub mod driver;
pub mod md;
pub mod spinner;
pub mod swap;
pub mod tools;

/// What this machine cannot do, and why; other measurements may go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Cannot(pub String);
