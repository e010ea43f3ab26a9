//! Numbers and units in the form that people read.

use serde::Serialize;

/// One size of a unit: `(times, symbol)`. `times` is in the unit of the values.
type Step = (f64, &'static str);

const BYTES: [(f64, &str); 6] = [
    (1.0, "B"),
    (1024.0, "KiB"),
    (1048576.0, "MiB"),
    (1073741824.0, "GiB"),
    (1099511627776.0, "TiB"),
    (1125899906842624.0, "PiB"),
];
const BYTE_RATES: [(f64, &str); 6] = [
    (1.0, "B/s"),
    (1024.0, "KiB/s"),
    (1048576.0, "MiB/s"),
    (1073741824.0, "GiB/s"),
    (1099511627776.0, "TiB/s"),
    (1125899906842624.0, "PiB/s"),
];
const TIMES: [(f64, &str); 4] = [(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")];
const COUNTS: [(f64, &str); 5] = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")];

/// Counts from this value on are written with a prefix. Below it, 2013 is more likely a year than 2
/// thousand of something.
const COUNTS_FROM: f64 = 10_000.0;

/// The description of a unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unit {
    /// The unit as written.
    pub name: String,
    /// The sizes of the unit, from small to large; empty if it has none.
    pub steps: Vec<Step>,
    /// Whether a step's symbol is only a prefix of `name`, as in `12 k IOPS`.
    pub prefix: bool,
    /// Whether its sizes are powers of two.
    pub binary: bool,
}

impl Unit {
    /// The unit called `name`. Bytes, bytes per second, times and counts are known; other units are
    /// written as they are.
    pub fn named(name: &str) -> Unit {
        let name = name.trim();
        let (steps, prefix, binary) = match name {
            "B" | "byte" | "bytes" => (BYTES.to_vec(), false, true),
            "B/s" | "bytes/s" => (BYTE_RATES.to_vec(), false, true),
            "ns" => (times(1e-9), false, false),
            "us" | "µs" | "μs" => (times(1e-6), false, false),
            "ms" => (times(1e-3), false, false),
            "s" | "seconds" => (times(1.0), false, false),
            _ if is_count(name) => (COUNTS.to_vec(), true, false),
            _ => (Vec::new(), false, false),
        };
        let name = if matches!(name, "us" | "μs") { "µs" } else { name };
        Unit { name: name.to_owned(), steps, prefix, binary }
    }

    /// Where bars begin: a multiple is compared with 1, not with 0.
    pub fn origin(&self) -> f64 {
        if matches!(self.name.as_str(), "times" | "倍") { 1.0 } else { 0.0 }
    }

    /// The size in which values up to `largest` are easiest to read.
    pub fn step(&self, largest: f64) -> Option<Step> {
        let size = largest.abs();
        if self.prefix && size < COUNTS_FROM {
            return None;
        }
        let first = *self.steps.first()?;
        // A little tolerance: 1e3 times 1e-3 may be just below 1.
        Some(self.steps.iter().rev().find(|(times, _)| size >= times * 0.999_999_9).copied().unwrap_or(first))
    }

    /// A value with its unit, rounded to four digits: `1.5 MiB`, `120 µs`, `12.5 k IOPS`, `5%`.
    pub fn value(&self, value: f64) -> String {
        let number = self.short(value);
        match self.name.as_str() {
            "%" => number + "%",
            name if name.is_empty() || !(self.prefix || self.steps.is_empty()) => number,
            name => format!("{number} {name}"),
        }
    }

    /// A value without what stands beside the axis: `1.5 MiB`, `120 µs`, `12.5 k`, `5`.
    pub fn short(&self, value: f64) -> String {
        match self.step(value) {
            Some((1.0, "")) | None => number(value, 4),
            Some(_) if value == 0.0 || !value.is_finite() => number(value, 4),
            Some((times, symbol)) => format!("{} {symbol}", number(value / times, 4)),
        }
    }
}

/// The sizes of time, for values in units of `second` seconds.
fn times(second: f64) -> Vec<Step> {
    TIMES.iter().map(|(times, symbol)| ((times / second * 1e9).round() / 1e9, *symbol)).collect()
}

/// Whether a unit is a thing that is counted (`requests`, `IOPS`), so that a prefix can go before
/// it.
fn is_count(name: &str) -> bool {
    let word = name.strip_suffix("/s").unwrap_or(name);
    let plain = word.len() > 3 && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == ' ');
    name.is_empty() || plain || matches!(word, "IOPS" | "FLOPS" | "Hz" | "IO" | "I/Os" | "1")
}

/// A number rounded to `digits` significant digits, with separated thousands: `1,234`, `0.012`,
/// `1.5e-9`.
pub fn number(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "n/a".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if value == 0.0 {
        return "0".into();
    }
    let rounded = format!("{value:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = rounded.split_once('e').expect("this format has an exponent");
    let exponent: i32 = exponent.parse().expect("this format's exponent is a number");
    if !(-5..15).contains(&exponent) {
        return format!("{}e{exponent}", trimmed(mantissa));
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    let rounded: f64 = rounded.parse().expect("a number that was just written");
    grouped(trimmed(&format!("{rounded:.decimals$}")))
}

/// The number without trailing zeros after the point.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// The number with a comma before each three digits.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.find('.').map_or((number, ""), |at| number.split_at(at));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut text = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

/// Units of sizes and times that may follow a number in a table's cell.
const CELL_UNITS: [&str; 11] = ["KiB", "MiB", "GiB", "TiB", "B", "ns", "us", "µs", "ms", "s", "h"];

/// Whether a table's cell is a number: `1,234`, `-0.5`, `+6.7%`, `1.5e-9`, `2.1x`, `883 ±15`,
/// `8.1 KiB`.
pub fn is_number(cell: &str) -> bool {
    let cell = match cell.split_once('±') {
        Some((value, margin)) if !value.trim().is_empty() && is_number(margin) => value,
        _ => cell,
    };
    let cell = match cell.trim().rsplit_once(' ') {
        Some((value, unit)) if CELL_UNITS.contains(&unit) => value,
        _ => cell,
    };
    let cell = cell.trim().trim_start_matches(['+', '-', '−', '±', '<', '>', '~', '≈']).trim_start();
    let cell = cell.trim_end_matches(['%', 'x', '×']).trim_end();
    cell.starts_with(|first: char| first.is_ascii_digit()) && cell.replace(',', "").parse::<f64>().is_ok()
}

/// The columns of a table that have numbers: at least half of their cells that are not empty.
pub fn number_columns(columns: usize, rows: &[Vec<String>]) -> Vec<bool> {
    let is_silent = |cell: &&String| matches!(cell.trim(), "" | "-" | "–" | "n/a");
    let holds = |column: usize| {
        let cells: Vec<&String> =
            rows.iter().filter_map(|row| row.get(column)).filter(|cell| !is_silent(cell)).collect();
        let numbers = cells.iter().filter(|cell| is_number(cell)).count();
        numbers > 0 && numbers * 2 >= cells.len()
    };
    (0..columns).map(holds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_so_many_digits() {
        let cases = [
            (0.0, "0"),
            (1234.6, "1,235"),
            (9999.6, "10,000"),
            (12_345_678.0, "12,350,000"),
            (-0.1, "-0.1"),
            (0.012_345, "0.01235"),
            (1.5e-9, "1.5e-9"),
            (1e21, "1e21"),
            (f64::NAN, "n/a"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value, 4), text);
        }
    }

    #[test]
    fn values_are_in_the_unit_that_reads_best() {
        let cases = [
            ("bytes", 1536.0, "1.5 KiB"),
            ("B/s", 3.0e9, "2.794 GiB/s"),
            ("ns", 120_000.0, "120 µs"),
            ("us", 0.5, "500 ns"),
            ("s", 0.0012, "1.2 ms"),
            ("s", 4000.0, "4,000 s"),
            ("IOPS", 1_300_000.0, "1.3 M IOPS"),
            ("", 2013.0, "2,013"),
            ("", 168_638_964.0, "168.6 M"),
            ("kIOPS", 1300.0, "1,300 kIOPS"),
            ("%", -0.1, "-0.1%"),
            ("MiB/s", 2048.0, "2,048 MiB/s"),
            ("bytes", 0.0, "0"),
        ];
        for (unit, value, text) in cases {
            assert_eq!(Unit::named(unit).value(value), text, "{value} {unit}");
        }
    }

    #[test]
    fn cells_that_are_numbers_are_known() {
        for cell in [
            "1",
            "-0.1",
            "+6.7%",
            "1,234",
            "2.1x",
            "1e-9",
            "~5",
            "< 3",
            "883 ±15",
            "0.76 ±0.00",
            "8.1 KiB",
            "19.5 us",
            "±3",
        ] {
            assert!(is_number(cell), "{cell}");
        }
        for cell in [
            "",
            "-",
            "n/a",
            "prxy_0",
            "3D CT TLC",
            "inf",
            "nan",
            "1/3",
            "about ±3",
            "3 ±x",
            "KiB",
            "8 apples",
        ] {
            assert!(!is_number(cell), "{cell}");
        }
    }
}
