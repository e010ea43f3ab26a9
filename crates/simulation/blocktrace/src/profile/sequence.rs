//! Whether requests continue where others ended.

use crate::request::Request;

/// The number of ends that are remembered for a volume: parallel streams.
const STREAMS: usize = 32;

/// The last ends on each volume.
#[derive(Default)]
pub(super) struct Sequence {
    volumes: Vec<Ends>,
}

#[derive(Clone)]
struct Ends {
    ends: [u64; STREAMS],
    next: usize,
}

impl Default for Ends {
    /// No request begins at the last address.
    fn default() -> Self {
        Ends { ends: [u64::MAX; STREAMS], next: 0 }
    }
}

impl Sequence {
    /// Returns whether the request begins where the last one ended, and whether it begins where one
    /// of the last 32 ended.
    pub fn add(&mut self, request: &Request) -> (bool, bool) {
        let volume = usize::from(request.volume);
        if self.volumes.len() <= volume {
            self.volumes.resize(volume + 1, Ends::default());
        }
        let Ends { ends, next } = &mut self.volumes[volume];
        let last = (*next + STREAMS - 1) % STREAMS;
        let found = (ends[last] == request.offset, ends.contains(&request.offset));
        ends[*next] = request.end();
        *next = (*next + 1) % STREAMS;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Kind;

    #[test]
    fn streams_side_by_side_are_nearly_sequential() {
        let mut sequence = Sequence::default();
        let mut add = |volume, offset| {
            sequence.add(&Request { time_ns: 0, offset, bytes: 10, volume, kind: Kind::Read })
        };
        assert_eq!(add(0, 0), (false, false));
        assert_eq!(add(0, 10), (true, true));
        assert_eq!(add(0, 500), (false, false));
        assert_eq!(add(1, 510), (false, false));
        assert_eq!(add(0, 20), (false, true));
        assert_eq!(add(0, 510), (false, true));
        for number in 0..32 {
            assert_eq!(add(0, 1000 + 20 * number), (false, false));
        }
        assert_eq!(add(0, 520), (false, false));
    }
}
