//! The table against the kernel's own signatures and numbers, and what visits announce.

mod signatures;
mod visits;
