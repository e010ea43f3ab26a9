//! From the number of a call to its row.

use crate::row::NONE;
pub use crate::row::Row;
use crate::table::GROUPS;
use crate::{Hosted, Pieces};

/// Numbers of calls are below this.
pub const END: usize = 472;

/// Whose numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86,
    /// 64-bit Arm.
    Arm,
}

const HERE: Machine = if cfg!(target_arch = "aarch64") { Machine::Arm } else { Machine::X86 };

static INDEX: Index = index(HERE);
/// Of each number, the group and the row in it.
type Index = [(u8, u8); END];
const NOWHERE: (u8, u8) = (u8::MAX, u8::MAX);

const fn number(row: &Row, machine: Machine) -> u16 {
    match machine {
        Machine::X86 => row.x86,
        Machine::Arm => row.arm,
    }
}

/// Two rows of one number, or a number beyond [`END`], do not compile.
const fn index(machine: Machine) -> Index {
    let mut index = [NOWHERE; END];
    let mut group = 0;
    while group < GROUPS.len() {
        let mut i = 0;
        while i < GROUPS[group].len() {
            let number = number(&GROUPS[group][i], machine);
            if number != NONE {
                assert!(index[number as usize].0 == u8::MAX, "two rows have one number");
                index[number as usize] = (group as u8, i as u8);
            }
            i += 1;
        }
        group += 1;
    }
    index
}

const _: (Index, Index) = (index(Machine::X86), index(Machine::Arm));

/// The row of a call.
pub const fn find(number: usize) -> Option<&'static Row> {
    if number >= END {
        return None;
    }
    let (group, row) = INDEX[number];
    if group == u8::MAX { None } else { Some(&GROUPS[group as usize][row as usize]) }
}

/// Whether the table has the call.
pub const fn known(number: usize) -> bool {
    find(number).is_some()
}

/// The name of a call, as in the kernel's headers.
pub const fn name(number: usize) -> Option<&'static str> {
    match find(number) {
        Some(row) => Some(row.name),
        None => None,
    }
}

/// Which arguments may point to memory that the call touches: bit 0 is the first. A filter that
/// looks at these arguments alone does not see what is behind [`nested`] ones. `None` for calls
/// that the table does not have.
pub const fn pointers(number: usize) -> Option<u8> {
    match find(number) {
        Some(row) => Some(row.pointers()),
        None => None,
    }
}

/// Whether memory that the call touches may point to more memory that the call touches.
pub const fn nested(number: usize) -> bool {
    match find(number) {
        Some(row) => row.nested,
        None => false,
    }
}

/// Whether the call may wait long.
pub const fn waits(number: usize) -> bool {
    match find(number) {
        Some(row) => row.waits,
        None => false,
    }
}

/// How the call can be divided.
pub const fn pieces(number: usize) -> Pieces {
    match find(number) {
        Some(row) => row.pieces,
        None => Pieces::Whole,
    }
}

/// Whether, and how, a host traps and serves the call.
pub const fn hosted(number: usize) -> Option<Hosted> {
    match find(number) {
        Some(row) => row.hosted,
        None => None,
    }
}

/// All rows with their numbers on a machine, in no order.
pub fn rows(machine: Machine) -> impl Iterator<Item = (usize, &'static Row)> {
    let all = GROUPS.iter().flat_map(|group| group.iter());
    all.map(move |row| (number(row, machine) as usize, row)).filter(|(number, _)| *number != NONE as usize)
}
