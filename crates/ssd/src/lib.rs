//! Simulated flash SSDs.
#![forbid(unsafe_code)]

mod device;

pub use device::{Command, Device, Done, Operation};
