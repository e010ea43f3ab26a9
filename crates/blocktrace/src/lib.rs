//! Block traces: what hosts asked of their disks.
#![forbid(unsafe_code)]

mod request;

pub use request::{Kind, Request};
