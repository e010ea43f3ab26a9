//! The parameters of a simulation: values and their origins.

use crate::placement::{EXTENT, Pattern, Placement, extents};
use std::collections::BTreeMap;
use terapage_event::Nanos;
use terapage_figures::{Origin, Sourced};
use toml::Value;

/// The built-in values.
const BUILT_IN: &str = include_str!("../data/far.toml");

/// The names of all parameters, in the order in which they are shown.
pub const NAMES: [&str; 32] = [
    "clients",
    "servers",
    "servers-per-host",
    "copies",
    "code",
    "code-bytes",
    "placement",
    "pattern",
    "block",
    "depth",
    "writes",
    "think",
    "variation",
    "data",
    "server-memory",
    "client-nic",
    "server-nic",
    "latency",
    "server-out",
    "server-in",
    "server-read",
    "server-write",
    "client-bytes",
    "client-request",
    "wake",
    "overhead",
    "fail",
    "detect",
    "return",
    "resync",
    "seconds",
    "seed",
];

/// Why a parameter is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// No parameter has that name.
    #[error("{0}: there is no such parameter (--list names them)")]
    Unknown(String),
    /// The parameter cannot have that value.
    #[error("{name}: {why}")]
    Value {
        /// Its name.
        name: String,
        /// What it takes.
        why: String,
    },
    /// The file is not a file of parameters.
    #[error("{0}")]
    File(String),
}

/// A parameter: a number or a word, with its origin.
pub type Parameter = Sourced<Value>;

/// All parameters, by name.
#[derive(Clone, Debug)]
pub struct Parameters(BTreeMap<String, Parameter>);

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters(toml::from_str(BUILT_IN).expect("the built-in file is right"))
    }
}

impl Parameters {
    /// Sets the values of a file, in lines such as `client-nic = 100`.
    ///
    /// # Errors
    /// The text is not TOML, or names an unknown parameter.
    pub fn read(&mut self, text: &str) -> Result<(), Error> {
        let one_line = |error: toml::de::Error| error.message().replace('\n', " ");
        let table: toml::Table = toml::from_str(text).map_err(|error| Error::File(one_line(error)))?;
        if table.contains_key("clients") {
            return Err(Error::File("clients: --clients sets it, not a file".to_owned()));
        }
        table.into_iter().try_for_each(|(name, value)| self.put(&name, value, "the file"))
    }

