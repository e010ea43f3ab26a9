//! A trace in pieces of equal length, while the length of the trace is not yet known.

use super::sketch::Sketch;
use crate::request::{Kind, Request};

/// The greatest number of windows; at this number each two become one.
const WINDOWS_MAX: usize = 256;

/// A piece of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Window {
    /// Requests.
    pub requests: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Distinct blocks that were touched: an estimate with a standard error of 1.6%.
    pub distinct_blocks: f64,
}

/// A piece in the making.
#[derive(Clone, Default)]
pub(super) struct Piece {
    window: Window,
    blocks: Sketch,
}

impl Piece {
    pub fn add(&mut self, request: &Request) {
        self.window.requests += 1;
        match request.kind {
            Kind::Read => self.window.read_bytes += u64::from(request.bytes),
            Kind::Write => self.window.written_bytes += u64::from(request.bytes),
            Kind::Trim => {}
        }
    }

    #[inline]
    pub fn touch(&mut self, hash: u64) {
        self.blocks.add(hash);
    }

    fn unite(&mut self, other: &Piece) {
        self.window.requests += other.window.requests;
        self.window.read_bytes += other.window.read_bytes;
        self.window.written_bytes += other.window.written_bytes;
        self.blocks.unite(&other.blocks);
    }
}

/// The pieces so far. Their length doubles whenever there are too many.
pub(super) struct Windows {
    length: u64,
    pieces: Vec<Piece>,
    requests: u64,
}

impl Windows {
    /// Pieces of at least the length `length`.
    pub fn new(length: u64) -> Windows {
        Windows { length, pieces: Vec::new(), requests: 0 }
    }

    /// The number of requests so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The piece at a place: nanoseconds, or a number of requests.
    pub fn at(&mut self, place: u64) -> &mut Piece {
        self.requests += 1;
        while place / self.length >= WINDOWS_MAX as u64 {
            self.halve();
        }
        let index = (place / self.length) as usize;
        if self.pieces.len() <= index {
            self.pieces.resize(index + 1, Piece::default());
        }
        &mut self.pieces[index]
    }

    fn halve(&mut self) {
        let old = std::mem::take(&mut self.pieces);
        for pair in old.chunks(2) {
            let mut piece = pair[0].clone();
            if let Some(second) = pair.get(1) {
                piece.unite(second);
            }
            self.pieces.push(piece);
        }
        self.length = self.length.saturating_mul(2);
    }

    /// The windows and their length.
    pub fn finish(self) -> (Vec<Window>, u64) {
        let finished = |piece: &Piece| Window { distinct_blocks: piece.blocks.estimate(), ..piece.window };
        (self.pieces.iter().map(finished).collect(), self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_with_the_trace_and_lose_nothing() {
        let mut windows = Windows::new(10);
        let request = |bytes| Request { time_ns: 0, offset: 0, bytes, volume: 0, kind: Kind::Read };
        for place in 0..100_000u64 {
            windows.at(place).add(&request(1));
        }
        let (pieces, length) = windows.finish();
        assert_eq!(length, 640);
        assert_eq!(pieces.len(), 157);
        assert!(pieces[..156].iter().all(|piece| piece.requests == 640 && piece.read_bytes == 640));
        assert_eq!(pieces.iter().map(|piece| piece.requests).sum::<u64>(), 100_000);
    }

    #[test]
    fn the_end_of_time_is_a_window_too() {
        let mut windows = Windows::new(10);
        windows.at(0);
        windows.at(u64::MAX);
        assert!(windows.finish().0.len() <= WINDOWS_MAX);
    }
}
