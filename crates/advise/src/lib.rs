//! The policies of the pager against the best possible, and advice for a program.
#![forbid(unsafe_code)]
