//! What can be wrong with one record.

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A field is not what it has to be.
    #[error("expected {expected}, found {found}")]
    Field {
        /// What the format has here.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// It asks for no bytes.
    #[error("expected a length above 0, found 0")]
    ZeroLength,
    /// It asks for more than a request can: a byte short of 4 GiB.
    #[error("expected a length below 4 GiB, found {bytes} bytes")]
    TooLong {
        /// The bytes that it asks for.
        bytes: u64,
    },
    /// Its last byte has no address: the end is beyond 2^63 bytes.
    #[error("expected an offset below 8 EiB, found {offset} in units of {unit_bytes} bytes")]
    TooFar {
        /// The offset.
        offset: u64,
        /// The bytes in which it is given.
        unit_bytes: u64,
    },
    /// It goes beyond the capacity that was given.
    #[error(
        "expected a request that ends within the {capacity} bytes of the volume, found one that ends at {end}"
    )]
    BeyondCapacity {
        /// The byte after its last.
        end: u64,
        /// The capacity.
        capacity: u64,
    },
    /// It came before the record before it.
    #[error(
        "expected a time not before the last one, found one {back_ns} ns earlier \
         (--disorder {back_ns}ns treats it as simultaneous)"
    )]
    TimeBack {
        /// How long before.
        back_ns: u64,
    },
    /// Its time has no number: the trace would be longer than 584 years.
    #[error("expected a time within 584 years of the first, found {found}")]
    TooLate {
        /// The time, in the format's own unit.
        found: u64,
    },
    /// It is none, and where the next one begins is not known.
    #[error("expected {expected}, found {found}")]
    Lost {
        /// What the format has here.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The file ends within it.
    #[error("expected {expected_bytes} bytes, found the end of the file after {found_bytes}")]
    Truncated {
        /// The record's length.
        expected_bytes: u64,
        /// How much of it is there.
        found_bytes: u64,
    },
    /// A line without an end.
    #[error("expected a line of at most {limit_bytes} bytes, found a longer one")]
    LongLine {
        /// The longest line that is read.
        limit_bytes: usize,
    },
    /// The 65,537th volume.
    #[error("expected at most 65536 volumes, found one more: {name}")]
    ManyVolumes {
        /// Its name.
        name: String,
    },
    /// The checksum of a frame or header is not the one that is noted there.
    #[error("expected bytes with the checksum {expected:#018x}, found {found:#018x}: the file is damaged")]
    Checksum {
        /// The checksum in the file.
        expected: u64,
        /// The one of the bytes.
        found: u64,
    },
}

impl Fault {
    /// Whether the records after this one can still be told apart: only then can it be skipped.
    pub(crate) fn is_local(&self) -> bool {
        !matches!(
            self,
            Fault::Lost { .. } | Fault::Truncated { .. } | Fault::LongLine { .. } | Fault::Checksum { .. }
        )
    }
}

/// A fault on its way; boxed, for the way without faults is the hot one.
pub(crate) type Checked<T> = Result<T, Box<Fault>>;

/// A field that is not what it has to be; `found` is shown in quotation marks, at most 40 bytes of
/// it.
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
