//! Filters of system calls (seccomp): their instructions in the kernel's form, and a filter that
//! decides by the number of the call first.

use crate::machine::AUDIT;

/// An instruction (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    code: u16,
    yes: u8,
    no: u8,
    value: u32,
}

impl Step {
    /// The same branch, which skips `no` steps if it does not hold.
    #[must_use]
    pub const fn or_skip(self, no: u8) -> Step {
        Step { no, ..self }
    }
}

/// A filter in the kernel's form (`struct sock_fprog`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Steps {
    /// The number of steps.
    pub len: u16,
    /// The first of them.
    pub first: *const Step,
}

/// The most instructions of one filter.
pub const STEPS_MOST: usize = 4096;

/// The operation of `seccomp` that sets a filter.
pub const SET_FILTER: usize = 1;

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
/// The next step is one further by `yes` if the loaded number is the value, otherwise by `no`.
pub const IS: u16 = 0x15;
/// The same, if it is the value or more.
pub const FROM: u16 = 0x35;
/// The same, if it has a bit of the value.
pub const HAS: u16 = 0x45;
const GIVE: u16 = 0x06;

/// Where the number of the call lies in the description that a filter reads.
pub const NUMBER: u32 = 0;
const PROCESSOR: u32 = 4;
/// The lower half of the address from which the call comes: that behind the instruction.
pub const PLACE_LOW: u32 = 8;
/// The upper half.
pub const PLACE: u32 = 12;
/// The lower half of an argument; the upper half follows 4 bytes later.
pub const fn argument(index: u8) -> u32 {
    16 + 8 * index as u32
}

/// The answer that lets the call pass.
pub const ALLOW: u32 = 0x7fff_0000;
/// The answer that ends the process.
pub const KILL: u32 = 0x8000_0000;

/// The answer that raises SIGSYS with this mark instead of the call.
pub const fn trap(mark: u16) -> u32 {
    0x0003_0000 | mark as u32
}

/// The answer by which the call fails.
pub const fn refuse(errno: i32) -> u32 {
    0x0005_0000 | errno as u32
}

/// Loads four bytes of the description.
pub const fn load(offset: u32) -> Step {
    Step { code: LOAD, yes: 0, no: 0, value: offset }
}

/// Ends the filter with an answer.
pub const fn give(answer: u32) -> Step {
    Step { code: GIVE, yes: 0, no: 0, value: answer }
}

/// Continues further on by a condition.
pub const fn branch(code: u16, value: u32, yes: u8, no: u8) -> Step {
    Step { code, yes, no, value }
}

/// Continues after this many further steps.
pub const fn jump(steps: usize) -> Step {
    Step { code: JUMP, yes: 0, no: 0, value: steps as u32 }
}

/// Lets calls of other processors pass.
pub const HERE: [Step; 3] = [load(PROCESSOR), branch(IS, AUDIT, 1, 0), give(ALLOW)];

/// A filter that finds out what `kind` a call is by its number, and continues with the steps that
/// `ends` has for the kind. Numbers beyond `last` are of the kind of `last`; calls of other
/// processors pass.
///
/// The kernel remembers which numbers always pass, and does not run the filter for them.
pub fn by_number<Kind: Copy + PartialEq>(
    last: usize,
    kind: impl Fn(usize) -> Kind,
    ends: impl Fn(Kind) -> Vec<Step>,
) -> Vec<Step> {
    let (mut kinds, mut intervals) = (Vec::new(), Vec::<(usize, usize)>::new());
    for number in 0..=last {
        let kind = kind(number);
        let index = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        });
        if intervals.last().is_none_or(|&(_, before)| before != index) {
            intervals.push((number, index));
        }
    }
    let mut steps = [&HERE[..], &[load(NUMBER)]].concat();
    let mut leaves = Vec::new();
    search(&intervals, &mut steps, &mut leaves);
    let mut places = Vec::new();
    for kind in kinds {
        places.push(steps.len());
        steps.extend(ends(kind));
    }
    for (at, kind) in leaves {
        steps[at] = jump(places[kind] - at - 1);
    }
    steps
}

/// Adds a search for the number among intervals, which begin at these numbers. `leaves` are the
/// steps that must jump to the end of a kind.
fn search(intervals: &[(usize, usize)], steps: &mut Vec<Step>, leaves: &mut Vec<(usize, usize)>) {
    if let [(_, kind)] = intervals {
        leaves.push((steps.len(), *kind));
        steps.push(jump(0));
    } else if !intervals.is_empty() {
        let (low, high) = intervals.split_at(intervals.len() / 2);
        steps.push(branch(FROM, high[0].0 as u32, 0, 1));
        let to_high = steps.len();
        steps.push(jump(0));
        search(low, steps, leaves);
        steps[to_high] = jump(steps.len() - to_high - 1);
        search(high, steps, leaves);
    }
}

/// The kernel's answer to a call from `place`, for tests.
pub fn answer(steps: &[Step], number: i64, place: usize, arguments: &[usize]) -> u32 {
    let word = |offset: u32| {
        let value = arguments.get((offset.saturating_sub(16) / 8) as usize).copied().unwrap_or(0);
        match offset {
            NUMBER => number as u32,
            PROCESSOR => AUDIT,
            PLACE => (place >> 32) as u32,
            PLACE_LOW => place as u32,
            _ if offset % 8 == 4 => (value >> 32) as u32,
            _ => value as u32,
        }
    };
    let (mut at, mut loaded) = (0, 0);
    loop {
        let Step { code, yes, no, value } = steps[at];
        let further = match code {
            GIVE => return value,
            LOAD => {
                loaded = word(value);
                0
            }
            JUMP => value as usize,
            code => {
                let holds = match code {
                    IS => loaded == value,
                    FROM => loaded >= value,
                    _ => loaded & value != 0,
                };
                usize::from(if holds { yes } else { no })
            }
        };
        at += 1 + further;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_to_the_end_of_its_kind() {
        let kind = |number: usize| number * number % 7;
        for last in [0, 1, 2, 50, 471] {
            let steps = by_number(last, kind, |kind| vec![load(NUMBER), give(kind as u32)]);
            assert!(steps.len() < STEPS_MOST);
            for number in 0..last + 50 {
                let expected = kind(number.min(last)) as u32;
                assert_eq!(answer(&steps, number as i64, 0, &[]), expected, "{number} of {last}");
            }
        }
    }

    #[test]
    fn conditions_see_halves_of_addresses_and_arguments() {
        let steps = [
            load(argument(1) + 4),
            branch(FROM, 2, 0, 3),
            load(PLACE),
            branch(HAS, 4, 0, 1),
            give(ALLOW),
            give(KILL),
        ];
        assert_eq!(answer(&steps, 0, 0xc << 32, &[0, 2 << 32]), ALLOW);
        assert_eq!(answer(&steps, 0, 0xc << 32, &[0, 1 << 32]), KILL);
        assert_eq!(answer(&steps, 0, 3 << 32, &[0, 2 << 32]), KILL);
    }
}
