//! The flags of all commands that read a block trace.

use std::path::PathBuf;
use terapage_blocktrace::{Error, Format, Options, Reader, open};

/// A block trace and how to read it.
#[derive(clap::Args, Clone, Debug)]
pub struct TraceArgs {
    /// The trace, compressed or not; - is standard input
    #[arg(value_name = "TRACE")]
    pub path: PathBuf,
    /// Its format; without it the first bytes tell. One of msr, msr-revised, ssdsim, disksim, blkparse, spc, fio, arc,
    /// vscsi, oraclegeneral, tera
    #[arg(long, alias = "from", value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Skip up to so many bad records; they are counted in the result
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_bad: u64,
    /// Read this volume only; can be given several times
    #[arg(long = "volume", value_name = "NAME")]
    pub volumes: Vec<String>,
    /// Refuse requests that end beyond so many bytes (4096, 10GiB)
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub capacity: Option<u64>,
    /// Take times that go back by at most this (500ns, 20us, 1ms, 2s) as simultaneous with the request before
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = nanoseconds)]
    pub disorder: u64,
    /// The action of blkparse output to read: Q as queued, D as issued, C as completed
    #[arg(long, value_name = "LETTER", value_parser = action)]
    pub action: Option<char>,
    /// Bytes of one address in arc and oraclegeneral traces, whose files do not say [default: 512]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    pub unit: Option<u32>,
}

impl TraceArgs {
    /// Opens the trace.
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn open(&self) -> Result<Reader, Error> {
        let options = Options {
            format: self.format,
            skip_bad: self.skip_bad,
            volumes: self.volumes.clone(),
            capacity: self.capacity,
            disorder_ns: self.disorder,
            action: self.action,
            unit_bytes: self.unit,
        };
        open(&self.path, &options)
    }
}

fn action(text: &str) -> Result<char, String> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if letter.is_ascii_uppercase() => Ok(letter),
        _ => Err("expected one capital letter, such as Q, D or C".to_string()),
    }
}

fn byte_count(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("K", 1 << 10),
        ("M", 1 << 20),
        ("G", 1 << 30),
        ("T", 1 << 40),
        ("", 1),
    ];
    scaled(text, &UNITS).ok_or_else(|| "expected bytes, such as 4096, 512M or 10GiB".to_string())
}

fn nanoseconds(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 5] =
        [("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000), ("", 1)];
    scaled(text, &UNITS).ok_or_else(|| "expected a time, such as 500ns, 20us, 1ms or 2s".to_string())
}

/// A whole number and one of the units; the first that fits counts.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let plain = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    number.parse::<u64>().ok().filter(|_| plain)?.checked_mul(*unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(byte_count("4096"), Ok(4096));
        assert_eq!(byte_count("10GiB"), Ok(10 << 30));
        assert_eq!(byte_count("2T"), Ok(2 << 40));
        assert_eq!(nanoseconds("20us"), Ok(20_000));
        assert_eq!(nanoseconds("2s"), Ok(2_000_000_000));
        for bad in ["", "-1", "1.5G", "G", "+3", "99999999999T"] {
            assert!(byte_count(bad).is_err(), "{bad}");
        }
        assert!(nanoseconds("ms").is_err() && action("QD").is_err() && action("D") == Ok('D'));
    }
}
