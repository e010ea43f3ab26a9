//! Long lists of numbers: in memory while they are short, then in a temporary file.

use std::env;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Numbers that are read and written at once.
const PIECE: usize = 1 << 16;
/// Numbers that stay in memory. Chosen, not measured.
const KEPT: usize = 32 << 20;
/// Bytes of a number.
const BYTES: usize = 8;

/// A list of numbers that grows at its end. Beyond 32 Mi of them (256 MiB) they lie in a file
/// without a name, in the directory that `TMPDIR` names, or in `/var/tmp`.
#[derive(Debug)]
pub struct Long {
    /// All numbers, or those that are not in the file yet: less than a piece.
    memory: Vec<u64>,
    file: Option<File>,
    /// Numbers in the file.
    written: usize,
    kept: usize,
}

impl Default for Long {
    fn default() -> Long {
        Long::keeping(KEPT)
    }
}

impl Long {
    /// A list of which at most `kept` numbers stay in memory.
    pub fn keeping(kept: usize) -> Long {
        Long { memory: Vec::new(), file: None, written: 0, kept }
    }

    /// A list of `len` zeros, kept as `self` is.
    ///
    /// # Errors
    /// There is no room for the file.
    pub fn zeros(&self, len: usize) -> io::Result<Long> {
        let mut zeros = Long::keeping(self.kept);
        if len > self.kept {
            let file = create()?;
            zeros.written = len - len % PIECE;
            said(file.set_len((zeros.written * BYTES) as u64))?;
            zeros.file = Some(file);
        }
        zeros.memory = vec![0; len - zeros.written];
        Ok(zeros)
    }

    /// The number of numbers.
    pub fn len(&self) -> usize {
        self.written + self.memory.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the temporary file; 0 if there is none.
    pub fn file_bytes(&self) -> u64 {
        (self.written * BYTES) as u64
    }

    /// Adds a number.
    ///
    /// # Errors
    /// There is no room for the file.
    pub fn push(&mut self, number: u64) -> io::Result<()> {
        self.memory.push(number);
        let most = if self.file.is_some() { PIECE } else { self.kept.max(PIECE) };
        if self.memory.len() < most { Ok(()) } else { self.spill() }
    }

    /// Writes whole pieces to the file.
    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(create()?),
        };
        let whole = self.memory.len() - self.memory.len() % PIECE;
        for numbers in self.memory[..whole].chunks(PIECE) {
            put(file, self.written, numbers)?;
            self.written += numbers.len();
        }
        self.memory.drain(..whole);
        self.memory.shrink_to(PIECE);
        Ok(())
    }

    /// Puts numbers in the place of those from `at` on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn put(&mut self, at: usize, numbers: &[u64]) -> io::Result<()> {
        let in_file = numbers.len().min(self.written.saturating_sub(at));
        if let Some(file) = &self.file {
            put(file, at, &numbers[..in_file])?;
        }
        let rest = &numbers[in_file..];
        let at = (at + in_file).saturating_sub(self.written);
        self.memory[at..at + rest.len()].copy_from_slice(rest);
        Ok(())
    }

    /// Numbers from `at` on: at most a piece, at least one if there is one. They are in `buffer` or
    /// in the list itself.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn from<'a>(&'a self, at: usize, buffer: &'a mut Vec<u64>) -> io::Result<&'a [u64]> {
        let Some(file) = self.file.as_ref().filter(|_| at < self.written) else {
            let rest = self.memory.get(at - self.written..).unwrap_or_default();
            return Ok(&rest[..rest.len().min(PIECE)]);
        };
        let mut bytes = vec![0; (self.written - at).min(PIECE) * BYTES];
        said(file.read_exact_at(&mut bytes, (at * BYTES) as u64))?;
        buffer.clear();
        let (numbers, _) = bytes.as_chunks::<BYTES>();
        buffer.extend(numbers.iter().map(|number| u64::from_le_bytes(*number)));
        Ok(buffer)
    }

    /// Gives `work` all numbers in order.
    ///
    /// # Errors
    /// The file cannot be read. `work` then saw only the numbers before that.
    pub fn read<R>(&self, work: impl FnOnce(&mut Numbers<'_>) -> R) -> io::Result<R> {
        let mut numbers = self.numbers();
        let result = work(&mut numbers);
        numbers.failed().map_or(Ok(result), Err)
    }

    /// All numbers in order. They end early if the file cannot be read: [`Numbers::failed`] says
    /// so.
    pub fn numbers(&self) -> Numbers<'_> {
        Numbers { list: self, piece: Vec::new(), next: 0, at: 0, failed: None }
    }
}

