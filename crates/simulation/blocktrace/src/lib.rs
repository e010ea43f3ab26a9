//! Block traces: recorded requests of hosts to their disks.
//!
//! [`open`] returns a [`Reader`], which is an iterator over [`Request`]s. It detects the
//! compression and the format from the bytes, holds a bounded part of the trace in memory, and its
//! errors name the file and the line (or byte). [`Writer`] writes the same formats. [`Profile`]
//! describes a trace. `docs/block-traces.md` describes the formats, and each has its own file under
//! `format`.
#![forbid(unsafe_code)]

mod csv;
mod detect;
mod error;
mod fault;
mod format;
mod gate;
mod input;
mod lines;
pub mod objects;
mod options;
mod profile;

mod reader;
mod records;
mod request;
mod scan;
mod sink;
mod volumes;
mod writer;

pub use error::{Error, Place, Problem};
pub use fault::Fault;
pub use format::{BlockColumns, Format, UnknownFormat};
pub use gate::Counts;
pub use options::Options;
pub use profile::{ALIGNMENTS, Histogram, Mix, Profile, ProfileOptions, Profiler, Window};

pub use reader::{Meta, Opened, Reader, open, read};
pub use request::{Kind, Request};
pub use sink::Compression;
pub use writer::{Losses, Misfit, Writer, WriterOptions};
