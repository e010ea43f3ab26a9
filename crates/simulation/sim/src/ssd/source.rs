//! A trace that is read several times: a short one is kept in memory, a long one is read from the
//! file again. Standard input cannot be read again, so it is kept whole, in a temporary file if it
//! is long.

use std::io;
use std::path::{Path, PathBuf};

use crate::progress::Progress;
use anyhow::{Context, anyhow, bail};
use terapage_blocktrace::{Error, Format, Kind, Options, Problem, Reader, Request, open};
use terapage_figures::{Long, Numbers};
use terapage_hybrid::{Layout, Placement, Survey, Surveyor};

/// Requests that are kept in memory, at 24 bytes each; longer traces are read again for each run.
const KEPT: usize = 8 << 20;

/// A trace that has been surveyed.
pub struct Source {
    /// The trace's name in reports.
    pub name: String,
    /// The survey of its requests, up to the limit.
    pub survey: Survey,
    /// Bad records that were skipped.
    pub skipped: u64,
    /// The trace's format.
    pub format: Format,
    /// Whether the trace is synthetic.
    pub synthetic: bool,
    path: PathBuf,
    options: Options,
    limit: u64,
    placement: Placement,
    kept: Kept,
}

/// Where the requests are.
enum Kept {
    /// In the file alone.
    File,
    Memory(Vec<Request>),
    /// Three numbers each.
    Long(Long),
}

impl Kept {
    fn push(&mut self, request: Request) -> io::Result<()> {
        match self {
            Kept::Memory(all) if all.len() == KEPT => *self = Kept::File,
            Kept::Memory(all) => all.push(request),
            Kept::File => {}
            Kept::Long(numbers) => {
                packed(&request).into_iter().try_for_each(|number| numbers.push(number))?
            }
        }
        Ok(())
    }
}

/// A request as three numbers.
fn packed(request: &Request) -> [u64; 3] {
    let kind = match request.kind {
        Kind::Read => 0,
        Kind::Write => 1,
        Kind::Trim => 2,
    };
    let rest = u64::from(request.bytes) << 32 | u64::from(request.volume) << 8 | kind;
    [request.time_ns, request.offset, rest]
}

/// The next request of a list of them.
fn unpacked(numbers: &mut Numbers<'_>, file: &str) -> Option<Result<Request, Error>> {
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(time_ns), Some(offset), Some(rest)) => {
            let kind = match rest & 0xff {
                0 => Kind::Read,
                1 => Kind::Write,
                _ => Kind::Trim,
            };
            let (bytes, volume) = ((rest >> 32) as u32, (rest >> 8) as u16);
            Some(Ok(Request { time_ns, offset, bytes, volume, kind }))
        }
        _ => numbers.failed().map(|cause| Err(Problem::Keep { file: file.to_owned(), cause }.into())),
    }
}

impl Source {
    /// Reads the trace at `path` once, up to `limit` requests.
    ///
    /// # Errors
    /// Errors of the reader, or a trace without requests.
    pub fn survey(
        path: &Path,
        options: &Options,
        limit: u64,
        line_bytes: u32,
        layout: Layout,
        progress: &Progress,
    ) -> anyhow::Result<Source> {
        // The text of the error contains its cause already.
        let mut reader = open(path, options).map_err(|error| anyhow!("{error}"))?;
        let stdin = path == Path::new("-");
        let mut reading = progress.reading();
        let mut surveyor = Surveyor::new(line_bytes);
        let mut kept = if stdin { Kept::Long(Long::default()) } else { Kept::Memory(Vec::new()) };
        for _ in 0..limit {
            let Some(request) = reader.next() else { break };
            let request = request.map_err(|error| anyhow!("{error}"))?;
            surveyor.add(&request);
            reading.step(&reader);
            kept.push(request).with_context(|| path.display().to_string())?;
        }
        let (survey, placement) = surveyor.finish(layout);
        if survey.requests == 0 {
            bail!("{}: there is no request in it", path.display());
        }
        Ok(Source {
            name: name(path, &reader),
            placement,
            survey,
            skipped: reader.counts().skipped,
            format: reader.meta().format,
            synthetic: reader.meta().synthetic,
            path: path.to_owned(),
            options: options.clone(),
            limit,
            kept,
        })
    }

    /// Bytes of the temporary file in which standard input is kept; 0 if there is none.
    pub fn file_bytes(&self) -> u64 {
        match &self.kept {
            Kept::Long(numbers) => numbers.file_bytes(),
            _ => 0,
        }
    }

    /// Where the volumes begin on the device, in order, but the first one.
    pub fn volumes(&self) -> Vec<u64> {
        self.placement.volumes()
    }

    /// Bytes of a device that holds all its volumes.
    pub fn device_bytes(&self) -> u64 {
        self.placement.device_bytes()
    }

    /// The requests of the trace, at their places on such a device.
    ///
    /// # Errors
    /// If the file cannot be opened again.
    pub fn requests(&self) -> anyhow::Result<Box<dyn Iterator<Item = Result<Request, Error>> + '_>> {
        Ok(match &self.kept {
            Kept::Memory(kept) => {
                Box::new(kept.iter().map(move |&request| Ok(self.placement.place(request))))
            }
            Kept::Long(numbers) => {
                let mut numbers = numbers.numbers();
                let next = move || unpacked(&mut numbers, &self.name);
                Box::new(std::iter::from_fn(next).map(move |request| Ok(self.placement.place(request?))))
            }
            Kept::File => Box::new(self.reread()?),
        })
    }

    /// The same requests, read from the file.
    ///
    /// # Errors
    /// If the file cannot be opened again.
    pub fn reread(&self) -> anyhow::Result<impl Iterator<Item = Result<Request, Error>> + '_> {
        let again = open(&self.path, &self.options);
        let reader = again.map_err(|error| anyhow!("reading it again: {error}"))?;
        Ok(reader.take(self.limit as usize).map(move |request| Ok(self.placement.place(request?))))
    }
}

/// The name of the trace: the one in its header, or of its only volume, or of its file.
fn name(path: &Path, reader: &Reader) -> String {
    let meta = reader.meta();
    match reader.volumes() {
        _ if !meta.name.is_empty() => meta.name.clone(),
        [volume] if !volume.is_empty() && volume.parse::<u64>().is_err() => volume.clone(),
        _ if path == Path::new("-") => "standard input".to_owned(),
        _ => path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_unpacked_as_it_was_packed() {
        let at = |time_ns, offset, bytes, volume, kind| Request { time_ns, offset, bytes, volume, kind };
        let requests = [
            at(u64::MAX, 1 << 62, u32::MAX, u16::MAX, Kind::Trim),
            at(0, 0, 1, 0, Kind::Read),
            at(1, 2, 3, 4, Kind::Write),
        ];
        let mut kept = Kept::Long(Long::keeping(0));
        requests.iter().for_each(|request| kept.push(*request).unwrap());
        let Kept::Long(numbers) = &kept else { unreachable!("it was made so") };
        let mut numbers = numbers.numbers();
        let again: Vec<Request> =
            std::iter::from_fn(|| unpacked(&mut numbers, "x")).map(Result::unwrap).collect();
        assert_eq!(again, requests);
    }
}
