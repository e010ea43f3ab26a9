//! A separate disk of a contender, as an experiment describes it.

use serde::{Deserialize, Serialize};

/// A disk as an experiment describes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DiskForm {
    /// The file system; `none` leaves the device without one, full of data.
    pub kind: Kind,
    /// Options of mkfs.
    #[serde(default)]
    pub make: Vec<String>,
    /// Options of the mount, separated by commas.
    #[serde(default)]
    pub options: String,
    /// The number of devices of the disk.
    #[serde(default = "one")]
    pub disks: u32,
    /// What makes one device from several, if the file system does not.
    #[serde(default)]
    pub array: Option<Array>,
    /// Bytes of each, a term.
    pub size: String,
    /// The class of devices that each is throttled like.
    #[serde(default)]
    pub class: Option<String>,
    /// Its I/O scheduler; by default the kernel's choice. `{name}` stands for a key of the matrix.
    #[serde(default)]
    pub scheduler: Option<String>,
    /// Why an option can no longer be chosen, if that is so.
    #[serde(default)]
    pub gone: String,
}

fn one() -> u32 {
    1
}

/// A kind of array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Array {
    /// RAID-6 by the kernel's md driver.
    MdRaid6,
}

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// No file system.
    None,
    /// ext3, which the ext4 driver serves.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl Kind {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::Ext3 => "ext3",
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
        }
    }
}
