//! The hooks of the C library's functions by which a program asks for memory, changes
//! memory, or passes it to the kernel. (The hooks at which a process ends, forks, executes or sets
//! its limits are in [process](crate::process).)
//!
//! A hook decides who serves a call. It learns from [paged](crate::space::paged) what is paged, and
//! changes that only through the [arena](crate::space::arena). It passes the rest to the kernel or
//! to the [real](crate::process::real) function.

pub mod advise;
pub mod brk;
pub mod caches;
#[cfg(not(target_env = "musl"))]
pub mod calls;
#[cfg(not(target_env = "musl"))]
pub mod contexts;
pub mod direct;
#[cfg(not(target_env = "musl"))]
pub mod dlopen;
#[cfg(not(target_env = "musl"))]
pub mod errors;
pub mod heap;
pub mod locked;
#[cfg(not(target_env = "musl"))]
pub mod mallinfo;
pub mod malloc;
pub mod maps;
#[cfg(not(target_env = "musl"))]
pub mod mutexes;
pub mod namespaces;
pub mod own_memory;
#[cfg(not(target_env = "musl"))]
pub mod personality;
#[cfg(not(target_env = "musl"))]
pub mod privileges;
#[cfg(not(target_env = "musl"))]
pub mod processors;
pub mod remap;
pub mod rights;
pub mod shm;
#[cfg(not(target_env = "musl"))]
pub mod waits;
#[cfg(not(target_env = "musl"))]
pub mod zero_copy;
