//! Requests that are kept, to be replayed by several policies.

use crate::pool::slot;
use std::io;
use terapage_figures::{Long, Numbers};
use terapage_policy::objects::Request;

/// In the place of a size: the object is deleted.
const DELETED: u32 = u32::MAX;

/// Requests for numbered objects, 8 bytes each, in memory or in a temporary file ([`Long`]).
#[derive(Debug, Default)]
pub struct Log {
    words: Long,
    /// Other numbers of the objects; empty: their own.
    numbers: Vec<u32>,
    seen: Vec<bool>,
    gets: u64,
    objects: u64,
    footprint: u64,
    /// The sizes of the smallest and of the largest request.
    sizes: Option<(u32, u32)>,
}

impl Log {
    /// A log that is kept in `words`.
    pub fn new(words: Long) -> Log {
        Log { words, ..Log::default() }
    }

    /// Adds a request. An object has less than 4 GiB less 1 byte.
    ///
    /// # Errors
    /// There is no room for the temporary file.
    pub fn push(&mut self, request: Request) -> io::Result<()> {
        let (object, size) = match request {
            Request::Get(object, size) => (object, size.min(DELETED - 1)),
            Request::Delete(object) => (object, DELETED),
        };
        if size != DELETED {
            self.gets += 1;
            let (least, most) = self.sizes.unwrap_or((size, size));
            self.sizes = Some((least.min(size), most.max(size)));
            if !std::mem::replace(slot(&mut self.seen, object), true) {
                self.objects += 1;
                self.footprint += u64::from(size);
            }
        }
        self.words.push(u64::from(object) << 32 | u64::from(size))
    }

    /// From now on object `n` has the number `numbers[n]`.
    pub fn renumber(&mut self, numbers: Vec<u32>) {
        self.numbers = numbers;
    }

    /// Requests for objects.
    pub fn gets(&self) -> u64 {
        self.gets
    }

    /// Distinct objects that are asked for.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// The sizes of these objects together, each with the size that it had first.
    pub fn footprint(&self) -> u64 {
        self.footprint
    }

    /// Bytes of the temporary file; 0 if all is in memory.
    pub fn file_bytes(&self) -> u64 {
        self.words.file_bytes()
    }

    /// Requests, deletions too.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// The size of all objects, if all have the same.
    pub(crate) fn one_size(&self) -> Option<u32> {
        self.sizes.filter(|(least, most)| least == most).map(|(size, _)| size)
    }

    /// The size of the largest request.
    pub(crate) fn most_size(&self) -> u32 {
        self.sizes.map_or(0, |(_, most)| most)
    }

    /// Gives `work` all requests in order.
    ///
    /// # Errors
    /// The temporary file cannot be read.
    pub fn replay<R>(&self, work: impl FnOnce(&mut Requests<'_, '_>) -> R) -> io::Result<R> {
        self.words.read(|words| work(&mut Requests { words, numbers: &self.numbers }))
    }

    /// For each request, when its object is asked for next, if it is not deleted before; else
    /// `u64::MAX`. Kept as the requests are.
    ///
    /// # Errors
    /// The temporary file cannot be read, or there is no room for another.
    pub fn next_uses(&self) -> io::Result<Long> {
        /// Requests that are looked at together.
        const PART: usize = 1 << 16;
        let mut next = self.words.zeros(self.len())?;
        // One higher, so that 0 is never.
        let mut upcoming: Vec<u64> = Vec::new();
        let mut buffer = Vec::new();
        for from in (0..self.len()).step_by(PART).rev() {
            let words = self.words.from(from, &mut buffer)?;
            let mut part = vec![0; words.len()];
            for (at, word) in words.iter().enumerate().rev() {
                let then = slot(&mut upcoming, (word >> 32) as u32);
                match *word as u32 {
                    DELETED => *then = 0,
                    _ => {
                        let now = (from + at) as u64;
                        part[at] = std::mem::replace(then, now + 1).wrapping_sub(1);
                    }
                }
            }
            next.put(from, &part)?;
        }
        Ok(next)
    }
}

/// The requests of a log, in order.
pub struct Requests<'a, 'b> {
    words: &'a mut Numbers<'b>,
    numbers: &'a [u32],
}

impl Iterator for Requests<'_, '_> {
    type Item = Request;

    #[inline]
    fn next(&mut self) -> Option<Request> {
        let word = self.words.next()?;
        let object = (word >> 32) as u32;
        let object = self.numbers.get(object as usize).copied().unwrap_or(object);
        Some(match word as u32 {
            DELETED => Request::Delete(object),
            size => Request::Get(object, size),
        })
    }
}
