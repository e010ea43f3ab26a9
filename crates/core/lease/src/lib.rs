//! One budget for all processes of a job.
//!
//! `terapage run` makes a memory file, the *table*, that all processes of the job inherit. Each
//! process that needs memory has a *slot* there: what it has (its *lease*), what it has beside that
//! and cannot give, and what it would do with more. Each process reckons its own share from these
//! notes, now and then, by the same rule ([`terapage_policy::shares`]), and takes or gives. There
//! is no daemon, and nobody waits for anybody.
//!
//! A lease grows only by what is free: the budget, less all leases. That is decided under a lock
//! that is tried, never waited for. What is free is not noted but added up, so a process that is
//! killed at any point leaves a table that is right. A slot belongs to the process that has its
//! byte of the file locked; the kernel drops the lock with the process. So PIDs, which namespaces
//! and reuse make ambiguous, decide nothing.
#![forbid(unsafe_code)]

mod handed;
mod table;

pub use handed::{File, Handed, JOB_VARIABLE};
pub use table::{JOBS, Locks, Needs, Overview, SLOTS, Slot, TABLE_BYTES, Table, least_of};
