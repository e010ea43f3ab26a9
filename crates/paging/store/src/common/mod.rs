//! What the stores are made of; none of it is a store.

pub(crate) mod bits;
pub(crate) mod buffers;
pub(crate) mod extents;
pub(crate) mod location;
pub(crate) mod member;
mod mounts;
pub(crate) mod packer;
pub(crate) mod pieces;
pub(crate) mod random;
pub(crate) mod secret;
mod signature;
pub(crate) mod units;
