//! The fields of a line, byte by byte.

use crate::fault::{Checked, field};

/// A place in a line. Fields are read from the left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(line: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: line }
    }

    /// The rest of the line.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Passes over blanks.
    #[inline]
    pub fn blanks(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Passes over a comma.
    #[inline]
    pub fn comma(&mut self, after: &'static str) -> Checked<()> {
        match self.rest {
            [b',', rest @ ..] => {
                self.rest = rest;
                Ok(())
            }
            rest => field(after, token(rest)),
        }
    }

    /// Whether the field has ended.
    #[inline]
    fn at_end_of_field(&self) -> bool {
        matches!(self.rest, [] | [b' ' | b'\t' | b'\r' | b',', ..])
    }

    /// A whole number, and the blanks before it.
    #[inline]
    pub fn number(&mut self, expected: &'static str) -> Checked<u64> {
        self.blanks();
        let (value, digits) = digits(self.rest);
        // 19 digits always fit; longer numbers are checked.
        if digits == 0 || digits > 19 {
            return self.long_number(expected, digits);
        }
        self.rest = &self.rest[digits..];
        Ok(value)
    }

    #[cold]
    fn long_number(&mut self, expected: &'static str, digits: usize) -> Checked<u64> {
        let text = &self.rest[..digits];
        match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
            Some(value) => {
                self.rest = &self.rest[digits..];
                Ok(value)
            }
            None => field(expected, token(self.rest)),
        }
    }

    /// A whole number that ends at a blank or the end of the line.
    #[inline]
    pub fn word_number(&mut self, expected: &'static str) -> Checked<u64> {
        self.blanks();
        let start = self.rest;
        let value = self.number(expected)?;
        match self.rest {
            [] | [b' ' | b'\t', ..] => Ok(value),
            _ => field(expected, token(start)),
        }
    }

    /// A decimal number in units of `10^places` nanoseconds, converted to nanoseconds; finer digits
    /// are dropped. 9 is for seconds, 6 for milliseconds. An exponent, as in `2.04e-05`, is
    /// accepted.
    #[inline]
    pub fn decimal_ns(&mut self, places: u32, expected: &'static str) -> Checked<u64> {
        self.blanks();
        let start = self.rest;
        let (whole, count) = digits(self.rest);
        self.rest = &self.rest[count..];
        let (mut fraction, mut scale, mut fraction_digits) = (0, 10u64.pow(places), 0);
        if let [b'.', rest @ ..] = self.rest {
            self.rest = rest;
            while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
                scale /= 10;
                fraction += u64::from(digit - b'0') * scale;
                fraction_digits += 1;
                self.rest = rest;
            }
        }
        if let [b'e' | b'E', ..] = self.rest {
            return self.with_exponent(start, places, expected);
        }
        let value = whole.checked_mul(10u64.pow(places)).and_then(|whole| whole.checked_add(fraction));
        match value {
            Some(value) if count + fraction_digits > 0 && count < 20 && self.at_end_of_field() => Ok(value),
            _ => field(expected, token(start)),
        }
    }

    #[cold]
    fn with_exponent(&mut self, start: &'a [u8], places: u32, expected: &'static str) -> Checked<u64> {
        let text = token(start);
        self.rest = &start[text.len()..];
        let value: Option<f64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        match value.map(|value| value * 10f64.powi(places as i32)) {
            Some(ns) if (0.0..1.8e19).contains(&ns) => Ok(ns as u64),
            _ => field(expected, text),
        }
    }

    /// The text before the next comma, without blanks around it.
    #[inline]
    pub fn until_comma(&mut self, expected: &'static str) -> Checked<&'a [u8]> {
        let end = memchr::memchr(b',', self.rest).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        let text = text.trim_ascii();
        if text.is_empty() { field(expected, text) } else { Ok(text) }
    }

    /// A word; blanks before it are skipped.
    #[inline]
    pub fn word(&mut self, expected: &'static str) -> Checked<&'a [u8]> {
        self.blanks();
        let end = self.rest.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word.is_empty() { field(expected, word) } else { Ok(word) }
    }

    /// The end of the line; blanks before it are skipped.
    #[inline]
    pub fn end(&mut self) -> Checked<()> {
        self.blanks();
        if self.rest.is_empty() { Ok(()) } else { field("the end of the line", self.rest) }
    }
}

/// The digits at the beginning: their value (of about the first 19, wrapping) and their number.
#[inline]
fn digits(bytes: &[u8]) -> (u64, usize) {
    let (mut value, mut count) = (0u64, 0);
    while let Some(digit @ b'0'..=b'9') = bytes.get(count) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        count += 1;
    }
    (value, count)
}

/// The text before the next separator.
fn token(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| matches!(byte, b' ' | b'\t' | b',')).unwrap_or(bytes.len());
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_keep_to_their_range() {
        let number =
            |text: &str| Cursor::new(text.as_bytes()).number("a number").map_err(|fault| fault.to_string());
        assert_eq!(number("18446744073709551615,"), Ok(u64::MAX));
        assert_eq!(
            number("18446744073709551616"),
            Err("expected a number, found \"18446744073709551616\"".into())
        );
        assert_eq!(number("-5,7"), Err("expected a number, found \"-5\"".into()));
        assert_eq!(number(""), Err("expected a number, found nothing".into()));
        assert_eq!(number("00000000000000000000012"), Ok(12));
    }

    #[test]
    fn decimals_are_cut_at_the_nanosecond() {
        let decimal = |places, text: &str| Cursor::new(text.as_bytes()).decimal_ns(places, "a time").ok();
        assert_eq!(decimal(9, "0.026214"), Some(26_214_000));
        assert_eq!(decimal(6, "7961.833"), Some(7_961_833_000));
        assert_eq!(decimal(9, "1.2345678919"), Some(1_234_567_891));
        assert_eq!(decimal(9, "12"), Some(12_000_000_000));
        assert_eq!(decimal(9, "2.0402e-05"), Some(20_402));
        assert_eq!(decimal(9, ".5"), Some(500_000_000));
        for bad in ["", ".", "-1.0", "x", "99999999999999999999", "18446744074", "1e99", "1e", "nan"] {
            assert_eq!(decimal(9, bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_they_are_written(value: u64, tail in "[ ,a-z]?[0-9]*") {
            prop_assume!(!tail.starts_with(|first: char| first.is_ascii_digit()));
            let text = format!("{value}{tail}");
            let mut cursor = Cursor::new(text.as_bytes());
            prop_assert_eq!(cursor.number("a number").unwrap(), value);
            prop_assert_eq!(cursor.rest(), tail.as_bytes());
        }

        #[test]
        fn decimals_are_read_as_they_are_written(seconds in 0u64..10_000_000_000, ns in 0u64..1_000_000_000) {
            let text = format!("{seconds}.{ns:09}");
            let read = Cursor::new(text.as_bytes()).decimal_ns(9, "a time").unwrap();
            prop_assert_eq!(read, seconds * 1_000_000_000 + ns);
        }
    }
}
