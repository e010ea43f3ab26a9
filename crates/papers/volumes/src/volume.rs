//! Volumes: what is known about them, and what is assumed.

use serde::{Deserialize, Serialize};
use terapage_figures::Sourced;

/// The built-in volumes, with their profiles.
const BUILT_IN: [(&str, &str); 7] = [
    ("prxy_0", include_str!("../profiles/prxy_0.toml")),
    ("proj_0", include_str!("../profiles/proj_0.toml")),
    ("hm_0", include_str!("../profiles/hm_0.toml")),
    ("web_1", include_str!("../profiles/web_1.toml")),
    ("prxy_1", include_str!("../profiles/prxy_1.toml")),
    ("proj_3", include_str!("../profiles/proj_3.toml")),
    ("src2_1", include_str!("../profiles/src2_1.toml")),
];

/// Why a volume cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// There is no volume of that name.
    #[error("there is no volume {name}; there are {}", names().join(", "))]
    Unknown {
        /// The name that was asked for.
        name: String,
    },
    /// A profile is not TOML, or lacks a field.
    #[error("{file}: {}", message.trim().replace('\n', " "))]
    Format {
        /// The profile's name.
        file: String,
        /// The parser's error.
        message: String,
    },
    /// A value is impossible.
    #[error("{file}: {field} is {value}; {expected}")]
    Value {
        /// The profile's name.
        file: String,
        /// Which value.
        field: String,
        /// What it is.
        value: String,
        /// The possible values.
        expected: &'static str,
    },
}

/// A volume of the MSR Cambridge traces (Narayanan, Donnelly, Rowstron: Write Off-Loading, FAST
/// 2008) as the generator imitates it.
///
/// Its unit of locality is the object: bytes from one first byte on, which are always requested
/// together. Consecutive objects form a run, which is requested in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Its name: host and disk.
    pub name: String,
    /// The purpose of the host.
    pub description: String,
    /// Requests of the whole trace.
    pub requests: Sourced<u64>,
    /// The share of writes in the requests, 0..1.
    pub write_share: Sourced<f64>,
    /// Objects of the whole trace, that is, different first bytes of requests.
    pub objects: Sourced<u64>,
    /// The length of the trace, in seconds.
    pub duration_s: Sourced<f64>,
    /// Coefficient of variation of the times between requests; at least 1.
    pub inter_arrival_cv: Sourced<f64>,
    /// The mean bytes of all requests, if only that is known; otherwise it follows from reads and
    /// writes.
    pub mean_bytes: Option<Sourced<f64>>,
    /// The share of reads that request objects of the popular writes, 0..1.
    pub reads_of_written: Sourced<f64>,
    /// The writes.
    pub writes: Stream,
    /// The reads.
    pub reads: Stream,
    /// Hit ratios that an LRU cache of whole objects should have.
    pub hit_ratios: Vec<HitRatio>,
}

/// The reads, or the writes, of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Mean bytes of a request.
    pub mean_bytes: Sourced<f64>,
    /// Sizes in bytes and their weights; the weights are tilted until they give the mean.
    pub sizes: Sourced<Vec<(u32, f64)>>,
    /// The share of the volume's objects that belong to this stream, 0..1; those of reads and
    /// writes add up to 1.
    pub object_share: Sourced<f64>,
    /// The share of its objects that are popular, 0..1.
    pub popular_share: Sourced<f64>,
    /// The differences in popularity among popular objects: the exponent of Zipf's law.
    pub zipf_exponent: Sourced<f64>,
    /// The share of its requests that scan all its objects repeatedly, run by run, 0..1.
    pub scan_share: Sourced<f64>,
    /// Mean objects of a run; at least 1.
    pub run_objects: Sourced<f64>,
}

/// The hits that a cache should have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HitRatio {
    /// The size of the cache.
    pub cache: CacheSize,
    /// The hit ratio of requests; first touches count as misses.
    pub ratio: Sourced<f64>,
}

/// The size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheSize {
    /// This many bytes of objects.
    Bytes(u64),
    /// This many objects, of any size.
    Objects(u64),
}

