//! Transfers under way, by number: blocks that leave the program, and operations of stores.

use super::bounce::Buffer;
use terapage_store::OpKind;
use terapage_sys::ring::Piece;

/// A transfer of blocks between the program and a store.
pub(crate) enum Transfer {
    /// The blocks are being taken out of the program.
    Leaving(Vec<u32>),
    /// A store reads or writes the blocks; or they have been read, and are being put into the
    /// program.
    Operation(Operation),
}

/// An operation: blocks in neighbouring slots, and the memory into which they are read or from
/// which they are written.
pub(crate) struct Operation {
    pub kind: OpKind,
    pub blocks: Vec<u32>,
    pub pieces: Vec<Piece>,
    pub slot: u32,
    /// The origin: the number of the store.
    pub origin: u8,
    /// When the thread that waits for it faulted, ns; 0 if none waits.
    pub since_ns: u64,
    /// The bounce buffer through which the bytes go, if any.
    pub buffer: Option<Buffer>,
    /// Tries that have failed.
    pub tries: u32,
    /// When the first try failed, ns.
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

/// All transfers under way, by number.
#[derive(Default)]
pub(crate) struct Transfers(Vec<Option<Transfer>>);

impl Transfers {
    /// Adds a transfer. Returns its number.
    pub fn add(&mut self, transfer: Transfer) -> usize {
        let free = self.0.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[number] = Some(transfer);
        number
    }

    /// Puts an operation back under its number.
    pub fn put(&mut self, number: usize, operation: Operation) -> &Operation {
        assert!(self.0[number].is_none(), "transfer {number} is another's");
        match self.0[number].insert(Transfer::Operation(operation)) {
            Transfer::Operation(operation) => operation,
            Transfer::Leaving(_) => unreachable!("put just now"),
        }
    }

    /// The operation with this number, if it is one.
    pub fn operation(&self, number: usize) -> Option<&Operation> {
        match self.0[number].as_ref()? {
            Transfer::Operation(operation) => Some(operation),
            Transfer::Leaving(_) => None,
        }
    }

    /// Takes the operation with this number, which is free from now on unless the operation is
    /// [put](Self::put) back.
    pub fn take_operation(&mut self, number: usize) -> Operation {
        match self.0[number].take() {
            Some(Transfer::Operation(operation)) => operation,
            _ => panic!("transfer {number} is no operation"),
        }
    }

    /// Takes the blocks that are leaving under this number.
    pub fn take_leaving(&mut self, number: usize) -> Vec<u32> {
        match self.0[number].take() {
            Some(Transfer::Leaving(blocks)) => blocks,
            _ => panic!("transfer {number} is not of blocks that leave"),
        }
    }

    /// The blocks of each transfer.
    pub fn blocks(&self) -> impl Iterator<Item = &[u32]> {
        self.0.iter().flatten().map(|transfer| match transfer {
            Transfer::Leaving(blocks) => blocks.as_slice(),
            Transfer::Operation(operation) => &operation.blocks,
        })
    }

    /// The number of blocks that are leaving, being read, and being written.
    pub fn count(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for transfer in self.0.iter().flatten() {
            match transfer {
                Transfer::Leaving(blocks) => counts[0] += blocks.len(),
                Transfer::Operation(operation) => {
                    counts[1 + operation.kind as usize] += operation.blocks.len();
                }
            }
        }
        counts
    }
}
