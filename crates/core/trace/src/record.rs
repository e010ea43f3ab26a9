//! Records, and their form in a frame.

/// How a block left the program's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageOut {
    /// The block is written to the store.
    Dirty,
    /// The store has the same bytes.
    Clean,
    /// The block is all zero, and needs no store.
    Zero,
}

/// An event of a block or a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A touch of a block that is all zero and has no frame.
    FirstTouch {
        /// The block.
        block: u32,
    },
    /// A zero block got a frame together with an earlier first touch. Whether it was touched is
    /// unknown.
    FreshAhead {
        /// The block.
        block: u32,
    },
    /// A block that had data when its region was added.
    Present {
        /// The block.
        block: u32,
    },
    /// A touch of a block that only the store has.
    MajorFault {
        /// The block.
        block: u32,
    },
    /// A touch of a block that has left the address space, but not memory.
    MinorFault {
        /// The block.
        block: u32,
    },
    /// The first touch of a prefetched block that was kept out of the program so that this touch is
    /// seen.
    PrefetchMarker {
        /// The block.
        block: u32,
    },
    /// A prefetched block was put into the program. Whether it was touched is unknown.
    Prefetched {
        /// The block.
        block: u32,
    },
    /// A block that had left the address space, but not memory, was put back with a touched
    /// neighbour. Whether it was touched itself is unknown.
    PutBack {
        /// The block.
        block: u32,
    },
    /// A block left the program's address space.
    PageOut {
        /// The block.
        block: u32,
        /// What the page-out needed from the store.
        how: PageOut,
    },
    /// The program discarded blocks: they read as zeros from now on.
    Discard {
        /// The first block.
        block: u32,
        /// How many blocks.
        count: u32,
    },
    /// A range of addresses is paged from now on.
    RegionAdd {
        /// The first address.
        start: u64,
        /// The number of bytes.
        len: u64,
        /// The number of the region's first block.
        first: u32,
    },
}

impl Event {
    /// The block, or the first of the range.
    pub fn block(self) -> u32 {
        match self {
            Event::FirstTouch { block }
            | Event::FreshAhead { block }
            | Event::Present { block }
            | Event::MajorFault { block }
            | Event::MinorFault { block }
            | Event::PrefetchMarker { block }
            | Event::Prefetched { block }
            | Event::PutBack { block }
            | Event::PageOut { block, .. }
            | Event::Discard { block, .. } => block,
            Event::RegionAdd { first, .. } => first,
        }
    }

    /// The number of the event's kind in the file.
    pub(crate) fn kind(self) -> u8 {
        match self {
            Event::FirstTouch { .. } => 0,
            Event::FreshAhead { .. } => 1,
            Event::Present { .. } => 2,
            Event::MajorFault { .. } => 3,
            Event::MinorFault { .. } => 4,
            Event::PrefetchMarker { .. } => 5,
            Event::Prefetched { .. } => 6,
            Event::PageOut { how: PageOut::Dirty, .. } => 7,
            Event::PageOut { how: PageOut::Clean, .. } => 8,
            Event::PageOut { how: PageOut::Zero, .. } => 9,
            Event::Discard { .. } => 10,
            Event::RegionAdd { .. } => 11,
            Event::PutBack { .. } => 12,
        }
    }
}

/// An event and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Microseconds since the recording began. Never less than the time of the previous record.
    pub time_us: u64,
    /// What happened.
    pub event: Event,
}

/// The previous record in the same frame: records are stored as differences from it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Before {
    time_us: u64,
    block: u32,
}

/// The maximum length of a record: its head, its time, an address and a length.
pub(crate) const RECORD_BYTES: usize = 6 + 10 + 10 + 10;

impl Before {
    /// Appends the bytes of a record.
    pub fn put(&mut self, record: &Record, raw: &mut Vec<u8>) {
        let block = record.event.block();
        let delta = i64::from(block) - i64::from(self.block);
        let zigzag = ((delta << 1) ^ (delta >> 63)) as u64;
        put_varint(raw, zigzag << 4 | u64::from(record.event.kind()));
        put_varint(raw, record.time_us.saturating_sub(self.time_us));
        match record.event {
            Event::Discard { count, .. } => put_varint(raw, count.into()),
            Event::RegionAdd { start, len, .. } => {
                put_varint(raw, start);
                put_varint(raw, len);
            }
            _ => {}
        }
        *self = Before { time_us: self.time_us.max(record.time_us), block };
    }

    /// Takes a record from the front of `raw`. The error says what was expected.
    pub fn take(&mut self, raw: &mut &[u8]) -> Result<Record, &'static str> {
        let head = take_varint(raw).ok_or("the head of a record")?;
        let zigzag = head >> 4;
        let delta = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let block = u32::try_from(i64::from(self.block) + delta).map_err(|_| "a block below 2^32")?;
        let delta_us = take_varint(raw).ok_or("the time of a record")?;
        let time_us = self.time_us.checked_add(delta_us).ok_or("a time below 2^64 us")?;
        let event = match head & 15 {
            0 => Event::FirstTouch { block },
            1 => Event::FreshAhead { block },
            2 => Event::Present { block },
            3 => Event::MajorFault { block },
            4 => Event::MinorFault { block },
            5 => Event::PrefetchMarker { block },
            6 => Event::Prefetched { block },
            7 => Event::PageOut { block, how: PageOut::Dirty },
            8 => Event::PageOut { block, how: PageOut::Clean },
            9 => Event::PageOut { block, how: PageOut::Zero },
            10 => {
                let count = take_varint(raw).ok_or("a number of blocks")?;
                let count = u32::try_from(count).map_err(|_| "a number of blocks below 2^32")?;
                Event::Discard { block, count }
            }
            11 => {
                let start = take_varint(raw).ok_or("an address")?;
                let len = take_varint(raw).ok_or("a length")?;
                Event::RegionAdd { start, len, first: block }
            }
            12 => Event::PutBack { block },
            _ => return Err("a kind of event from 0 to 12"),
        };
        *self = Before { time_us, block };
        Ok(Record { time_us, event })
    }
}

/// Appends a number, seven bits in each byte, the lowest first. The eighth bit says that more bytes
/// follow.
fn put_varint(raw: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        raw.push(value as u8 | 0x80);
        value >>= 7;
    }
    raw.push(value as u8);
}

fn take_varint(raw: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = raw.split_first()?;
        *raw = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::Before;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_records_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut rest, mut before) = (&bytes[..], Before::default());
            while !rest.is_empty() {
                let len = rest.len();
                if before.take(&mut rest).is_err() {
                    break;
                }
                prop_assert!(rest.len() < len);
            }
        }
    }
}
