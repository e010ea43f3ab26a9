//! The replies of one connection: where the next bytes go, and which replies are complete.
//!
//! The reply to a read of known length is `$16384`, a line end, the bytes, a line end. So a
//! connection that awaits such replies receives the next bytes directly into their destination,
//! with the header. If the header differs from the expected one, the received bytes are taken from
//! there and parsed as any reply: that is rare, and may be slow.

use crate::resp::{self, Malformed, Reply};
use std::collections::VecDeque;
use terapage_sys::memory;
use terapage_sys::ring::Piece;

/// The most pieces of memory of one receive.
const PIECES_MAX: usize = 512;

/// The number of bytes to receive if the length of a reply is unknown.
const SLOP: usize = 4096;

/// The expected result of a command.
pub enum Want {
    /// Any reply.
    Reply,
    /// Bytes, as many as the pieces have.
    Bytes(Vec<Piece>),
}

/// What it brought.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// The bytes, into the pieces.
    Filled,
    /// A reply, if it is not the wanted bytes.
    Reply(Reply),
}

/// A reply to come.
struct Owed {
    /// None: any reply.
    image: Option<Image>,
}

/// A reply of known length: the received part of its header, bytes and end.
struct Image {
    header: Vec<u8>,
    /// The bytes in the place of the header, and after the data. They are separate, because they
    /// must not move. Apart, as it must not move.
    edge: Vec<u8>,
    edge_at: usize,
    pieces: Vec<Piece>,
    len: usize,
    got: usize,
}

impl Image {
    fn new(pieces: Vec<Piece>) -> Image {
        let len = pieces.iter().map(Piece::len).sum();
        let mut header = Vec::with_capacity(24);
        resp::header(&mut header, '$', len);
        let mut edge = vec![0; header.len() + 2];
        let edge_at = edge.as_mut_ptr() as usize;
        Image { header, edge, edge_at, pieces, len, got: 0 }
    }

    fn total(&self) -> usize {
        self.header.len() + self.len + 2
    }

    /// The memory in which the bytes from number `from` to `to` of the reply lie or will lie.
    fn places(&self, from: usize, to: usize, out: &mut Vec<Piece>) {
        let head = self.header.len();
        let parts = [Piece::new(self.edge_at, head)];
        let end = [Piece::new(self.edge_at + head, 2)];
        let mut at = 0;
        for piece in parts.iter().chain(&self.pieces).chain(&end) {
            let (first, last) = (from.max(at), to.min(at + piece.len()));
            if first < last {
                out.push(Piece::new(piece.at() + (first - at), last - first));
            }
            at += piece.len();
        }
    }

    /// Whether the received part of the header is as expected.
    fn is_expected(&self) -> bool {
        let come = self.got.min(self.header.len());
        self.edge[..come] == self.header[..come]
    }

    /// Whether the reply is complete.
    ///
    /// # Errors
    /// Its end is wrong.
    fn is_whole(&self) -> Result<bool, Malformed> {
        if self.got < self.total() {
            return Ok(false);
        }
        let head = self.header.len();
        if &self.edge[head..] == b"\r\n" {
            Ok(true)
        } else {
            Err(Malformed("the bytes of a block do not end where they should"))
        }
    }
}

/// The replies that a connection owes.
pub struct Receiver {
    owed: VecDeque<Owed>,
    /// Received bytes that are not in their place.
    pending: Vec<u8>,
    slop: Vec<u8>,
    /// Whether the next bytes go to `slop`.
    is_slop: bool,
}

impl Default for Receiver {
    fn default() -> Self {
        Receiver { owed: VecDeque::new(), pending: Vec::new(), slop: vec![0; SLOP], is_slop: false }
    }
}

impl Receiver {
    /// A command was sent whose result is this.
    pub fn expect(&mut self, want: Want) {
        let image = match want {
            Want::Reply => None,
            Want::Bytes(pieces) => Some(Image::new(pieces)),
        };
        self.owed.push_back(Owed { image });
    }

    /// Replies to come.
    #[cfg(test)]
    pub fn owed(&self) -> usize {
        self.owed.len()
    }

    /// The places of the next bytes. The places stay valid until [`received`](Self::received) gets
    /// the number of bytes.
    pub fn places(&mut self, out: &mut Vec<Piece>) {
        out.clear();
        self.is_slop = !self.pending.is_empty() || self.owed.front().is_none_or(|owed| owed.image.is_none());
        if self.is_slop {
            out.push(Piece::new(self.slop.as_mut_ptr() as usize, SLOP));
            return;
        }
        for owed in &self.owed {
            let Some(image) = &owed.image else { return };
            if !out.is_empty() && out.len() + image.pieces.len() + 2 > PIECES_MAX {
                return;
            }
            image.places(image.got, image.total(), out);
        }
    }

