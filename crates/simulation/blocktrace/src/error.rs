//! What can go wrong with a trace, in words for whoever has the file.

use crate::fault::Fault;
use std::fmt;
use std::io;

/// What is wrong with a trace. One word wide, for it travels beside every request.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Problem>);

impl Error {
    /// What is wrong.
    pub fn problem(&self) -> &Problem {
        &self.0
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Error {
        Error(Box::new(problem))
    }
}

/// The kinds of things that can be wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be opened.
    #[error("{file}: cannot be opened: {cause}")]
    Open {
        /// The file's name.
        file: String,
        /// What the system says.
        cause: io::Error,
    },
    /// The file cannot be read further, or its compressed bytes are damaged or cut off.
    #[error("{file}, {place}: cannot be read further: {cause}")]
    Read {
        /// The file's name.
        file: String,
        /// How far the reader got.
        place: Place,
        /// What the system or the decompressor says.
        cause: io::Error,
    },
    /// There is not one byte in it.
    #[error("{file}: is empty, so there is no request in it")]
    Empty {
        /// The file's name.
        file: String,
    },
    /// No reader knows it.
    #[error("{file}: begins like no known format: {found}; name the format if it is one of {known}")]
    Unknown {
        /// The file's name.
        file: String,
        /// How it begins.
        found: String,
        /// The formats' names.
        known: String,
    },
    /// It is not known which of its columns are what.
    #[error("{file}: {why}")]
    Columns {
        /// The file's name.
        file: String,
        /// What is not known, and what to do.
        why: String,
    },
    /// A record is wrong.
    #[error("{file}, {place}: {fault}")]
    Bad {
        /// The file's name.
        file: String,
        /// Where the record is.
        place: Place,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A file cannot be written.
    #[error("{file}: cannot be written: {cause}")]
    Write {
        /// The file's name.
        file: String,
        /// What the system says.
        cause: io::Error,
    },
    /// A request does not fit into the format that is written.
    #[error("request {number} does not fit: {misfit}")]
    Misfit {
        /// The request, counted from 1.
        number: u64,
        /// Why.
        misfit: crate::writer::Misfit,
    },
}

/// A place in the uncompressed bytes of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, from 1.
    Line(u64),
    /// The first byte of a record, from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(number) => write!(out, "line {number}"),
            Place::Byte(offset) => write!(out, "byte {offset}"),
        }
    }
}
