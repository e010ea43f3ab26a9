//! What depends on the processor: the registers of a thread, and the code that changes them.

mod x86_64;

pub use x86_64::*;