    /// This number of bytes arrived. Adds the answers that are now complete, in order.
    ///
    /// # Errors
    /// The bytes are invalid: the connection can no longer be used.
    ///
    /// # Safety
    /// The wanted pieces are valid, and have no other user.
    pub unsafe fn received(&mut self, mut bytes: usize, out: &mut Vec<Answer>) -> Result<(), Malformed> {
        if self.is_slop {
            self.pending.extend_from_slice(&self.slop[..bytes]);
            // SAFETY: the caller's promise.
            return unsafe { self.digest(out) };
        }
        while bytes > 0 {
            let image = self.owed.front_mut().and_then(|owed| owed.image.as_mut());
            let image = image.ok_or(Malformed("more bytes arrived than were asked for"))?;
            let come = bytes.min(image.total() - image.got);
            image.got += come;
            bytes -= come;
            if !image.is_expected() {
                // SAFETY: the caller's promise.
                unsafe { self.divert(bytes) };
                // SAFETY: the caller's promise.
                return unsafe { self.digest(out) };
            }
            if image.is_whole()? {
                self.owed.pop_front();
                out.push(Answer::Filled);
            }
        }
        Ok(())
    }

    /// Takes the received part of the first reply, and the `more` bytes that followed it, from
    /// their places.
    ///
    /// # Safety
    /// As for [`received`](Self::received).
    unsafe fn divert(&mut self, mut more: usize) {
        let mut places = Vec::new();
        for (index, image) in self.owed.iter_mut().map_while(|owed| owed.image.as_mut()).enumerate() {
            let come = if index == 0 { image.got } else { more.min(image.total()) };
            more -= if index == 0 { 0 } else { come };
            image.places(0, come, &mut places);
            image.got = 0;
            if more == 0 {
                break;
            }
        }
        for place in places {
            // SAFETY: the caller's promise; an edge belongs to this receiver.
            self.pending.extend_from_slice(unsafe { memory::bytes(place.at(), place.len()) });
        }
    }

    /// Parses the pending bytes.
    ///
    /// # Safety
    /// As for [`received`](Self::received).
    unsafe fn digest(&mut self, out: &mut Vec<Answer>) -> Result<(), Malformed> {
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        while !rest.is_empty() {
            if let Some(image) = self.owed.front_mut().and_then(|owed| owed.image.as_mut()) {
                let common = rest.len().min(image.header.len());
                if rest[..common] == image.header[..common] {
                    let come = rest.len().min(image.total());
                    let mut places = Vec::new();
                    image.places(0, come, &mut places);
                    for place in places {
                        let (now, later) = rest.split_at(place.len());
                        // SAFETY: the caller's promise; an edge belongs to this receiver.
                        unsafe { memory::bytes(place.at(), place.len()) }.copy_from_slice(now);
                        rest = later;
                    }
                    image.got = come;
                    if !image.is_whole()? {
                        break;
                    }
                    self.owed.pop_front();
                    out.push(Answer::Filled);
                    continue;
                }
            }
            let Some((reply, used)) = resp::parse(rest)? else { break };
            rest = &rest[used..];
            if !matches!(reply, Reply::Push(_)) {
                self.owed.pop_front().ok_or(Malformed("a reply arrived without a request"))?;
                out.push(Answer::Reply(reply));
            }
        }
        self.pending = rest.to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The result that one of several commands wants, and the server's answer.
    #[derive(Clone, Debug)]
    enum Turn {
        Bytes(Vec<usize>),
        Missing(usize),
        Refused(usize),
        Longer(usize),
        Plain(Reply),
    }

    fn turn() -> impl Strategy<Value = Turn> {
        let size = prop_oneof![1usize..40, Just(4096), Just(9000)];
        prop_oneof![
            4 => proptest::collection::vec(size.clone(), 1..4).prop_map(Turn::Bytes),
            1 => size.clone().prop_map(Turn::Missing),
            1 => size.clone().prop_map(Turn::Refused),
            1 => size.prop_map(Turn::Longer),
            1 => "[a-z]{0,9}".prop_map(|text| Turn::Plain(Reply::Simple(text))),
            1 => proptest::collection::vec(any::<u8>(), 0..6000).prop_map(|text| Turn::Plain(Reply::Bulk(text))),
        ]
    }

    fn bulk(stream: &mut Vec<u8>, bytes: &[u8]) {
        resp::text(stream, bytes);
    }

    /// Gives the stream to the receiver in parts of these sizes, in turn. Returns the answers.
    fn feed(receiver: &mut Receiver, stream: &[u8], cuts: &[usize]) -> Vec<Answer> {
        let (mut rest, mut got, mut places) = (stream, Vec::new(), Vec::new());
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            receiver.places(&mut places);
            let room: usize = places.iter().map(Piece::len).sum();
            let now = (*cut).min(rest.len()).min(room);
            let (mut come, later) = rest.split_at(now);
            rest = later;
            for place in &places {
                let part = place.len().min(come.len());
                // SAFETY: the receiver named the place, in its own memory or the test's.
                unsafe { memory::bytes(place.at(), part) }.copy_from_slice(&come[..part]);
                come = &come[part..];
            }
            // SAFETY: the pieces are the test's.
            unsafe { receiver.received(now, &mut got) }.unwrap();
        }
        got
    }

