//! Paged processes.
