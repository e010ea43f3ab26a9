//! The survey of requests before a replay: their number, the bytes that they touch, and the places
//! of these on a device.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use terapage_blocktrace::{Kind, Request};

/// The size of the pieces of volumes that are placed as a whole. Chosen, not measured.
const PIECE: u64 = 1 << 20;

/// The layout of a trace's volumes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One volume after the other, with only the pieces of 1 MiB that requests touch, in the order
    /// of addresses. Neighbouring pieces stay neighbours.
    Packed,
    /// One volume after the other, each up to the last byte that requests touch.
    AsIs,
}

/// The results of a survey.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Requests.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// The end of the touched bytes of each volume.
    pub extents: Vec<u64>,
    /// Bytes of the touched pieces of 1 MiB.
    pub pieces_bytes: u64,
    /// Bytes of the lines that are read or written at least once.
    pub footprint_bytes: u64,
    /// The last time stamp, in nanoseconds.
    pub last_ns: u64,
}

/// The volume and number of a piece.
type Piece = (u16, u64);

/// Makes a survey, request by request. Its memory grows with the footprint.
#[derive(Debug)]
pub struct Surveyor {
    survey: Survey,
    shift: u32,
    /// Words of a piece's bitmap of lines.
    words: usize,
    pieces: HashMap<Piece, usize>,
    bits: Vec<u64>,
    last: (Piece, usize),
}

impl Surveyor {
    /// A surveyor that counts the footprint in lines of `line_bytes`, a power of two up to 1 MiB.
    pub fn new(line_bytes: u32) -> Self {
        let shift = line_bytes.clamp(512, 1 << 20).ilog2();
        Surveyor {
            survey: Survey::default(),
            shift,
            words: ((PIECE >> shift) as usize).div_ceil(64),
            pieces: HashMap::new(),
            bits: Vec::new(),
            last: ((0, u64::MAX), 0),
        }
    }

    /// Adds the next request.
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
            Kind::Trim => {
                for piece in request.offset / PIECE..=(request.end() - 1) / PIECE {
                    self.piece((request.volume, piece));
                }
                return;
            }
        }
        for line in request.offset >> self.shift..=(request.end() - 1) >> self.shift {
            self.touch(request.volume, line << self.shift);
        }
    }

    fn touch(&mut self, volume: u16, offset: u64) {
        let piece = self.piece((volume, offset / PIECE));
        let at = ((offset % PIECE) >> self.shift) as usize;
        let word = &mut self.bits[piece * self.words + at / 64];
        let bit = 1 << (at % 64);
        self.survey.footprint_bytes += u64::from(*word & bit == 0) << self.shift;
        *word |= bit;
    }

    /// The number of a piece, in order of appearance.
    fn piece(&mut self, piece: Piece) -> usize {
        if self.last.0 != piece {
            let new = self.pieces.len();
            let number = *self.pieces.entry(piece).or_insert(new);
            if number == new {
                self.bits.resize(self.bits.len() + self.words, 0);
                self.survey.pieces_bytes += PIECE;
            }
            self.last = (piece, number);
        }
        self.last.1
    }

    /// The survey, and the placement on a device by `layout`.
    pub fn finish(self, layout: Layout) -> (Survey, Placement) {
        let placement = match layout {
            Layout::Packed => Placement::packed(self.pieces),
            Layout::AsIs => Placement::as_is(&self.survey.extents),
        };
        (self.survey, placement)
    }
}

/// The placement: where volumes, or their pieces, begin on a device.
#[derive(Clone, Debug)]
pub struct Placement {
    how: How,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum How {
    Pieces(HashMap<Piece, u64>),
    Volumes(Vec<u64>),
}

impl Placement {
    fn packed(pieces: HashMap<Piece, usize>) -> Self {
        let mut order: Vec<Piece> = pieces.into_keys().collect();
        order.sort_unstable();
        let bytes = order.len() as u64 * PIECE;
        let places = order.into_iter().zip((0..).step_by(PIECE as usize));
        Placement { how: How::Pieces(places.collect()), bytes }
    }

    fn as_is(extents: &[u64]) -> Self {
        let mut bytes = 0;
        let mut bases = Vec::new();
        for extent in extents {
            bases.push(bytes);
            bytes += extent.next_multiple_of(PIECE);
        }
        Placement { how: How::Volumes(bases), bytes }
    }

    /// Bytes of a device that has room for everything.
    pub fn device_bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the volumes begin on the device, in order, except the first one.
    pub fn volumes(&self) -> Vec<u64> {
        let mut begins: Vec<u64> = match &self.how {
            How::Volumes(bases) => bases.clone(),
            How::Pieces(places) => {
                let mut first: HashMap<u16, u64> = HashMap::new();
                for ((volume, _), place) in places {
                    let least = first.entry(*volume).or_insert(*place);
                    *least = (*least).min(*place);
                }
                first.into_values().collect()
            }
        };
        begins.sort_unstable();
        begins.dedup();
        begins.retain(|begin| (1..self.bytes).contains(begin));
        begins
    }

