//! What must be known of requests before they can be replayed: how many, how far they reach, how much they touch.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use terapage_blocktrace::{Kind, Request};

/// Where volumes begin on a device that holds several: at multiples of this.
const ALIGNMENT: u64 = 1 << 20;
/// Words of a bitmap of lines.
const WORDS: usize = 64;

/// What requests are like. Volumes lie on the device one after the other, in order of appearance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Requests.
    pub requests: u64,
    /// Reads of them.
    pub reads: u64,
    /// Writes of them.
    pub writes: u64,
    /// The byte after the last one that is touched, by volume.
    pub extents: Vec<u64>,
    /// Bytes of the lines that are read or written at least once.
    pub footprint_bytes: u64,
    /// The last time stamp, in nanoseconds.
    pub last_ns: u64,
}

impl Survey {
    /// Where each volume begins.
    pub fn bases(&self) -> Vec<u64> {
        let mut next = 0;
        let place = |extent: &u64| {
            let base = next;
            next += extent.next_multiple_of(ALIGNMENT);
            base
        };
        self.extents.iter().map(place).collect()
    }

    /// Bytes of a device that holds all volumes.
    pub fn device_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.next_multiple_of(ALIGNMENT)).sum()
    }
}

/// Takes a survey, request by request. Its memory grows with the footprint.
#[derive(Debug)]
pub struct Surveyor {
    survey: Survey,
    shift: u32,
    /// Bitmaps of lines that were touched, by volume and the upper bits of the line's number.
    maps: HashMap<(u16, u64), usize>,
    bits: Vec<[u64; WORDS]>,
    last: (u16, u64, usize),
}

impl Surveyor {
    /// For a footprint in lines of `line_bytes`, a power of two.
    pub fn new(line_bytes: u32) -> Self {
        Surveyor {
            survey: Survey::default(),
            shift: line_bytes.max(512).ilog2(),
            maps: HashMap::new(),
            bits: Vec::new(),
            last: (0, u64::MAX, 0),
        }
    }

    /// Looks at the next request.
    pub fn add(&mut self, request: &Request) {
        let survey = &mut self.survey;
        survey.requests += 1;
        survey.last_ns = survey.last_ns.max(request.time_ns);
        let volume = usize::from(request.volume);
        if volume >= survey.extents.len() {
            survey.extents.resize(volume + 1, 0);
        }
        survey.extents[volume] = survey.extents[volume].max(request.end());
        match request.kind {
            Kind::Read => survey.reads += 1,
            Kind::Write => survey.writes += 1,
            Kind::Trim => return,
        }
        for line in request.offset >> self.shift..=(request.end() - 1) >> self.shift {
            self.touch(request.volume, line);
        }
    }

    fn touch(&mut self, volume: u16, line: u64) {
        let lines = WORDS as u64 * 64;
        let chunk = line / lines;
        if (self.last.0, self.last.1) != (volume, chunk) {
            let map = *self.maps.entry((volume, chunk)).or_insert_with(|| {
                self.bits.push([0; WORDS]);
                self.bits.len() - 1
            });
            self.last = (volume, chunk, map);
        }
        let at = (line % lines) as usize;
        let word = &mut self.bits[self.last.2][at / 64];
        let bit = 1 << (at % 64);
        self.survey.footprint_bytes += u64::from(*word & bit == 0) << self.shift;
        *word |= bit;
    }

    /// What there was.
    pub fn finish(self) -> Survey {
        self.survey
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_footprint_is_that_of_a_set(
            requests in prop::collection::vec((0_u64..1 << 26, 1_u32..100_000, 0_u16..3, 0_u8..3), 0..100),
        ) {
            let mut surveyor = Surveyor::new(4096);
            let mut lines = HashSet::new();
            let mut extents = [0_u64; 3];
            for &(offset, bytes, volume, kind) in &requests {
                let kind = [Kind::Read, Kind::Write, Kind::Trim][usize::from(kind)];
                let request = Request { time_ns: 0, offset, bytes, volume, kind };
                surveyor.add(&request);
                extents[usize::from(volume)] = extents[usize::from(volume)].max(request.end());
                if kind != Kind::Trim {
                    lines.extend((offset / 4096..request.end().div_ceil(4096)).map(|line| (volume, line)));
                }
            }
            let survey = surveyor.finish();
            prop_assert_eq!(survey.footprint_bytes, lines.len() as u64 * 4096);
            prop_assert_eq!(survey.requests, requests.len() as u64);
            for (volume, base) in survey.bases().iter().enumerate() {
                prop_assert_eq!(survey.extents[volume], extents[volume]);
                let end = survey.bases().get(volume + 1).copied().unwrap_or(survey.device_bytes());
                prop_assert!(base + extents[volume] <= end);
            }
        }
    }
}
