//! The mappings of a process: which of them will be paged, and where its code lies.

use crate::Why;
use crate::trace::Registers;
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

/// A thread's stack pointer, its thread pointer, and what else the kernel uses of it.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    pub pointer: u64,
    pub thread_pointer: u64,
    /// In guarded mode: other memory that stays.
    pub kept: Vec<Range<u64>>,
    /// In guarded mode: whether it has a stack for handlers.
    pub has_aside: bool,
}

/// Bytes below and above a thread pointer: words there are read and written by the kernel when the
/// thread ends, and it does not wait for a page then.
const BELOW: u64 = 64 << 10;
const ABOVE: u64 = 16 << 10;

impl Stack {
    /// The stack of a thread with these registers.
    pub fn of(registers: &Registers) -> Stack {
        Stack { pointer: registers.rsp, thread_pointer: registers.fs_base, ..Stack::default() }
    }

    /// The part of a mapping that stays in memory. C libraries put what belongs to a thread on top
    /// of its stack; mappings above may have become one with it.
    fn stays(&self, mapping: &Range<u64>) -> Option<Range<u64>> {
        let at = self.thread_pointer;
        let end = mapping.end.min(at.saturating_add(ABOVE));
        if !mapping.contains(&at) {
            return None;
        }
        let is_on_stack = mapping.contains(&self.pointer) && self.pointer < at;
        let start = if is_on_stack { mapping.start } else { mapping.start.max(at.saturating_sub(BELOW)) };
        Some(start..end)
    }
}

/// A longer mapping is a reservation, of which little is in use (shadow memory of sanitizers).
const LONGEST: u64 = 1 << 40;

/// Less memory in a piece is not paged.
const LEAST: u64 = 1 << 20;

/// Chooses what is paged, and finds the code. The host leaves out what the kernel treats specially
/// (`preload`: `process/adopted.rs`). In guarded mode the code has the kernel's vdso, which makes
/// calls for the program.
///
/// # Errors
/// In guarded mode, a thread could get no signals.
pub fn choose(all: &[Mapping], stacks: &[Stack], is_guarded: bool) -> Result<Orders, Why> {
    let is_data = |mapping: &&Mapping| {
        mapping.rights == "rw-p"
            && mapping.file == 0
            && matches!(&*mapping.name, "" | "[heap]")
            && mapping.range.end - mapping.range.start <= LONGEST
    };
    let is_code = |mapping: &&Mapping| {
        let is_kernels = match &*mapping.name {
            "[vdso]" => !is_guarded,
            name => name == "[vsyscall]",
        };
        mapping.rights.as_bytes()[2] == b'x' && !is_kernels
    };
    let data = all.iter().filter(is_data).flat_map(|mapping| {
        let stay = stacks.iter().filter_map(|stack| stack.stays(&mapping.range));
        let stay = stay.chain(stacks.iter().flat_map(|stack| stack.kept.iter().cloned()));
        stay.fold(vec![mapping.range.clone()], |parts, stay| without(parts, &stay))
    });
    let data = joined(data);
    let is_paged = |at: u64| data.iter().any(|&(from, to)| to - from >= LEAST && (from..to).contains(&at));
    if is_guarded && stacks.iter().any(|stack| !stack.has_aside && is_paged(stack.pointer)) {
        return Err("a thread runs on a stack in its heap, where it could get no signals: this takes \
                    the right to handle its page faults (try as root)"
            .into());
    }
    let code = joined(all.iter().filter(is_code).map(|mapping| mapping.range.clone()));
    let near = if is_guarded { near(all, &data) } else { Ranges::new() };
    Ok(Orders { code, data, near, is_guarded, ..Orders::default() })
}

/// The most ranges in which pointers are looked for.
const NEAR: usize = 4;

