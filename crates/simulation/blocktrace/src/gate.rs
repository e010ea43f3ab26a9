//! Checks every record, whatever its format, and counts the records that are skipped.

use crate::fault::{Checked, Fault};
use crate::options::Options;
use crate::request::{Kind, Request};
use crate::volumes::Volumes;

/// The numbers of records that a reader has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Requests that were returned.
    pub requests: u64,
    /// Bad records that were skipped, as `skip_bad` allows.
    pub skipped: u64,
    /// Requests whose time went back, as `disorder_ns` allows; they get the time of the previous
    /// request.
    pub late: u64,
    /// The most that a time went back, in nanoseconds.
    pub late_ns_max: u64,
    /// Requests to volumes that were not selected.
    pub unwanted: u64,
    /// Records that are not requests for data: other actions, flushes, opened files.
    pub other: u64,
}

/// A record as in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Its time, in the format's ticks.
    pub ticks: u64,
    /// Its address, in the format's units.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The kind of the request.
    pub kind: Kind,
}

/// The checks and the counts.
#[derive(Debug)]
pub(crate) struct Gate {
    pub volumes: Volumes,
    pub counts: Counts,
    tick_ns: u64,
    unit_bytes: u64,
    end_max: u64,
    capacity: Option<u64>,
    disorder_ns: u64,
    skip_bad: u64,
    first_ticks: Option<u64>,
    last_ticks: u64,
}

impl Gate {
    /// For a format with ticks of `tick_ns` nanoseconds and addresses in units of `unit_bytes`.
    pub fn new(options: &Options, tick_ns: u64, unit_bytes: u64) -> Gate {
        Gate {
            volumes: Volumes::new(&options.volumes),
            counts: Counts::default(),
            tick_ns,
            unit_bytes,
            end_max: options.capacity.unwrap_or(u64::MAX).min(i64::MAX as u64),
            capacity: options.capacity,
            disorder_ns: options.disorder_ns,
            skip_bad: options.skip_bad,
            first_ticks: None,
            last_ticks: 0,
        }
    }

    /// The request of a record of the volume called `key`; `None` if that volume was not selected.
    #[inline]
    pub fn admit(&mut self, key: &[u8], record: Record) -> Checked<Option<Request>> {
        let request = self.check(record)?;
        let Some(volume) = self.volumes.number(key)? else {
            self.counts.unwanted += 1;
            return Ok(None);
        };
        let time_ns = self.time(record.ticks)?;
        self.counts.requests += 1;
        Ok(Some(Request { time_ns, volume, ..request }))
    }

    /// Counts a record that is not a request for data.
    #[inline]
    pub fn other(&mut self) -> Checked<Option<Request>> {
        self.counts.other += 1;
        Ok(None)
    }

    /// Returns whether a bad record may be skipped, and counts it if so.
    pub fn skip(&mut self, fault: &Fault) -> bool {
        let may = fault.is_local() && self.counts.skipped < self.skip_bad;
        self.counts.skipped += u64::from(may);
        may
    }

    #[inline]
    fn check(&self, record: Record) -> Checked<Request> {
        let Record { address, bytes, kind, .. } = record;
        if bytes == 0 || bytes > u64::from(u32::MAX) {
            return Err(Box::new(if bytes == 0 { Fault::ZeroLength } else { Fault::TooLong { bytes } }));
        }
        let offset = address.checked_mul(self.unit_bytes);
        let end = offset.and_then(|offset| offset.checked_add(bytes)).unwrap_or(u64::MAX);
        if end > self.end_max {
            return Err(self.beyond(address, end));
        }
        Ok(Request { time_ns: 0, offset: end - bytes, bytes: bytes as u32, volume: 0, kind })
    }

    #[cold]
    fn beyond(&self, address: u64, end: u64) -> Box<Fault> {
        Box::new(match self.capacity {
            Some(capacity) if end <= i64::MAX as u64 => Fault::BeyondCapacity { end, capacity },
            _ => Fault::TooFar { offset: address, unit_bytes: self.unit_bytes },
        })
    }

    #[inline]
    fn time(&mut self, ticks: u64) -> Checked<u64> {
        let first = *self.first_ticks.get_or_insert_with(|| {
            self.last_ticks = ticks;
            ticks
        });
        if ticks < self.last_ticks {
            self.late(ticks)?;
        } else {
            if (ticks - first).checked_mul(self.tick_ns).is_none() {
                return Err(Box::new(Fault::TooLate { found: ticks }));
            }
            self.last_ticks = ticks;
        }
        Ok((self.last_ticks - first) * self.tick_ns)
    }

    #[cold]
    fn late(&mut self, ticks: u64) -> Checked<()> {
        let back_ns = (self.last_ticks - ticks).saturating_mul(self.tick_ns);
        if back_ns > self.disorder_ns {
            return Err(Box::new(Fault::TimeBack { back_ns }));
        }
        self.counts.late += 1;
        self.counts.late_ns_max = self.counts.late_ns_max.max(back_ns);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ticks: u64, address: u64, bytes: u64) -> Record {
        Record { ticks, address, bytes, kind: Kind::Read }
    }

    #[test]
    fn times_count_from_the_first_request() {
        let mut gate = Gate::new(&Options::default(), 100, 1);
        let times =
            [5000, 5000, 5007].map(|ticks| gate.admit(b"", record(ticks, 0, 1)).unwrap().unwrap().time_ns);
        assert_eq!(times, [0, 0, 700]);
        let fault = gate.admit(b"", record(5006, 0, 1)).unwrap_err();
        assert_eq!(*fault, Fault::TimeBack { back_ns: 100 });
    }

    #[test]
    fn a_little_disorder_is_taken_as_simultaneous_if_allowed() {
        let mut gate = Gate::new(&Options { disorder_ns: 200, ..Options::default() }, 100, 1);
        let times =
            [7, 9, 8, 7, 9].map(|ticks| gate.admit(b"", record(ticks, 0, 1)).unwrap().unwrap().time_ns);
        assert_eq!(times, [0, 200, 200, 200, 200]);
        assert_eq!((gate.counts.late, gate.counts.late_ns_max), (2, 200));
        assert!(gate.admit(b"", record(6, 0, 1)).is_err());
    }

    #[test]
    fn lengths_and_ends_are_checked() {
        let mut gate = Gate::new(&Options { capacity: Some(8192), ..Options::default() }, 1, 512);
        assert_eq!(*gate.admit(b"", record(0, 0, 0)).unwrap_err(), Fault::ZeroLength);
        assert_eq!(*gate.admit(b"", record(0, 0, 1 << 32)).unwrap_err(), Fault::TooLong { bytes: 1 << 32 });
        assert_eq!(gate.admit(b"", record(0, 8, 4096)).unwrap().unwrap().offset, 4096);
        let beyond = Fault::BeyondCapacity { end: 8704, capacity: 8192 };
        assert_eq!(*gate.admit(b"", record(0, 9, 4096)).unwrap_err(), beyond);
        let far = Fault::TooFar { offset: u64::MAX / 2, unit_bytes: 512 };
        assert_eq!(*gate.admit(b"", record(0, u64::MAX / 2, 1)).unwrap_err(), far);
    }
}
