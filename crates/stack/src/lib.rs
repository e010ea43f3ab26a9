//! Simulated I/O stacks: cores, threads, locks and queues between a program and its volumes.
#![forbid(unsafe_code)]
