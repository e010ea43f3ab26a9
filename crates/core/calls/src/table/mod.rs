//! The rows, by subject. A row's numbers are those of x86-64 and of 64-bit Arm.

mod descriptors;
mod events;
mod ipc;
mod memory;
mod paths;
mod processes;
mod signals;
mod sockets;
mod system;
mod time;
mod users;

use crate::row::Row;

/// All rows.
pub const GROUPS: [&[Row]; 11] = [
    descriptors::ROWS,
    events::ROWS,
    ipc::ROWS,
    memory::ROWS,
    paths::ROWS,
    processes::ROWS,
    signals::ROWS,
    sockets::ROWS,
    system::ROWS,
    time::ROWS,
    users::ROWS,
];
