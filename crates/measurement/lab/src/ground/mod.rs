//! What the lab makes on a machine and takes down again: cgroups, swap, disks, limits, processes.

pub mod cgroup;
pub mod chosen;
pub mod device;
pub mod disk;
pub mod janitor;
pub mod md;
pub mod record;
pub mod room;
pub mod runner;
pub mod swap;
pub mod system;
pub mod throttle;
pub mod tools;
pub mod undo;