    /// Sets a value that is given as text.
    ///
    /// # Errors
    /// The parameter is unknown, or cannot have that value.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let number = text.parse().map(Value::Float).ok();
        self.put(name, number.unwrap_or_else(|| Value::String(text.to_owned())), "the command")
    }

    fn put(&mut self, name: &str, value: Value, source: &str) -> Result<(), Error> {
        let known = self.0.get_mut(name).ok_or_else(|| Error::Unknown(name.to_owned()))?;
        let is_word = |value: &Value| matches!(value, Value::String(_));
        let is_number = |value: &Value| matches!(value, Value::Integer(_) | Value::Float(_));
        if is_word(&known.value) != is_word(&value) || !is_word(&value) && !is_number(&value) {
            let what = if is_word(&known.value) { "a word" } else { "a number" };
            return Err(Error::Value { name: name.to_owned(), why: format!("it takes {what}") });
        }
        known.value = value;
        known.origin = Origin::Chosen;
        known.source = format!("{}; from {source}", known.source.trim_end_matches("; from the file"));
        Ok(())
    }

    /// These parameters, with the built-in value of one of them.
    pub fn without(&self, name: &str) -> Parameters {
        let mut other = self.clone();
        if let Some(built_in) = Parameters::default().0.remove(name) {
            other.0.insert(name.to_owned(), built_in);
        }
        other
    }

    /// The parameters with their names, in the order in which they are shown.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Parameter)> {
        NAMES.iter().filter_map(|&name| self.0.get(name).map(|parameter| (name, parameter)))
    }

    fn number(&self, name: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, Error> {
        let value = &self.0[name].value;
        let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
        number.filter(|number| range.contains(number)).ok_or_else(|| Error::Value {
            name: name.to_owned(),
            why: format!("it must be a number from {} to {}", range.start(), range.end()),
        })
    }

    fn count(&self, name: &str, most: u32) -> Result<u32, Error> {
        Ok(self.whole(name, 1.0..=f64::from(most))? as u32)
    }

    fn whole(&self, name: &str, range: std::ops::RangeInclusive<f64>) -> Result<u64, Error> {
        let number = self.number(name, range)?;
        let whole = (number.fract() == 0.0).then_some(number as u64);
        whole.ok_or_else(|| Error::Value {
            name: name.to_owned(),
            why: "it must be a whole number".to_owned(),
        })
    }

    fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<T, Error> {
        let value = self.0[name].value.as_str().unwrap_or_default();
        let found = words.iter().find(|(word, _)| *word == value).map(|&(_, meant)| meant);
        found.ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            Error::Value { name: name.to_owned(), why: format!("it takes {}", words.join(" or ")) }
        })
    }

    /// A time in whole nanoseconds. One that these change by more than a hundredth is refused.
    fn time(&self, name: &str, unit_ns: f64, most: f64) -> Result<Nanos, Error> {
        let exact_ns = self.number(name, 0.0..=most)? * unit_ns;
        let near = (exact_ns.round() - exact_ns).abs() <= exact_ns / 100.0;
        near.then_some(exact_ns.round() as Nanos).ok_or_else(|| Error::Value {
            name: name.to_owned(),
            why: "times are whole nanoseconds".to_owned(),
        })
    }

    /// The setup that the parameters describe.
    ///
    /// # Errors
    /// A value is out of range, or some values do not go together.
    pub fn setup(&self) -> Result<Setup, Error> {
        let rate = |name| Ok(self.number(name, 0.001..=1e6)? * 0.125);
        let per_byte = |name| Ok(self.number(name, 0.0..=1e3)? * 1e9 / (1_u64 << 30) as f64);
        let gib = (1_u64 << 30) as f64;
        let codes = [("none", None), ("2of3", Some((2, 3))), ("4of6", Some((4, 6)))];
        let (needed, parts) = self.word("code", &codes)?.unwrap_or((1, self.count("copies", 2)?));
        let setup = Setup {
            clients: self.count("clients", 100_000)?,
            servers: self.count("servers", 10_000)?,
            servers_per_host: self.count("servers-per-host", 1000)?,
            parts,
            needed,
            code_bytes: per_byte("code-bytes")?,
            placement: self.word(
                "placement",
                &[("round-robin", Placement::RoundRobin), ("simple", Placement::Simple)],
            )?,
            pattern: self
                .word("pattern", &[("random", Pattern::Random), ("sequential", Pattern::Sequential)])?,
            block: u64::from(self.count("block", 2 << 20)?),
            depth: self.count("depth", 4096)?,
            writes: self.number("writes", 0.0..=1.0)?,
            think_ns: self.time("think", 1e3, 1e7)?,
            varies: self.word("variation", &[("exponential", true), ("fixed", false)])?,
            data_bytes: (self.number("data", 0.002..=1e6)? * gib) as u64,
            server_bytes: (self.number("server-memory", 0.002..=1e6)? * gib) as u64,
            client_nic: rate("client-nic")?,
            server_nic: rate("server-nic")?,
            latency_ns: self.time("latency", 1e3, 1e7)?,
            server_out: per_byte("server-out")?,
            server_in: per_byte("server-in")?,
            server_read_ns: self.number("server-read", 0.0..=1e6)? * 1e3,
            server_write_ns: self.number("server-write", 0.0..=1e6)? * 1e3,
            client_bytes: per_byte("client-bytes")?,
            client_request_ns: self.number("client-request", 0.0..=1e6)? * 1e3,
            wake_ns: self.time("wake", 1e3, 1e7)?,
            overhead: self.whole("overhead", 0.0..=65536.0)?,
            fail_ns: self.time("fail", 1e9, 1e5)?,
            detect_ns: self.time("detect", 1e6, 1e7)?,
            return_ns: self.time("return", 1e9, 1e5)?,
            resync: self.number("resync", 0.001..=1e6)? * 1048576.0 / 1e9,
            end_ns: self.time("seconds", 1e9, 1e4)?,
            seed: self.whole("seed", 0.0..=9e15)?,
        };
        setup.fits_together().map(|()| setup)
    }
}

