//! The kinds of stores, one a file: those that have memory or a device of their own, and those that
//! stand on others.

pub(crate) mod compressed;
pub(crate) mod encrypted;
pub(crate) mod file;
pub(crate) mod mirror;
pub(crate) mod packed;
pub(crate) mod ram;
pub(crate) mod striped;
pub(crate) mod tiered;
