//! Errors of a trace, in words for the owner of the file.

use crate::fault::Fault;
use std::fmt;
use std::io;

/// An error of a trace. It is one word wide, since it is returned beside every request.
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

/// The kinds of errors of a trace.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be opened.
    #[error("{file}: cannot be opened: {cause}")]
    Open {
        /// The file's name.
        file: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The file cannot be read further, or its compressed bytes are damaged or cut off.
    #[error("{file}, {place}: cannot be read further: {cause}")]
    Read {
        /// The file's name.
        file: String,
        /// The progress of the reader.
        place: Place,
        /// The error of the system or the decompressor.
        cause: io::Error,
    },
    /// The file is empty.
    #[error("{file}: is empty")]
    Empty {
        /// The file's name.
        file: String,
    },
    /// No reader recognises it.
    #[error("{file}: begins like no known format: {found}; name the format if it is one of {known}")]
    Unknown {
        /// The file's name.
        file: String,
        /// How it begins.
        found: String,
        /// The formats' names.
        known: String,
    },
    /// The meaning of its columns is not known.
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
        /// The place of the record.
        place: Place,
        /// The fault.
        fault: Fault,
    },
    /// Its requests cannot be kept.
    #[error("{file}: its requests cannot be kept: {cause}")]
    Keep {
        /// The file's name.
        file: String,
        /// Why.
        cause: io::Error,
    },
    /// A file cannot be written.
    #[error("{file}: cannot be written: {cause}")]
    Write {
        /// The file's name.
        file: String,
        /// The system's error.
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
