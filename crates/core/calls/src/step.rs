//! One visit: announcing ranges, and reading what other ranges depend on.

use crate::{Direction, Memory, Outcome, Range};

/// Pages are announced in steps of the smallest size of a page.
const PAGE: usize = 4096;
/// The kernel reads or writes no more in one call (`MAX_RW_COUNT`, of the smallest pages).
pub const MOST: usize = 0x7fff_f000;

/// The most buffers of an array (`UIO_MAXIOV`).
const BUFFERS: usize = 1024;

/// A step of a visit, or how the visit ends.
pub type Step<T = ()> = Result<T, Outcome>;

/// A visit of a call.
pub struct Visit<'a> {
    arguments: &'a [usize; 6],
    memory: &'a mut dyn Memory,
    /// Whether the kernel keeps any of the memory.
    pub kept: bool,
}

impl<'a> Visit<'a> {
    /// Begins a visit.
    pub fn new(arguments: &'a [usize; 6], memory: &'a mut dyn Memory) -> Visit<'a> {
        Visit { arguments, memory, kept: false }
    }

    /// An argument.
    pub fn long(&self, argument: usize) -> usize {
        self.arguments[argument]
    }

    /// An argument of which the kernel takes 32 bits.
    pub fn int(&self, argument: usize) -> u32 {
        self.arguments[argument] as u32
    }

    /// A length of 32 bits with a sign: the kernel refuses negative ones.
    pub fn signed(&self, argument: usize) -> usize {
        not_negative(self.int(argument))
    }

    fn announce(&mut self, start: usize, len: usize, direction: Direction, kept: bool) -> Step {
        let len = len.min(usize::MAX - start);
        if start == 0 || len == 0 {
            return Ok(());
        }
        if self.memory.range(Range { start, len, direction, kept }) { Ok(()) } else { Err(Outcome::Stopped) }
    }

    /// The call touches this. No address and no length are nothing.
    pub fn touch(&mut self, start: usize, len: usize, direction: Direction) -> Step {
        self.announce(start, len, direction, false)
    }

    /// The kernel reads this.
    pub fn reads(&mut self, start: usize, len: usize) -> Step {
        self.touch(start, len, Direction::In)
    }

    /// The kernel writes this.
    pub fn writes(&mut self, start: usize, len: usize) -> Step {
        self.touch(start, len, Direction::Out)
    }

    /// The kernel reads and writes this.
    pub fn changes(&mut self, start: usize, len: usize) -> Step {
        self.touch(start, len, Direction::InOut)
    }

    /// The kernel touches this now, and later without a call.
    pub fn keeps(&mut self, start: usize, len: usize) -> Step {
        self.kept |= start != 0 && len != 0;
        self.announce(start, len, Direction::InOut, true)
    }

    /// Copies memory that has been announced. If it cannot be read, the kernel cannot either, and
    /// the visit ends.
    fn copy(&mut self, at: usize, into: &mut [u8]) -> Step {
        if self.memory.read(at, into) { Ok(()) } else { Err(Outcome::Known) }
    }

    fn field<const BYTES: usize>(&mut self, structure: usize, offset: usize) -> Step<[u8; BYTES]> {
        let at = structure.checked_add(offset).filter(|at| at.checked_add(BYTES).is_some());
        let at = at.filter(|_| structure != 0).ok_or(Outcome::Known)?;
        let mut bytes = [0; BYTES];
        self.copy(at, &mut bytes)?;
        Ok(bytes)
    }

    /// A number of 32 bits in an announced structure.
    pub fn u32(&mut self, structure: usize, offset: usize) -> Step<u32> {
        self.field(structure, offset).map(u32::from_ne_bytes)
    }

    /// A number of 64 bits, or a pointer, in an announced structure.
    pub fn word(&mut self, structure: usize, offset: usize) -> Step<usize> {
        self.field(structure, offset).map(|bytes| u64::from_ne_bytes(bytes) as usize)
    }

    /// A structure of words, which the kernel reads.
    pub fn structure<const WORDS: usize>(&mut self, at: usize) -> Step<[usize; WORDS]> {
        self.structure_as(at, Direction::In)
    }

    /// A structure of words.
    pub fn structure_as<const WORDS: usize>(
        &mut self,
        at: usize,
        direction: Direction,
    ) -> Step<[usize; WORDS]> {
        self.touch(at, WORDS * 8, direction)?;
        let mut words = [0; WORDS];
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.word(at, i * 8)?;
        }
        Ok(words)
    }

    /// A text of `most` bytes, its NUL among them, or fewer.
    pub fn text(&mut self, start: usize, most: usize) -> Step {
        if start == 0 {
            return Ok(());
        }
        let (mut at, mut left) = (start, most);
        while left > 0 {
            let piece = (PAGE - at % PAGE).min(left);
            let next = at.checked_add(piece).ok_or(Outcome::Known)?;
            self.reads(at, piece)?;
            if self.has_nul(at, piece)? {
                break;
            }
            (at, left) = (next, left - piece);
        }
        Ok(())
    }

    fn has_nul(&mut self, start: usize, len: usize) -> Step<bool> {
        let mut bytes = [0; 256];
        let mut done = 0;
        while done < len {
            let part = (len - done).min(bytes.len());
            self.copy(start + done, &mut bytes[..part])?;
            if bytes[..part].contains(&0) {
                return Ok(true);
            }
            done += part;
        }
        Ok(false)
    }

    /// Pointers up to a null pointer, and the text behind each.
    pub fn texts(&mut self, start: usize, most: usize) -> Step {
        let mut at = start;
        while at != 0 {
            self.reads(at, 8)?;
            let text = self.word(at, 0)?;
            if text == 0 {
                break;
            }
            self.text(text, most)?;
            at = at.checked_add(8).ok_or(Outcome::Known)?;
        }
        Ok(())
    }

    /// An array of `iovec`, which the kernel reads, and the buffers. The kernel takes [`BUFFERS`]
    /// at most, and of all buffers together no more than [`MOST`].
    pub fn buffers(&mut self, start: usize, count: usize, direction: Direction) -> Step {
        if count > BUFFERS {
            return Ok(());
        }
        self.reads(start, count * 16)?;
        self.parts(start, count, MOST, direction)
    }

    /// The first `most` bytes of the buffers of an announced array.
    pub fn parts(&mut self, start: usize, count: usize, most: usize, direction: Direction) -> Step {
        let mut left = most;
        for i in 0..count {
            let (buffer, len) = (self.word(start, i * 16)?, self.word(start, i * 16 + 8)?);
            if len as isize > 0 {
                let len = len.min(left);
                self.touch(buffer, len, direction)?;
                left -= len;
            }
        }
        Ok(())
    }

    /// An array of `iovec`, which the kernel reads. Gives the bytes of all buffers together, or 0
    /// if the kernel refuses the array.
    pub fn total(&mut self, start: usize, count: usize) -> Step<usize> {
        if count > BUFFERS {
            return Ok(0);
        }
        self.reads(start, count * 16)?;
        let mut all = 0_usize;
        for i in 0..count {
            let len = self.word(start, i * 16 + 8)?;
            if (len as isize) < 0 {
                return Ok(0);
            }
            all = all.saturating_add(len);
        }
        Ok(all)
    }

    /// Whether this process is meant.
    pub fn is_self(&mut self, pid: u32) -> bool {
        self.memory.is_self(pid as i32)
    }
}

/// A length of 32 bits with a sign, or 0 if it is negative.
pub fn not_negative(length: u32) -> usize {
    (length as i32).max(0) as usize
}
