//! The host: a process that loads the paging library, and then becomes a program which would load
//! no library: a static one, a Go program, one with another C library. docs/host.md describes it.
//!
//! `terapage run`, and the library at each exec, start the host in place of such a program, with
//! the program's arguments. The variable `TERAPAGE_HOSTED` names the program.

#![cfg_attr(not(test), no_main)]

#[cfg(target_env = "musl")]
mod adopted;
mod calls;
mod cancel;
mod direct;
mod exec;
mod filter;
mod frame;
mod guard;
mod hosting;
mod image;
mod library;
mod machine;
mod own_filter;
mod own_memory;
mod own_stack;
mod place;
mod program;
mod raw;
#[cfg(target_env = "musl")]
mod release;
mod robust;
mod seat;
mod signals;
mod slots;
mod start;
mod trap;
