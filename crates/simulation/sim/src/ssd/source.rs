//! A trace that is read several times: a short one is kept in memory, a long one is read from the
//! file again.

use std::path::{Path, PathBuf};

use crate::progress::Progress;
use anyhow::{anyhow, bail};
use terapage_blocktrace::{Error, Format, Options, Reader, Request, open};
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
    kept: Option<Vec<Request>>,
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
        let mut kept = Some(Vec::new());
        for _ in 0..limit {
            let Some(request) = reader.next() else { break };
            let request = request.map_err(|error| anyhow!("{error}"))?;
            surveyor.add(&request);
            reading.step(&reader);
            // Standard input cannot be read again, so all of it is kept.
            kept = kept.filter(|kept| stdin || kept.len() < KEPT);
            if let Some(kept) = &mut kept {
                kept.push(request);
            }
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
            Some(kept) => Box::new(kept.iter().map(move |&request| Ok(self.placement.place(request)))),
            None => Box::new(self.reread()?),
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
