//! A contender's own disk: image files behind loop devices with direct I/O, throttled if a class is
//! named, with a new file system, mounted. Only the lab's own files are formatted, or the device
//! that `--i-may-erase` names.
//!
//! A successful mount proves nothing: the options in force are read back from /proc/mounts.

use crate::experiment::class::{Class, Profile};
use crate::experiment::disk::{Array, DiskForm, Kind};
use crate::ground::janitor::{Janitor, Thing};
use crate::ground::mount::{LOOP_CTL_GET_FREE, configure, mount};
use crate::ground::runner::{self, End};
use crate::ground::site::Site;
use crate::ground::throttle::Throttle;
use crate::ground::undo::{self, Undo};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use terapage_rig::device::{Device, Mount};
use terapage_rig::md;
use terapage_rig::tools;

/// The program that makes a file system, and its usual options: no work is deferred that would be
/// written later, during a measurement.
fn maker(kind: Kind) -> Option<(&'static str, &'static [&'static str])> {
    const WHOLE: &[&str] = &["-F", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    match kind {
        Kind::None => None,
        Kind::Ext3 => Some(("mkfs.ext3", WHOLE)),
        Kind::Ext4 => Some(("mkfs.ext4", WHOLE)),
        Kind::Xfs => Some(("mkfs.xfs", &["-f", "-q"])),
        Kind::Btrfs => Some(("mkfs.btrfs", &["-f", "-q"])),
    }
}

/// Why there is no disk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine cannot have the disk; the text says why.
    #[error("{0}")]
    Cannot(String),
    /// The disk cannot be set up.
    #[error("{what}: {error}")]
    Io {
        /// What was done.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
    /// The lab shall stop.
    #[error(transparent)]
    Stopped(runner::Error),
}

/// Adds the attempted step to an error.
fn at(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    |error| Error::Io { what, error }
}

/// The requested disk: a form with its names filled in.
pub struct Wanted<'a> {
    /// The form.
    pub form: &'a DiskForm,
    /// Bytes of each device.
    pub bytes: u64,
    /// The scheduler.
    pub scheduler: Option<String>,
    /// The class of the form, or that of `--device`.
    pub class: Option<Class>,
    /// The limits in force.
    pub profile: Profile,
    /// The file behind a device without a file system; it is kept between runs.
    pub image: &'a Path,
}

/// A disk that is set up until this value is dropped.
pub struct Disk {
    throttle: Option<Throttle>,
    undo: Vec<Undo>,
    /// The mount points of its file systems, or the device if it has none.
    pub places: Vec<PathBuf>,
    /// The options that are in force, and the options that are not, in words.
    pub notes: Vec<String>,
}

impl Disk {
    /// Sets one up. Needs root.
    ///
    /// # Errors
    /// The disk cannot be set up; nothing of it remains.
    pub fn up(site: &Site, wanted: &Wanted<'_>) -> Result<Disk, Error> {
        let mut disk = Disk { throttle: None, undo: Vec::new(), places: Vec::new(), notes: Vec::new() };
        let devices = disk.devices(site, wanted)?;
        if let Some(scheduler) = &wanted.scheduler {
            for device in &devices {
                disk.undo.push(set_scheduler(&site.janitor, device, scheduler)?);
            }
        }
        if let Some(class) = wanted.class {
            let numbers: Result<Vec<String>, io::Error> = devices.iter().map(|path| number(path)).collect();
            let numbers = numbers.map_err(at("the device's number"))?;
            let throttle = Throttle::on(&site.janitor, numbers, class, wanted.profile)
                .map_err(at(format!("no device can be throttled like {}", class.name)))?;
            disk.notes.push(class.words());
            if !throttle.whole {
                disk.notes.push("not throttled: write-back and swap-out (cgroups of version 1)".into());
            }
            disk.throttle = Some(throttle);
        }
        match maker(wanted.form.kind) {
            None => disk.places = devices,
            Some((maker, usual)) => {
                let systems = match (wanted.form.array, wanted.form.kind) {
                    (Some(Array::MdRaid6), _) => vec![vec![disk.array(&site.janitor, &devices)?]],
                    (None, Kind::Btrfs) => vec![devices],
                    (None, _) => devices.into_iter().map(|device| vec![device]).collect(),
                };
                let usual = usual.iter().map(|word| (*word).to_owned());
                let options: Vec<String> = usual.chain(wanted.form.make.iter().cloned()).collect();
                for devices in systems {
                    format(site, maker, options.clone(), &devices, &wanted.form.gone)?;
                    disk.mount(site, wanted.form, &devices)?;
                }
            }
        }
        Ok(disk)
    }

    /// The limits on its devices, if there are any.
    pub fn throttle(&self) -> Option<&Throttle> {
        self.throttle.as_ref()
    }

    /// Its devices: loops, or the device that may be erased.
    fn devices(&mut self, site: &Site, wanted: &Wanted<'_>) -> Result<Vec<PathBuf>, Error> {
        if let (Some(device), 1, None) = (&site.may_erase, wanted.form.disks, wanted.class) {
            check_free(device)?;
            return Ok(vec![device.clone()]);
        }
        let mut devices = Vec::new();
        for i in 0..wanted.form.disks {
            let file = match wanted.form.kind {
                Kind::None => {
                    fill(wanted.image, wanted.bytes).map_err(at(wanted.image.display().to_string()))?;
                    wanted.image.to_owned()
                }
                _ => self.image(&site.janitor, site.path(&format!("disk-{i}")), wanted.bytes)?,
            };
            let (device, undo, direct) = attach(&site.janitor, &file)?;
            self.undo.push(undo);
            if !direct {
                self.notes.push("the loop has no direct I/O: a flush costs nothing".into());
            }
            devices.push(device);
        }
        Ok(devices)
    }

    /// A new file with holes.
    fn image(&mut self, janitor: &Arc<Janitor>, path: PathBuf, bytes: u64) -> Result<PathBuf, Error> {
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = made.map_err(at(path.display().to_string()))?;
        self.undo.push(Undo::tell(janitor, Thing::File(path.clone())).map_err(at("the record"))?);
        file.set_len(bytes).map_err(at(path.display().to_string()))?;
        Ok(path)
    }

    /// Makes an array of new files, which are full of zeros.
    fn array(&mut self, janitor: &Arc<Janitor>, devices: &[PathBuf]) -> Result<PathBuf, Error> {
        md::check().map_err(Error::Cannot)?;
        let array = md::device(&format!("lab-{}", process::id()));
        self.undo.push(Undo::tell(janitor, Thing::Md(array.clone())).map_err(at("the record"))?);
        md::create(&array, devices).map_err(at("RAID-6 by md"))?;
        self.notes.push(format!(
            "RAID-6 by md: {} devices, {} KiB of each per stripe",
            devices.len(),
            md::CHUNK >> 10
        ));
        Ok(array)
    }

    /// Mounts the new file system, and says which options are in force.
    fn mount(&mut self, site: &Site, form: &DiskForm, devices: &[PathBuf]) -> Result<(), Error> {
        let point = site.path(&format!("mnt-{}", self.places.len()));
        let tell = |thing: Thing| Undo::tell(&site.janitor, thing).map_err(at("the record"));
        self.undo.push(tell(Thing::Directory(point.clone()))?);
        fs::create_dir(&point).map_err(at(point.display().to_string()))?;
        if form.kind == Kind::Btrfs && devices.len() > 1 {
            for device in devices {
                self.undo.push(tell(Thing::Btrfs(device.clone()))?);
            }
        }
        self.undo.push(tell(Thing::Mount(point.clone()))?);
        if let Err(error) = mount(form.kind.name(), devices, &form.options, &point) {
            let asked = if form.options.is_empty() { "" } else { " with " };
            let what = format!("{}{asked}{} cannot be mounted", form.kind.name(), form.options);
            return Err(match form.gone.is_empty() {
                true => Error::Io { what, error },
                false => Error::Cannot(format!("no longer selectable, because {} ({error})", form.gone)),
            });
        }
        let shown = Mount::of(&point).unwrap_or_default();
        self.notes.push(format!("mounted: {} {}", shown.kind, shown.options));
        for option in form.options.split(',').filter(|option| !option.is_empty()) {
            if !is_in_force(option, &shown.options) {
                let why =
                    if form.gone.is_empty() { String::new() } else { format!(", because {}", form.gone) };
                self.notes.push(format!(
                    "{option} is no longer selectable: the mount accepts and \
                                         ignores it{why}"
                ));
            }
        }
        self.places.push(point);
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Remaining data are written at full speed.
        self.throttle.take();
        undo::all(&mut self.undo);
    }
}

/// Whether a requested mount option is in force, judged by the options in /proc/mounts.
/// /proc/mounts does not show defaults.
fn is_in_force(asked: &str, shown: &str) -> bool {
    let has = |wanted: &str| shown.split(',').any(|option| option == wanted);
    match asked {
        "barrier" | "barrier=1" => !has("nobarrier") && !has("barrier=0"),
        "nobarrier" | "barrier=0" => has("nobarrier") || has("barrier=0"),
        "data=ordered" => has(asked) || !shown.split(',').any(|option| option.starts_with("data=")),
        _ => has(asked),
    }
}

/// Makes a file system.
fn format(
    site: &Site,
    maker: &str,
    options: Vec<String>,
    devices: &[PathBuf],
    gone: &str,
) -> Result<(), Error> {
    let program = tools::find(maker).map_err(Error::Cannot)?;
    let arguments = options.into_iter().map(Into::into);
    let arguments = arguments.chain(devices.iter().map(|device| device.clone().into_os_string()));
    let job = site.job(program, arguments.collect());
    match runner::run(&site.janitor, &site.stop, job) {
        Ok(finished) => match finished.end {
            End::Done => Ok(()),
            end if gone.is_empty() => Err(Error::Cannot(format!("{maker}: {}", end.text()))),
            // The last line of mkfs may be about its usage.
            _ => Err(Error::Cannot(format!("no longer selectable, because {gone} ({maker} refuses it)"))),
        },
        Err(runner::Error::Start { program, error }) => Err(Error::Io { what: program, error }),
        Err(stopped) => Err(Error::Stopped(stopped)),
    }
}

/// Sets a device's scheduler.
fn set_scheduler(janitor: &Arc<Janitor>, device: &Path, scheduler: &str) -> Result<Undo, Error> {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let known = Device::named(&name);
    let before = known.as_ref().and_then(|device| device.setting("scheduler"));
    let (Some(device), Some(before)) = (known, before) else {
        return Err(Error::Cannot(format!("{name} has no scheduler")));
    };
    let path = device.setting_path("scheduler");
    let choice = fs::read_to_string(&path).unwrap_or_default();
    if !choice.split_whitespace().any(|word| word.trim_matches(['[', ']']) == scheduler) {
        return Err(Error::Cannot(format!("this kernel has no scheduler {scheduler} for {name}")));
    }
    let undo = Undo::tell(janitor, Thing::Setting(path.clone(), before)).map_err(at("the record"))?;
    fs::write(path, scheduler).map_err(at(format!("scheduler {scheduler} of {name}")))?;
    Ok(undo)
}

/// `MAJOR:MINOR`.
fn number(device: &Path) -> io::Result<String> {
    let number = fs::metadata(device)?.rdev();
    Ok(format!("{}:{}", libc::major(number), libc::minor(number)))
}

/// Checks a device that may be erased: it must be a whole device that is not in use.
///
/// # Errors
/// What the device is instead.
pub fn check_free(device: &Path) -> Result<(), Error> {
    let name = device.display();
    let found = fs::metadata(device).map_err(at(name.to_string()))?;
    if !found.file_type().is_block_device() {
        return Err(Error::Cannot(format!("{name} is no block device")));
    }
    // The kernel refuses this for a device that is mounted, used as swap, or part of another
    // device.
    match OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(device) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(Error::Cannot(format!("{name} is in use (mounted, swapped to, or part of another device)")))
        }
        Err(error) => Err(Error::Io { what: name.to_string(), error }),
    }
}

