//! The device that is simulated.

use terapage_event::Nanos;
use terapage_ssd::{Command, Device, Done};

use crate::cache::Cache;
use crate::memory::MemoryOnly;

/// Flash alone, flash with a cache, or memory alone.
pub(crate) enum Machine<S> {
    Nand(S),
    Cached(Box<Cache<S>>),
    Memory(MemoryOnly),
}

impl<S: Device> Machine<S> {
    /// The flash, if there is any.
    pub(crate) fn nand(&self) -> Option<&S> {
        match self {
            Machine::Nand(nand) => Some(nand),
            Machine::Cached(cache) => Some(cache.below()),
            Machine::Memory(_) => None,
        }
    }

    /// The cache, if there is one.
    pub(crate) fn cache(&self) -> Option<&Cache<S>> {
        match self {
            Machine::Cached(cache) => Some(cache),
            _ => None,
        }
    }
}

impl<S: Device> Device for Machine<S> {
    fn sectors(&self) -> u64 {
        match self {
            Machine::Nand(device) => device.sectors(),
            Machine::Cached(device) => device.sectors(),
            Machine::Memory(device) => device.sectors(),
        }
    }

    fn submit(&mut self, now: Nanos, command: Command, done: &mut Vec<Done>) {
        match self {
            Machine::Nand(device) => device.submit(now, command, done),
            Machine::Cached(device) => device.submit(now, command, done),
            Machine::Memory(device) => device.submit(now, command, done),
        }
    }

    fn foresee(&self, commands: &[Command]) {
        match self {
            Machine::Nand(nand) => nand.foresee(commands),
            Machine::Cached(cache) => cache.foresee(commands),
            Machine::Memory(_) => {}
        }
    }

    fn next_time(&self) -> Option<Nanos> {
        match self {
            Machine::Nand(device) => device.next_time(),
            Machine::Cached(device) => device.next_time(),
            Machine::Memory(device) => device.next_time(),
        }
    }

    fn step(&mut self, done: &mut Vec<Done>) {
        match self {
            Machine::Nand(device) => device.step(done),
            Machine::Cached(device) => device.step(done),
            Machine::Memory(device) => device.step(done),
        }
    }
}
