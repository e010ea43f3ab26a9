//! The words in which the table is written.

use crate::step::{MOST, Step, Visit};
use crate::{By, Direction, Hook, Hosted, Pieces, Service, When};

/// The call is not one of this machine.
pub const NONE: u16 = u16::MAX;

/// What an argument is.
#[derive(Clone, Copy)]
pub enum Arg {
    /// A number.
    Value,
    /// An address, of which the kernel touches nothing.
    Address,
    /// Memory that the kernel reads.
    In(Size),
    /// Memory that the kernel writes.
    Out(Size),
    /// Memory that the kernel reads and writes.
    Both(Size),
    /// A text that ends with a NUL, of this many bytes at most.
    Text(u32),
    /// Memory, in a way that the row's function knows.
    Special,
}

/// Shorter, since the table has hundreds.
pub const V: Arg = Arg::Value;
/// The same.
pub const AT: Arg = Arg::Address;
/// The same.
pub const SPECIAL: Arg = Arg::Special;
/// The name of a file (`PATH_MAX`).
pub const PATH: Arg = Arg::Text(4096);

#[derive(Clone, Copy)]
enum Count {
    One,
    Long(u8),
    Unsigned(u8),
    Int(u8),
}

/// How long memory is: a number of units.
#[derive(Clone, Copy)]
pub struct Size {
    count: Count,
    unit: u32,
    plus: u32,
    most: u32,
}

/// This number of bytes.
pub const fn bytes(bytes: u32) -> Size {
    Size { count: Count::One, unit: bytes, plus: 0, most: u32::MAX }
}

/// As many bytes as this argument says (`size_t`, `unsigned long`).
pub const fn long(argument: u8) -> Size {
    Size { count: Count::Long(argument), unit: 1, plus: 0, most: MOST as u32 }
}

/// As many bytes as this argument says (`unsigned int`).
pub const fn unsigned(argument: u8) -> Size {
    Size { count: Count::Unsigned(argument), unit: 1, plus: 0, most: MOST as u32 }
}

/// As many bytes as this argument says (`int`); none if it is negative.
pub const fn int(argument: u8) -> Size {
    Size { count: Count::Int(argument), unit: 1, plus: 0, most: MOST as u32 }
}

impl Size {
    /// The argument counts things of this size, in bytes.
    pub const fn of(mut self, unit: u32) -> Size {
        self.unit = unit;
        self
    }

    /// This number of bytes more.
    pub const fn plus(mut self, bytes: u32) -> Size {
        self.plus = bytes;
        self
    }

    /// The most bytes that the kernel touches; it ignores or refuses more.
    pub const fn most(mut self, bytes: u32) -> Size {
        self.most = bytes;
        self
    }

    fn bytes(self, visit: &Visit) -> usize {
        let count = match self.count {
            Count::One => 1,
            Count::Long(argument) => visit.long(argument as usize),
            Count::Unsigned(argument) => visit.int(argument as usize) as usize,
            Count::Int(argument) => visit.signed(argument as usize),
        };
        count.saturating_mul(self.unit as usize).saturating_add(self.plus as usize).min(self.most as usize)
    }
}

type Special = fn(&mut Visit) -> Step;

/// A call.
#[derive(Clone, Copy)]
pub struct Row {
    /// Its number on x86-64.
    pub x86: u16,
    /// Its number on 64-bit Arm.
    pub arm: u16,
    /// Its name, as in the kernel's headers.
    pub name: &'static str,
    /// Its arguments.
    pub args: &'static [Arg],
    special: Option<Special>,
    /// It may wait long.
    pub waits: bool,
    /// Memory of it may point to more memory.
    pub nested: bool,
    /// How it can be divided.
    pub pieces: Pieces,
    /// Whether, and how, a host traps and serves it.
    pub hosted: Option<Hosted>,
}

/// A row: the number on x86-64, that on Arm, the name, the arguments.
pub const fn call(x86: u16, arm: u16, name: &'static str, args: &'static [Arg]) -> Row {
    let (special, pieces) = (None, Pieces::Whole);
    Row { x86, arm, name, args, special, waits: false, nested: false, pieces, hosted: None }
}

impl Row {
    /// It may wait long.
    pub const fn waits(mut self) -> Row {
        self.waits = true;
        self
    }

    /// It can be made in pieces.
    pub const fn in_pieces(mut self, pieces: Pieces) -> Row {
        self.pieces = pieces;
        self
    }

    /// This function sees to the special arguments, after the others.
    pub const fn with(mut self, special: Special) -> Row {
        self.special = Some(special);
        self
    }

    /// Memory of it may point to more memory, which this function knows.
    pub const fn nested(mut self, special: Special) -> Row {
        self.nested = true;
        self.with(special)
    }

    /// A host traps it, and passes it to the paging library's hook.
    pub const fn hook(mut self, hook: Hook) -> Row {
        self.hosted = Some(Hosted { when: When::Always, by: By::Library(hook) });
        self
    }

    /// A host traps it, and serves it itself.
    pub const fn host(mut self, service: Service) -> Row {
        self.hosted = Some(Hosted { when: When::Always, by: By::Host(service) });
        self
    }

    /// A host refuses it.
    pub const fn nobody(mut self) -> Row {
        self.hosted = Some(Hosted { when: When::Always, by: By::Nobody });
        self
    }

    /// A host traps it under this condition only.
    pub const fn when(mut self, when: When) -> Row {
        match &mut self.hosted {
            Some(hosted) => hosted.when = when,
            None => panic!("a condition of a call that is not trapped"),
        }
        self
    }

    /// Which arguments may point to memory that the call touches: one bit for each.
    pub const fn pointers(&self) -> u8 {
        let (mut mask, mut i) = (0, 0);
        while i < self.args.len() {
            if !matches!(self.args[i], Arg::Value | Arg::Address) {
                mask |= 1 << i;
            }
            i += 1;
        }
        mask
    }

    /// Announces what the call touches.
    pub fn visit(&self, visit: &mut Visit) -> Step {
        for (i, arg) in self.args.iter().enumerate() {
            let start = visit.long(i);
            match *arg {
                Arg::In(size) => visit.touch(start, size.bytes(visit), Direction::In)?,
                Arg::Out(size) => visit.touch(start, size.bytes(visit), Direction::Out)?,
                Arg::Both(size) => visit.touch(start, size.bytes(visit), Direction::InOut)?,
                Arg::Text(most) => visit.text(start, most as usize)?,
                Arg::Value | Arg::Address | Arg::Special => (),
            }
        }
        self.special.map_or(Ok(()), |special| special(visit))
    }
}
