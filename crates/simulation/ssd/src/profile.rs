//! Profiles of NAND chips: their times and shape, each with its origin.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use terapage_event::Nanos;
use terapage_figures::Sourced;

/// The profiles that come with the crate: name and text.
const BUILT_IN: [(&str, &str); 13] = [
    ("2d-fg-mlc", include_str!("../profiles/2d-fg-mlc.toml")),
    ("2d-fg-tlc", include_str!("../profiles/2d-fg-tlc.toml")),
    ("3d-fg-tlc", include_str!("../profiles/3d-fg-tlc.toml")),
    ("3d-ct-tlc", include_str!("../profiles/3d-ct-tlc.toml")),
    ("3d-ct-tlc-fitted", include_str!("../profiles/3d-ct-tlc-fitted.toml")),
    ("mt29f128g08cbecb", include_str!("../profiles/mt29f128g08cbecb.toml")),
    ("mt29f64g08cbaaa", include_str!("../profiles/mt29f64g08cbaaa.toml")),
    ("mqsim-mlc", include_str!("../profiles/mqsim-mlc.toml")),
    ("simplessd-tlc", include_str!("../profiles/simplessd-tlc.toml")),
    ("samsung-96l", include_str!("../profiles/samsung-96l.toml")),
    ("zn540-fit", include_str!("../profiles/zn540-fit.toml")),
    ("3d-ssdsim", include_str!("../profiles/3d-ssdsim.toml")),
    ("intel-144l-qlc", include_str!("../profiles/intel-144l-qlc.toml")),
];

/// One number, or one for each page type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// One value for all page types.
    One(f64),
    /// A value for each page type, the lower page first.
    Many(Vec<f64>),
}

/// A value of a chip and its origin. Units are ns, us, ms, bytes, KiB, and MB/s (10^6 bytes a
/// second); a count has none.
pub type Figure = Sourced<Value>;

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// There is no profile with this name.
    #[error("no NAND profile is called {name:?}: there are {}; or give the path of a .toml file", Profile::names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read the NAND profile {file}: {error}")]
    Read {
        /// Its path.
        file: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// It is not a profile.
    #[error("{file} is no NAND profile: {error}")]
    Syntax {
        /// Its path or name.
        file: String,
        /// Where and what.
        error: Box<toml::de::Error>,
    },
    /// A value is impossible.
    #[error("{file}: {field}: {problem}")]
    Field {
        /// The file's path or the profile's name.
        file: String,
        /// The field.
        field: &'static str,
        /// The problem, and the allowed values.
        problem: String,
    },
}

/// Blocks of a chip that are written with one bit a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slc {
    /// Array time of a read.
    pub read_ns: Nanos,
    /// Array time to program a page.
    pub program_ns: Nanos,
    /// Bits that a cell holds otherwise: an SLC block holds that part of a block.
    pub bits: u32,
}

/// A NAND chip. The fields can be changed, to ask "what if". [`Profile::check`] says whether the
/// result is possible.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// The name on the command line.
    pub name: String,
    /// The name in tables.
    pub title: String,
    /// A note for the reader.
    pub note: String,
    /// Array time of a read, by page type: page `p` of a block has `read_ns[p % len]`.
    pub read_ns: Vec<Nanos>,
    /// Array time of one program of a write unit. With a write unit of one page it can differ by
    /// page type as reads do.
    pub program_ns: Vec<Nanos>,
    /// Array time of an erase.
    pub erase_ns: Nanos,
    /// Data bytes of a page: a power of two.
    pub page_bytes: u32,
    /// Pages of a block of one plane.
    pub pages_per_block: u32,
    /// Planes of a die, which can work together.
    pub planes: u32,
    /// Pages of a plane that are programmed at once.
    pub write_unit: u32,
    /// Bandwidth of the bus between controller and chip.
    pub bus_bytes_per_second: u64,
    /// Time on the bus for the command and address of an operation.
    pub command_ns: Nanos,
    /// How long it takes to suspend a program.
    pub program_suspend_ns: Nanos,
    /// How long it takes to suspend an erase.
    pub erase_suspend_ns: Nanos,
    /// Its blocks as SLC, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slc: Option<Slc>,
    /// The values as in the file, with their origins.
    pub figures: BTreeMap<&'static str, Figure>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    title: String,
    #[serde(default)]
    note: String,
    read: Figure,
    program: Figure,
    erase: Figure,
    page: Figure,
    pages_per_block: Figure,
    planes: Figure,
    write_unit: Figure,
    bus: Figure,
    command: Figure,
    program_suspend: Figure,
    erase_suspend: Figure,
    slc_read: Option<Figure>,
    slc_program: Option<Figure>,
    bits: Option<Figure>,
}

