//! One request.

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Bytes of the volume.
    Read,
    /// Bytes for the volume.
    Write,
    /// The volume may forget these bytes.
    Trim,
}

/// One request of a host to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Request {
    /// The time in nanoseconds since the first request of the trace. Formats without times give 0.
    pub time_ns: u64,
    /// Its first byte on the volume.
    pub offset: u64,
    /// Its bytes; never 0.
    pub bytes: u32,
    /// The volume, from 0 in order of appearance.
    pub volume: u16,
    /// The kind of the request.
    pub kind: Kind,
}

impl Request {
    /// The byte after its last one.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }
}
