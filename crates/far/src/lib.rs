//! Far memory: blocks in the memory of other machines, on Valkey (Redis speaks the same).
//!
//! [`Far`] is a [`Store`](terapage_store::Store) on one standalone server. Its values are as large
//! as an extent less one block, and blocks are ranges of them: a value of a power of two takes a
//! quarter more of the server's memory. `docs/far.md` tells how it is used and what it survives.

mod bits;
mod client;
mod connection;
mod info;
mod life;
mod namespace;
mod receiver;
mod refusals;
mod resp;
mod shelf;
mod store;
mod url;

pub use client::{Client, Error, resolve};
pub use info::Info;
pub use life::{Holder, Listed, check, list, sweep};
pub use namespace::Namespace;
pub use resp::{Malformed, Reply};
pub use shelf::{no_names, remember_password, server, shelf, take_warnings};
pub use store::Far;
pub use url::{Address, PASSWORD_FILE, SCHEMES, Secret, Server};
