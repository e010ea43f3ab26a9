//! Simulated I/O stacks: cores, threads, locks and queues between a program and its volumes.
//!
//! A [`Setup`] is a machine, a stack, a load, and the costs of all stages. [`run`] simulates it and
//! reports where the CPUs' time went. The model follows the report of Sato, Kondo and Kiyota on
//! Linux's I/O stack (SCSI and NVMe on one array), Linux 3.10 for its paths and locks, and Bjorling
//! and others (SYSTOR 2013) for the multi-queue block layer.
#![forbid(unsafe_code)]

mod anchors;
mod calls;
mod costs;
mod device;
mod findings;
mod guest;
mod lock;
mod machines;
mod mechanism;
mod meter;
mod prediction;
mod program;
mod repeat;
mod setup;
mod simulator;
mod stacks;

pub use anchors::{Anchor, LOCK_THREADS, Quantity, anchors, cycles_bound, lock_scaling};
pub use costs::{Costs, Error as CostError, NAMES as COST_NAMES};
pub use findings::{Experiment, Findings, Highest, MULTIPLICITIES, Point, RATES_KIOPS};
pub use guest::{GUEST_MULTIPLICITIES, GUEST_PATHS, GUEST_SOURCE, GuestPath, guest_setup, kernel_cycles};
pub use lock::{Kind as LockKind, UnknownKind as UnknownLock};
pub use machines::{
    MACHINES, MachineFile, MachineFileError, UnknownMachine, machine, machine_values, paper_load,
};
pub use mechanism::{Mechanism, Mechanisms, UnknownMechanism};
pub use meter::{Activity, Outcome};
pub use prediction::{COMPARED, DOUBT, Draw, PLAUSIBLE, RATE_IOPS, draws};
pub use repeat::{Repeated, Spread, repeat};
pub use setup::{Arrivals, Error, Load, Machine, Setup, Variation};
pub use simulator::run;
pub use stacks::{Stack, UnknownStack};
