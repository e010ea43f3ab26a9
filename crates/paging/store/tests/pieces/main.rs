//! Stores that stack, each against a plain map, over memory that fails and is late by a seed.

mod compressed;
mod encrypted;
mod packed;
mod rig;
mod tiered;