/// Fills a file with data, unless it already has this size: blocks that were never written are not
/// read from the device.
fn fill(path: &Path, bytes: u64) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|known| known.len() == bytes) {
        return Ok(());
    }
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    let (mut piece, mut numbers) = (vec![0u8; 1 << 20], terapage_figures::SplitMix(1));
    for word in piece.chunks_exact_mut(8) {
        word.copy_from_slice(&numbers.next().to_le_bytes());
    }
    let mut left = bytes;
    while left > 0 {
        let count = left.min(piece.len() as u64);
        file.write_all(&piece[..count as usize])?;
        left -= count;
    }
    file.sync_all()
}

/// Puts a file behind a loop device, with direct I/O if the file system supports it; returns
/// whether it does.
fn attach(janitor: &Arc<Janitor>, file: &Path) -> Result<(PathBuf, Undo, bool), Error> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control");
    let control = control.map_err(at("no loop device is available, which needs root: \
                                      /dev/loop-control"))?;
    let behind = OpenOptions::new().read(true).write(true).open(file);
    let behind = behind.map_err(at(file.display().to_string()))?;
    let mut last = io::Error::from_raw_os_error(libc::EBUSY);
    for _ in 0..64 {
        // SAFETY: the descriptor is open for the call; no memory is passed.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        if number < 0 {
            return Err(at("no loop device is free")(io::Error::last_os_error()));
        }
        let device = PathBuf::from(format!("/dev/loop{number}"));
        let undo = Undo::tell(janitor, Thing::Loop(device.clone(), file.to_owned()));
        let undo = undo.map_err(at("the record"))?;
        let opened = OpenOptions::new().read(true).write(true).open(&device);
        let opened = opened.map_err(at(device.display().to_string()))?;
        match configure(&opened, &behind) {
            Ok(()) => {
                let sysfs = format!("/sys/block/loop{number}/loop/dio");
                let direct = fs::read_to_string(sysfs).is_ok_and(|text| text.trim() == "1");
                return Ok((device, undo, direct));
            }
            // Another process took it meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = error,
            Err(error) => return Err(Error::Io { what: device.display().to_string(), error }),
        }
    }
    Err(Error::Io { what: "loop devices".into(), error: last })
}

#[cfg(test)]
mod tests {
    use super::{check_free, is_in_force};
    use std::path::Path;

    #[test]
    fn what_is_in_force_is_what_is_shown_or_the_default() {
        let ext4 = "rw,relatime,nobarrier,data=writeback";
        assert!(is_in_force("data=writeback", ext4) && is_in_force("nobarrier", ext4));
        assert!(is_in_force("barrier=0", ext4));
        // The option is accepted and ignored.
        assert!(!is_in_force("nobh", ext4));
        assert!(!is_in_force("barrier=1", ext4) && !is_in_force("data=ordered", ext4));
        assert!(is_in_force("data=ordered", "rw,relatime") && is_in_force("barrier", "rw,relatime"));
        assert!(!is_in_force("nobarrier", "rw,relatime"));
    }

    #[test]
    fn what_is_no_device_is_not_erased() {
        for (path, why) in [("/etc/passwd", "no block device"), ("/nonexistent", "/nonexistent")] {
            let error = check_free(Path::new(path)).expect_err(path).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
