//! Pieces of memory of an operation.

use terapage_sys::ring::Piece;

/// `len` bytes of pieces, from a byte on.
pub(crate) fn cut(pieces: &[Piece], mut from: usize, mut len: usize) -> Vec<Piece> {
    let mut part = Vec::new();
    for piece in pieces {
        let skip = from.min(piece.len());
        let take = len.min(piece.len() - skip);
        if take > 0 {
            part.push(Piece::new(piece.at() + skip, take));
        }
        (from, len) = (from - skip, len - take);
    }
    part
}
