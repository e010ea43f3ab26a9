//! Readers of traces.

use crate::detect;
use crate::error::{Error, Place, Problem};
use crate::fault::Fault;
use crate::format::Format;
use crate::gate::{Counts, Gate};
use crate::input::{self, Counted, Input};
use crate::lines::LINE_BYTES_MAX;
use crate::options::Options;
use crate::request::Request;
use crate::sink::Compression;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of requests that are read at once: few enough to stay in the processor's cache.
pub(crate) const BATCH: usize = 4096;

/// Why a source stops.
pub(crate) enum Stop {
    Io(io::Error),
    Fault(Box<Fault>),
}

/// A trace in one format.
pub(crate) trait Source: Send {
    /// Appends requests to `batch`, about [`BATCH`] of them. It returns whether there may be more.
    /// After an error the batch contains the requests before it.
    fn fill(&mut self, gate: &mut Gate, batch: &mut Vec<Request>) -> Result<bool, Stop>;

    /// The place of the record that was read last.
    fn place(&self) -> Place;
}

/// The properties of a trace as a whole.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Meta {
    /// The file's name; `-` for standard input.
    pub file: String,
    /// Its format.
    pub format: Format,
    /// Its compression.
    pub compression: Option<Compression>,
    /// The size of the file; `None` for pipes.
    pub file_bytes: Option<u64>,
    /// The name in the trace. Only `tera` traces have one; empty for others.
    pub name: String,
    /// The author's comment. Only `tera` traces have one; empty for others.
    pub comment: String,
    /// Whether the trace is synthetic: made up, not recorded. Only `tera` traces state this;
    /// results that are derived from such a trace must state it too.
    pub synthetic: bool,
}

/// A trace, as an iterator over its requests. It ends after the first error.
pub struct Reader {
    meta: Meta,
    source: Box<dyn Source>,
    gate: Gate,
    batch: Vec<Request>,
    next: usize,
    // What follows the batch.
    after: After,
    read_bytes: Arc<AtomicU64>,
}

enum After {
    More,
    Error(Error),
    End,
}

/// Opens the trace at `path`; `-` is standard input.
///
/// # Errors
/// The file cannot be read, is empty, has an unknown format or an invalid header.
pub fn open(path: &Path, options: &Options) -> Result<Reader, Error> {
    Opened::open(path)?.reader(options)
}

/// Reads a trace from any source; errors call it `name`.
///
/// # Errors
/// As [`open`].
pub fn read(name: &str, input: impl Read + Send + 'static, options: &Options) -> Result<Reader, Error> {
    Opened::new(name.to_string(), Box::new(input), None)?.reader(options)
}

/// A trace of which only the first bytes were looked at, so that its format can be chosen: standard
/// input cannot be opened again.
pub struct Opened {
    pub(crate) file: String,
    pub(crate) head: Vec<u8>,
    /// All bytes, with the head, decompressed.
    pub(crate) input: Input,
    compression: Option<Compression>,
    file_bytes: Option<u64>,
    read_bytes: Arc<AtomicU64>,
}

impl Opened {
    /// Opens the trace at `path`; `-` is standard input.
    ///
    /// # Errors
    /// The file cannot be read, or is empty.
    pub fn open(path: &Path) -> Result<Opened, Error> {
        let (input, file_bytes) = input::open(path)?;
        Opened::new(path.display().to_string(), input, file_bytes)
    }

    fn new(file: String, input: Input, file_bytes: Option<u64>) -> Result<Opened, Error> {
        let fail = |cause| Problem::Read { file: file.clone(), place: Place::Byte(0), cause };
        let (input, read_bytes) = Counted::new(input);
        let (input, compression) = input::decompress(Box::new(input)).map_err(fail)?;
        let (head, input) = input::peek(input, detect::HEAD_BYTES).map_err(fail)?;
        let (head, input) = input::without_mark(head, input).map_err(fail)?;
        if head.is_empty() {
            return Err(Problem::Empty { file }.into());
        }
        Ok(Opened { file, head, input, compression, file_bytes, read_bytes })
    }

    /// The format of block traces that the first bytes fit best.
    pub fn format(&self, options: &Options) -> Option<Format> {
        detect::format_of(&self.head, options)
    }

    /// Its requests, if it is a block trace.
    ///
    /// # Errors
    /// It has no known format, or a header that is wrong.
    pub fn reader(self, options: &Options) -> Result<Reader, Error> {
        let Opened { file, head, input, compression, file_bytes, read_bytes } = self;
        let format = match options.format {
            Some(format) => format,
            None if options.columns.is_some() => Format::Csv,
            None if detect::is_endless_line(&head) => {
                let fault = Fault::LongLine { limit_bytes: LINE_BYTES_MAX };
                return Err(Problem::Bad { file, place: Place::Line(1), fault }.into());
            }
            None => detect::format_of(&head, options).ok_or_else(|| unknown(&file, &head))?,
        };
        let opened = format.open(input, &head, options);
        let opened = opened.map_err(|(place, stop)| problem(&file, place, stop))?;
        let meta = Meta {
            file,
            format,
            compression,
            file_bytes,
            name: opened.name,
            comment: opened.comment,
            synthetic: opened.synthetic,
        };
        let (source, gate) = (opened.source, opened.gate);
        Ok(Reader { meta, source, gate, batch: Vec::new(), next: 0, after: After::More, read_bytes })
    }
}

pub(crate) fn unknown(file: &str, head: &[u8]) -> Error {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let found = crate::fault::excerpt(line);
    let known = Format::ALL.map(Format::name).join(", ");
    Problem::Unknown { file: file.to_string(), found, known }.into()
}

fn problem(file: &str, place: Place, stop: Stop) -> Error {
    let file = file.to_string();
    match stop {
        Stop::Io(cause) => Problem::Read { file, place, cause }.into(),
        Stop::Fault(fault) => Problem::Bad { file, place, fault: *fault }.into(),
    }
}

impl Reader {
    /// The properties of the trace as a whole.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The counts so far. They may be ahead of the iterator by some thousand requests; at the end
    /// they are exact.
    pub fn counts(&self) -> Counts {
        self.gate.counts
    }

    /// The names of the volumes so far, by their number in requests.
    pub fn volumes(&self) -> &[String] {
        self.gate.volumes.names()
    }

    /// Bytes of the file that were read so far, before decompression.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    #[cold]
    fn next_batch(&mut self) -> Option<Result<Request, Error>> {
        loop {
            match std::mem::replace(&mut self.after, After::End) {
                After::End => return None,
                After::Error(error) => return Some(Err(error)),
                After::More => {}
            }
            self.batch.clear();
            self.after = match self.source.fill(&mut self.gate, &mut self.batch) {
                Ok(true) => After::More,
                Ok(false) => After::End,
                Err(stop) => After::Error(problem(&self.meta.file, self.source.place(), stop)),
            };
            if let Some(request) = self.batch.first() {
                self.next = 1;
                return Some(Ok(*request));
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Request, Error>;

    #[inline]
    fn next(&mut self) -> Option<Result<Request, Error>> {
        match self.batch.get(self.next) {
            Some(request) => {
                self.next += 1;
                Some(Ok(*request))
            }
            None => self.next_batch(),
        }
    }
}