/// The least time that is simulated.
const LEAST_NS: Nanos = 1000;

/// The setup of a simulation. Rates are in bytes per nanosecond, costs in nanoseconds per byte.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Processes that page.
    pub clients: u32,
    /// Server processes.
    pub servers: u32,
    /// Server processes on one host, which share its network card.
    pub servers_per_host: u32,
    /// The parts of each block, each on its own server: its copies, or what a code makes of it.
    pub parts: u32,
    /// The parts that suffice: 1 of copies. A part has the bytes of the block, divided by this.
    pub needed: u32,
    /// A pager's processor time for a byte of a block that is made into parts, or from other parts.
    pub code_bytes: f64,
    /// How extents spread over servers.
    pub placement: Placement,
    /// The choice of the next block.
    pub pattern: Pattern,
    /// Bytes of a block.
    pub block: u64,
    /// Operations that a client has under way.
    pub depth: u32,
    /// The share of page-outs.
    pub writes: f64,
    /// The time that a client thinks between two operations.
    pub think_ns: Nanos,
    /// Whether the servers' service times and the thinking times are distributed exponentially.
    pub varies: bool,
    /// Bytes of each client's data.
    pub data_bytes: u64,
    /// Bytes of memory of each server.
    pub server_bytes: u64,
    /// The rate of a client's network card, each way.
    pub client_nic: f64,
    /// The rate of a host's network card, each way.
    pub server_nic: f64,
    /// The latency of the network, one way.
    pub latency_ns: Nanos,
    /// A server's processor time for a byte of page-ins.
    pub server_out: f64,
    /// A server's processor time for a byte of page-outs.
    pub server_in: f64,
    /// A server's processor time for each page-in, ns.
    pub server_read_ns: f64,
    /// A server's processor time for each page-out, ns.
    pub server_write_ns: f64,
    /// A pager's processor time for a byte.
    pub client_bytes: f64,
    /// A pager's processor time for each operation, ns.
    pub client_request_ns: f64,
    /// The time from the end of a page-in until the program's thread continues.
    pub wake_ns: Nanos,
    /// Bytes of a message beside the block.
    pub overhead: u64,
    /// The time at which the first server is lost; 0 for never.
    pub fail_ns: Nanos,
    /// The time until a client gives up on a lost server.
    pub detect_ns: Nanos,
    /// The time at which the lost server returns; 0 for never.
    pub return_ns: Nanos,
    /// The greatest rate at which each client copies to the server that returned.
    pub resync: f64,
    /// The simulated time.
    pub end_ns: Nanos,
    /// The seed of the random numbers.
    pub seed: u64,
}

impl Setup {
    fn fits_together(&self) -> Result<(), Error> {
        let wrong = |name: &str, why: &str| Err(Error::Value { name: name.to_owned(), why: why.to_owned() });
        if !self.servers.is_multiple_of(self.parts) {
            return match (self.needed, self.parts) {
                (1, _) => wrong("servers", "pairs of servers are mirrors: it takes an even number"),
                (_, 3) => wrong("servers", "each block is on three servers: it takes a multiple of 3"),
                _ => wrong("servers", "each block is on six servers: it takes a multiple of 6"),
            };
        }
        let groups = u128::from(self.servers / self.parts);
        let room = u128::from(self.server_bytes) * groups * u128::from(self.needed);
        if u128::from(self.data_bytes) * u128::from(self.clients) > room {
            return wrong("data", "the servers have no room for it (more servers, or server-memory)");
        }
        if self.return_ns > 0 && (self.fail_ns == 0 || self.return_ns <= self.fail_ns) {
            return wrong("return", "it is later than fail");
        }
        if self.end_ns < LEAST_NS {
            return wrong("seconds", "at least 0.000001 are simulated");
        }
        if self.fail_ns >= self.end_ns || self.return_ns >= self.end_ns {
            return wrong("seconds", "it is later than fail and return");
        }
        Ok(())
    }

    /// Bytes of a part of a block.
    pub fn part_bytes(&self) -> u64 {
        self.block.div_ceil(u64::from(self.needed))
    }

