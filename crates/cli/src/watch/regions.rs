//! The regions of a paged process, as a table for people.

use std::fmt::Write;
use terapage_config::Size;
use terapage_stats::Region;

/// The number of regions that have a line.
const MOST: usize = 8;

/// Characters of a line.
const WIDTH: usize = 98;

/// The first column to leave out.
const STORED: usize = 2;

/// Characters of a name if there is room, and if there is not.
const NAME: usize = 32;
const NAME_SHORT: usize = 24;

/// A line for each of the largest regions, and one for the rest; nothing if there are none. If
/// `width` is too small, names are cut, and the column of stored bytes is left out.
pub fn table(regions: Vec<Region>, width: usize) -> String {
    if regions.is_empty() {
        return String::new();
    }
    let whole = width >= WIDTH;
    let name_width = if whole { NAME } else { NAME_SHORT };
    let line = |name: &str, numbers: [&str; 6]| {
        let mut line = format!("{:<name_width$}", name.chars().take(name_width).collect::<String>());
        for (at, number) in numbers.into_iter().enumerate() {
            if whole || at != STORED {
                let _ = write!(line, " {number:>10}");
            }
        }
        line + "\n"
    };
    let mut text =
        "\n".to_owned() + &line("REGION", ["SIZE", "RESIDENT", "STORED", "MAJOR", "MINOR", "PAGE-IN"]);
    for region in Region::largest(regions, MOST) {
        let bytes = |n: u64| Size(n).to_string();
        text += &line(
            &region.name,
            [
                // Programs with the C interface do not say.
                &if region.size_bytes == 0 { "-".to_owned() } else { bytes(region.size_bytes) },
                &bytes(region.resident_bytes),
                &bytes(region.stored_bytes),
                &region.major_faults.to_string(),
                &region.minor_faults.to_string(),
                &bytes(region.page_in_bytes),
            ],
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_under_their_heads() {
        let region = |name: &str, size_bytes| Region { name: name.into(), size_bytes, ..Region::default() };
        let heap = Region { major_faults: 123, page_in_bytes: 1 << 20, ..region("heap", 5 << 30) };
        let all = vec![heap, region("static arrays of libm.so.6", 3 << 20), region("other", 0)];
        let narrow = table(all.clone(), 80);
        assert!(
            narrow.lines().skip(1).all(|line| line.len() == 79) && !narrow.contains("STORED"),
            "{narrow}"
        );
        let text = table(all, WIDTH);
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert!(lines.iter().all(|line| line.len() == WIDTH), "{text}");
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>().join(" "),
            "heap 5 GiB 0 B 0 B 123 0 1 MiB"
        );
        assert_eq!(lines[3].split_whitespace().take(2).collect::<Vec<_>>(), ["other", "-"]);
        assert_eq!(table(Vec::new(), WIDTH), "");
    }
}
