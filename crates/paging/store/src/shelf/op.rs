//! Operations of stores, and their completions.

use terapage_sys::ring::Piece;

/// The direction of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Bytes from the store into the pieces.
    Read,
    /// Bytes of the pieces into the store.
    Write,
}

/// One operation: whole slots from `slot` on.
#[derive(Clone, Copy)]
pub struct Op<'a> {
    /// The caller's number for the operation, unique among the operations that are under way in
    /// this store. Numbers are small, so that notes by number can lie in a vector ([`Notes`]).
    pub id: u32,
    /// Read or write.
    pub kind: OpKind,
    /// The first slot.
    pub slot: u32,
    /// Memory, whole slots in all, at most [`EXTENT`](crate::EXTENT) bytes.
    pub pieces: &'a [Piece],
    /// Whether a thread of the program waits for it.
    pub urgent: bool,
}

impl Op<'_> {
    /// Bytes in its pieces.
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(Piece::len).sum()
    }
}

/// The completion of an operation: each operation has exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The operation's number, which is free from now on.
    pub id: u32,
    /// Its result. If the operation failed, the bytes, in memory or in the slots, are undefined.
    pub result: Result<(), Failure>,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether the failure may pass: a server does not answer, or a connection is lost. Then the
    /// caller tries again with pauses until a deadline. Otherwise it tries a few times at once.
    pub passing: bool,
    /// What went wrong.
    pub why: Why,
}

/// The reason of a failed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The operating system's error number.
    Errno(i32),
    /// Only this number of bytes was transferred.
    Short(usize),
    /// The bytes are not those that were written.
    Wrong,
    /// Another reason, as the end of a sentence.
    Text(String),
}

impl std::fmt::Display for Why {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Errno(number) => std::io::Error::from_raw_os_error(*number).fmt(out),
            Why::Short(bytes) => write!(out, "only {bytes} bytes were transferred"),
            Why::Wrong => write!(out, "the bytes are not those that were written"),
            Why::Text(text) => out.write_str(text),
        }
    }
}

impl Failure {
    /// A failure that waiting does not cure.
    pub fn lasting(why: Why) -> Failure {
        Failure { passing: false, why }
    }

    /// A failure that may pass.
    pub fn passing(why: Why) -> Failure {
        Failure { passing: true, why }
    }

    /// The operating system's error: it may pass if only memory or queues were short.
    fn by_errno(number: i32) -> Failure {
        use std::io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
        let kind = std::io::Error::from_raw_os_error(number).kind();
        Failure { passing: matches!(kind, Interrupted | OutOfMemory | WouldBlock), why: Why::Errno(number) }
    }
}

impl Ended {
    /// The completion of a successful operation.
    pub fn well(id: u32) -> Ended {
        Ended { id, result: Ok(()) }
    }

    /// An operation that failed.
    pub fn badly(id: u32, failure: Failure) -> Ended {
        Ended { id, result: Err(failure) }
    }

    /// The operation `id`, of `wanted` bytes, that ended in the ring with `result`.
    pub fn by_result(id: u32, result: i32, wanted: usize) -> Ended {
        match usize::try_from(result) {
            Ok(bytes) if bytes == wanted => Ended::well(id),
            Ok(bytes) => Ended::badly(id, Failure::lasting(Why::Short(bytes))),
            Err(_) => Ended::badly(id, Failure::by_errno(-result)),
        }
    }

    /// The operation `id` could not be begun.
    pub fn unbegun(id: u32, error: &terapage_sys::Error) -> Ended {
        Ended::badly(id, Failure::lasting(Why::Text(error.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_of_memory_may_pass_and_an_error_of_the_device_does_not() {
        let passes = |number: i32| Ended::by_result(1, -number, 4096).result.unwrap_err().passing;
        let [eagain, enomem, eio, enospc] = [11, 12, 5, 28];
        assert!(passes(eagain) && passes(enomem));
        assert!(!passes(eio) && !passes(enospc));
        let short = Ended::by_result(1, 4095, 4096).result.unwrap_err();
        assert_eq!(short, Failure::lasting(Why::Short(4095)));
    }
}
