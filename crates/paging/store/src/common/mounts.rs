//! The mount point of a block device.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The first place at which the device at `path` is mounted, or `swap` if the kernel swaps to it;
/// `None` if this process sees neither.
pub(crate) fn place_of(path: &Path) -> Option<String> {
    let number = fs::metadata(path).ok()?.rdev();
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    if is_swap(&read("/proc/swaps"), number) {
        return Some("swap".to_owned());
    }
    mounted(&read("/proc/thread-self/mountinfo"), number, |source| {
        fs::metadata(source).is_ok_and(|found| found.rdev() == number)
    })
}

fn is_swap(swaps: &str, number: u64) -> bool {
    let names = swaps.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
    names.filter_map(|name| fs::metadata(name).ok()).any(|found| found.rdev() == number)
}

/// The place of a mount of the device with this number. Some file systems (Btrfs) show a different
/// number; `is_it` says whether their source is the device.
fn mounted(mounts: &str, number: u64, is_it: impl Fn(&str) -> bool) -> Option<String> {
    let number = format!("{}:{}", major(number), minor(number));
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let (device, _, place) = (before.next()?, before.next()?, before.next()?);
        let source = after.split(' ').nth(1)?;
        (device == number || source.starts_with('/') && is_it(source)).then(|| place.replace("\\040", " "))
    })
}

/// A device's numbers, as in `makedev(3)`.
fn major(number: u64) -> u64 {
    ((number >> 8) & 0xfff) | ((number >> 32) & !0xfff)
}

fn minor(number: u64) -> u64 {
    (number & 0xff) | ((number >> 12) & !0xff)
}

#[cfg(test)]
mod tests {
    use super::mounted;

    #[test]
    fn a_mount_is_found_by_number_or_by_source() {
        let mounts = "22 1 0:21 / /proc rw - proc proc rw\n\
                      30 1 259:1 / /mnt/a\\040b rw - ext4 /dev/root rw\n\
                      31 1 0:40 / /data rw,relatime shared:1 - btrfs /dev/sdb rw\n";
        assert_eq!(mounted(mounts, (259 << 8) | 1, |_| false), Some("/mnt/a b".to_owned()));
        assert_eq!(mounted(mounts, (8 << 8) | 16, |source| source == "/dev/sdb"), Some("/data".to_owned()));
        assert_eq!(mounted(mounts, 8 << 8, |_| false), None);
    }
}
