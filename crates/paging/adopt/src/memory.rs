//! The mappings of a process: which of them will be paged, and where its code lies.

use std::ops::Range;
use terapage_sys::adoption::{Orders, Ranges};

/// A mapping, as `/proc/PID/maps` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub range: Range<u64>,
    pub rights: String,
    /// The number of its file; 0 for none.
    pub file: u64,
    pub name: String,
}

/// The mappings in the text of `/proc/PID/maps`.
pub fn parse(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text: &str| u64::from_str_radix(text, 16).ok();
    let rights = words.next()?.to_owned();
    let file = words.nth(2)?.parse().ok()?;
    let name = words.next().unwrap_or_default().to_owned();
    Some(Mapping { range: address(start)?..address(end)?, rights, file, name })
}

/// Flags of the kernel (`VmFlags`, proc(5)) of mappings that stay as they are: locked, device or
/// raw pages, not copied or emptied by a fork, droppable, huge pages of their own, growing stacks,
/// in the hands of a userfaultfd, with a guard of shadow stacks.
const STAY: [&str; 11] = ["lo", "io", "pf", "dc", "wf", "dp", "ht", "gd", "um", "uw", "ss"];

/// The ranges with such flags in the text of `/proc/PID/smaps`.
pub fn marked(smaps: &str) -> Vec<Range<u64>> {
    let (mut found, mut last) = (Vec::new(), None);
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if flags.split_ascii_whitespace().any(|flag| STAY.contains(&flag)) {
                found.extend(last.take());
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit() || ('a'..='f').contains(&first))
            && let Some(mapping) = parse_line(line)
        {
            last = Some(mapping.range);
        }
    }
    found
}

/// A longer mapping is a reservation, of which little is in use (shadow memory of sanitizers).
const LONGEST: u64 = 1 << 40;

/// Chooses what is paged, and finds the code. `stay` are ranges that stay as they are, `stacks` the
/// stack pointers of all threads.
pub fn choose(all: &[Mapping], stay: &[Range<u64>], stacks: &[u64]) -> Orders {
    let is_data = |mapping: &&Mapping| {
        let Range { start, end } = mapping.range;
        let meets = |range: &Range<u64>| range.start < end && start < range.end;
        mapping.rights == "rw-p"
            && mapping.file == 0
            && matches!(&*mapping.name, "" | "[heap]")
            && end - start <= LONGEST
            && !stay.iter().any(meets)
            && !stacks.iter().any(|at| mapping.range.contains(at))
    };
    let is_code = |mapping: &&Mapping| {
        mapping.rights.as_bytes()[2] == b'x' && !matches!(&*mapping.name, "[vdso]" | "[vsyscall]")
    };
    Orders {
        code: joined(all.iter().filter(is_code)),
        data: joined(all.iter().filter(is_data)),
        fails: false,
    }
}

/// The ranges of mappings, neighbours as one.
fn joined<'a>(mappings: impl Iterator<Item = &'a Mapping>) -> Ranges {
    let mut ranges: Ranges = Vec::new();
    for Range { start, end } in mappings.map(|mapping| mapping.range.clone()) {
        match ranges.last_mut() {
            Some((_, last)) if *last == start => *last = end,
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

/// The parts of `after` that no mapping of `before` contains.
pub fn new_parts(before: &[Mapping], after: &[Mapping]) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    for Range { mut start, end } in after.iter().map(|mapping| mapping.range.clone()) {
        for old in before.iter().map(|mapping| &mapping.range) {
            if old.end <= start || old.start >= end {
                continue;
            }
            if start < old.start {
                parts.push(start..old.start);
            }
            start = old.end;
        }
        if start < end {
            parts.push(start..end);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-2000 r-xp 00000000 08:01 12 /bin/a
2000-4000 rw-p 00002000 08:01 12 /bin/a
4000-9000 rw-p 00000000 00:00 0 [heap]
9000-a000 rw-p 00000000 00:00 0
10000-20000 rw-p 00000000 00:00 0
20000-21000 rw-s 00000000 00:00 0
30000-40000 rw-p 00000000 00:00 0 [stack]
50000-51000 r-xp 00000000 00:00 0 [vdso]
60000-70000 rw-p 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";

    #[test]
    fn private_memory_is_chosen_that_is_no_stack_and_has_no_mark() {
        let orders = choose(&parse(MAPS), &[0x6f000..0x70000, 0..1], &[0x1f000, 0x3f000]);
        assert_eq!(orders.data, [(0x4000, 0xa000)]);
        assert_eq!(orders.code, [(0x1000, 0x2000)]);
        let orders = choose(&parse(MAPS), &[], &[]);
        assert_eq!(orders.data, [(0x4000, 0xa000), (0x10000, 0x20000), (0x60000, 0x70000)]);
    }

    #[test]
    fn marks_are_found_by_the_flags() {
        let smaps = "1000-2000 rw-p 00000000 00:00 0\nSize: 4 kB\nVmFlags: rd wr mr\n\
                     3000-4000 rw-p 00000000 00:00 0\nSize: 4 kB\nVmFlags: rd wr lo mr\n\
                     5000-6000 rw-p 00000000 00:00 0\nVmFlags: rd wr dc\n";
        assert_eq!(marked(smaps), [0x3000..0x4000, 0x5000..0x6000]);
    }

    #[test]
    fn new_parts_are_those_that_were_not_there() {
        let range =
            |range: Range<u64>| Mapping { range, rights: "rw-p".to_owned(), file: 0, name: String::new() };
        let before = [range(2..4), range(6..8)];
        assert_eq!(new_parts(&before, &[range(1..9)]), [1..2, 4..6, 8..9]);
        assert_eq!(new_parts(&before, &[range(2..3), range(6..8)]), []);
        assert_eq!(new_parts(&[], &[range(2..3), range(4..5)]), [2..3, 4..5]);
    }
}
