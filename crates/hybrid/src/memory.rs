//! Storage-class memory or DRAM: how long its accesses take, and a device made of it alone.

use serde::{Deserialize, Serialize};
use terapage_event::{Nanos, Queue};
use terapage_ssd::{Command, Device, Done, Operation};

use crate::error::Error;

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;
/// Sectors that one bank serves in one go; longer accesses are spread over the banks.
const PIECE_SECTORS: u32 = 8;

/// How fast a memory is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryTiming {
    /// Nanoseconds that a bank takes for 512 bytes, read or written. The papers on NV-WB have 100.
    pub latency_ns: u64,
    /// Banks that work side by side. An access is spread over them in pieces of 4 KiB.
    pub banks: u32,
    /// Bytes a second that pass to and from all banks together; 0 is without limit.
    pub bandwidth: u64,
}

impl Default for MemoryTiming {
    fn default() -> Self {
        MemoryTiming { latency_ns: 100, banks: 1, bandwidth: 0 }
    }
}

/// The banks of a memory and the bus to them. Accesses are served in the order in which they are
/// asked for.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
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
        if timing.latency_ns > 1_000_000_000 {
            let value = format!("{} ns", timing.latency_ns);
            return Err(Error::Value {
                name: "the latency of the memory",
                value,
                rule: "it must be at most 1 s",
            });
        }
        let banks = vec![0; timing.banks as usize];
        Ok(Memory { latency_ns: timing.latency_ns, bandwidth: timing.bandwidth, banks, bus: 0, busy_ns: 0 })
    }

    /// Accesses `sectors` from `now` on; returns when that ends.
    #[inline]
    pub(crate) fn access(&mut self, now: Nanos, sectors: u32) -> Nanos {
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

    /// Nanoseconds that banks have worked, all added up.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

/// Takes a server for `work_ns` as soon as it is free; returns when that ends.
fn occupy(free: &mut Nanos, now: Nanos, work_ns: u64) -> Nanos {
    *free = (*free).max(now) + work_ns;
    *free
}

/// A device that is memory alone: what storage would be if all of it were SCM.
pub struct MemoryOnly {
    sectors: u64,
    memory: Memory,
    events: Queue<u64>,
}

impl MemoryOnly {
    /// A device of `sectors` sectors.
    ///
    /// # Errors
    /// If the timing is impossible.
    pub fn new(sectors: u64, timing: &MemoryTiming) -> Result<Self, Error> {
        Ok(MemoryOnly { sectors, memory: Memory::new(timing)?, events: Queue::default() })
    }

    /// Nanoseconds that its banks have worked, all added up.
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
    fn impossible_timings_are_refused() {
        assert!(Memory::new(&MemoryTiming { banks: 0, ..MemoryTiming::default() }).is_err());
        assert!(Memory::new(&MemoryTiming { latency_ns: 2_000_000_000, ..MemoryTiming::default() }).is_err());
    }
}
