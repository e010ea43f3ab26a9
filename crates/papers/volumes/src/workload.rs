//! Workloads: requests to simulate, synthetic or from a trace.

use crate::generator::Generator;
use crate::volume::{Volume, VolumeError};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use terapage_blocktrace::{Error, Options, Request, open};
use terapage_hybrid::{Layout, Placement, Surveyor};

/// The source of the requests.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The name of the volume.
    pub name: String,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Synthetic { volume: Box<Volume>, made: Made },
    Trace { path: PathBuf, requests: u64, placement: Arc<Placement>, synthetic: bool },
}

/// The generators that were created last, with their seeds and scales. They are kept, since the
/// layout of objects takes longer than a short simulation.
type Made = Arc<Mutex<VecDeque<(u64, f64, Generator)>>>;
/// The greatest number of generators that are kept.
const MADE_MAX: usize = 4;

/// Requests, one after the other.
pub type Requests = Box<dyn Iterator<Item = Result<Request, Error>> + Send>;

impl Workload {
    /// The generator of a built-in volume.
    ///
    /// # Errors
    /// There is no volume of that name.
    pub fn synthetic(name: &str) -> Result<Workload, VolumeError> {
        let volume = Box::new(Volume::by_name(name)?);
        Ok(Workload { name: name.to_owned(), source: Source::Synthetic { volume, made: Made::default() } })
    }

    /// A trace, called `name`. It is read once, to find what it touches: pieces of 1 MiB that are
    /// not touched take no room.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn trace(name: &str, path: &Path) -> Result<Workload, Error> {
        let reader = open(path, &Options::default())?;
        let synthetic = reader.meta().synthetic;
        let mut surveyor = Surveyor::new(4096);
        for request in reader {
            surveyor.add(&request?);
        }
        let (survey, placement) = surveyor.finish(Layout::Packed);
        let (requests, placement) = (survey.requests, Arc::new(placement));
        let source = Source::Trace { path: path.to_owned(), requests, placement, synthetic };
        Ok(Workload { name: name.to_owned(), source })
    }

    /// Whether its requests are synthetic: from a generator, or from a trace that states it.
    pub fn is_synthetic(&self) -> bool {
        match &self.source {
            Source::Synthetic { .. } => true,
            Source::Trace { synthetic, .. } => *synthetic,
        }
    }

    /// Whether a generator makes its requests.
    pub fn is_generated(&self) -> bool {
        matches!(&self.source, Source::Synthetic { .. })
    }

    /// The number of requests.
    pub fn len(&self) -> u64 {
        match &self.source {
            Source::Synthetic { volume, .. } => volume.requests.value,
            Source::Trace { requests, .. } => *requests,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Objects of a generator's volume; a trace is replayed unchanged, and has none.
    pub fn objects(&self) -> u64 {
        match &self.source {
            Source::Synthetic { volume, .. } => volume.objects.value,
            Source::Trace { .. } => 0,
        }
    }

    /// The number of requests with which a generator reads and writes `bytes` on average, at most
    /// that of its volume. For a trace, all its requests.
    pub fn requests_for(&self, bytes: u64) -> u64 {
        match &self.source {
            Source::Synthetic { volume, .. } => {
                ((bytes as f64 / volume.mean_bytes()) as u64).clamp(1, self.len())
            }
            Source::Trace { .. } => self.len(),
        }
    }

    /// The path of the trace; `None` for a generator.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Synthetic { .. } => None,
            Source::Trace { path, .. } => Some(path),
        }
    }

    /// The requests from the first one on, and the bytes of a device with room for them. A
    /// generator uses `seed` and `scale` (see [`Generator::new`]) and never ends; a trace uses
    /// neither.
    ///
    /// # Errors
    /// The trace cannot be opened any more.
    pub fn requests(&self, seed: u64, scale: f64) -> Result<(Requests, u64), Error> {
        match &self.source {
            Source::Synthetic { volume, made } => {
                let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                let known = made.iter().find(|known| (known.0, known.1) == (seed, scale));
                let generator = match known {
                    Some((_, _, generator)) => generator.clone(),
                    None => {
                        made.truncate(MADE_MAX - 1);
                        made.push_front((seed, scale, Generator::new(volume, seed, scale)));
                        made[0].2.clone()
                    }
                };
                let bytes = generator.span_bytes();
                Ok((Box::new(generator.map(Ok)), bytes))
            }
            Source::Trace { path, placement, .. } => {
                let (bytes, placement) = (placement.device_bytes(), Arc::clone(placement));
                let placed = move |request: Result<Request, Error>| Ok(placement.place(request?));
                Ok((Box::new(open(path, &Options::default())?.map(placed)), bytes))
            }
        }
    }
}
