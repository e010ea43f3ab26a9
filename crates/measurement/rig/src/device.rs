//! Block devices: the device of a path, its mount, its settings, and the bytes that it has
//! transferred.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of a sector in the kernel's counts, whatever the device has.
const SECTOR: u64 = 512;

/// The device that a path lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name, such as `vda`; for a partition the name of its disk.
    pub name: String,
    /// The directory of its files in sysfs.
    sysfs: PathBuf,
}

/// The bytes that a device has transferred so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Read from it.
    pub read_bytes: u64,
    /// Written to it.
    pub written_bytes: u64,
}

impl Moved {
    /// The bytes transferred since `earlier`.
    pub fn since(self, earlier: Moved) -> Moved {
        Moved {
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
        }
    }
}

impl Device {
    /// The device of `path`; `None` if its file system has no single device, such as tmpfs, overlay
    /// and those over several devices.
    pub fn of(path: &Path) -> Option<Device> {
        let number = fs::metadata(path).ok()?.dev();
        let (major, minor) = (libc::major(number), libc::minor(number));
        let found = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        // Partitions lie in the directory of their disk, and have no queue themselves.
        let disk = match found.join("queue").is_dir() {
            true => found,
            false => found.parent()?.to_owned(),
        };
        Some(Device { name: disk.file_name()?.to_str()?.to_owned(), sysfs: disk })
    }

    /// The device with this name, if it is a whole disk.
    pub fn named(name: &str) -> Option<Device> {
        let sysfs = fs::canonicalize(Path::new("/sys/block").join(name)).ok()?;
        Some(Device { name: name.to_owned(), sysfs })
    }

    /// A value from its `queue` directory; for a choice such as the scheduler, the current one.
    pub fn setting(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.setting_path(name)).ok()?;
        Some(in_force(text.trim()).to_owned())
    }

    /// The file of such a value.
    pub fn setting_path(&self, name: &str) -> PathBuf {
        self.sysfs.join("queue").join(name)
    }

    /// The bytes that it has transferred since it exists.
    pub fn moved(&self) -> Option<Moved> {
        let text = fs::read_to_string(self.sysfs.join("stat")).ok()?;
        moved(&text)
    }

    /// The processors of each of its hardware queues; none if the kernel does not list them.
    pub fn queues(&self) -> Vec<Vec<usize>> {
        queues_in(&self.sysfs)
    }

    /// All settings that matter.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let names =
            ["scheduler", "wbt_lat_usec", "nr_requests", "read_ahead_kb", "rotational", "write_cache"];
        names.iter().filter_map(|name| Some(((*name).to_owned(), self.setting(name)?))).collect()
    }
}

/// The processors of each hardware queue of a device whose files in sysfs are `device`, in order.
fn queues_in(device: &Path) -> Vec<Vec<usize>> {
    let Ok(entries) = fs::read_dir(device.join("mq")) else { return Vec::new() };
    let mut queues: Vec<(usize, Vec<usize>)> = entries
        .flatten()
        .filter_map(|entry| {
            let list = fs::read_to_string(entry.path().join("cpu_list")).ok()?;
            let processors = list.split(',').filter_map(|one| one.trim().parse().ok()).collect();
            Some((entry.file_name().to_str()?.parse().ok()?, processors))
        })
        .collect();
    queues.sort();
    queues.into_iter().map(|(_, processors)| processors).collect()
}

/// `none [mq-deadline] kyber` is `mq-deadline`.
fn in_force(text: &str) -> &str {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(text, |(chosen, _)| chosen)
}

/// Bytes read and written, of a `stat` file: reads, merged, sectors, ms, writes, merged, sectors.
fn moved(stat: &str) -> Option<Moved> {
    let mut fields = stat.split_whitespace().map(str::parse::<u64>);
    let read_bytes = fields.nth(2)?.ok()? * SECTOR;
    let written_bytes = fields.nth(3)?.ok()? * SECTOR;
    Some(Moved { read_bytes, written_bytes })
}

/// The mount of the file system of `path`: its place, type and current options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// What is mounted.
    pub source: String,
    /// Where.
    pub point: String,
    /// The type of the file system.
    pub kind: String,
    /// Its options.
    pub options: String,
}

impl Mount {
    /// The mount of `path` according to /proc/mounts.
    pub fn of(path: &Path) -> Option<Mount> {
        let path = path.canonicalize().ok()?;
        find_mount(&fs::read_to_string("/proc/mounts").ok()?, &path)
    }
}

/// Of several mounts at one place the last one counts.
fn find_mount(mounts: &str, path: &Path) -> Option<Mount> {
    let mut found: Option<Mount> = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').map(unescape);
        let (Some(source), Some(point), Some(kind), Some(options)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let longer = found.as_ref().is_none_or(|known| point.len() >= known.point.len());
        if path.starts_with(&point) && longer {
            found = Some(Mount { source, point, kind, options });
        }
    }
    found
}

fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::{Moved, find_mount, in_force, moved, queues_in};
    use std::fs;
    use std::path::Path;

    #[test]
    fn each_hardware_queue_has_its_processors() {
        let place = tempfile::tempdir().expect("a directory");
        assert!(queues_in(place.path()).is_empty());
        for (name, list) in [("10", "3\n"), ("2", "1, 2\n"), ("0", "0\n")] {
            let queue = place.path().join("mq").join(name);
            fs::create_dir_all(&queue).expect("a directory");
            fs::write(queue.join("cpu_list"), list).expect("a file");
        }
        assert_eq!(queues_in(place.path()), [vec![0], vec![1, 2], vec![3]]);
    }

    #[test]
    fn the_choice_in_force_stands_in_brackets() {
        assert_eq!(in_force("none [mq-deadline] kyber bfq"), "mq-deadline");
        assert_eq!(in_force("75000"), "75000");
    }

    #[test]
    fn sectors_are_counted_as_bytes() {
        let stat = "  10 1 100 5 20 2 300 7 0 1 12 0 0 0 0\n";
        assert_eq!(moved(stat), Some(Moved { read_bytes: 51200, written_bytes: 153600 }));
        assert_eq!(moved("1 2"), None);
    }

    #[test]
    fn the_nearest_and_last_mount_holds() {
        let mounts = "/dev/vda / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\n\
                      /dev/loop0 /m\\040n ext3 rw 0 0\n/dev/loop1 /m\\040n ext4 rw,nobarrier 0 0\n";
        let of = |path: &str| find_mount(mounts, Path::new(path)).expect("a mount");
        assert_eq!(of("/var/tmp").options, "rw,relatime");
        assert_eq!((of("/m n/x").kind.as_str(), of("/m n/x").options.as_str()), ("ext4", "rw,nobarrier"));
    }
}
