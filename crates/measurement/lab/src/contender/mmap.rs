//! A mapped file, with a limit.

use crate::contender::{Answer, Contender, Limits, Program, Room, limited, probe_cgroup};
use crate::ground::janitor::OwnedFile;
use crate::ground::site::Site;
use crate::ground::throttle::Throttle;
use std::io;

/// A mapped file, which the option `--map` names to the program.
pub struct Mmap;

impl Contender for Mmap {
    fn name(&self) -> &'static str {
        "mmap"
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
        let map =
            OwnedFile::allocate(&site.janitor, site.path_in(limits.directory(site), "map"), limits.data)?;
        Ok(Room { map: Some(map), cgroup: limited(site, limits.memory, throttle)?, ..Room::default() })
    }

    fn wrap(
        &self,
        _: &Site,
        _: &Limits,
        room: &Room<'_>,
        (program, mut arguments): Program,
    ) -> Result<Program, String> {
        arguments.extend(room.map.iter().flat_map(|map| ["--map".into(), map.path().into()]));
        Ok((program, arguments))
    }
}
