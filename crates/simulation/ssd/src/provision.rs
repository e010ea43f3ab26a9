//! The flash of a drive as it is built: blocks are whole, so a drive may have more spare flash than
//! was asked for.

use serde::Serialize;

use crate::config::{Config, ConfigError};
use crate::geometry::{EXTRA_BLOCKS, Geometry};

/// Proposed capacities are multiples of this.
const STEP: u64 = 1 << 20;
/// The number of capacities that are tried before the search ends without a result.
const TRIES: u32 = 100_000;

/// The flash of a drive, after rounding to whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Provision {
    /// Bytes that the host sees.
    pub capacity_bytes: u64,
    /// Bytes of a super-block: the blocks of one number in all planes of a die.
    pub super_block_bytes: u64,
    /// Super-blocks of a die, with the bad ones and without those in reserve.
    pub blocks_per_die: u32,
    /// Super-blocks of a die in reserve and open, beside these.
    pub reserve_per_die: u32,
    /// Super-blocks of a die that are bad from the beginning.
    pub bad_per_die: u32,
    /// Bytes of the cache of SLC, beside these.
    pub slc_bytes: u64,
    /// The spare flash that was asked for, as a share of the capacity.
    pub spare_asked: f64,
    /// The spare flash there is, as a share of the capacity: without reserve, bad blocks included.
    pub spare: f64,
    /// The same without the bad blocks.
    pub spare_good: f64,
}

impl Provision {
    /// Whether the spare flash differs from the request by at most this share of the request.
    pub fn is_within(&self, tolerance: f64) -> bool {
        // Whole units are rounded too, and that difference is ignored.
        (self.spare / self.spare_asked - 1.0).abs() <= tolerance + 1e-3
    }
}

impl Config {
    /// The flash of a drive with this configuration.
    ///
    /// # Errors
    /// Such a drive is impossible.
    pub fn provision(&self) -> Result<Provision, ConfigError> {
        self.check()?;
        let geometry = Geometry::new(self)?;
        let of = |blocks: u32| {
            let slots = f64::from(geometry.dies) * f64::from(blocks) * f64::from(geometry.block_slots);
            slots / f64::from(geometry.units) - 1.0
        };
        let reserve_per_die = EXTRA_BLOCKS + self.placements.len() as u32;
        let blocks_per_die = geometry.blocks_per_die - geometry.slc_per_die - reserve_per_die;
        let slc_slots = geometry.dies * geometry.slc_per_die * geometry.slc_slots;
        Ok(Provision {
            capacity_bytes: self.capacity_bytes,
            super_block_bytes: u64::from(geometry.block_slots) * u64::from(geometry.unit_bytes),
            blocks_per_die,
            reserve_per_die,
            slc_bytes: u64::from(slc_slots) * u64::from(geometry.unit_bytes),
            bad_per_die: geometry.bad_per_die,
            spare_asked: self.over_provisioning,
            spare: of(blocks_per_die),
            spare_good: of(blocks_per_die - geometry.bad_per_die),
        })
    }

    /// Bytes of a super-block in each of the dies.
    pub fn stripe_bytes(&self) -> u64 {
        let nand = &self.nand;
        let pages = u64::from(nand.pages_per_block) * u64::from(nand.planes);
        pages * u64::from(nand.page_bytes) * u64::from(self.dies())
    }
}

/// The least capacity from `least` bytes on, in whole MiB, with which the spare flash of each of
/// the drives differs from what was asked for by at most the share `tolerance`. `None` if there is
/// none, or if a drive cannot be built.
pub fn capacity_within(drives: &[Config], least: u64, tolerance: f64) -> Option<u64> {
    let mut capacity = least.next_multiple_of(STEP);
    for _ in 0..TRIES {
        let mut next = capacity;
        for drive in drives {
            let built = Config { capacity_bytes: capacity, ..drive.clone() }.provision().ok()?;
            if !built.is_within(tolerance) {
                // The same blocks are right for this capacity.
                let flash = f64::from(built.blocks_per_die) * drive.stripe_bytes() as f64;
                let fits = flash / (1.0 + drive.over_provisioning * (1.0 + tolerance));
                next = next.max((fits.ceil() as u64).next_multiple_of(STEP)).max(capacity + STEP);
            }
        }
        if next == capacity {
            return Some(capacity);
        }
        capacity = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn drives(over_provisioning: f64) -> Vec<Config> {
        let drive = |name| Config {
            over_provisioning,
            ..Config::new(Profile::by_name(name).expect("it is built in"), 1 << 30)
        };
        ["2d-fg-mlc", "2d-fg-tlc", "3d-fg-tlc", "3d-ct-tlc"].map(drive).to_vec()
    }

    #[test]
    fn whole_blocks_give_more_than_was_asked_for() {
        let built = drives(0.15)[2].provision().unwrap();
        assert_eq!((built.blocks_per_die, built.reserve_per_die), (4, 2));
        assert_eq!(built.super_block_bytes, 48 << 20);
        assert!((built.spare - 0.5).abs() < 1e-9, "{}", built.spare);
        assert!(!built.is_within(0.1));
    }

    #[test]
    fn the_capacity_that_is_proposed_gives_what_was_asked_for() {
        for asked in [0.01, 0.07, 0.15, 0.28, 1.0] {
            for least in [1, 256 << 20, 1 << 30, 5 << 30, 20 << 30] {
                for tolerance in [0.02, 0.1] {
                    let drives = drives(asked);
                    let capacity = capacity_within(&drives, least, tolerance).unwrap();
                    assert!(capacity >= least && capacity < least + (80 << 30), "{asked} {least}");
                    for drive in drives {
                        let built = Config { capacity_bytes: capacity, ..drive }.provision().unwrap();
                        assert!(built.is_within(tolerance), "{asked} {least}: {built:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn bad_blocks_are_whole_too() {
        let mut drive = drives(0.28).remove(0);
        drive.bad_blocks = 0.02;
        let built = drive.provision().unwrap();
        assert_eq!((built.blocks_per_die, built.bad_per_die), (21, 0));
        drive.capacity_bytes = 4 << 30;
        let built = drive.provision().unwrap();
        assert_eq!((built.blocks_per_die, built.bad_per_die), (82, 2));
        assert!(built.spare_good < built.spare);
        assert!((built.spare_good - crate::Ssd::new(&drive).unwrap().over_provisioning()).abs() < 1e-9);
    }
}
