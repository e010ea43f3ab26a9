//! The quantities that figures count, and the sides of a target.

use crate::workload::Pass;
use serde::{Deserialize, Serialize};

/// The quantity that a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Bytes that a program touched per second.
    #[serde(rename = "MiB/s")]
    Rate,
    /// Time of one read.
    #[serde(rename = "us")]
    Latency,
    /// Time of the whole.
    #[serde(rename = "s")]
    Seconds,
    /// Floating-point operations per second.
    #[serde(rename = "MFLOPS")]
    Mflops,
    /// Bytes per second, or operations per second for passes that count operations.
    #[serde(rename = "MiB/s or 1/s")]
    Speed,
    /// Time of one I/O.
    #[serde(rename = "us per I/O")]
    PerIo,
}

impl Unit {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Rate => "MiB/s",
            Unit::Latency => "us per read",
            Unit::Seconds => "s",
            Unit::Mflops => "MFLOPS",
            Unit::Speed => "MiB/s or 1/s",
            Unit::PerIo => "us per I/O",
        }
    }

    /// The unit's name for some passes: with [`Unit::Speed`], names of passes end with their unit.
    pub fn name_of<'a>(self, passes: impl Iterator<Item = &'a str>) -> &'static str {
        let all = |end: &str, passes: &[&str]| passes.iter().all(|pass| pass.ends_with(end));
        let passes: Vec<&str> = passes.collect();
        match self {
            Unit::Speed if passes.is_empty() => self.name(),
            Unit::Speed if all(", MiB/s", &passes) => "MiB/s",
            Unit::Speed if all(", 1/s", &passes) => "1/s",
            _ => self.name(),
        }
    }

    /// The figure of a pass.
    pub fn of(self, pass: &Pass) -> f64 {
        match self {
            Unit::Mflops => pass.flops.unwrap_or(f64::NAN) / pass.seconds / 1e6,
            Unit::Speed if pass.operations.is_some() => pass.operations.unwrap_or(0.0) / pass.seconds,
            Unit::Rate | Unit::Speed => pass.bytes as f64 / pass.seconds / f64::from(1 << 20),
            Unit::PerIo => pass.seconds * 1e6 / pass.operations.unwrap_or(1.0),
            Unit::Latency => pass.seconds * 1e6 * pass.threads as f64 / (pass.bytes as f64 / 8.0),
            Unit::Seconds => pass.seconds,
        }
    }

    /// The time cost of the same work, in any measure: less is better.
    pub fn cost(self, pass: &Pass) -> f64 {
        match self {
            Unit::Rate | Unit::Mflops | Unit::Speed => 1.0 / self.of(pass),
            Unit::Latency | Unit::Seconds | Unit::PerIo => self.of(pass),
        }
    }
}

/// The side of its target on which a value must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The target or more.
    #[default]
    AtLeast,
    /// The target or less.
    AtMost,
    /// Below the target.
    Below,
    /// Within the target's distance of 1.
    Within,
}

impl Side {
    /// Before the target.
    pub fn sign(self) -> &'static str {
        match self {
            Side::AtLeast => ">=",
            Side::AtMost => "<=",
            Side::Below => "<",
            Side::Within => "1 +-",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Unit;
    use crate::workload::Pass;

    #[test]
    fn latency_is_the_time_that_one_thread_waits() {
        let pass = Pass { seconds: 2.0, bytes: 8 * 1000, threads: 4, ..Pass::default() };
        assert_eq!(Unit::Latency.of(&pass), 8000.0);
    }
}
