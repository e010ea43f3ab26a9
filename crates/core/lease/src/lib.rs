//! One budget for all processes of a job.
//!
//! `terapage run` makes a memory file, the *table*, that all processes of the job inherit. Each
//! process that needs memory has a *slot* there. The slot notes the memory that the process has
//! (its *lease*), the memory that it has beside the lease and cannot return, and how much it would
//! gain from more. Now and then each process computes its own share from these notes, by the same
//! rule ([`terapage_policy::shares`]), and takes or returns memory. There is no daemon, and no
//! process waits for another.
//!
//! A lease grows only by free bytes: the budget, less all leases. This is decided under a lock that
//! processes try, but never wait for. The free bytes are not stored but added up, so a process that
//! is killed at any point leaves a correct table. A slot belongs to the process that has its byte
//! of the file locked; the kernel drops the lock with the process. So PIDs, which namespaces and
//! reuse make ambiguous, decide nothing.
#![forbid(unsafe_code)]

mod inherited;
mod table;

pub use inherited::{File, Inherited, JOB_VARIABLE};
pub use table::{JOBS, Locks, Needs, Overview, SLOTS, Slot, TABLE_BYTES, Table, least_of};
pub use terapage_policy::elastic::{Level, STEP_LEAST};
