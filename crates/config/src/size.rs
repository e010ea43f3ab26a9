//! Sizes in bytes, as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `4096`, `64K`, `4KiB`, `1.5G`, `10MB`.
///
/// `K`, `M`, `G`, `T` and `KiB`, ... are powers of 1024; `KB`, `MB`, ... powers of 1000, as dd has
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Sizes are below this many bytes.
const LIMIT: u64 = 1 << 62;

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a size: {why} (write 4096, 64K, 1.5G, 10MB)", text.escape_debug())]
pub struct ParseSizeError {
    text: String,
    why: &'static str,
}

impl FromStr for Size {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        let no = |why| ParseSizeError { text: text.to_owned(), why };
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err(no("it is negative"));
        }
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        if number.is_empty() {
            return Err(no("it does not begin with a number"));
        }
        let unit = unit.trim().to_ascii_lowercase();
        let power = |letter: char| "kmgtp".find(letter).map(|at| at as u32 + 1);
        let factor = match unit.as_str() {
            "" | "b" => 1,
            _ => {
                let mut letters = unit.chars();
                let power = letters.next().and_then(power).ok_or_else(|| no("its unit is unknown"))?;
                match letters.as_str() {
                    "" | "ib" => 1024u64.pow(power),
                    "b" => 1000u64.pow(power),
                    _ => return Err(no("its unit is unknown")),
                }
            }
        };
        if !number.contains('.') {
            // Exact, where a float has 53 bits.
            let whole = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
            return whole.filter(|&n| n < LIMIT).map(Size).ok_or_else(|| no("it is too large"));
        }
        let number: f64 = number.parse().map_err(|_| no("its number cannot be read"))?;
        let bytes = number * factor as f64;
        if bytes >= LIMIT as f64 {
            return Err(no("it is too large"));
        }
        Ok(Size(bytes as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << shift {
                let value = self.0 as f64 / (1u64 << shift) as f64;
                return if value.fract() == 0.0 {
                    write!(f, "{value} {unit}")
                } else {
                    write!(f, "{value:.1} {unit}")
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65536),
            ("64KiB", 65536),
            ("10MB", 10_000_000),
            ("1.5G", 3 << 29),
            ("2 GiB", 2 << 30),
            ("4611686018427387903", (1 << 62) - 1),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "-5M", "G", "1X", "1.2.3", "99999999P", "4611686018427387904", ".", "5KK", "nan"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
