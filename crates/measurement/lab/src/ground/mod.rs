//! What the lab sets up on a machine and removes again: cgroups, swap, disks, limits, processes.

pub mod cgroup;
pub mod chosen;
pub mod disk;
pub mod janitor;
pub mod mount;
pub mod network;
pub mod record;
pub mod room;
pub mod runner;
pub mod site;
pub mod steady;
pub mod swap;
pub mod system;
pub mod throttle;
pub mod undo;
