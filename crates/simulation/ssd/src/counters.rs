//! Counters of an SSD.

use serde::Serialize;
use terapage_event::Nanos;

/// The work of an SSD since it was built. [`Counters::since`] returns a part of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counters {
    /// Read commands that have ended.
    pub host_reads: u64,
    /// Write commands that have ended.
    pub host_writes: u64,
    /// Trim commands that have ended.
    pub host_trims: u64,
    /// Bytes of the read commands.
    pub host_read_bytes: u64,
    /// Bytes of the write commands.
    pub host_write_bytes: u64,
    /// Mapping units that the host wrote, in whole or in part, with those that were overwritten
    /// while they waited in the buffer.
    pub host_units: u64,
    /// Mapping units that the host wrote and that were programmed.
    pub host_units_programmed: u64,
    /// Mapping units that were read from the controller's memory.
    pub buffer_hits: u64,
    /// Mapping units read that were never written, or were trimmed.
    pub unmapped_reads: u64,
    /// Pages read because a command wants them.
    pub nand_host_reads: u64,
    /// Pages read to fill up a partial write of a mapping unit.
    pub nand_fill_reads: u64,
    /// Pages read by the garbage collection.
    pub nand_gc_reads: u64,
    /// Pages programmed, including padding.
    pub nand_programs: u64,
    /// Pages programmed by the garbage collection.
    pub nand_gc_programs: u64,
    /// Mapping units programmed as padding.
    pub padded_units: u64,
    /// Mapping units that the garbage collection moved and programmed.
    pub gc_moved_units: u64,
    /// Mapping units that the host wrote and that were programmed as SLC.
    #[serde(skip_serializing_if = "is_zero")]
    pub slc_units: u64,
    /// Mapping units that were moved out of blocks of SLC, among those that were collected.
    #[serde(skip_serializing_if = "is_zero")]
    pub folded_units: u64,
    /// Blocks erased, in all planes: an erase of two planes counts as two.
    pub nand_erases: u64,
    /// Blocks erased that were collected to level the wear.
    #[serde(skip_serializing_if = "is_zero")]
    pub levelling_erases: u64,
    /// Erases that failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed_erases: u64,
    /// Pages that were read by a collection in idle time.
    #[serde(skip_serializing_if = "is_zero")]
    pub nand_idle_reads: u64,
    /// Blocks that are bad now, in all planes. Blocks of the same number become bad together.
    #[serde(skip_serializing_if = "is_none")]
    pub bad_blocks: u32,
    /// Programs and erases that were suspended for a read.
    pub suspensions: u64,
    /// The fewest erases of a block.
    pub wear_min: u32,
    /// The mean erases of a block.
    pub wear_mean: f64,
    /// The most erases of a block.
    pub wear_max: u32,
    /// Time in which each channel moved data or commands.
    pub channel_busy_ns: Vec<Nanos>,
    /// Time in which each die worked or held data that waited for the bus.
    pub die_busy_ns: Vec<Nanos>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

impl Counters {
    /// Mapping units programmed for each unit of the host: 1 if nothing is collected. Padding
    /// counts. 0 before the first program.
    pub fn write_amplification(&self) -> f64 {
        if self.host_units_programmed == 0 {
            return 0.0;
        }
        let programmed = self.host_units_programmed + self.gc_moved_units + self.padded_units;
        programmed as f64 / self.host_units_programmed as f64
    }

    /// The work since `earlier`. Wear is not a difference.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        let minus = |now: &[Nanos], then: &[Nanos]| {
            now.iter().enumerate().map(|(at, time)| time - then.get(at).unwrap_or(&0)).collect()
        };
        Counters {
            host_reads: self.host_reads - earlier.host_reads,
            host_writes: self.host_writes - earlier.host_writes,
            host_trims: self.host_trims - earlier.host_trims,
            host_read_bytes: self.host_read_bytes - earlier.host_read_bytes,
            host_write_bytes: self.host_write_bytes - earlier.host_write_bytes,
            host_units: self.host_units - earlier.host_units,
            host_units_programmed: self.host_units_programmed - earlier.host_units_programmed,
            buffer_hits: self.buffer_hits - earlier.buffer_hits,
            unmapped_reads: self.unmapped_reads - earlier.unmapped_reads,
            nand_host_reads: self.nand_host_reads - earlier.nand_host_reads,
            nand_fill_reads: self.nand_fill_reads - earlier.nand_fill_reads,
            nand_gc_reads: self.nand_gc_reads - earlier.nand_gc_reads,
            nand_programs: self.nand_programs - earlier.nand_programs,
            nand_gc_programs: self.nand_gc_programs - earlier.nand_gc_programs,
            padded_units: self.padded_units - earlier.padded_units,
            gc_moved_units: self.gc_moved_units - earlier.gc_moved_units,
            slc_units: self.slc_units - earlier.slc_units,
            folded_units: self.folded_units - earlier.folded_units,
            nand_erases: self.nand_erases - earlier.nand_erases,
            levelling_erases: self.levelling_erases - earlier.levelling_erases,
            failed_erases: self.failed_erases - earlier.failed_erases,
            nand_idle_reads: self.nand_idle_reads - earlier.nand_idle_reads,
            suspensions: self.suspensions - earlier.suspensions,
            channel_busy_ns: minus(&self.channel_busy_ns, &earlier.channel_busy_ns),
            die_busy_ns: minus(&self.die_busy_ns, &earlier.die_busy_ns),
            ..*self
        }
    }
}
