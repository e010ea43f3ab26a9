//! Terapage with `--files`: pages the files that the program maps, within a limit that counts its
//! page cache too.

use crate::contender::run::Run;
use crate::contender::terapage::{self, terapage_program};
use crate::contender::{
    Answer, Contender, Limits, MIB, Program, Room, contend, failed, limited, probe_cgroup,
};
use crate::experiment::Under;
use crate::ground::janitor::OwnedFile;
use crate::ground::runner::{End, Finished};
use crate::ground::site::Site;
use crate::ground::throttle::Throttle;
use std::io;
use terapage_config::Size;

/// The least budget.
const LEAST: u64 = 16 * MIB;

/// `terapage run --files` in a memory cgroup.
pub struct Files;

/// The budget within a limit: the limit without what Terapage may use beside the budget, so that
/// the page cache has no room.
fn budget(limit: u64) -> Result<u64, String> {
    let budget = limit.saturating_sub(limit / 100 + terapage::BESIDE);
    let least = Size(LEAST + 2 * terapage::BESIDE);
    let enough = (budget >= LEAST).then_some(budget);
    enough.ok_or_else(|| format!("{} are too few for Terapage with --files ({least} suffice)", Size(limit)))
}

impl Contender for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    /// Pages a small file: file systems without leases have no such files.
    fn probe(&self, site: &Site, limits: &Limits) -> Answer {
        let able = terapage_program(&site.program()).and_then(|_| budget(limits.memory));
        if let Err(why) = able.map(drop).and_then(|()| probe_cgroup(site, limits)) {
            return Ok(Err(why));
        }
        let file = match OwnedFile::new(&site.janitor, site.path("probe")) {
            Ok(file) => file,
            Err(error) => return Ok(Err(format!("no file can be made: {error}"))),
        };
        let limits = Limits::of_probe(96 * MIB, 80 * MIB);
        let (data, path) = (limits.data.to_string(), file.path().display().to_string());
        let small = ["mapped", "--pattern", "sequential", "--bytes", &data, "--file", &path];
        let program = (site.program(), site.workload_arguments(&small));
        terapage::answer(contend(
            (site, site.throttle()),
            Under::Files,
            program,
            &limits,
            None,
            Finished::passes,
        ))
    }

    fn set_up<'a>(
        &self,
        site: &'a Site,
        limits: &Limits,
        throttle: Option<&Throttle>,
    ) -> io::Result<Room<'a>> {
        let cgroup = limited(site, limits.memory, throttle)?;
        Ok(Room { stats: Some(terapage::stats(site)?), cgroup, ..Room::default() })
    }

    fn wrap(
        &self,
        site: &Site,
        limits: &Limits,
        room: &Room<'_>,
        program: Program,
    ) -> Result<Program, String> {
        terapage::wrapped(site, limits, room, (budget(limits.memory)?, &["--files"]), program)
    }

    fn ended(&self, limits: &Limits, room: &Room<'_>, run: Run) -> Run {
        let stats = room.stats.as_ref().and_then(|stats| terapage::counters_of_most(stats.path()));
        let counter = |name: &str| stats.as_ref().and_then(|stats| stats[name].as_u64()).unwrap_or(0);
        if run.end == End::Done && !limits.may_fit && counter("mapped_file_bytes") < limits.data / 2 {
            // The figures would be those of the kernel's mapping.
            let why = "its counters say that less than half of its data was a paged file (only its \
                       owner and root can lease a file, on ext4, XFS or Btrfs)";
            return failed(self.name(), why.into());
        }
        let mut notes = run.notes;
        let left = counter("files_left");
        notes.extend((left > 0).then(|| format!("{left} parts of files went back to the kernel")));
        let limit = budget(limits.memory).ok().map(terapage::resident_limit);
        Run { resident_limit_bytes: limit, stats, notes, ..run }
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAST, budget};
    use crate::contender::terapage::resident_limit;

    #[test]
    fn the_budget_and_what_terapage_may_use_beside_it_fill_the_limit() {
        for limit in [81 << 20, 1 << 30, 100 << 30] {
            let budget = budget(limit).expect("enough");
            assert!((LEAST..limit).contains(&budget));
            let whole = resident_limit(budget);
            assert!(whole <= limit && limit - whole < limit / 100, "{whole} of {limit}");
        }
        let why = budget(40 << 20).expect_err("too few");
        assert_eq!(why, "40 MiB are too few for Terapage with --files (80 MiB suffice)");
        assert!(budget(80 << 20).is_ok() && budget(0).is_err());
    }
}
