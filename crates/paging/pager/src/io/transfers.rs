//! Operations of stores that are under way, by number.

use super::bounce::Buffer;
use terapage_store::OpKind;
use terapage_sys::ring::Piece;

/// An operation: blocks in neighbouring slots, and the memory into which they are read or from
/// which they are written.
pub(crate) struct Operation {
    pub kind: OpKind,
    pub blocks: Vec<u32>,
    pub pieces: Vec<Piece>,
    pub slot: u32,
    /// The origin: the number of the store.
    pub origin: u8,
    /// The time when the waiting thread faulted, ns; 0 if no thread waits.
    pub since_ns: u64,
    /// The bounce buffer through which the bytes go, if any.
    pub buffer: Option<Buffer>,
    /// Tries that have failed.
    pub tries: u32,
    /// The time when the first try failed, ns.
    pub failing_since_ns: u64,
    /// Blocks that were read but stay out of the program, so that their first touch is seen.
    pub left_out: Vec<u32>,
}

impl Operation {
    /// An operation that was not yet tried and for which no thread waits.
    pub fn new(kind: OpKind, blocks: Vec<u32>, pieces: Vec<Piece>, slot: u32, origin: u8) -> Operation {
        Operation {
            kind,
            blocks,
            pieces,
            slot,
            origin,
            since_ns: 0,
            buffer: None,
            tries: 0,
            failing_since_ns: 0,
            left_out: Vec::new(),
        }
    }

    /// The slots of the operation.
    pub fn slots(&self) -> std::ops::Range<u32> {
        self.slot..self.slot + self.blocks.len() as u32
    }
}

/// All operations under way, by number.
#[derive(Default)]
pub(crate) struct Transfers(Vec<Option<Operation>>);

impl Transfers {
    /// Adds an operation. Returns its number.
    pub fn add(&mut self, operation: Operation) -> usize {
        let free = self.0.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[number] = Some(operation);
        number
    }

    /// Puts an operation back under its number.
    pub fn put(&mut self, number: usize, operation: Operation) -> &Operation {
        assert!(self.0[number].is_none(), "operation {number} is another's");
        self.0[number].insert(operation)
    }

    /// The operation with this number, if there is one.
    pub fn get(&self, number: usize) -> Option<&Operation> {
        self.0[number].as_ref()
    }

    /// Takes the operation with this number. The number is free from now on unless the operation is
    /// [put](Self::put) back.
    pub fn take(&mut self, number: usize) -> Operation {
        self.0[number].take().unwrap_or_else(|| panic!("there is no operation {number}"))
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Operation> {
        self.0.iter().flatten()
    }

    /// The number of blocks that are being read, and the number being written.
    pub fn count(&self) -> [usize; 2] {
        let mut counts = [0; 2];
        for operation in self.all() {
            counts[operation.kind as usize] += operation.blocks.len();
        }
        counts
    }
}
