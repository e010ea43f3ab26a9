//! Faults of a single record.

/// A fault of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A field has an invalid value.
    #[error("expected {expected}, found {found}")]
    Field {
        /// What the format requires here.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The length is 0.
    #[error("expected a length above 0, found 0")]
    ZeroLength,
    /// The length is more than a request can have: one byte less than 4 GiB.
    #[error("expected a length below 4 GiB, found {bytes} bytes")]
    TooLong {
        /// The length in bytes.
        bytes: u64,
    },
    /// The end is beyond 2^63 bytes, so that the last byte has no address.
    #[error("expected an offset below 8 EiB, found {offset} in units of {unit_bytes} bytes")]
    TooFar {
        /// The offset.
        offset: u64,
        /// The unit of the offset, in bytes.
        unit_bytes: u64,
    },
    /// It extends beyond the given capacity.
    #[error(
        "expected a request that ends within the {capacity} bytes of the volume, found one that ends at {end}"
    )]
    BeyondCapacity {
        /// The byte after its last one.
        end: u64,
        /// The capacity.
        capacity: u64,
    },
    /// Its time is before that of the previous record.
    #[error(
        "expected a time not before the last one, found one {back_ns} ns earlier \
         (--disorder {back_ns}ns treats it as simultaneous)"
    )]
    TimeBack {
        /// How long before.
        back_ns: u64,
    },
    /// Its time cannot be represented: the trace would be longer than 584 years.
    #[error("expected a time within 584 years of the first, found {found}")]
    TooLate {
        /// The time, in the format's own unit.
        found: u64,
    },
    /// It is not a record, and the beginning of the next one is not known.
    #[error("expected {expected}, found {found}")]
    Lost {
        /// What the format requires here.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The file ends within it.
    #[error("expected {expected_bytes} bytes, found the end of the file after {found_bytes}")]
    Truncated {
        /// The record's length.
        expected_bytes: u64,
        /// The bytes of it that exist.
        found_bytes: u64,
    },
    /// A line without an end.
    #[error("expected a line of at most {limit_bytes} bytes, found a longer one")]
    LongLine {
        /// The longest line that is accepted.
        limit_bytes: usize,
    },
    /// The 65,537th volume.
    #[error("expected at most 65536 volumes, found one more: {name}")]
    ManyVolumes {
        /// Its name.
        name: String,
    },
    /// The checksum of a frame or header differs from the one in the file.
    #[error("expected bytes with the checksum {expected:#018x}, found {found:#018x}: the file is damaged")]
    Checksum {
        /// The checksum in the file.
        expected: u64,
        /// The checksum of the bytes.
        found: u64,
    },
}

impl Fault {
    /// Whether the following records can still be found; only then can this one be skipped.
    pub(crate) fn is_local(&self) -> bool {
        !matches!(
            self,
            Fault::Lost { .. } | Fault::Truncated { .. } | Fault::LongLine { .. } | Fault::Checksum { .. }
        )
    }
}

/// A result with a boxed fault, so that the path without faults is fast.
pub(crate) type Checked<T> = Result<T, Box<Fault>>;

/// A field with an invalid value; at most 40 bytes of `found` are shown, in quotation marks.
#[cold]
#[inline(never)]
pub(crate) fn field<T>(expected: &'static str, found: &[u8]) -> Checked<T> {
    Err(Box::new(Fault::Field { expected, found: excerpt(found) }))
}

/// At most 40 bytes, readable.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_string();
    }
    let shown = &bytes[..bytes.len().min(40)];
    let dots = if shown.len() < bytes.len() { "..." } else { "" };
    format!("\"{}{dots}\"", shown.escape_ascii())
}
