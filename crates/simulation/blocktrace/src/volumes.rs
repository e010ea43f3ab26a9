//! Volumes by name, numbered in the order in which they appear.

use crate::fault::{Checked, Fault};
use std::collections::HashMap;

/// Names to numbers. The last few names are found without hashing.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    wanted: Vec<String>,
    names: Vec<String>,
    keys: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, Option<u16>>,
    recent: [u16; 16],
}

impl Volumes {
    /// All volumes, or only those of these names.
    pub fn new(wanted: &[String]) -> Volumes {
        Volumes { wanted: wanted.to_vec(), ..Volumes::default() }
    }

    /// The names so far, by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of the volume that the trace calls `key`; `None` if it is not selected.
    #[inline]
    pub fn number(&mut self, key: &[u8]) -> Checked<Option<u16>> {
        let slot = usize::from(key.last().copied().unwrap_or(0)) % self.recent.len();
        let recent = self.recent[slot];
        match self.keys.get(usize::from(recent)) {
            Some(known) if **known == *key => Ok(Some(recent)),
            _ => self.look_up(key, slot),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, key: &[u8], slot: usize) -> Checked<Option<u16>> {
        let number = match self.numbers.get(key) {
            Some(known) => *known,
            None => self.add(key)?,
        };
        if let Some(number) = number {
            self.recent[slot] = number;
        }
        Ok(number)
    }

    fn add(&mut self, key: &[u8]) -> Checked<Option<u16>> {
        // MSR's volumes are a host and a disk: "hm,0" is known as hm_0 everywhere.
        let name = String::from_utf8_lossy(key).replace(',', "_");
        let wanted = self.wanted.is_empty() || self.wanted.contains(&name);
        let number = match (wanted, u16::try_from(self.names.len())) {
            (false, _) => None,
            (true, Ok(number)) => {
                self.names.push(name);
                self.keys.push(key.into());
                Some(number)
            }
            (true, Err(_)) => return Err(Box::new(Fault::ManyVolumes { name })),
        };
        // There may be many volumes that are not selected, so the number of remembered ones is
        // bounded.
        if self.numbers.len() < 1 << 17 {
            self.numbers.insert(key.into(), number);
        }
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_numbered_as_they_appear() {
        let mut volumes = Volumes::new(&[]);
        for (key, number) in [("hm,1", 0), ("hm,0", 1), ("hm,1", 0), ("x1", 2), ("hm,0", 1), ("hm,1", 0)] {
            assert_eq!(volumes.number(key.as_bytes()), Ok(Some(number)), "{key}");
        }
        assert_eq!(volumes.names(), ["hm_1", "hm_0", "x1"]);
    }

    #[test]
    fn only_wanted_volumes_are_numbered() {
        let mut volumes = Volumes::new(&["hm_1".to_string()]);
        assert_eq!(volumes.number(b"hm,0"), Ok(None));
        assert_eq!(volumes.number(b"hm,1"), Ok(Some(0)));
        assert_eq!(volumes.number(b"hm,0"), Ok(None));
        assert_eq!(volumes.names(), ["hm_1"]);
    }

    #[test]
    fn one_volume_too_many_is_an_error() {
        let mut volumes = Volumes::new(&[]);
        for number in 0..=u16::MAX {
            assert_eq!(volumes.number(number.to_string().as_bytes()), Ok(Some(number)));
        }
        assert!(volumes.number(b"65536").is_err());
        assert_eq!(volumes.number(b"7"), Ok(Some(7)));
    }
}
