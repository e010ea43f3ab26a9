//! Sizes in bytes, in the notation of people.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `4096`, `64K`, `4KiB`, `4Gi`, `1.5G`, `10MB`, `1e9`.
///
/// `K`, `M`, `G`, `T` and `Ki`, `KiB`, ... are powers of 1024; `KB`, `MB`, ... are powers of 1000,
/// as in dd. `e` and digits after a number are a power of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// How large the store may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// Bytes that the store may use; `None` is `auto`: it grows as needed.
    pub bytes: Option<Size>,
    /// The program may not have more memory than the store could hold: an allocation that the store
    /// could not hold is refused.
    pub strict: bool,
}

/// All sizes are below this many bytes.
const LIMIT: u64 = 1 << 62;

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a size: {why} (write 4096, 64K, 1.5G, 10MB)", text.escape_debug())]
pub struct ParseSizeError {
    text: String,
    why: &'static str,
}

/// The length of the number at the front of a text: digits, a point, `e` and digits.
fn number_len(text: &str) -> usize {
    let run = |from: usize, wanted: fn(char) -> bool| {
        text[from..].find(|c| !wanted(c)).map_or(text.len(), |at| from + at)
    };
    let digits = run(0, |c| c.is_ascii_digit() || c == '.');
    match text[digits..].chars().next() {
        Some('e' | 'E') if digits > 0 => match run(digits + 1, |c| c.is_ascii_digit()) {
            end if end > digits + 1 => end,
            _ => digits,
        },
        _ => digits,
    }
}

impl FromStr for Size {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        let no = |why| ParseSizeError { text: text.to_owned(), why };
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err(no("it is negative"));
        }
        let digits = number_len(trimmed);
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
                    "" | "i" | "ib" => 1024u64.pow(power),
                    "b" => 1000u64.pow(power),
                    _ => return Err(no("its unit is unknown")),
                }
            }
        };
        if !number.contains(['.', 'e', 'E']) {
            // This is exact; a float has only 53 bits.
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
            ("4Gi", 4 << 30),
            ("4gi", 4 << 30),
            ("4GiB", 4 << 30),
            ("1e9", 1_000_000_000),
            ("1.5E3 K", 1500 << 10),
            ("4611686018427387903", (1 << 62) - 1),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in [
            "",
            "-5M",
            "G",
            "1X",
            "1.2.3",
            "99999999P",
            "4611686018427387904",
            ".",
            "5KK",
            "nan",
            "1e",
            "e9",
            "1e99",
            "5i",
            "1e9e9",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
