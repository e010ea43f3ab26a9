//! Calls whose memory depends on a command, or on other memory.

pub mod bpf;
pub mod commands;
pub mod futexes;
pub mod ioctl;
pub mod keys;
pub mod memory;
pub mod mounts;
pub mod prctl;
pub mod processes;
pub mod ptrace;
pub mod requests;
pub mod sockets;
pub mod users;
pub mod vectors;
pub mod xattrs;

use crate::Outcome;
use crate::step::{Step, Visit};

/// The kernel would go on to touch the memory after the call.
pub fn refused(_: &mut Visit) -> Step {
    Err(Outcome::Asynchronous)
}
