//! Emulated slower devices: a loop device whose requests a cgroup limits.
//!
//! Version 1 of cgroups charges write-back and swap-out to the root group. If the lab may write
//! there, it sets the limit of the root group, which covers all requests to the device; the limit
//! names only the lab's own device. Otherwise only the programs' own requests are limited
//! ([`Throttle::whole`]). Version 2 charges write-back to the group that wrote.

use crate::experiment::class::{Class, Profile};
use crate::ground::janitor::{Janitor, Thing};
use crate::ground::undo::{self, Undo};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use terapage_sys::cgroup::{self, Version};

/// The files of version 1, in the order of [`Class::limits`].
const FILES: [&str; 4] = [
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
];

/// Devices that are throttled, until this value is dropped.
pub struct Throttle {
    undo: Vec<Undo>,
    /// The group with the limits, and the file through which processes enter it; with version 2
    /// this is the group of the program's memory.
    group: Option<PathBuf>,
    /// Numbers of the devices, as `7:3`.
    devices: Vec<String>,
    class: Class,
    profile: Mutex<Profile>,
    /// Whether all that reaches the device is limited, by whomever.
    pub whole: bool,
}

impl Throttle {
    /// Throttles devices. Needs root.
    ///
    /// # Errors
    /// There is no such controller, or it cannot be used.
    pub fn on(
        janitor: &Arc<Janitor>,
        devices: Vec<String>,
        class: Class,
        profile: Profile,
    ) -> io::Result<Throttle> {
        let profile = Mutex::new(profile);
        let mut throttle = Throttle { undo: Vec::new(), group: None, devices, class, profile, whole: true };
        let Some(top) = top_of_version_1(&fs::read_to_string("/proc/self/mountinfo")?) else {
            return Ok(throttle);
        };
        throttle.whole = is_root(&top);
        let group = match throttle.whole {
            true => top,
            false => {
                let group = top.join(format!("terapage-lab-{}", process::id()));
                throttle.undo.push(Undo::tell(janitor, Thing::Cgroup(group.clone()))?);
                fs::create_dir(&group)?;
                group
            }
        };
        if throttle.whole {
            for device in &throttle.devices {
                for file in FILES {
                    let thing = Thing::Throttle(group.join(file), device.clone());
                    throttle.undo.push(Undo::tell(janitor, thing)?);
                }
            }
        }
        throttle.group = Some(group);
        throttle.set(throttle.profile())?;
        Ok(throttle)
    }

    /// Chooses the limits that are in force.
    ///
    /// # Errors
    /// The limits cannot be written.
    pub fn set(&self, profile: Profile) -> io::Result<()> {
        *self.profile.lock().unwrap_or_else(PoisonError::into_inner) = profile;
        let Some(group) = &self.group else { return Ok(()) };
        for device in &self.devices {
            for (file, limit) in FILES.iter().zip(self.class.limits(profile)) {
                fs::write(group.join(file), format!("{device} {limit}"))?;
            }
        }
        Ok(())
    }

    fn profile(&self) -> Profile {
        *self.profile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file through which a program enters, if its group is not that of its memory.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn door(&self) -> io::Result<Option<File>> {
        let open = |group: &PathBuf| fs::OpenOptions::new().write(true).open(group.join("cgroup.procs"));
        self.group.as_ref().map(open).transpose()
    }

    /// Lines for `io.max` of the program's own group, of version 2.
    pub fn lines(&self) -> Vec<String> {
        if self.group.is_some() {
            return Vec::new();
        }
        let limits = self.class.limits(self.profile());
        self.devices.iter().map(|device| line_of_version_2(device, limits)).collect()
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        undo::all(&mut self.undo);
    }
}

fn line_of_version_2(device: &str, limits: [u64; 4]) -> String {
    let named = ["rbps", "wbps", "riops", "wiops"].iter().zip(limits);
    let words = named.map(|(name, limit)| match limit {
        0 => format!("{name}=max"),
        limit => format!("{name}={limit}"),
    });
    format!("{device} {}", words.collect::<Vec<_>>().join(" "))
}

/// The mount point of version 1's controller.
fn top_of_version_1(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
        let fits = kind == "cgroup" && options.split(',').any(|name| name == "blkio");
        fits.then(|| before.split(' ').nth(4).map(PathBuf::from)).flatten()
    })
}

/// Whether this is the root of the hierarchy: only the root has this file, and a container's root
/// does not.
fn is_root(top: &Path) -> bool {
    top.join("release_agent").exists() && top.join(FILES[0]).exists()
}

/// Whether version 2 delegates the controller to the groups that the lab makes.
///
/// # Errors
/// It does not; the text says what to do.
pub fn check() -> io::Result<()> {
    if top_of_version_1(&fs::read_to_string("/proc/self/mountinfo")?).is_some() {
        return Ok(());
    }
    let (version, parent) = cgroup::parent()?;
    let list = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    match version == Version::Two && list.split_whitespace().any(|name| name == "io") {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "no cgroup passes the io controller on (as root: echo +io > {})",
            parent.join("cgroup.subtree_control").display()
        ))),
    }
}

/// Ends a limit of version 1.
pub fn end(file: &Path, device: &str) -> io::Result<()> {
    match fs::write(file, format!("{device} 0")) {
        // The device, or the controller, is gone, and so is the limit.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{line_of_version_2, top_of_version_1};
    use crate::experiment::class::{Class, Profile};

    #[test]
    fn a_line_of_version_2_has_four_limits() {
        let class = Class::find("hdd").expect("there is one");
        let line = line_of_version_2("7:3", class.limits(Profile::Sequential));
        assert_eq!(line, "7:3 rbps=188743680 wbps=188743680 riops=max wiops=max");
    }

    #[test]
    fn the_controller_of_version_1_is_found() {
        let mounts = "31 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      30 24 0:27 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n";
        assert_eq!(top_of_version_1(mounts), Some("/sys/fs/cgroup/blkio".into()));
        assert_eq!(top_of_version_1(mounts.lines().next().expect("one")), None);
    }
}
