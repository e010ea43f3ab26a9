//! The kernel's swap, with a limit: a file, compressed memory, zswap before a file, and with the
//! multi-generational LRU.

use crate::contender::{Answer, Contender, Limits, MIB, Program, Room, limited, probe_cgroup, swap_bytes};
use crate::ground::janitor::Held;
use crate::ground::site::Site;
use crate::ground::swap::{self, Swap};
use crate::ground::throttle::Throttle;
use std::path::Path;
use std::{fs, io};

/// A way to swap.
pub struct Swapping {
    name: &'static str,
    /// Whether the swap is on compressed memory instead of a file.
    zram: bool,
    /// The kernel file that is set for this contender, and its value.
    setting: Option<(&'static str, &'static str)>,
}

impl Swapping {
    /// A swap file.
    pub const SWAP: Swapping = Swapping { name: "swap", zram: false, setting: None };
    /// Compressed memory.
    pub const ZRAM: Swapping = Swapping { name: "zram", zram: true, setting: None };
    /// A swap file behind zswap.
    pub const ZSWAP: Swapping = Swapping { name: "zswap", zram: false, setting: Some((swap::ZSWAP, "Y")) };
    /// A swap file, with the multi-generational LRU.
    pub const MGLRU: Swapping = Swapping { name: "mglru", zram: false, setting: Some((swap::MGLRU, "7")) };

    fn swap<'a>(&self, site: &'a Site, directory: &Path, bytes: u64) -> io::Result<Swap<'a>> {
        match self.zram {
            true => Swap::on_zram(&site.janitor, bytes),
            false => Swap::on(&site.janitor, directory, bytes),
        }
    }

    fn probe_swap(&self, site: &Site) -> Result<(), String> {
        if let Some(rival) = swap::rival() {
            return Err(format!("{rival} is swap of the highest priority too (swapoff {rival})"));
        }
        if let Some((file, _)) = self.setting {
            let known = fs::read_to_string(file).map_err(|_| format!("this kernel has no {file}"))?;
            // The setting of the multi-generational LRU is a bit mask; some of the bits suffice.
            if known.trim() == "Y" || known.trim().strip_prefix("0x").is_some_and(|bits| bits != "0000") {
                return Err("it is on already, so swap measures it".into());
            }
        }
        self.swap(site, &site.directory, 16 * MIB).map(drop).map_err(|error| match self.zram {
            true => format!("no compressed device can be used: {error} (modprobe zram)"),
            false => format!("no swap file can be used: {error}"),
        })
    }
}

impl Contender for Swapping {
    fn name(&self) -> &'static str {
        self.name
    }

    fn probe(&self, site: &Site, limits: &Limits) -> Answer {
        Ok(probe_cgroup(site, limits).and_then(|()| self.probe_swap(site)))
    }

    fn set_up<'a>(
        &self,
        site: &'a Site,
        limits: &Limits,
        throttle: Option<&Throttle>,
    ) -> io::Result<Room<'a>> {
        let held = self.setting.map(|(file, value)| {
            let before = fs::read_to_string(file)?.trim().to_owned();
            Held::set(&site.janitor, file.into(), before, value)
        });
        let held = held.transpose()?;
        let swap = Some(self.swap(site, limits.directory(site), swap_bytes(limits.data))?);
        Ok(Room { _held: held, swap, cgroup: limited(site, limits.memory, throttle)?, ..Room::default() })
    }

    fn wrap(&self, _: &Site, _: &Limits, _: &Room<'_>, program: Program) -> Result<Program, String> {
        Ok(program)
    }
}
