//! The geometry of an SSD: units, slots and blocks.
//!
//! A *unit* is a mapping unit: a page or a part of one. A *slot* is a place for a unit in the
//! flash. A *block* here means the blocks of one number in all planes of a die: they are written,
//! collected and erased together. Its slots are numbered in the order in which they are programmed:
//! row by row, in a row plane by plane, in a plane the pages of one write unit.

use crate::config::{Config, ConfigError};

/// Blocks of a die beyond its share of capacity and over-provisioning: one is in reserve; two are
/// open, one for the host and one for the garbage collection, and on average these hold as much as
/// one block.
pub(crate) const EXTRA_BLOCKS: u32 = 2;

/// Bytes of a TiB.
const TIB: f64 = (1_u64 << 40) as f64;

/// The shape of an SSD, and the arithmetic of its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub channels: u32,
    pub dies: u32,
    pub planes: u32,
    pub page_bytes: u32,
    pub unit_bytes: u32,
    /// Units in a page.
    pub page_units: u32,
    /// Pages of one write unit of one plane.
    pub write_unit: u32,
    /// Slots of one write unit of one plane.
    pub program_slots: u32,
    /// Slots of one write unit of all planes.
    pub row_slots: u32,
    pub block_slots: u32,
    /// Blocks of a die, including the bad ones and those of SLC.
    pub blocks_per_die: u32,
    /// The last of these, which are written as SLC.
    pub slc_per_die: u32,
    /// Slots of such a block that are used.
    pub slc_slots: u32,
    /// Blocks of a die that are bad from the beginning.
    pub bad_per_die: u32,
    /// Units that the host sees.
    pub units: u32,
    /// Valid units that a die may hold.
    pub die_units_max: u32,
    /// The valid units for which each die must have room, so that the drive has its capacity.
    pub die_units_min: u32,
}

impl Geometry {
    pub(crate) fn new(config: &Config) -> Result<Geometry, ConfigError> {
        let (nand, unit_bytes, dies) = (&config.nand, config.unit_bytes(), config.dies());
        let page_units = nand.page_bytes / unit_bytes;
        let program_slots = nand.write_unit * page_units;
        let row_slots = program_slots * nand.planes;
        let block_slots = u64::from(row_slots) * u64::from(nand.pages_per_block / nand.write_unit);
        let units = config.capacity_bytes.div_ceil(u64::from(unit_bytes));
        let share = units as f64 * (1.0 + config.over_provisioning) / f64::from(dies);
        let mut blocks = (share / block_slots as f64).ceil().max(1.0);
        // A die that holds its share of the capacity has room for a program beside it.
        let least = units as f64 / f64::from(dies) + f64::from(row_slots) + 1.0;
        while blocks * (block_slots as f64) < least {
            blocks += 1.0;
        }
        let bad = ((blocks + f64::from(EXTRA_BLOCKS)) * config.bad_blocks).round();
        if (blocks - bad) * (block_slots as f64) < least {
            let problem = format!(
                "{bad} of {} blocks of a die: the others do not hold the capacity; give it more over-provisioning",
                blocks + f64::from(EXTRA_BLOCKS)
            );
            return Err(ConfigError::Field { field: "bad-blocks", problem });
        }
        // A further part whose data are kept apart has a further open block.
        let extra = f64::from(EXTRA_BLOCKS) + config.placements.len() as f64;
        let bits = nand.slc.map_or(1, |slc| slc.bits);
        let slc_slots = u64::from(nand.pages_per_block / nand.write_unit / bits) * u64::from(row_slots);
        let slc_block = slc_slots.max(1) * u64::from(unit_bytes) * u64::from(dies);
        let slc = config.slc_cache_bytes.div_ceil(slc_block) as f64;
        let slots = (blocks + extra + slc) * block_slots as f64 * f64::from(dies);
        if slots >= f64::from(1u32 << 31) {
            let problem = format!(
                "{:.1} TiB: with pages of {} KiB must be at most {:.1} TiB",
                config.capacity_bytes as f64 / TIB,
                f64::from(unit_bytes) / 1024.0,
                // What is spare takes its share of the units.
                config.capacity_bytes as f64 / TIB * f64::from(1u32 << 31) / slots
            );
            return Err(ConfigError::Field { field: "capacity", problem });
        }
        Ok(Geometry {
            channels: config.channels,
            dies,
            planes: nand.planes,
            page_bytes: nand.page_bytes,
            unit_bytes,
            page_units,
            write_unit: nand.write_unit,
            program_slots,
            row_slots,
            block_slots: block_slots as u32,
            blocks_per_die: (blocks + extra + slc) as u32,
            slc_per_die: slc as u32,
            slc_slots: slc_slots as u32,
            bad_per_die: bad as u32,
            units: units as u32,
            die_units_max: (blocks - bad) as u32 * block_slots as u32,
            die_units_min: least.ceil() as u32,
        })
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks_per_die * self.dies
    }

    pub(crate) fn slots(&self) -> u32 {
        self.blocks() * self.block_slots
    }

    pub(crate) fn block_of(&self, slot: u32) -> u32 {
        slot / self.block_slots
    }

    pub(crate) fn die_of(&self, block: u32) -> u32 {
        block / self.blocks_per_die
    }

    /// Neighbouring dies are on different channels.
    pub(crate) fn channel_of(&self, die: u32) -> u32 {
        die % self.channels
    }

    /// Whether a block is written as SLC.
    pub(crate) fn is_slc(&self, block: u32) -> bool {
        self.slc_per_die > 0 && block % self.blocks_per_die >= self.blocks_per_die - self.slc_per_die
    }

    /// Slots of a block that are used.
    pub(crate) fn slots_of(&self, block: u32) -> u32 {
        if self.is_slc(block) { self.slc_slots } else { self.block_slots }
    }

    pub(crate) fn first_slot(&self, block: u32) -> u32 {
        block * self.block_slots
    }

    /// The number of a slot's page in its block and plane, which decides the type of the page.
    pub(crate) fn page_of(&self, slot: u32) -> u32 {
        let within = slot % self.block_slots;
        within / self.row_slots * self.write_unit + within % self.program_slots / self.page_units
    }

    /// The first slot of page `page` in plane 0. The slots of the other planes follow at intervals
    /// of `program_slots`.
    pub(crate) fn slot_of_page(&self, block: u32, page: u32) -> u32 {
        let (row, within) = (page / self.write_unit, page % self.write_unit);
        self.first_slot(block) + row * self.row_slots + within * self.page_units
    }

    pub(crate) fn pages_per_block(&self) -> u32 {
        self.block_slots / self.planes / self.page_units
    }
}
