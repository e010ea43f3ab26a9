//! Block traces: what hosts asked of their disks.
//!
//! [`open`] gives a [`Reader`], which is an iterator over [`Request`]s. It finds the compression
//! and the format by looking at the bytes, holds a bounded part of the trace in memory however long
//! that is, and names the file and the line (or byte) of whatever is wrong. [`Writer`] writes the
//! same formats. [`Profile`] tells what a trace is like. The formats are described in
//! `docs/block-traces.md`, and each in its own file under `format`.
#![forbid(unsafe_code)]

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

pub use reader::{Meta, Reader, open, read};
pub use request::{Kind, Request};
pub use sink::Compression;
pub use writer::{Losses, Misfit, Writer, WriterOptions};
