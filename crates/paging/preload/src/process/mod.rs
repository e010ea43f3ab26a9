//! The process in which the library lives. How it begins and ends, forks and executes
//! programs; its limits, its share of the job, and its untracked memory; the real functions, and
//! memory that is not paged.

pub mod adopted;
pub mod borrowed;
pub mod callers;
pub mod copies;
pub mod elf;
pub mod exec;
pub mod exit;
pub mod family;
pub mod fork;
pub mod hosted;
pub mod instead;
pub mod job;
pub mod limits;
pub mod lock;
pub mod machine;
pub mod next_malloc;
pub mod own_heap;
pub mod real;
pub mod sanitizers;
pub mod setup;
pub mod signals;
mod streams;
pub mod summary;
pub mod untracked;
