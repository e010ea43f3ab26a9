//! Synthetic stand-ins for the MSR Cambridge volumes, for those who do not have the traces.
#![forbid(unsafe_code)]