impl Profile {
    /// The four chips that Fukuchi, Sakaki, Matsui, Takeuchi compare; the first is what the others
    /// are measured against.
    pub const PAPER: [&'static str; 4] = ["2d-fg-mlc", "2d-fg-tlc", "3d-fg-tlc", "3d-ct-tlc"];

    /// The names of the profiles that come with the crate: the four of the paper first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A profile that comes with the crate.
    pub fn by_name(name: &str) -> Result<Profile, ProfileError> {
        let (_, text) = BUILT_IN
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .ok_or_else(|| ProfileError::Unknown { name: name.to_owned() })?;
        Profile::parse(name, text)
    }

    /// Reads a profile from a file.
    pub fn load(path: &Path) -> Result<Profile, ProfileError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Profile::parse(&file, &text),
            Err(error) => Err(ProfileError::Read { file, error }),
        }
    }

    /// The profile with a name of [`Profile::names`], or from a file, if `name` has a dot or a
    /// slash.
    pub fn find(name: &str) -> Result<Profile, ProfileError> {
        if name.contains(['.', '/']) { Profile::load(Path::new(name)) } else { Profile::by_name(name) }
    }

    /// Reads a profile from `text`; `file` is its name for errors.
    pub fn parse(file: &str, text: &str) -> Result<Profile, ProfileError> {
        let raw: File = toml::from_str(text)
            .map_err(|error| ProfileError::Syntax { file: file.to_owned(), error: Box::new(error) })?;
        let reader = Reader { file };
        let slc = match (&raw.slc_read, &raw.slc_program, &raw.bits) {
            (Some(read), Some(program), Some(bits)) => Some(Slc {
                read_ns: reader.time("slc_read", read)?,
                program_ns: reader.time("slc_program", program)?,
                bits: reader.count("bits", bits)?,
            }),
            (None, None, None) => None,
            _ => return reader.wrong("bits", "slc_read, slc_program and bits belong together".to_owned()),
        };
        let profile = Profile {
            slc,
            read_ns: reader.times("read", &raw.read)?,
            program_ns: reader.times("program", &raw.program)?,
            erase_ns: reader.time("erase", &raw.erase)?,
            page_bytes: reader.number("page", &raw.page, &[("bytes", 1.0), ("KiB", 1024.0)])? as u32,
            pages_per_block: reader.count("pages_per_block", &raw.pages_per_block)?,
            planes: reader.count("planes", &raw.planes)?,
            write_unit: reader.count("write_unit", &raw.write_unit)?,
            bus_bytes_per_second: reader.number("bus", &raw.bus, &[("MB/s", 1e6)])? as u64,
            command_ns: reader.time("command", &raw.command)?,
            program_suspend_ns: reader.time("program_suspend", &raw.program_suspend)?,
            erase_suspend_ns: reader.time("erase_suspend", &raw.erase_suspend)?,
            name: raw.name,
            title: raw.title,
            note: raw.note,
            figures: BTreeMap::from([
                ("read", raw.read),
                ("program", raw.program),
                ("erase", raw.erase),
                ("page", raw.page),
                ("pages_per_block", raw.pages_per_block),
                ("planes", raw.planes),
                ("write_unit", raw.write_unit),
                ("bus", raw.bus),
                ("command", raw.command),
                ("program_suspend", raw.program_suspend),
                ("erase_suspend", raw.erase_suspend),
            ]),
        };
        let mut profile = profile;
        let more = [("slc_read", raw.slc_read), ("slc_program", raw.slc_program), ("bits", raw.bits)];
        profile.figures.extend(more.into_iter().filter_map(|(name, figure)| Some((name, figure?))));
        profile.check_as(file)?;
        Ok(profile)
    }

    /// Checks that a chip can have these values.
    pub fn check(&self) -> Result<(), ProfileError> {
        self.check_as(&self.name)
    }

    /// The mean time to program a page, when whole write units are programmed.
    pub fn program_ns_per_page(&self) -> f64 {
        let sum: f64 = self.program_ns.iter().map(|&time| time as f64).sum();
        sum / self.program_ns.len() as f64 / f64::from(self.write_unit)
    }

    /// The profile with another write unit, and the same mean time for a page.
    pub fn set_write_unit(&mut self, pages: u32) {
        let time = (self.program_ns_per_page() * f64::from(pages)).round() as Nanos;
        self.write_unit = pages;
        self.program_ns = vec![time];
        self.pages_per_block = self.pages_per_block.next_multiple_of(pages.max(1));
    }

    fn check_as(&self, file: &str) -> Result<(), ProfileError> {
        let wrong =
            |field, problem: String| Err(ProfileError::Field { file: file.to_owned(), field, problem });
        let second = terapage_event::SECOND;
        for (field, times) in
            [("read", &self.read_ns[..]), ("program", &self.program_ns[..]), ("erase", &[self.erase_ns][..])]
        {
            if times.is_empty() || times.len() > 16 {
                return wrong(field, format!("{} values: give one, or one for each page type", times.len()));
            }
            if let Some(time) = times.iter().find(|&&time| time == 0 || time > second) {
                return wrong(field, format!("{time} ns: must be over 0 and at most 1 s"));
            }
        }
        if let Some(Slc { read_ns, program_ns, bits }) = self.slc {
            for (field, time) in [("slc_read", read_ns), ("slc_program", program_ns)] {
                if time == 0 || time > second {
                    return wrong(field, format!("{time} ns: must be over 0 and at most 1 s"));
                }
            }
            if !(2..=8).contains(&bits) || self.pages_per_block / self.write_unit / bits == 0 {
                return wrong("bits", format!("{bits}: must be from 2 to 8, and leave an SLC block a page"));
            }
        }
        for (field, time) in [
            ("command", self.command_ns),
            ("program_suspend", self.program_suspend_ns),
            ("erase_suspend", self.erase_suspend_ns),
        ] {
            if time > second {
                return wrong(field, format!("{time} ns: must be at most 1 s"));
            }
        }
        if !self.page_bytes.is_power_of_two() || !(512..=1 << 20).contains(&self.page_bytes) {
            return wrong(
                "page",
                format!("{} bytes: must be a power of two from 512 to 1 MiB", self.page_bytes),
            );
        }
        if !(1..=1 << 16).contains(&self.pages_per_block) {
            return wrong("pages_per_block", format!("{}: must be from 1 to 65536", self.pages_per_block));
        }
        if !(1..=16).contains(&self.planes) {
            return wrong("planes", format!("{}: must be from 1 to 16", self.planes));
        }
        if self.write_unit == 0 || !self.pages_per_block.is_multiple_of(self.write_unit) {
            let problem = format!(
                "{} pages at once: must be a divisor of the {} pages of a block",
                self.write_unit, self.pages_per_block
            );
            return wrong("write_unit", problem);
        }
        if self.write_unit > 1 && self.program_ns.len() > 1 {
            return wrong(
                "program",
                "several times, but the pages are programmed at once: give one".to_owned(),
            );
        }
        if !(1_000_000..=100_000_000_000).contains(&self.bus_bytes_per_second) {
            let problem = format!("{} bytes/s: must be from 1 MB/s to 100 GB/s", self.bus_bytes_per_second);
            return wrong("bus", problem);
        }
        Ok(())
    }
}

