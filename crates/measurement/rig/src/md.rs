//! An array of RAID-6 by the kernel's md driver, created through files in sysfs, like mdadm's
//! arrays whose metadata the kernel does not keep: nothing is written to the devices, and the array
//! no longer exists once it is stopped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file to which the names of new arrays are written.
const NEW_ARRAY: &str = "/sys/module/md_mod/parameters/new_array";

/// Bytes of a device's part of a stripe.
pub const CHUNK: u64 = 64 << 10;

/// The time that a device file may take to appear or disappear. Chosen, not measured.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the kernel has the driver, loaded or built in.
///
/// # Errors
/// The kernel has no such driver; the error says what to do.
pub fn check() -> Result<(), String> {
    match Path::new(NEW_ARRAY).exists() {
        true => Ok(()),
        false => Err("this kernel has no md driver, or it is not loaded (sudo modprobe raid456)".into()),
    }
}

/// The files of an array in sysfs.
fn files(array: &Path) -> PathBuf {
    Path::new("/sys/block").join(array.file_name().unwrap_or_default()).join("md")
}

/// Writes a value into a file of an array. The error names both.
fn set(array: &Path, file: &str, value: &str) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("md's {file} {value}: {error}"));
    fs::write(files(array).join(file), value).map_err(named)
}

fn name(device: &Path) -> String {
    device.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The device file of an array of this name.
pub fn device(name: &str) -> PathBuf {
    Path::new("/dev").join(format!("md_{name}"))
}

/// Creates an array of devices that contain only zeros: the parity of zeros is zero, so nothing
/// needs to be computed first. `array` is of [`device`].
///
/// # Errors
/// The driver refuses; what exists of the array must be stopped by [`stop`].
pub fn create(array: &Path, devices: &[PathBuf]) -> io::Result<()> {
    fs::write(NEW_ARRAY, name(array))?;
    let settings = [
        ("metadata_version", "none".to_owned()),
        ("level", "raid6".into()),
        ("raid_disks", devices.len().to_string()),
        ("chunk_size", CHUNK.to_string()),
        // Like mdadm: left-symmetric.
        ("layout", "2".into()),
    ];
    for (file, value) in settings {
        set(array, file, &value)?;
    }
    let mut least = u64::MAX;
    for (slot, device) in devices.iter().enumerate() {
        let block = Path::new("/sys/block").join(name(device));
        set(array, "new_dev", fs::read_to_string(block.join("dev"))?.trim())?;
        let own = format!("dev-{}", name(device));
        set(array, &format!("{own}/offset"), "0")?;
        set(array, &format!("{own}/slot"), &slot.to_string())?;
        let sectors: u64 =
            fs::read_to_string(block.join("size"))?.trim().parse().map_err(io::Error::other)?;
        // In KiB, whole chunks.
        let size = sectors / 2 / (CHUNK >> 10) * (CHUNK >> 10);
        set(array, &format!("{own}/size"), &size.to_string())?;
        least = least.min(size);
    }
    set(array, "component_size", &least.to_string())?;
    set(array, "resync_start", "none")?;
    set(array, "array_state", "active")?;
    wait(|| array.exists())
}

/// Takes a device out of an array, as if it had failed.
///
/// # Errors
/// The driver refuses.
pub fn fail(array: &Path, device: &Path) -> io::Result<()> {
    set(array, &format!("dev-{}/state", name(device)), "faulty")
}

/// The number of devices that an array lacks.
///
/// # Errors
/// There is no such array.
pub fn lacks(array: &Path) -> io::Result<u32> {
    fs::read_to_string(files(array).join("degraded"))?.trim().parse().map_err(io::Error::other)
}

/// Stops an array that is not in use. It is not an error if there is none.
///
/// # Errors
/// It is in use.
pub fn stop(array: &Path) -> io::Result<()> {
    match set(array, "array_state", "clear") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    wait(|| !files(array).join("array_state").exists())
}

/// Waits until a condition holds.
fn wait(holds: impl Fn() -> bool) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "md takes too long"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{check, device, files, stop};
    use std::path::Path;

    #[test]
    fn an_array_has_a_device_and_files() {
        let array = device("lab-7");
        assert_eq!(array, Path::new("/dev/md_lab-7"));
        assert_eq!(files(&array), Path::new("/sys/block/md_lab-7/md"));
    }

    #[test]
    fn no_array_is_stopped_already_and_no_driver_is_said() {
        stop(&device("that-is-not-there")).expect("nothing to do");
        if let Err(why) = check() {
            assert!(why.contains("modprobe raid456"), "{why}");
        }
    }
}