/// The names of the built-in volumes: write-heavy ones first, as in the paper's Table 2.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl Volume {
    /// A built-in volume.
    ///
    /// # Errors
    /// [`VolumeError::Unknown`] names the built-in volumes.
    pub fn by_name(name: &str) -> Result<Volume, VolumeError> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| VolumeError::Unknown { name: name.to_owned() })?;
        Volume::parse(text, &format!("{name}.toml"))
    }

    /// A volume from the TOML text of a profile; `file` is its name for errors.
    ///
    /// # Errors
    /// The error names the file, the field, and the possible values.
    pub fn parse(text: &str, file: &str) -> Result<Volume, VolumeError> {
        let parsed = toml::from_str::<Volume>(text);
        let volume = parsed
            .map_err(|error| VolumeError::Format { file: file.to_owned(), message: error.to_string() })?;
        volume.check(file)?;
        Ok(volume)
    }

    /// The mean bytes of its requests.
    pub fn mean_bytes(&self) -> f64 {
        let writes = self.write_share.value;
        let streams = writes * self.writes.mean_bytes.value + (1.0 - writes) * self.reads.mean_bytes.value;
        self.mean_bytes.as_ref().map_or(streams, |known| known.value)
    }

    fn check(&self, file: &str) -> Result<(), VolumeError> {
        let check = Check { file };
        check.that(
            "requests",
            self.requests.value as f64,
            (1.0..=1e12).contains(&(self.requests.value as f64)),
            "1 to 10^12",
        )?;
        let objects = self.objects.value as f64;
        check.that("objects", objects, (16.0..=1e8).contains(&objects), "16 to 10^8")?;
        check.share("write_share", self.write_share.value)?;
        check.share("reads_of_written", self.reads_of_written.value)?;
        let seconds = self.duration_s.value;
        check.that(
            "duration_s",
            seconds,
            seconds > 0.0 && seconds < 1e10,
            "more than 0 s, less than 10^10",
        )?;
        let variation = self.inter_arrival_cv.value;
        check.that("inter_arrival_cv", variation, (1.0..1000.0).contains(&variation), "1 to 1000")?;
        let shares = self.writes.object_share.value + self.reads.object_share.value;
        check.that(
            "object_share of reads and writes",
            shares,
            (shares - 1.0).abs() < 1e-9,
            "they add up to 1",
        )?;
        self.writes.check("writes", &check)?;
        self.reads.check("reads", &check)?;
        self.hit_ratios.iter().try_for_each(|hit| check.share("hit_ratios", hit.ratio.value))
    }
}

impl Stream {
    fn check(&self, stream: &str, check: &Check) -> Result<(), VolumeError> {
        let field = |name: &str| format!("{stream}.{name}");
        check.share(&field("object_share"), self.object_share.value)?;
        check.share(&field("popular_share"), self.popular_share.value)?;
        check.share(&field("scan_share"), self.scan_share.value)?;
        let exponent = self.zipf_exponent.value;
        check.that(&field("zipf_exponent"), exponent, (0.0..=4.0).contains(&exponent), "0 to 4")?;
        let run = self.run_objects.value;
        check.that(&field("run_objects"), run, (1.0..=32.0).contains(&run), "1 to 32")?;
        for &(bytes, weight) in &self.sizes.value {
            let whole = bytes > 0 && bytes % 512 == 0 && bytes <= 16 << 20;
            check.that(&field("sizes"), f64::from(bytes), whole, "sectors of 512 bytes, at most 16 MiB")?;
            check.that(&field("sizes"), weight, weight > 0.0 && weight < 1e9, "weights are more than 0")?;
        }
        let mean = self.mean_bytes.value;
        let possible = crate::sizes::Sizes::tilted(&self.sizes.value, mean).is_some();
        check.that(&field("mean_bytes"), mean, possible, "it lies between the smallest and the largest size")
    }
}

struct Check<'a> {
    file: &'a str,
}

impl Check<'_> {
    fn that(&self, field: &str, value: f64, holds: bool, expected: &'static str) -> Result<(), VolumeError> {
        if holds {
            return Ok(());
        }
        let (file, field) = (self.file.to_owned(), field.to_owned());
        Err(VolumeError::Value { file, field, value: value.to_string(), expected })
    }

    fn share(&self, field: &str, value: f64) -> Result<(), VolumeError> {
        self.that(field, value, (0.0..=1.0).contains(&value), "a share is 0 to 1")
    }
}
