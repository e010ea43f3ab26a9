//! What visits announce, over memory of the test.

use std::vec;
use std::vec::Vec;

use crate::Direction::{In, InOut, Out};
use crate::{Direction, END, Machine, Memory, Outcome, Pieces, Range, rows, visit};

/// Memory from an address on. It says no after some ranges.
struct Simulated {
    start: usize,
    bytes: Vec<u8>,
    ranges: Vec<(usize, usize, Direction, bool)>,
    most: usize,
}

impl Memory for Simulated {
    fn range(&mut self, range: Range) -> bool {
        assert!(range.start != 0 && range.len != 0 && range.start.checked_add(range.len).is_some());
        self.ranges.push((range.start, range.len, range.direction, range.kept));
        self.ranges.len() < self.most
    }

    fn read(&mut self, at: usize, into: &mut [u8]) -> bool {
        let end = at.saturating_add(into.len());
        let mut announced = self.ranges.iter().map(|(start, len, ..)| *start..*start + *len);
        assert!(announced.any(|range| range.start <= at && end <= range.end), "{at:#x} was not announced");
        let Some(from) = at.checked_sub(self.start).filter(|from| from + into.len() <= self.bytes.len())
        else {
            return false;
        };
        into.copy_from_slice(&self.bytes[from..from + into.len()]);
        true
    }

    fn is_self(&mut self, pid: i32) -> bool {
        pid == 7
    }
}

const START: usize = 0x10_0000;