    /// What is simulated in another way than it was asked for, in words.
    pub fn rounded(&self) -> Vec<String> {
        let size = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let whole = |name: &str, asked: u64, taken: u64| {
            let (asked, taken) = (size(asked), size(taken));
            format!("{name} is {taken} here, not {asked}: an extent has 2 MiB.")
        };
        let data = extents(self) * EXTENT;
        let room = self.server_bytes / EXTENT * EXTENT;
        let in_turn = self.placement == Placement::Simple && room != self.server_bytes;
        let changed = [
            (data != self.data_bytes).then(|| whole("data", self.data_bytes, data)),
            in_turn.then(|| whole("server-memory", self.server_bytes, room)),
        ];
        changed.into_iter().flatten().collect()
    }

    /// Bytes of the two messages of an operation: to the server, and back.
    pub fn messages(&self, is_write: bool, bytes: u64) -> (u64, u64) {
        let with = bytes + self.overhead;
        if is_write { (with, self.overhead) } else { (self.overhead, with) }
    }

    /// The mean time for which an operation uses its server's processor, ns.
    pub fn work_ns(&self, is_write: bool, bytes: u64) -> f64 {
        if is_write {
            self.server_write_ns + self.server_in * bytes as f64
        } else {
            self.server_read_ns + self.server_out * bytes as f64
        }
    }

    /// The time for which an operation uses its pager's thread, ns.
    pub fn pager_ns(&self, bytes: u64) -> f64 {
        self.client_request_ns + self.client_bytes * bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_value_is_known_and_shown() {
        let parameters = Parameters::default();
        assert_eq!(parameters.iter().count(), parameters.0.len());
        parameters.setup().unwrap();
    }

    #[test]
    fn what_is_set_is_told_as_chosen() {
        let mut parameters = Parameters::default();
        parameters.read("client-nic = 100\nplacement = 'simple'").unwrap();
        parameters.set("depth", "3").unwrap();
        let setup = parameters.setup().unwrap();
        assert_eq!((setup.client_nic, setup.placement, setup.depth), (12.5, Placement::Simple, 3));
        assert_eq!(parameters.0["client-nic"].origin, Origin::Chosen);
        assert_eq!(parameters.0["latency"].origin, Origin::Estimated);
    }

    #[test]
    fn what_is_rounded_is_named() {
        let mut parameters = Parameters::default();
        assert!(parameters.setup().unwrap().rounded().is_empty());
        parameters.set("data", "0.003").unwrap();
        parameters.set("placement", "simple").unwrap();
        parameters.set("server-memory", "0.9").unwrap();
        let said = parameters.setup().unwrap().rounded();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("data is 4.0 MiB here, not 3.1 MiB"), "{said:?}");
        assert!(said[1].starts_with("server-memory is 920.0 MiB here, not 921.6 MiB"), "{said:?}");
        assert_eq!(parameters.without("server-memory").setup().unwrap().rounded().len(), 1);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (name, text) in [
            ("depth", "0"),
            ("depth", "1.5"),
            ("depth", "many"),
            ("depht", "1"),
            ("placement", "1"),
            ("placement", "there"),
            ("copies", "3"),
            ("code", "3of4"),
            ("code", "2of3"),
            ("writes", "1.1"),
            ("data", "999"),
            ("block", "NaN"),
            ("fail", "77"),
            ("return", "0.1"),
            ("seed", "1.5"),
            ("overhead", "0.5"),
            ("latency", "0.0004"),
            ("seconds", "0"),
        ] {
            let mut parameters = Parameters::default();
            let error = parameters.set(name, text).and_then(|()| parameters.setup().map(drop));
            let said = error.unwrap_err().to_string();
            assert!(!said.contains('\n'), "{name}={text}: {said}");
        }
        let mut parameters = Parameters::default();
        for text in ["x", "x = 1", "depth = []", "depth = 1\ndepth = 2", "clients = 4"] {
            assert!(!parameters.read(text).unwrap_err().to_string().contains('\n'), "{text}");
        }
        parameters.set("copies", "2").unwrap();
        parameters.set("servers", "3").unwrap();
        assert!(parameters.setup().unwrap_err().to_string().contains("even"));
    }
}
