//! Storage-class memory or DRAM: the times of accesses, and a device that consists only of it.

use serde::{Deserialize, Serialize};
use terapage_event::{Nanos, Queue};
use terapage_ssd::{Command, Device, Done, Operation};

use crate::error::Error;

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;
/// The greatest number of sectors that one bank serves at once; longer accesses are spread over the
/// banks.
const PIECE_SECTORS: u32 = 8;

/// The speed of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryTiming {
    /// Nanoseconds of an access, whatever its length, before its first byte.
    #[serde(default)]
    pub access_ns: u64,
    /// Nanoseconds that a bank needs to read or write 512 bytes. The papers on NV-WB use 100.
    pub latency_ns: u64,
    /// Banks that work in parallel. An access is spread over them in pieces of 4 KiB.
    pub banks: u32,
    /// The bandwidth to all banks together, bytes per second; 0 for no limit.
    pub bandwidth: u64,
}

impl Default for MemoryTiming {
    fn default() -> Self {
        MemoryTiming { access_ns: 0, latency_ns: 100, banks: 1, bandwidth: 0 }
    }
}

/// The banks of a memory and the bus to them. Accesses are served in the order in which they are
/// requested.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    access_ns: u64,
    latency_ns: u64,
    bandwidth: u64,
    banks: Vec<Nanos>,
    bus: Nanos,
    busy_ns: u64,
}

impl Memory {
    pub(crate) fn new(timing: &MemoryTiming) -> Result<Self, Error> {
        if timing.banks == 0 || timing.banks > 1024 {
            let value = timing.banks.to_string();
            return Err(Error::Value { name: "the number of banks", value, rule: "it must be 1 to 1024" });
        }
        let longest_ns = timing.latency_ns.max(timing.access_ns);
        if longest_ns > 1_000_000_000 {
            let value = format!("{longest_ns} ns");
            return Err(Error::Value {
                name: "the latency of the memory",
                value,
                rule: "it must be at most 1 s",
            });
        }
        let banks = vec![0; timing.banks as usize];
        let access_ns = timing.access_ns;
        Ok(Memory {
            access_ns,
            latency_ns: timing.latency_ns,
            bandwidth: timing.bandwidth,
            banks,
            bus: 0,
            busy_ns: 0,
        })
    }

    /// Accesses `sectors` sectors from `now` on. Returns the end.
    #[inline]
    pub(crate) fn access(&mut self, now: Nanos, sectors: u32) -> Nanos {
        self.transfer(now, sectors) + self.access_ns
    }

    /// The time until the last byte has moved, if the first one takes no time. Accesses overlap in
    /// the time that the first bytes take.
    #[inline]
    fn transfer(&mut self, now: Nanos, sectors: u32) -> Nanos {
        let end = match self.banks.as_mut_slice() {
            [bank] => occupy(bank, now, u64::from(sectors) * self.latency_ns),
            banks => {
                let mut end = now;
                let mut left = sectors;
                while left > 0 {
                    let piece = left.min(PIECE_SECTORS);
                    left -= piece;
                    let bank = banks.iter_mut().min().expect("there is a bank");
                    end = end.max(occupy(bank, now, u64::from(piece) * self.latency_ns));
                }
                end
            }
        };
        self.busy_ns += u64::from(sectors) * self.latency_ns;
        match self.bandwidth {
            0 => end,
            bandwidth => {
                let bytes = u128::from(sectors) * u128::from(SECTOR);
                let transfer_ns = (bytes * 1_000_000_000).div_ceil(u128::from(bandwidth)) as u64;
                end.max(occupy(&mut self.bus, now, transfer_ns))
            }
        }
    }

    /// The time that all banks have worked, together, ns.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

/// Uses a server for `work_ns` as soon as it is free, and returns the time when it is finished.
/// Returns the end.
fn occupy(free: &mut Nanos, now: Nanos, work_ns: u64) -> Nanos {
    *free = (*free).max(now) + work_ns;
    *free
}

/// A device that consists only of memory: storage that is all SCM.
pub struct MemoryOnly {
    sectors: u64,
    memory: Memory,
    events: Queue<u64>,
}

impl MemoryOnly {
    /// A device of `sectors` sectors.
    ///
    /// # Errors
    /// The timing is impossible.
    pub fn new(sectors: u64, timing: &MemoryTiming) -> Result<Self, Error> {
        Ok(MemoryOnly { sectors, memory: Memory::new(timing)?, events: Queue::default() })
    }

    /// The time that all its banks have worked, together, ns.
    pub fn busy_ns(&self) -> u64 {
        self.memory.busy_ns()
    }
}

impl Device for MemoryOnly {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn submit(&mut self, now: Nanos, command: Command, _done: &mut Vec<Done>) {
        assert!(
            command.sector + u64::from(command.sectors) <= self.sectors,
            "{command:?} is beyond the device"
        );
        let end = match command.operation {
            Operation::Trim => now,
            Operation::Read | Operation::Write => self.memory.access(now, command.sectors),
        };
        self.events.in_order(0, end, command.tag);
    }

    fn next_time(&self) -> Option<Nanos> {
        self.events.next_time()
    }

    fn step(&mut self, done: &mut Vec<Done>) {
        done.extend(self.events.pop().map(|(time, tag)| Done { tag, time }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bank_takes_its_latency_for_each_sector() {
        let mut memory = Memory::new(&MemoryTiming::default()).expect("default");
        assert_eq!(memory.access(1_000, 8), 1_800);
        assert_eq!(memory.access(1_000, 1), 1_900, "the second waits for the first");
        assert_eq!(memory.access(5_000, 2), 5_200);
        assert_eq!(memory.busy_ns(), 1_100);
    }

    #[test]
    fn banks_share_an_access_in_pieces() {
        let timing = MemoryTiming { banks: 4, ..MemoryTiming::default() };
        let mut memory = Memory::new(&timing).expect("good");
        assert_eq!(memory.access(0, 32), 800);
        assert_eq!(memory.access(0, 40), 2_400, "five pieces over four banks, after the first access");
    }

    #[test]
    fn the_bus_can_be_what_limits() {
        let timing = MemoryTiming { banks: 64, bandwidth: 512_000_000, ..MemoryTiming::default() };
        let mut memory = Memory::new(&timing).expect("good");
        assert_eq!(memory.access(0, 80), 80_000);
    }

    #[test]
    fn the_time_of_the_first_byte_overlaps_with_other_accesses() {
        let timing = MemoryTiming { access_ns: 250, latency_ns: 20, ..MemoryTiming::default() };
        let mut memory = Memory::new(&timing).expect("good");
        assert_eq!(memory.access(0, 8), 410);
        assert_eq!(memory.access(0, 8), 570);
    }

    #[test]
    fn impossible_timings_are_refused() {
        assert!(Memory::new(&MemoryTiming { banks: 0, ..MemoryTiming::default() }).is_err());
        assert!(Memory::new(&MemoryTiming { latency_ns: 2_000_000_000, ..MemoryTiming::default() }).is_err());
    }
}