    proptest! {
        /// However the stream is divided, every command gets its own answer, and bytes reach their
        /// place.
        #[test]
        fn answers_are_those_of_their_commands(
            turns in proptest::collection::vec(turn(), 1..12),
            cuts in proptest::collection::vec(1usize..5000, 1..40),
            pushes in any::<bool>(),
        ) {
            let mut memory: Vec<Vec<u8>> = Vec::new();
            let (mut receiver, mut stream) = (Receiver::default(), Vec::new());
            let mut wanted = Vec::new();
            let mut filled: Vec<(usize, Vec<u8>)> = Vec::new();
            let mut byte = 0_u8;
            for turn in &turns {
                if pushes {
                    stream.extend_from_slice(b">1\r\n+told\r\n");
                }
                let mut ask = |sizes: &[usize]| {
                    let first = memory.len();
                    memory.extend(sizes.iter().map(|&size| vec![0; size]));
                    let piece = |bytes: &mut Vec<u8>| Piece::new(bytes.as_mut_ptr() as usize, bytes.len());
                    receiver.expect(Want::Bytes(memory[first..].iter_mut().map(piece).collect()));
                    first
                };
                match turn {
                    Turn::Bytes(sizes) => {
                        let first = ask(sizes);
                        let mut all = Vec::new();
                        for (index, &size) in sizes.iter().enumerate() {
                            byte = byte.wrapping_add(1);
                            filled.push((first + index, vec![byte; size]));
                            all.extend(vec![byte; size]);
                        }
                        bulk(&mut stream, &all);
                        wanted.push(Answer::Filled);
                    }
                    Turn::Missing(size) => {
                        ask(&[*size]);
                        bulk(&mut stream, b"");
                        wanted.push(Answer::Reply(Reply::Bulk(Vec::new())));
                    }
                    Turn::Refused(size) => {
                        ask(&[*size]);
                        stream.extend_from_slice(b"-ERR no\r\n");
                        wanted.push(Answer::Reply(Reply::Error("ERR no".into())));
                    }
                    Turn::Longer(size) => {
                        ask(&[*size]);
                        bulk(&mut stream, &vec![7; size + 1]);
                        wanted.push(Answer::Reply(Reply::Bulk(vec![7; size + 1])));
                    }
                    Turn::Plain(reply) => {
                        receiver.expect(Want::Reply);
                        match reply {
                            Reply::Bulk(bytes) => bulk(&mut stream, bytes),
                            reply => stream.extend(format!("+{}\r\n", reply.text().unwrap()).into_bytes()),
                        }
                        wanted.push(Answer::Reply(reply.clone()));
                    }
                }
            }
            let got = feed(&mut receiver, &stream, &cuts);
            prop_assert_eq!(got, wanted);
            prop_assert_eq!(receiver.owed(), 0);
            for (index, bytes) in filled {
                prop_assert_eq!(&memory[index], &bytes);
            }
        }

        #[test]
        fn any_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 1..300), cut in 1usize..50) {
            let mut memory = vec![0_u8; 64];
            let mut receiver = Receiver::default();
            receiver.expect(Want::Bytes(vec![Piece::new(memory.as_mut_ptr() as usize, memory.len())]));
            receiver.expect(Want::Reply);
            let (mut places, mut got) = (Vec::new(), Vec::new());
            for part in bytes.chunks(cut) {
                receiver.places(&mut places);
                let mut come = part;
                for place in &places {
                    let now = place.len().min(come.len());
                    // SAFETY: as above.
                    unsafe { memory::bytes(place.at(), now) }.copy_from_slice(&come[..now]);
                    come = &come[now..];
                }
                // SAFETY: as above.
                if unsafe { receiver.received(part.len() - come.len(), &mut got) }.is_err() {
                    break;
                }
            }
        }
    }
}