fn words(words: &[usize]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn number(name: &str) -> usize {
    let here = if cfg!(target_arch = "aarch64") { Machine::Arm } else { Machine::X86 };
    rows(here).find(|(_, row)| row.name == name).unwrap().0
}

fn seen(
    name: &str,
    arguments: [usize; 6],
    bytes: Vec<u8>,
) -> (Outcome, Vec<(usize, usize, Direction, bool)>) {
    let mut memory = Simulated { start: START, bytes, ranges: Vec::new(), most: usize::MAX };
    let outcome = visit(number(name), &arguments, &mut memory);
    (outcome, memory.ranges)
}

#[test]
fn lengths_are_in_arguments() {
    let (outcome, ranges) = seen("read", [0, START, 10, 0, 0, 0], vec![]);
    assert_eq!((outcome, &ranges[..]), (Outcome::Known, &[(START, 10, Out, false)][..]));
    // A length of 32 bits ignores the rest of its register, and is nothing if negative.
    let (_, ranges) = seen("readlinkat", [0, 0, START, 1 << 40 | 5, 0, 0], vec![]);
    assert_eq!(ranges, [(START, 5, Out, false)]);
    let (_, ranges) = seen("readlinkat", [0, 0, START, -1_i32 as u32 as usize, 0, 0], vec![]);
    assert_eq!(ranges, []);
    // The kernel reads no more than this, and addresses end.
    let (_, ranges) = seen("read", [0, START, usize::MAX, 0, 0, 0], vec![]);
    assert_eq!(ranges, [(START, 0x7fff_f000, Out, false)]);
    let (_, ranges) = seen("read", [0, usize::MAX - 9, 20, 0, 0, 0], vec![]);
    assert_eq!(ranges, [(usize::MAX - 9, 9, Out, false)]);
}

#[test]
fn arrays_come_before_what_they_name() {
    let array = words(&[0x5000, 3, 0, 8, 0x6000, 0, 0x7000, 5]);
    let (outcome, ranges) = seen("readv", [0, START, 4, 0, 0, 0], array.clone());
    assert_eq!(outcome, Outcome::Known);
    assert_eq!(ranges, [(START, 64, In, false), (0x5000, 3, Out, false), (0x7000, 5, Out, false)]);
    // Too many, and an array that cannot be read, are left to the kernel.
    assert_eq!(seen("readv", [0, START, 1025, 0, 0, 0], array.clone()), (Outcome::Known, vec![]));
    let (outcome, ranges) = seen("writev", [0, START + 32, 4, 0, 0, 0], array);
    assert_eq!((outcome, ranges.len()), (Outcome::Known, 2));
    // Another process's memory is not announced, one's own is.
    let arrays = words(&[0x5000, 3, 0x6000, 3]);
    let arguments = [8, START, 1, START + 16, 1, 0];
    assert_eq!(seen("process_vm_readv", arguments, arrays.clone()).1.len(), 3);
    let (_, ranges) = seen("process_vm_readv", [7, START, 1, START + 16, 1, 0], arrays);
    assert_eq!(ranges[3], (0x6000, 3, In, false));
}

#[test]
fn of_two_arrays_the_shorter_one_says_how_much_is_copied() {
    let arrays = words(&[0x5000, 3, 0x6000, 9, 0x7000, 5, 0x8000, usize::MAX >> 1]);
    let call =
        |own, others| seen("process_vm_writev", [7, START, own, START + 32, others, 0], arrays.clone());
    let (_, ranges) = call(2, 1);
    assert_eq!(ranges[2..], [(0x5000, 3, In, false), (0x6000, 2, In, false), (0x7000, 5, Out, false)]);
    let (_, ranges) = call(1, 2);
    assert_eq!(ranges[2..], [(0x5000, 3, In, false), (0x7000, 3, Out, false)]);
    let (_, ranges) = call(2, 2);
    assert_eq!(ranges[4..], [(0x7000, 5, Out, false), (0x8000, 7, Out, false)]);
    // What the kernel refuses touches no buffer, nor does a call without bytes.
    let refused = |arguments| seen("process_vm_readv", arguments, words(&[0x5000, 3, 0x6000, 1 << 63])).1;
    let (both, first) = ((START, 32, In, false), (START, 16, In, false));
    assert_eq!(refused([7, START, 2, START, 1, 0]), [both]);
    assert_eq!(refused([7, START, 1, START, 2, 0]), [first, both]);
    assert_eq!(refused([7, START, 1, START, 0, 0]), [first]);
    assert_eq!(refused([7, START, 1, START, 1025, 0]), [first]);
    assert_eq!(refused([7, START, 1025, START, 1, 0]), []);
    assert_eq!(refused([7, START, 1, START, 1, 1]), []);
    assert_eq!(refused([7, START, 1, START + 64, 1, 0]), [first, (START + 64, 16, In, false)]);
}

#[test]
fn texts_go_on_to_their_ends() {
    let mut bytes = vec![b'x'; 10_000];
    bytes[8191] = 0;
    let (_, ranges) = seen("chdir", [START + 4090, 0, 0, 0, 0, 0], bytes.clone());
    assert_eq!(ranges, [(START + 4090, 6, In, false), (START + 4096, 4090, In, false)]);
    let (_, ranges) = seen("chdir", [START + 4096, 0, 0, 0, 0, 0], bytes);
    assert_eq!(ranges, [(START + 4096, 4096, In, false)]);
}

#[test]
fn programs_have_arguments() {
    let mut bytes = words(&[START + 24, START + 26, 0]);
    bytes.extend(*b"a\0bc\0");
    bytes.resize(4096, 0);
    let (outcome, ranges) = seen("execve", [START + 24, START, 0, 0, 0, 0], bytes);
    assert_eq!(outcome, Outcome::Known);
    let starts: Vec<_> = ranges.iter().map(|range| range.0 - START).collect();
    assert_eq!(starts, [24, 0, 24, 8, 26, 16]);
}

#[test]
fn messages_have_parts() {
    let mut bytes = words(&[0x5000, 200, START + 56, 1, 0x6000, 20, 0]);
    bytes.extend(words(&[0x7000, 30]));
    let (_, ranges) = seen("recvmsg", [0, START, 0, 0, 0, 0], bytes);
    let expected =
        [(START, 56, InOut), (0x5000, 128, Out), (0x6000, 20, Out), (START + 56, 16, In), (0x7000, 30, Out)];
    assert_eq!(ranges, expected.map(|(start, len, direction)| (start, len, direction, false)));
    let length = 16_u32.to_ne_bytes().to_vec();
    let (_, ranges) = seen("accept4", [0, 0x5000, START, 0, 0, 0], length);
    assert_eq!(ranges, [(START, 4, InOut, false), (0x5000, 16, Out, false)]);
}

#[test]
fn what_is_kept_is_told() {
    let stack = words(&[0x5000, 0, 8192]);
    let (outcome, ranges) = seen("sigaltstack", [START, 0, 0, 0, 0, 0], stack);
    assert_eq!(outcome, Outcome::Kept);
    assert_eq!(ranges[1], (0x5000, 8192, InOut, true));
    assert_eq!(seen("sigaltstack", [START, 0, 0, 0, 0, 0], words(&[0x5000, 2, 8192])).0, Outcome::Known);
    assert_eq!(seen("set_robust_list", [START, 24, 0, 0, 0, 0], vec![]).0, Outcome::Kept);
    assert_eq!(seen("set_tid_address", [START, 0, 0, 0, 0, 0], vec![]).0, Outcome::Kept);
    assert_eq!(seen("set_tid_address", [0; 6], vec![]).0, Outcome::Known);
}

#[test]
fn what_is_not_known_is_told() {
    let ioctl = |request| seen("ioctl", [0, request, START, 0, 0, 0], vec![]);
    assert_eq!(ioctl(0x5413), (Outcome::Known, vec![(START, 8, Out, false)]));
    assert_eq!(ioctl(0x8004_5430), (Outcome::Known, vec![(START, 4, Out, false)]));
    // DRM_IOCTL_VERSION has pointers inside, and _IO('d', 1) says nothing.
    assert_eq!(ioctl(0xc040_6400), (Outcome::Partly, vec![(START, 64, InOut, false)]));
    assert_eq!(ioctl(0x6401), (Outcome::Unknown, vec![]));
    assert_eq!(seen("ioctl", [0, 0x6401, 5, 0, 0, 0], vec![]).0, Outcome::Known);
    assert_eq!(seen("ioctl", [0, 0xae01, 0, 0, 0, 0], vec![]).0, Outcome::Asynchronous);
    for name in ["io_setup", "io_submit", "io_uring_setup", "io_uring_enter", "vmsplice"] {
        assert_eq!(seen(name, [0; 6], vec![]).0, Outcome::Asynchronous, "{name}");
    }
    let mut memory = Simulated { start: START, bytes: vec![], ranges: Vec::new(), most: usize::MAX };
    // A number of x32's, and one that is beyond the table.
    for number in [0x4000_0000, END, usize::MAX] {
        assert_eq!(visit(number, &[0; 6], &mut memory), Outcome::Unknown);
        assert_eq!((crate::pointers(number), crate::name(number)), (None, None));
    }
    memory.most = 1;
    assert_eq!(visit(number("pipe2"), &[START, 0, 0, 0, 0, 0], &mut memory), Outcome::Stopped);
}

#[test]
fn rows_are_consistent() {
    for (number, row) in rows(Machine::X86).chain(rows(Machine::Arm)) {
        assert!(number < END && row.args.len() <= 6, "{}", row.name);
        // Nothing announces memory through an argument that is not marked.
        assert!(!row.nested || row.pointers() != 0, "{}", row.name);
        if let Pieces::Bytes(buffer) | Pieces::Vector(buffer) = row.pieces {
            assert_eq!(row.pointers() & 1 << buffer, 1 << buffer, "{}", row.name);
        }
        if let Pieces::Vectors(own, other) = row.pieces {
            let both = 1 << own | 1 << other;
            assert!(row.nested && row.pointers() & both == both, "{}", row.name);
        }
    }
    assert_eq!(crate::pointers(number("read")), Some(0b10));
    assert!(crate::nested(number("readv")) && !crate::nested(number("read")));
    assert!(crate::waits(number("read")) && !crate::waits(number("getpid")));
    assert!(crate::known(number("read")));
    assert_eq!(crate::pieces(number("read")), Pieces::Bytes(1));
    assert_eq!(crate::name(number("read")), Some("read"));
}

/// Requests of `ioctl` whose memory has pointers or lengths.
const POINTING: [usize; 10] =
    [0x1269, 0x2285, 0x890b, 0x8912, 0x89b0, 0x4004_54d1, 0x4010_54d5, 0x4008_5203, 0xc018_9436, 0xc020_660b];

/// Whatever arguments and memory are: visits end, read only what they have announced, and announce
/// what arguments point to that are marked, or what is nested.
#[test]
fn fuzzed_visits_end() {
    terapage_fuzz::fuzz("visits", 2000, |random| {
        let of_calls: Vec<_> = rows(Machine::X86).collect();
        let number = random.one(&of_calls).0;
        let Some(pointers) = crate::pointers(number) else { return };
        let some = [0, 1, 2, 7, 16, 24, 4096, usize::MAX, START, START + 8, START + 100, START + 4090];
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = match random.below(5) {
                0 => random.number() as usize,
                1 => random.below(64),
                _ => random.one(&some),
            };
        }
        if crate::name(number) == Some("ioctl") && random.below(4) != 0 {
            arguments[1] = random.one(&POINTING);
        }
        let mut bytes = Vec::new();
        for _ in 0..random.below(700) {
            let any = random.number() >> (8 * random.below(8));
            bytes.extend((if random.below(2) == 0 { random.one(&some) as u64 } else { any }).to_ne_bytes());
        }
        let mut memory = Simulated { start: START, bytes, ranges: Vec::new(), most: 1000 };
        visit(number, &arguments, &mut memory);
        let marked: Vec<_> = (0..6).filter(|i| pointers & 1 << i != 0).map(|i| arguments[i]).collect();
        // Behind those that are not nested, only texts go on.
        let mut next = 0;
        for (i, (start, len, ..)) in memory.ranges.iter().enumerate() {
            let expected = marked.contains(start) || *start == next || crate::nested(number) && i > 0;
            assert!(expected, "{:?} {arguments:x?}", crate::name(number));
            next = start + len;
        }
    });
}
