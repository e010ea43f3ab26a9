//! Classes of slower devices. A limit counts bytes or requests, but not seeks. So each class has
//! two profiles: one for sequential access, with a rate in bytes, and one for random access, with a
//! rate in requests as well.

use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;

/// A kind of device that is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// Bytes per second, sequentially: read and written.
    pub bytes_per_s: (u64, u64),
    /// Requests per second, at random places: read and written.
    pub requests_per_s: (u64, u64),
}

/// Decimal megabytes, in which providers state the rates of their volumes.
const MB: u64 = 1_000_000;

/// The classes that can be named.
pub const CLASSES: [Class; 5] = [
    Class { name: "hdd", bytes_per_s: (180 * MIB, 180 * MIB), requests_per_s: (120, 120) },
    Class { name: "hdd-2008", bytes_per_s: (80 * MIB, 80 * MIB), requests_per_s: (100, 100) },
    Class { name: "sata-ssd", bytes_per_s: (530 * MIB, 500 * MIB), requests_per_s: (90_000, 60_000) },
    Class { name: "volume-3000", bytes_per_s: (125 * MB, 125 * MB), requests_per_s: (3000, 3000) },
    Class { name: "volume-500", bytes_per_s: (60 * MB, 60 * MB), requests_per_s: (500, 500) },
];

/// The limits of a class that are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Bytes per second.
    Sequential,
    /// Requests per second.
    Random,
}

impl Class {
    /// The class with this name.
    ///
    /// # Errors
    /// There is none; the text names those that exist.
    pub fn find(name: &str) -> Result<Class, String> {
        let names: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
        let found = CLASSES.into_iter().find(|class| class.name == name);
        found
            .ok_or_else(|| format!("{name} is not a class of devices (the classes are {})", names.join(", ")))
    }

    /// The emulated device, in words.
    pub fn words(&self) -> String {
        let rate = |bytes: u64| bytes / MIB;
        format!(
            "a loop throttled like {}: sequential {}/{} MiB/s, random {}/{} requests/s \
             (read/written)",
            self.name,
            rate(self.bytes_per_s.0),
            rate(self.bytes_per_s.1),
            self.requests_per_s.0,
            self.requests_per_s.1
        )
    }

    /// The four limits of a profile: bytes read, bytes written, reads, writes; 0 means no limit.
    pub fn limits(&self, profile: Profile) -> [u64; 4] {
        match profile {
            Profile::Sequential => [self.bytes_per_s.0, self.bytes_per_s.1, 0, 0],
            // Large requests at random places are no faster than the device is from end to end.
            Profile::Random => {
                [self.bytes_per_s.0, self.bytes_per_s.1, self.requests_per_s.0, self.requests_per_s.1]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Profile};

    #[test]
    fn a_class_has_a_rate_from_end_to_end_and_requests_at_random() {
        let class = Class::find("hdd").expect("there is one");
        assert_eq!(class.limits(Profile::Sequential)[2..], [0, 0]);
        assert_eq!(class.limits(Profile::Random)[2..], [120, 120]);
        assert_eq!(class.limits(Profile::Random)[..2], class.limits(Profile::Sequential)[..2]);
        assert!(class.words().contains("120/120 requests/s"));
        assert!(Class::find("tape").expect_err("none").contains("hdd, hdd-2008, sata-ssd, volume-3000"));
        let volume = Class::find("volume-3000").expect("there is one");
        assert_eq!(volume.limits(Profile::Random), [125_000_000, 125_000_000, 3000, 3000]);
    }
}
