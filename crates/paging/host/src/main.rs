//! The host: a process that loads the paging library, and then becomes a program which would load
//! no library: a static one, a Go program, one with another C library. docs/host.md describes it.
//!
//! `terapage run`, and the library at each exec, start the host in place of such a program, with
//! the program's arguments. The variable `TERAPAGE_HOSTED` names the program.

#![cfg_attr(all(target_arch = "x86_64", not(test)), no_main)]

#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
mod adopted;
#[cfg(target_arch = "x86_64")]
mod calls;
#[cfg(target_arch = "x86_64")]
mod cancel;
#[cfg(target_arch = "x86_64")]
mod direct;
#[cfg(target_arch = "x86_64")]
mod exec;
#[cfg(target_arch = "x86_64")]
mod filter;
#[cfg(target_arch = "x86_64")]
mod frame;
#[cfg(target_arch = "x86_64")]
mod guard;
#[cfg(target_arch = "x86_64")]
mod hosting;
#[cfg(target_arch = "x86_64")]
mod image;
#[cfg(target_arch = "x86_64")]
mod library;
#[cfg(target_arch = "x86_64")]
mod machine;
#[cfg(target_arch = "x86_64")]
mod own_filter;
#[cfg(target_arch = "x86_64")]
mod own_memory;
#[cfg(target_arch = "x86_64")]
mod own_stack;
#[cfg(target_arch = "x86_64")]
mod place;
#[cfg(target_arch = "x86_64")]
mod program;
#[cfg(target_arch = "x86_64")]
mod raw;
#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
mod release;
#[cfg(target_arch = "x86_64")]
mod robust;
#[cfg(target_arch = "x86_64")]
mod seat;
#[cfg(target_arch = "x86_64")]
mod signals;
#[cfg(target_arch = "x86_64")]
mod slots;
#[cfg(target_arch = "x86_64")]
mod start;
#[cfg(target_arch = "x86_64")]
mod trap;

/// On other processors there is no host, and nothing starts this.
#[cfg(not(target_arch = "x86_64"))]
fn main() {
    std::process::exit(125);
}