/// Turns figures into whole numbers of base units.
struct Reader<'a> {
    file: &'a str,
}

impl Reader<'_> {
    const TIME: &'static [(&'static str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6)];

    fn wrong<T>(&self, field: &'static str, problem: String) -> Result<T, ProfileError> {
        Err(ProfileError::Field { file: self.file.to_owned(), field, problem })
    }

    fn factor(
        &self,
        field: &'static str,
        figure: &Figure,
        units: &[(&str, f64)],
    ) -> Result<f64, ProfileError> {
        let unit = figure.unit.as_str();
        match units.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => Ok(*factor),
            None if units.is_empty() && unit.is_empty() => Ok(1.0),
            None if units.is_empty() => self.wrong(field, format!("a count has no unit, this has {unit:?}")),
            None => {
                let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
                self.wrong(field, format!("the unit {unit:?}: must be {}", names.join(" or ")))
            }
        }
    }

    fn whole(&self, field: &'static str, value: f64, factor: f64) -> Result<f64, ProfileError> {
        let base = value * factor;
        if !base.is_finite() || base <= 0.0 || base.round() >= f64::from(u32::MAX) * 1e6 {
            return self.wrong(field, format!("{value}: must be over 0 and of this world"));
        }
        Ok(base.round())
    }

    fn times(&self, field: &'static str, figure: &Figure) -> Result<Vec<Nanos>, ProfileError> {
        let factor = self.factor(field, figure, Self::TIME)?;
        let values = match &figure.value {
            Value::One(value) => std::slice::from_ref(value),
            Value::Many(values) => values,
        };
        values.iter().map(|&value| Ok(self.whole(field, value, factor)? as Nanos)).collect()
    }

    fn number(
        &self,
        field: &'static str,
        figure: &Figure,
        units: &[(&str, f64)],
    ) -> Result<f64, ProfileError> {
        let factor = self.factor(field, figure, units)?;
        match &figure.value {
            Value::One(value) => self.whole(field, *value, factor),
            Value::Many(_) => self.wrong(field, "several values: must be one".to_owned()),
        }
    }

    fn time(&self, field: &'static str, figure: &Figure) -> Result<Nanos, ProfileError> {
        Ok(self.number(field, figure, Self::TIME)? as Nanos)
    }

    fn count(&self, field: &'static str, figure: &Figure) -> Result<u32, ProfileError> {
        let number = self.number(field, figure, &[])?;
        if figure.value != Value::One(number) || number > f64::from(u32::MAX) {
            return self.wrong(field, format!("{number}: must be a whole number"));
        }
        Ok(number as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_loads_and_bears_its_name() {
        assert!(Profile::names().take(4).eq(Profile::PAPER));
        for name in Profile::names() {
            let profile = Profile::by_name(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(profile.name, name);
            assert_eq!(profile.figures.len(), if profile.slc.is_some() { 14 } else { 11 });
            assert!(profile.figures.values().all(|figure| !figure.source.is_empty()));
        }
    }

    #[test]
    fn values_are_in_base_units() {
        let profile = Profile::by_name("simplessd-tlc").unwrap();
        assert_eq!(profile.read_ns, [56_500, 77_500, 106_000]);
        assert_eq!(profile.erase_ns, 3_000_000);
        assert_eq!(profile.page_bytes, 16 << 10);
        assert_eq!(profile.bus_bytes_per_second, 312_000_000);
    }

    #[test]
    fn impossible_values_name_file_and_field() {
        let text = BUILT_IN[0].1;
        for (from, to, field) in [
            ("read = { value = 75", "read = { value = 0", "read"),
            ("program = { value = 750", "program = { value = -1", "program"),
            ("program = { value = 750", "program = { value = nan", "program"),
            ("erase = { value = 3.8", "erase = { value = 1e9", "erase"),
            ("page = { value = 16", "page = { value = 15", "page"),
            ("pages_per_block = { value = 256", "pages_per_block = { value = 2.5", "pages_per_block"),
            ("planes = { value = 2", "planes = { value = 99", "planes"),
            ("write_unit = { value = 1", "write_unit = { value = 3", "write_unit"),
            ("bus = { value = 400", "bus = { value = 0.0001", "bus"),
            ("unit = \"KiB\"", "unit = \"us\"", "page"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Profile::parse("chip.toml", &text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("chip.toml: {field}:")), "{error}");
        }
    }

    #[test]
    fn a_missing_or_unknown_field_is_named() {
        let text = BUILT_IN[0].1;
        let error = Profile::parse("chip.toml", &text.replace("erase =", "eraze =")).unwrap_err().to_string();
        assert!(error.contains("chip.toml") && error.contains("eraze"), "{error}");
        let error = Profile::by_name("nand").unwrap_err().to_string();
        assert!(error.contains("2d-fg-mlc"), "{error}");
    }

    #[test]
    fn another_write_unit_keeps_the_time_of_a_page() {
        let mut profile = Profile::by_name("2d-fg-mlc").unwrap();
        profile.set_write_unit(3);
        assert_eq!((profile.program_ns[0], profile.pages_per_block), (2_250_000, 258));
        profile.check().unwrap();
    }
}
