//! The devices that `--device NAME=PATH[@CLASS]` names: the device of a directory, or an emulated
//! slower one.

use crate::experiment::class::{Class, Profile};
use crate::experiment::disk::{DiskForm, Kind};
use crate::ground::disk::{Disk, Error, Wanted};
use crate::ground::site::Site;
use crate::ground::system::Machine;
use crate::ground::throttle::Throttle;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use terapage_rig::device::{Device, Mount};

/// A device as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its name in reports.
    pub name: String,
    /// A directory on it.
    pub path: PathBuf,
    /// The class to emulate.
    pub class: Option<Class>,
}

impl FromStr for Chosen {
    type Err = String;

    fn from_str(text: &str) -> Result<Chosen, String> {
        let (name, path) = text
            .split_once('=')
            .filter(|(name, path)| is_name(name) && !path.is_empty())
            .ok_or("NAME=PATH or NAME=PATH@CLASS is needed, with a name of letters, digits, - and _")?;
        // A path may contain an @.
        let (path, class) = match path.rsplit_once('@') {
            Some((path, class)) if !path.is_empty() && !class.contains('/') => {
                (path, Some(Class::find(class)?))
            }
            _ => (path, None),
        };
        Ok(Chosen { name: name.into(), path: path.into(), class })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter))
}

impl Chosen {
    /// Whether there is a device to measure.
    ///
    /// # Errors
    /// There is no such device; one line.
    pub fn check(&self) -> anyhow::Result<()> {
        let place = self.path.display();
        anyhow::ensure!(self.path.is_dir(), "--device {}={place}: no such directory", self.name);
        if Device::of(&self.path).is_none() {
            let kind = Mount::of(&self.path).unwrap_or_default().kind;
            anyhow::bail!(
                "--device {}={place}: it lies on {kind}, which has no device to measure (name a directory \
                 on a disk)",
                self.name
            );
        }
        Ok(())
    }
}

/// A device that all runs use, until this value is dropped.
pub struct Ground {
    chosen: Chosen,
    /// The device below the loop.
    below: Option<String>,
    disk: Option<Disk>,
}

impl Ground {
    /// Sets the device up: for a class, a throttled loop with ext4 of `bytes` bytes; without
    /// `bytes` the contenders' own disks will be throttled.
    ///
    /// # Errors
    /// The device cannot be set up.
    pub fn up(site: &Site, chosen: &Chosen, bytes: Option<u64>) -> Result<Ground, Error> {
        let below = Device::of(&chosen.path).map(|device| device.name);
        let form = DiskForm {
            kind: Kind::Ext4,
            make: Vec::new(),
            options: String::new(),
            disks: 1,
            array: None,
            size: String::new(),
            class: None,
            scheduler: None,
            gone: String::new(),
        };
        let wanted = Wanted {
            form: &form,
            bytes: bytes.unwrap_or(0),
            scheduler: None,
            class: chosen.class,
            profile: Profile::Sequential,
            image: Path::new(""),
        };
        let disk = chosen.class.and(bytes).map(|_| Disk::up(site, &wanted)).transpose()?;
        Ok(Ground { chosen: chosen.clone(), below, disk })
    }

    /// The directory for files on it.
    pub fn place(&self) -> PathBuf {
        let own = self.disk.as_ref().and_then(|disk| disk.places.first());
        own.unwrap_or(&self.chosen.path).clone()
    }

    /// Its limits, if it has any.
    pub fn throttle(&self) -> Option<&Throttle> {
        self.disk.as_ref().and_then(Disk::throttle)
    }

    /// The emulated class.
    pub fn class(&self) -> Option<Class> {
        self.chosen.class
    }

    /// Chooses the limits that are in force.
    ///
    /// # Errors
    /// The limits cannot be written.
    pub fn set(&self, profile: Profile) -> std::io::Result<()> {
        self.throttle().map_or(Ok(()), |throttle| throttle.set(profile))
    }

    /// Adds the device to a machine's description. The numbers of loops and mounts, which differ
    /// each time, are left out, so that results of two runs belong together.
    pub fn describe(&self, machine: &mut Machine) {
        machine.device_name = Some(self.chosen.name.clone());
        let Some(class) = self.chosen.class else { return };
        machine.class = Some(class.words());
        if self.disk.is_none() {
            return;
        }
        machine.device = Some(format!("loop on {}", self.below.as_deref().unwrap_or("?")));
        machine.mount.source = "an image file".into();
        machine.mount.point = self.chosen.path.display().to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::Chosen;

    #[test]
    fn a_device_has_a_name_a_path_and_perhaps_a_class() {
        let of = |text: &str| text.parse::<Chosen>();
        let plain = of("nvme=/mnt/a@b/c").expect("a path with an @");
        assert_eq!(
            (plain.name.as_str(), plain.path.to_str(), plain.class),
            ("nvme", Some("/mnt/a@b/c"), None)
        );
        let hdd = of("hdd=/mnt/x@hdd").expect("a class");
        assert_eq!((hdd.path.to_str(), hdd.class.map(|class| class.name)), (Some("/mnt/x"), Some("hdd")));
        for (text, why) in
            [("x", "NAME=PATH"), ("=x", "NAME=PATH"), ("a b=/", "letters"), ("a=/x@tape", "tape")]
        {
            let error = of(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_place_without_a_device_is_refused() {
        let error = |path: &str| {
            let chosen: Chosen = format!("x={path}").parse().expect("a device");
            chosen.check().expect_err(path).to_string()
        };
        assert!(error("/nonexistent").contains("no such directory"));
        let on_proc = error("/proc");
        assert!(
            on_proc.contains("it lies on proc") && on_proc.contains("a directory on a disk"),
            "{on_proc}"
        );
    }
}
