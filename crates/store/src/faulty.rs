//! A store that fails by a seed: errors, short transfers, flipped bits, for tests.

use crate::{Error, Store, bytes};
use std::collections::HashMap;
use terapage_sys::memory;
use terapage_sys::ring::{Done, Piece, Ring};

/// EIO.
const EIO: i32 = 5;

/// How often what goes wrong, in operations of a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// An operation answers EIO.
    pub errors: u32,
    /// An operation transfers less than asked.
    pub short: u32,
    /// A read gives other bytes than were written.
    pub flips: u32,
}

impl std::str::FromStr for Faults {
    type Err = String;

    /// `errors=1000,short=2000,flips=10`
    fn from_str(text: &str) -> Result<Faults, String> {
        let mut faults = Faults::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("'{part}' is not name=number"))?;
            let value = value.parse().map_err(|_| format!("'{value}' is not a number"))?;
            match name {
                "errors" => faults.errors = value,
                "short" => faults.short = value,
                "flips" => faults.flips = value,
                _ => return Err(format!("'{name}' is none of errors, short, flips")),
            }
        }
        Ok(faults)
    }
}

/// A store that goes wrong now and then.
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
    state: u64,
    reads: HashMap<u64, (usize, usize)>,
}

impl<S: Store> Faulty<S> {
    /// `inner`, going wrong as `faults` says, the same way for the same `seed`.
    pub fn new(inner: S, faults: Faults, seed: u64) -> Self {
        Faulty { inner, faults, state: seed ^ 0x9E37_79B9_7F4A_7C15, reads: HashMap::new() }
    }

    fn random(&mut self) -> u64 {
        // splitmix64
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn happens(&mut self, per_million: u32) -> bool {
        self.random() % 1_000_000 < u64::from(per_million)
    }
}

impl<S: Store> Store for Faulty<S> {
    fn name(&self) -> String {
        format!("faulty {}", self.inner.name())
    }

    fn slots(&self) -> u32 {
        self.inner.slots()
    }

    fn grow(&mut self) -> Result<(), Error> {
        self.inner.grow()
    }

    fn goes_on(&self, slot: u32) -> bool {
        self.inner.goes_on(slot)
    }

    unsafe fn read(
        &mut self,
        ring: &mut Ring,
        slot: u32,
        pieces: &[Piece],
        tag: u64,
    ) -> terapage_sys::Result<()> {
        if let Some(piece) = pieces.first() {
            self.reads.insert(tag, (piece.at(), bytes(&pieces[..1])));
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.read(ring, slot, pieces, tag) }
    }

    unsafe fn write(
        &mut self,
        ring: &mut Ring,
        slot: u32,
        pieces: &[Piece],
        tag: u64,
    ) -> terapage_sys::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.write(ring, slot, pieces, tag) }
    }

    fn ended(&mut self, done: &mut Done) {
        self.inner.ended(done);
        let read = self.reads.remove(&done.tag);
        if done.result <= 0 {
            return;
        }
        if self.happens(self.faults.errors) {
            done.result = -EIO;
        } else if self.happens(self.faults.short) {
            done.result = (self.random() % done.result as u64) as i32;
        } else if let Some((at, len)) = read
            && self.happens(self.faults.flips)
        {
            let bit = self.random() as usize % (len * 8);
            // SAFETY: the read has ended and its memory is still the caller's to keep valid.
            let read = unsafe { memory::bytes(at, len) };
            read[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
