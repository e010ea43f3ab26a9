//! The requests of a frame, before compression.

use crate::fault::{Checked, field};
use crate::format::varint::{put, take, unzigzag, zigzag};
use crate::gate::Record;
use crate::request::Kind;
use crate::writer::Item;

/// The most requests of a frame.
pub(super) const FRAME_REQUESTS: usize = 16 << 10;
/// The most bytes of a frame before compression; requests have up to 27, names up to 257.
pub(super) const RAW_BYTES_MAX: usize = 8 << 20;
/// The longest name of a volume.
const NAME_BYTES_MAX: usize = 255;

// The first byte of a request: its kind, and flags for the fields that follow.
const KIND: u8 = 3;
const VOLUME: u8 = 1 << 2;
const LENGTH: u8 = 1 << 3;
const OFFSET: u8 = 1 << 4;
const SECTORS: u8 = 1 << 5;
const TIME: u8 = 1 << 6;
const UNUSED: u8 = 1 << 7;

/// The previous values, from which a request differs: all 0 at the beginning of a frame.
#[derive(Default)]
struct State {
    volume: usize,
    bytes: u64,
    time_ticks: u64,
    ends: Vec<u64>,
}

impl State {
    fn reset(&mut self) {
        self.ends.clear();
        *self = State { ends: std::mem::take(&mut self.ends), ..State::default() };
    }

    /// The end of the last request of a volume.
    #[inline]
    fn end(&mut self, volume: usize) -> &mut u64 {
        if self.ends.len() <= volume {
            self.ends.resize(volume + 1, 0);
        }
        &mut self.ends[volume]
    }
}

/// Gathers requests.
#[derive(Default)]
pub(super) struct Encoder {
    pending: Vec<(Record, u16)>,
    new_names: Vec<String>,
    names: usize,
    state: State,
}

impl Encoder {
    pub fn put(&mut self, item: &Item<'_>) {
        while self.names <= usize::from(item.volume) {
            let own = self.names == usize::from(item.volume);
            let name = if own { cut(item.name) } else { format!("volume{}", self.names) };
            self.new_names.push(name);
            self.names += 1;
        }
        let (bytes, kind) = (u64::from(item.bytes), item.kind);
        let record = Record { ticks: item.time_ns, address: item.offset, bytes, kind };
        self.pending.push((record, item.volume));
    }

    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Names of volumes in skipped requests count as well: a frame has no more names than requests.
    pub fn is_full(&self) -> bool {
        self.pending.len() == FRAME_REQUESTS || self.new_names.len() >= FRAME_REQUESTS / 2
    }

    /// Takes the bytes of the frame, and begins the next one.
    pub fn take(&mut self) -> Vec<u8> {
        let tick_ns = self.pending.iter().fold(0, |tick_ns, (record, _)| gcd(record.ticks, tick_ns)).max(1);
        let mut out = Vec::with_capacity(16 * self.pending.len());
        put(tick_ns, &mut out);
        put(self.new_names.len() as u64, &mut out);
        for name in self.new_names.drain(..) {
            put(name.len() as u64, &mut out);
            out.extend_from_slice(name.as_bytes());
        }
        self.state.reset();
        for (record, volume) in self.pending.drain(..) {
            encode(&mut self.state, record.ticks / tick_ns, record, usize::from(volume), &mut out);
        }
        out
    }
}

fn encode(state: &mut State, time_ticks: u64, record: Record, volume: usize, out: &mut Vec<u8>) {
    let head_at = out.len();
    let mut head = match record.kind {
        Kind::Read => 0,
        Kind::Write => 1,
        Kind::Trim => 2,
    };
    out.push(0);
    let jump = record.address.wrapping_sub(*state.end(volume)) as i64;
    let unit = if record.bytes.is_multiple_of(512) && jump % 512 == 0 { 512 } else { 1 };
    head |= if unit == 512 { SECTORS } else { 0 };
    if volume != state.volume {
        head |= VOLUME;
        put(volume as u64, out);
    }
    if record.bytes != state.bytes {
        head |= LENGTH;
        put(record.bytes / unit, out);
    }
    if jump != 0 {
        head |= OFFSET;
        put(zigzag(jump / unit as i64), out);
    }
    // Times go up, but requests to write may come from anywhere, so a difference wraps.
    if time_ticks != state.time_ticks {
        head |= TIME;
        put(time_ticks.wrapping_sub(state.time_ticks), out);
    }
    out[head_at] = head;
    *state.end(volume) = record.address.wrapping_add(record.bytes);
    (state.volume, state.bytes, state.time_ticks) = (volume, record.bytes, time_ticks);
}

/// Takes requests apart again.
#[derive(Default)]
pub(super) struct Decoder {
    pub names: Vec<Box<[u8]>>,
    state: State,
    tick_ns: u64,
}

impl Decoder {
    /// Reads the part before the requests.
    pub fn begin<'a>(&mut self, mut rest: &'a [u8]) -> Checked<&'a [u8]> {
        self.state.reset();
        match self.prefix(&mut rest) {
            Some(()) => Ok(rest),
            None => field("a frame's tick and names", &rest[..rest.len().min(16)]),
        }
    }

    fn prefix(&mut self, rest: &mut &[u8]) -> Option<()> {
        self.tick_ns = take(rest).filter(|tick_ns| *tick_ns > 0)?;
        for _ in 0..take(rest)? {
            let length = usize::try_from(take(rest)?).ok().filter(|length| *length <= NAME_BYTES_MAX)?;
            let (name, after) = rest.split_at_checked(length)?;
            if self.names.len() > usize::from(u16::MAX) {
                return None;
            }
            self.names.push(name.into());
            *rest = after;
        }
        Some(())
    }

    /// The volume and the record of the next request; `None` if there is none, or if it is not
    /// valid.
    #[inline]
    pub fn decode(&mut self, rest: &mut &[u8]) -> Option<(usize, Record)> {
        let (head, after) = rest.split_first()?;
        *rest = after;
        let kind = match head & KIND {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Trim,
            _ => return None,
        };
        let shift = if head & SECTORS != 0 { 9 } else { 0 };
        if head & UNUSED != 0 {
            return None;
        }
        if head & VOLUME != 0 {
            self.state.volume = usize::try_from(take(rest)?).ok()?;
        }
        let volume = self.state.volume;
        if volume >= self.names.len() {
            return None;
        }
        if head & LENGTH != 0 {
            self.state.bytes = take(rest)?.checked_mul(1 << shift)?;
        }
        let jump = if head & OFFSET != 0 { unzigzag(take(rest)?).checked_mul(1 << shift)? } else { 0 };
        if head & TIME != 0 {
            self.state.time_ticks = self.state.time_ticks.wrapping_add(take(rest)?);
        }
        let bytes = self.state.bytes;
        let end = self.state.end(volume);
        let address = end.wrapping_add(jump as u64);
        *end = address.wrapping_add(bytes);
        let ticks = self.state.time_ticks.checked_mul(self.tick_ns)?;
        Some((volume, Record { ticks, address, bytes, kind }))
    }
}

/// A name of at most 255 bytes.
fn cut(name: &str) -> String {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_string()
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
