//! All data in memory, without a limit; and a limit without swap, for programs that use the page
//! cache.

use crate::contender::{Answer, Contender, Limits, Program, Room, limited, probe_cgroup};
use crate::ground::runner::fields;
use crate::ground::site::Site;
use crate::ground::throttle::Throttle;
use std::{fs, io};
use terapage_config::Size;

/// All in memory.
pub struct Memory;

impl Contender for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn probe(&self, _site: &Site, limits: &Limits) -> Answer {
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let free = fields(&memory).get("MemAvailable").copied().unwrap_or(u64::MAX);
        // A container may have less.
        let free = free.min(terapage_config::memory_bytes().unwrap_or(u64::MAX));
        Ok(match limits.data + limits.data / 16 < free {
            true => Ok(()),
            false => Err(format!("{} of memory needed, {} free", Size(limits.data), Size(free))),
        })
    }

    fn set_up<'a>(&self, site: &'a Site, _: &Limits, throttle: Option<&Throttle>) -> io::Result<Room<'a>> {
        Ok(Room { cgroup: limited(site, u64::MAX, throttle)?, ..Room::default() })
    }

    fn wrap(&self, _: &Site, _: &Limits, _: &Room<'_>, program: Program) -> Result<Program, String> {
        Ok(program)
    }
}

/// A limit, without swap.
pub struct Limit;

impl Contender for Limit {
    fn name(&self) -> &'static str {
        "limit"
    }

    fn probe(&self, site: &Site, limits: &Limits) -> Answer {
        Ok(probe_cgroup(site, limits))
    }

    fn set_up<'a>(
        &self,
        site: &'a Site,
        limits: &Limits,
        throttle: Option<&Throttle>,
    ) -> io::Result<Room<'a>> {
        Ok(Room { cgroup: limited(site, limits.memory, throttle)?, ..Room::default() })
    }

    fn wrap(&self, _: &Site, _: &Limits, _: &Room<'_>, program: Program) -> Result<Program, String> {
        Ok(program)
    }
}
