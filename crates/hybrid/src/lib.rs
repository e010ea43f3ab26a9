//! Simulated SSDs with a cache in front, and the replay of requests.
#![forbid(unsafe_code)]