/// Where pointers lie that may name paged memory. A buffer may begin before it: so all mappings
/// before which there is no gap belong to these ranges. Those closest together become one.
fn near(all: &[Mapping], data: &[(u64, u64)]) -> Ranges {
    let meets = |&(from, to): &(u64, u64)| data.iter().any(|&(start, end)| start < to && from < end);
    let mut runs = joined(all.iter().map(|mapping| mapping.range.clone()));
    runs.retain(meets);
    while runs.len() > NEAR {
        let gap = |index: &usize| runs[index + 1].0 - runs[*index].1;
        let least = (0..runs.len() - 1).min_by_key(gap).unwrap_or(0);
        runs[least].1 = runs[least + 1].1;
        runs.remove(least + 1);
    }
    runs
}

/// Parts, without a range.
fn without(parts: Vec<Range<u64>>, stay: &Range<u64>) -> Vec<Range<u64>> {
    let cut = |part: Range<u64>| {
        let [from, to] = [stay.start, stay.end].map(|at| at.clamp(part.start, part.end));
        [part.start..from, to..part.end]
    };
    parts.into_iter().flat_map(cut).filter(|part| part.start < part.end).collect()
}

/// The ranges of mappings, neighbours as one.
fn joined(parts: impl Iterator<Item = Range<u64>>) -> Ranges {
    let mut ranges: Ranges = Vec::new();
    for Range { start, end } in parts {
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

    fn stack(pointer: u64, thread_pointer: u64) -> Stack {
        Stack { pointer, thread_pointer, ..Stack::default() }
    }

    #[test]
    fn private_memory_is_chosen_without_what_belongs_to_threads() {
        let data = |stacks: &[Stack]| choose(&parse(MAPS), stacks, false).unwrap().data;
        let all = [(0x4000, 0xa000), (0x10000, 0x20000), (0x60000, 0x70000)];
        assert_eq!(data(&[]), all);
        assert_eq!(choose(&parse(MAPS), &[], false).unwrap().code, [(0x1000, 0x2000)]);
        let on_stack = stack(0x12000, 0x14000);
        assert_eq!(data(&[on_stack]), [all[0], (0x18000, 0x20000), all[2]]);
        let elsewhere = stack(0x3f000, 0x68000);
        assert_eq!(data(&[elsewhere]), [all[0], all[1], (0x6c000, 0x70000)]);
        let nowhere = stack(0x12000, 0);
        assert_eq!(data(&[nowhere]), all);
    }

    #[test]
    fn in_guarded_mode_what_the_kernel_uses_stays_and_pointers_before_the_memory_count() {
        let kept = Stack { kept: vec![0x62000..0x63000, 0x1f000..0x61000], ..stack(0x31000, 0) };
        let orders = choose(&parse(MAPS), &[kept], true).unwrap();
        assert_eq!(
            orders.data,
            [(0x4000, 0xa000), (0x10000, 0x1f000), (0x61000, 0x62000), (0x63000, 0x70000)]
        );
        assert_eq!(orders.code, [(0x1000, 0x2000), (0x50000, 0x51000)]);
        assert_eq!(orders.near, [(0x1000, 0xa000), (0x10000, 0x21000), (0x60000, 0x70000)]);
    }

    #[test]
    fn ranges_of_pointers_become_few() {
        let maps = "1000-2000 rw-p 0 0:0 0\n3000-4000 rw-p 0 0:0 0\n9000-a000 rw-p 0 0:0 0\n\
                    10000-11000 rw-p 0 0:0 0\n12000-13000 r--p 0 0:0 0\n20000-21000 rw-p 0 0:0 0\n";
        let near = choose(&parse(maps), &[], true).unwrap().near;
        assert_eq!(near, [(0x1000, 0x4000), (0x9000, 0xa000), (0x10000, 0x11000), (0x20000, 0x21000)]);
    }

    #[test]
    fn a_thread_on_a_stack_in_the_heap_is_refused_in_guarded_mode_unless_handlers_have_another() {
        let maps = "100000-400000 rw-p 00000000 00:00 0\n";
        let heap = stack(0x180_000, 0);
        assert!(choose(&parse(maps), std::slice::from_ref(&heap), true).is_err());
        assert!(choose(&parse(maps), std::slice::from_ref(&heap), false).is_ok());
        assert!(choose(&parse(maps), &[Stack { has_aside: true, ..heap }], true).is_ok());
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
