//! Times, shares and sizes of a cache in the forms that people write.

use std::fmt;
use std::str::FromStr;

use terapage_config::Size;

/// A time: `100ns`, `2.5us`, `10ms`, `5s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    /// In nanoseconds.
    pub ns: u64,
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{}' is not a time: write 100ns, 2.5us, 10ms or 5s", text.escape_debug());
        let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
        let (number, factor) = units
            .iter()
            .find_map(|&(unit, factor)| Some((text.trim().strip_suffix(unit)?, factor)))
            .ok_or_else(wrong)?;
        let value: f64 = number.trim().parse().map_err(|_| wrong())?;
        let exact = value * factor;
        let ns = exact.round();
        if !(0.0..=1e18).contains(&ns) {
            return Err(wrong());
        }
        if (exact - ns).abs() > exact / 100.0 {
            return Err(format!("'{}': times are whole nanoseconds", text.escape_debug()));
        }
        Ok(Time { ns: ns as u64 })
    }
}

/// A share of a whole: `20%` or `0.2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{}' is not a share: write 20% or 0.2, at most 100%", text.escape_debug());
        let (number, whole) = match text.trim().strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (text, 1.0),
        };
        let value: f64 = number.trim().parse().map_err(|_| wrong())?;
        Some(value / whole).filter(|share| (0.0..=1.0).contains(share)).map(Share).ok_or_else(wrong)
    }
}

/// The size of a cache: `5%` of the trace's footprint, `5%nand` of the SSD's capacity, or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the bytes that the trace touches.
    OfFootprint(f64),
    /// A share of the SSD's capacity.
    OfNand(f64),
}

impl CacheSize {
    /// In bytes.
    pub fn bytes(self, footprint: u64, capacity: u64) -> u64 {
        match self {
            CacheSize::Bytes(bytes) => bytes,
            CacheSize::OfFootprint(share) => (footprint as f64 * share) as u64,
            CacheSize::OfNand(share) => (capacity as f64 * share) as u64,
        }
    }
}

impl fmt::Display for CacheSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| (share * 1e4).round() / 100.0;
        match *self {
            CacheSize::Bytes(bytes) => Size(bytes).fmt(out),
            CacheSize::OfFootprint(share) => write!(out, "{} % of what is touched", percent(share)),
            CacheSize::OfNand(share) => write!(out, "{} % of the capacity", percent(share)),
        }
    }
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((number, whole)) = text.split_once('%') else {
            return text.parse::<Size>().map(|Size(bytes)| CacheSize::Bytes(bytes)).map_err(|error| {
                format!("{error}; or 5% of what the trace touches, 5%nand of the SSD's capacity")
            });
        };
        let share = number.trim().parse::<f64>().ok().filter(|share| (0.0..=10_000.0).contains(share));
        let share = share.ok_or_else(|| format!("'{}' is not a percentage", number.escape_debug()))?;
        match whole.trim().trim_start_matches("of ") {
            "" | "footprint" => Ok(CacheSize::OfFootprint(share / 100.0)),
            "nand" | "capacity" => Ok(CacheSize::OfNand(share / 100.0)),
            other => Err(format!(
                "per cent of '{}' is not known: write 5% (of the footprint) or 5%nand",
                other.escape_debug()
            )),
        }
    }
}

/// The least bytes that requests of synthetic volumes move: fewer would leave nothing to compare.
const TRAFFIC_MIN: Size = Size(16 << 20);

/// Reads the bytes that requests move, and refuses too few.
pub fn traffic(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error| format!("{error}"))?;
    if size < TRAFFIC_MIN { Err(format!("it must be at least {TRAFFIC_MIN}")) } else { Ok(size) }
}

/// A percentage with its sign; a percentage that rounds to 0 has no sign.
pub fn signed(percent: f64) -> String {
    if percent.abs() < 0.05 { "0.0".to_owned() } else { format!("{percent:+.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ns) in [("100ns", 100), ("2.5us", 2_500), ("10 ms", 10_000_000), ("5s", 5_000_000_000)] {
            assert_eq!(text.parse(), Ok(Time { ns }), "{text}");
        }
        for text in ["100", "ns", "-1ns", "1h", "1e30s", "NaNs", "0.4ns", "1.5ns"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_at_most_one() {
        assert_eq!("20%".parse(), Ok(Share(0.2)));
        assert_eq!("0.25".parse(), Ok(Share(0.25)));
        for text in ["120%", "2", "-1%", "x", "NaN", ""] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn traffic_is_not_next_to_nothing() {
        assert_eq!(traffic("64M"), Ok(Size(64 << 20)));
        assert!(traffic("1").unwrap_err().contains("at least 16 MiB"));
        assert!(traffic("much").is_err());
    }

    #[test]
    fn caches_are_sized_in_bytes_or_per_cent() {
        let bytes = |text: &str| text.parse::<CacheSize>().map(|size| size.bytes(1_000, 10_000));
        assert_eq!(bytes("5%"), Ok(50));
        assert_eq!(bytes("5%footprint"), Ok(50));
        assert_eq!(bytes("5%nand"), Ok(500));
        assert_eq!(bytes("5% of capacity"), Ok(500));
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("0"), Ok(0));
        for text in ["", "x%", "-5%", "5%moon", "lots"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
