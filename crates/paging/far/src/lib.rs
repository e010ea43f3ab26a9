//! Far memory: blocks in the memory of other machines, on Valkey (Redis speaks the same).
//!
//! [`Far`] is a [`Store`](terapage_store::Store) on one server, on the one that sentinels name, or
//! on the servers of a cluster; several standalone servers are several such stores. Its values are
//! as large as an extent less one block, and blocks are ranges of them, because a value of a power
//! of two takes a quarter more of the server's memory. `docs/far.md` describes its use and the
//! failures that it survives.

mod away;
mod bits;
mod client;
mod connection;
#[cfg(test)]
mod families;
mod fleet;
mod holder;
mod info;
mod life;
mod list;
mod namespace;
mod receiver;
mod refusals;
mod resp;
mod shelf;
mod slots;
mod store;
mod tls;
mod url;

pub use client::{Client, Error, resolve};
pub use fleet::addresses;
pub use holder::Holder;
pub use info::Info;
pub use life::{Checked, Listed, NotFit, check, drain, list, sweep};
pub use namespace::Namespace;
pub use resp::{Malformed, Reply};
pub use shelf::{is_replicated, no_names, remember, remember_password, server, shelf, take_warnings};
pub use store::Far;
pub use tls::{Tls, has_key};
pub use url::{Address, Files, PASSWORD_FILE, SCHEMES, Secret, Server};