    /// `request` at its place on the device. A request that was not surveyed stays at its place.
    pub fn place(&self, mut request: Request) -> Request {
        match &self.how {
            How::Pieces(places) => {
                if let Some(base) = places.get(&(request.volume, request.offset / PIECE)) {
                    request.offset = base + request.offset % PIECE;
                }
            }
            How::Volumes(bases) => {
                request.offset += bases.get(usize::from(request.volume)).copied().unwrap_or(0);
            }
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn requests() -> impl Strategy<Value = Vec<Request>> {
        let request = (0_u64..1 << 26, 1_u32..3_000_000, 0_u16..3, 0_u8..3);
        let request = request.prop_map(|(offset, bytes, volume, kind)| {
            let kind = [Kind::Read, Kind::Write, Kind::Trim][usize::from(kind)];
            Request { time_ns: 0, offset, bytes, volume, kind }
        });
        prop::collection::vec(request, 1..30)
    }

    fn survey(requests: &[Request], line_bytes: u32, layout: Layout) -> (Survey, Placement) {
        let mut surveyor = Surveyor::new(line_bytes);
        requests.iter().for_each(|request| surveyor.add(request));
        surveyor.finish(layout)
    }

    proptest! {
        #[test]
        fn the_footprint_is_that_of_a_set(requests in requests(), shift in 9_u32..15) {
            let (survey, _) = survey(&requests, 1 << shift, Layout::Packed);
            let touching = |request: &&Request| request.kind != Kind::Trim;
            let lines: HashSet<(u16, u64)> = (requests.iter().filter(touching))
                .flat_map(|request| {
                    let lines = request.offset >> shift..=(request.end() - 1) >> shift;
                    lines.map(|line| (request.volume, line))
                })
                .collect();
            prop_assert_eq!(survey.footprint_bytes, (lines.len() as u64) << shift);
            prop_assert_eq!(survey.requests, requests.len() as u64);
        }

        /// Different bytes of the volumes get different places, within the device and in the same
        /// order.
        #[test]
        fn placing_keeps_bytes_apart_and_in_order(requests in requests(), packed in any::<bool>()) {
            let layout = if packed { Layout::Packed } else { Layout::AsIs };
            let (_, placement) = survey(&requests, 4096, layout);
            let mut places: Vec<((u16, u64), u64)> = Vec::new();
            for &request in &requests {
                let placed = placement.place(request);
                prop_assert!(placed.end() <= placement.device_bytes());
                // The first and the last byte of each request.
                places.push(((request.volume, request.offset), placed.offset));
                places.push(((request.volume, request.end() - 1), placed.end() - 1));
            }
            places.sort_unstable();
            for pair in places.windows(2) {
                prop_assert_eq!(pair[0].0 == pair[1].0, pair[0].1 == pair[1].1);
                prop_assert!(pair[0].1 <= pair[1].1, "{:?}", pair);
            }
        }
    }

    #[test]
    fn packing_leaves_out_what_is_never_touched() {
        let at = |offset| Request { time_ns: 0, offset, bytes: 4096, volume: 0, kind: Kind::Read };
        let requests = [at(1 << 40), at(0), at((1 << 40) + PIECE - 2048)];
        let (found, placement) = survey(&requests, 4096, Layout::Packed);
        assert_eq!((found.pieces_bytes, placement.device_bytes()), (3 * PIECE, 3 * PIECE));
        assert_eq!(found.footprint_bytes, 4 * 4096);
        let offsets: Vec<u64> = requests.iter().map(|&request| placement.place(request).offset).collect();
        assert_eq!(offsets, [PIECE, 0, 2 * PIECE - 2048]);
        assert_eq!(survey(&requests, 4096, Layout::AsIs).1.device_bytes(), (1 << 40) + 2 * PIECE);
        assert!(placement.volumes().is_empty());
    }

    #[test]
    fn volumes_begin_where_they_are_placed() {
        let at = |volume, offset| Request { time_ns: 0, offset, bytes: 4096, volume, kind: Kind::Write };
        let requests = [at(2, PIECE), at(0, 9 * PIECE), at(0, 5 * PIECE), at(1, 7 * PIECE), at(2, 0)];
        let begins = |layout| survey(&requests, 4096, layout).1.volumes();
        assert_eq!(begins(Layout::Packed), [2 * PIECE, 3 * PIECE]);
        assert_eq!(begins(Layout::AsIs), [10 * PIECE, 18 * PIECE]);
    }
}