/// The numbers of a list, in order.
pub struct Numbers<'a> {
    list: &'a Long,
    piece: Vec<u64>,
    /// The next one of the piece.
    next: usize,
    /// Where the next piece begins.
    at: usize,
    failed: Option<io::Error>,
}

impl Numbers<'_> {
    /// Why they ended early, if they did.
    pub fn failed(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    #[cold]
    fn refill(&mut self) -> Option<u64> {
        let mut buffer = Vec::new();
        match self.list.from(self.at, &mut buffer) {
            Ok(numbers) => {
                self.piece.clear();
                self.piece.extend_from_slice(numbers);
            }
            Err(error) => {
                self.failed = Some(error);
                self.piece.clear();
            }
        }
        self.at += self.piece.len();
        self.next = 1;
        self.piece.first().copied()
    }
}

impl Iterator for Numbers<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        match self.piece.get(self.next) {
            Some(number) => {
                self.next += 1;
                Some(*number)
            }
            None => self.refill(),
        }
    }
}

fn put(file: &File, at: usize, numbers: &[u64]) -> io::Result<()> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    said(file.write_all_at(&bytes, (at * BYTES) as u64))
}

/// The directory of temporary files.
pub fn temporary_directory() -> PathBuf {
    env::var_os("TMPDIR").map_or_else(|| Path::new("/var/tmp").to_owned(), PathBuf::from)
}

fn create() -> io::Result<File> {
    said(tempfile::tempfile_in(temporary_directory()))
}

/// Says of an error that it is the temporary file's.
fn said<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| {
        let place = temporary_directory();
        io::Error::new(error.kind(), format!("a temporary file in {} (TMPDIR): {error}", place.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(kept: usize, len: usize) -> Long {
        let mut list = Long::keeping(kept);
        (0..len as u64).for_each(|number| list.push(number * 3).unwrap());
        list
    }

    #[test]
    fn a_list_in_a_file_is_as_one_in_memory() {
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 17] {
            for kept in [1, 2 * PIECE, 9 * PIECE] {
                let list = filled(kept, len);
                assert_eq!(list.file_bytes() > 0, len >= kept.max(PIECE), "{len} {kept}");
                assert_eq!((list.len(), list.is_empty()), (len, len == 0));
                let numbers: Vec<u64> = list.read(|numbers| numbers.collect()).unwrap();
                assert_eq!(numbers, (0..len as u64).map(|number| number * 3).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn numbers_are_replaced_across_the_end_of_the_file() {
        for kept in [1, 9 * PIECE] {
            let mut list = filled(kept, 3 * PIECE + 17).zeros(3 * PIECE + 17).unwrap();
            assert_eq!(list.file_bytes() > 0, kept == 1);
            list.put(3 * PIECE - 2, &[7, 8, 9, 10]).unwrap();
            let sum: u64 = list.read(|numbers| numbers.sum()).unwrap();
            let mut buffer = Vec::new();
            let tail: Vec<u64> =
                (3 * PIECE - 2..3 * PIECE + 2).map(|at| list.from(at, &mut buffer).unwrap()[0]).collect();
            assert_eq!((sum, tail), (34, vec![7, 8, 9, 10]));
        }
    }
}
