//! Stores that stack, each against a plain map, over memory that fails and is late by a seed.

mod compressed;
mod encrypted;
mod matrix;
mod packed;
mod rig;
mod split;
mod tiered;
