//! The regions of a paged process, as people read them.

use std::fmt::Write;
use terapage_config::Size;
use terapage_stats::Region;

/// Regions that are shown by themselves.
const MOST: usize = 8;

const HEAD: &str =
    "REGION                                 SIZE   RESIDENT     STORED       HARD       SOFT    PAGE-IN";

/// A line for each of the largest, and one for the rest; nothing where there are none.
pub fn table(regions: Vec<Region>) -> String {
    if regions.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{HEAD}\n");
    for region in Region::largest(regions, MOST) {
        let bytes = |n: u64| Size(n).to_string();
        let _ = writeln!(
            text,
            "{:<32} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            region.name,
            bytes(region.size_bytes),
            bytes(region.resident_bytes),
            bytes(region.stored_bytes),
            region.hard_faults,
            region.soft_faults,
            bytes(region.page_in_bytes),
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
        let heap = Region { hard_faults: 123, page_in_bytes: 1 << 20, ..region("heap", 5 << 30) };
        let text = table(vec![heap, region("static arrays of libm.so.6", 3 << 20), region("other", 0)]);
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert!(lines.iter().all(|line| line.len() == HEAD.len()), "{text}");
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>().join(" "),
            "heap 5 GiB 0 B 0 B 123 0 1 MiB"
        );
        assert!(lines[3].starts_with("other"), "{text}");
        assert_eq!(table(Vec::new()), "");
    }
}
