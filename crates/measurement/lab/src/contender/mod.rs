//! What a program runs under: memory alone, swap, a mapped file, Terapage, far memory.

pub mod far;
pub mod run;
