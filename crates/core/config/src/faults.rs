//! Faults of stores, for tests.

use std::fmt;
use std::str::FromStr;

/// The frequency of each fault, in a million operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// An operation answers EIO.
    pub errors: u32,
    /// An operation transfers fewer bytes than requested.
    pub short: u32,
    /// A read returns other bytes than were written.
    pub flips: u32,
    /// Not a frequency: if this is not 0, the faults affect only the first copy of each mirror.
    pub copy: u32,
    /// Not a frequency: the most operations, reads and writes together, that the store completes
    /// each second, as in a cloud volume; 0 is no limit.
    pub operations: u32,
}

impl FromStr for Faults {
    type Err = String;

    /// `errors=1000,short=2000,flips=10`
    fn from_str(text: &str) -> Result<Faults, String> {
        let mut faults = Faults::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("'{part}' is not name=number"))?;
            let value = value.parse().map_err(|_| format!("'{value}' is not a number"))?;
            match name {
                "errors" => faults.errors = value,
                "short" => faults.short = value,
                "flips" => faults.flips = value,
                "copy" => faults.copy = value,
                "operations" => faults.operations = value,
                _ => return Err(format!("'{name}' is none of errors, short, flips, copy, operations")),
            }
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults { errors, short, flips, copy, operations } = self;
        write!(f, "errors={errors},short={short},flips={flips},copy={copy},operations={operations}")
    }
}

#[cfg(test)]
mod tests {
    use super::Faults;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let faults = Faults { errors: 1, short: 20, flips: 300, copy: 1, operations: 3000 };
        assert_eq!(faults.to_string().parse(), Ok(faults));
        assert_eq!("flips=7".parse(), Ok(Faults { flips: 7, ..Faults::default() }));
        for text in ["flips", "flips=x", "flip=1"] {
            assert!(text.parse::<Faults>().is_err(), "{text}");
        }
    }
}
