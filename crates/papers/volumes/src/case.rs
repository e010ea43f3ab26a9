//! A case: a simulation of a hybrid SSD, described independently of the requests, so that it fits
//! any volume.

use crate::workload::Workload;
use serde::Serialize;
use terapage_hybrid::{CacheOptions, Load, MemoryTiming, Outcome, Setup, Storage, simulate};
use terapage_ssd::{Config, Front, Precondition, Profile, ProfileError};

/// The least bytes of the flash: blocks have megabytes, and each die needs several blocks.
const CAPACITY_BYTES_MIN: u64 = 256 << 20;

/// Why a simulation did not run.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The requests cannot be read or generated.
    #[error(transparent)]
    Trace(#[from] terapage_blocktrace::Error),
    /// The setup is impossible, or the requests are.
    #[error("{workload}: {error}")]
    Simulation {
        /// The name of the workload.
        workload: String,
        /// What is wrong.
        error: terapage_hybrid::Error,
    },
}

/// A size: bytes, or a share of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// A share of the flash's capacity.
    Share(f64),
}

/// The kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layers {
    /// Flash behind a cache.
    Cached,
    /// Flash alone.
    Nand,
    /// SCM alone.
    Scm,
}

/// A simulation without its workload. [`Case::default`] is what the paper presumably simulated.
/// Each of its values is a parameter; see [`settings`](crate::settings).
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// The flash. Its capacity is that of the workload, unless [`Case::capacity_bytes`] is set.
    pub ssd: Config,
    /// The capacity of the flash. `None` is the range of the workload, but at least 256 MiB.
    pub capacity_bytes: Option<u64>,
    /// The kind of storage.
    pub layers: Layers,
    /// The cache. Its size comes from [`Case::scm`].
    pub cache: CacheOptions,
    /// The size of the SCM.
    pub scm: Amount,
    /// The times at which requests are sent.
    pub load: Load,
    /// Bytes that a generator's requests read and write together, including the warm-up. SCM is
    /// filled by bytes, so each volume gets equally far, whatever the size of its requests. Traces
    /// are simulated completely.
    pub traffic_bytes: u64,
    /// Simulate exactly this number of requests of any workload, or all that it has.
    pub requests: Option<u64>,
    /// The share of requests that are not measured.
    pub warm_up: f64,
    /// The seed of the generators.
    pub seed: u64,
    /// The scale of the generators, see [`Generator::new`](crate::Generator::new).
    pub scale: f64,
}

impl Case {
    /// A hybrid SSD with these chips.
    pub fn new(nand: Profile) -> Case {
        let mut ssd = Config::new(nand, CAPACITY_BYTES_MIN);
        // The paper compares SSDs, not links: the time of requests is that of SCM and flash.
        ssd.front = Front::instant();
        ssd.over_provisioning = 0.25;
        // Every page was written once, in order: reads find data, and there is room before blocks
        // must be collected. The initial state of the paper's simulation is not known.
        ssd.preconditioning = Precondition::Sequential { filled: 1.0 };
        Case {
            ssd,
            capacity_bytes: None,
            layers: Layers::Cached,
            cache: CacheOptions::default(),
            scm: Amount::Share(0.05),
            load: Load::Closed { depth: 1 },
            traffic_bytes: 3 << 30,
            requests: None,
            warm_up: 0.5,
            seed: 1,
            scale: 1.0,
        }
    }

    /// The case with other chips.
    ///
    /// # Errors
    /// There are no chips of that name.
    pub fn with_nand(&self, name: &str) -> Result<Case, ProfileError> {
        let mut case = self.clone();
        case.ssd.nand = Profile::find(name)?;
        Ok(case)
    }

    /// Simulates `workload`.
    ///
    /// # Errors
    /// The setup is impossible, or the requests cannot be read or generated.
    pub fn run(&self, workload: &Workload) -> Result<Outcome, CaseError> {
        let (requests, span_bytes) = workload.requests(self.seed, self.scale)?;
        let requests_max = self.requests.unwrap_or_else(|| workload.requests_for(self.traffic_bytes));
        let requests_max = requests_max.min(workload.len());
        let setup = self.setup(span_bytes, requests_max);
        let taken = requests.take(usize::try_from(requests_max).unwrap_or(usize::MAX));
        simulate(&setup, taken)
            .map_err(|error| CaseError::Simulation { workload: workload.name.clone(), error })
    }

    /// The complete setup, for requests that reach up to `span_bytes`.
    pub fn setup(&self, span_bytes: u64, requests: u64) -> Setup {
        let mut ssd = self.ssd.clone();
        ssd.capacity_bytes = self.capacity_bytes.unwrap_or(span_bytes.max(CAPACITY_BYTES_MIN));
        let bytes = match self.scm {
            Amount::Bytes(bytes) => bytes,
            Amount::Share(share) => (ssd.capacity_bytes as f64 * share) as u64,
        };
        let storage = match self.layers {
            Layers::Cached => Storage::Cached(CacheOptions { bytes, ..self.cache.clone() }),
            Layers::Nand => Storage::Nand,
            Layers::Scm => Storage::Scm(self.memory()),
        };
        let warm_up = (requests as f64 * self.warm_up) as u64;
        Setup { ssd, storage, load: self.load, warm_up, wrap: self.capacity_bytes.is_some() }
    }

    /// Roughly the bytes of this machine's memory that a simulation of `workload` needs: tables of
    /// pages, blocks and lines, and the generator's objects.
    ///
    /// # Errors
    /// The workload cannot be read or generated.
    pub fn memory_bytes(&self, workload: &Workload) -> Result<u64, CaseError> {
        let (_, span_bytes) = workload.requests(self.seed, self.scale)?;
        let setup = self.setup(span_bytes, 0);
        let units = setup.ssd.capacity_bytes as f64 * (1.0 + setup.ssd.over_provisioning)
            / f64::from(setup.ssd.unit_bytes().max(512));
        let lines = match &setup.storage {
            Storage::Cached(cache) => cache.lines() as f64,
            _ => 0.0,
        };
        Ok((units * 16.0 + lines * 40.0 + workload.objects() as f64 * self.scale * 24.0) as u64 + (8 << 20))
    }

    fn memory(&self) -> MemoryTiming {
        self.cache.memory
    }
}

impl Default for Case {
    fn default() -> Self {
        Case::new(Profile::by_name("2d-fg-mlc").expect("it is built in"))
    }
}
