//! The header of a trace: the run in which it was recorded.

use crate::{Error, MAGIC};
use std::io::{self, Read, Write};
use std::path::Path;
use twox_hash::XxHash3_64;

/// Bytes of the header up to the name.
const FIXED: usize = 48;

/// The most bytes of the name.
const NAME: usize = 4096;

/// The flags.
const MISSES_ONLY: u32 = 1;
const SPLIT: u32 = 2;

/// What a reader expects at the beginning of a trace.
const BEGINNING: &str = "the magic \"TERATRC\" and version 2";

/// The run in which a trace was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Bytes of a block: a power of two.
    pub block_bytes: u32,
    /// The process.
    pub pid: u32,
    /// The time when the recording began: microseconds since 1970 (UTC). Records count from here.
    pub start_us: u64,
    /// The bytes of frames that the process may use.
    pub budget_bytes: u64,
    /// The trace has regions and major faults only, without times: `--learn` wrote it.
    pub misses_only: bool,
    /// Whether the run has split blocks (`--learn`).
    pub is_split: bool,
    /// The hash of the executable's path ([`Header::hash_of`]).
    pub executable: u64,
    /// The program's name, cut to 4096 bytes.
    pub program: String,
}

impl Header {
    /// The hash of an executable's path.
    pub fn hash_of(executable: &Path) -> u64 {
        XxHash3_64::oneshot(executable.as_os_str().as_encoded_bytes())
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut end = self.program.len().min(NAME);
        while !self.program.is_char_boundary(end) {
            end -= 1;
        }
        let name = &self.program[..end];
        let mut bytes = Vec::with_capacity(FIXED + name.len() + 8);
        bytes.extend(MAGIC);
        bytes.extend(self.block_bytes.to_le_bytes());
        bytes.extend(self.pid.to_le_bytes());
        bytes.extend(self.start_us.to_le_bytes());
        bytes.extend(self.budget_bytes.to_le_bytes());
        bytes.extend((name.len() as u32).to_le_bytes());
        let misses_only = if self.misses_only { MISSES_ONLY } else { 0 };
        let split = if self.is_split { SPLIT } else { 0 };
        bytes.extend((misses_only | split).to_le_bytes());
        bytes.extend(self.executable.to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(XxHash3_64::oneshot(&bytes).to_le_bytes());
        out.write_all(&bytes)
    }

    /// Reads the header; returns it with its length in bytes.
    pub(crate) fn read(from: &mut impl Read) -> Result<(Header, u64), Error> {
        let mut bytes = Vec::new();
        extend(from, &mut bytes, MAGIC.len(), BEGINNING)?;
        if bytes != MAGIC {
            let found = format!("\"{}\"", bytes.escape_ascii());
            return Err(Error::Corrupt { offset: 0, expected: BEGINNING, found });
        }
        extend(from, &mut bytes, FIXED - MAGIC.len(), "the header")?;
        let u32_at =
            |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at =
            |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let name_len = u32_at(&bytes, 32) as usize;
        if name_len > NAME {
            let found = name_len.to_string();
            return Err(Error::Corrupt { offset: 32, expected: "a name of up to 4096 bytes", found });
        }
        extend(from, &mut bytes, name_len, "the program's name")?;
        let end = bytes.len();
        extend(from, &mut bytes, 8, "the header's hash")?;
        let (hash, expected) = (XxHash3_64::oneshot(&bytes[..end]), u64_at(&bytes, end));
        if hash != expected {
            let found = format!("bytes with the hash {hash:016x}");
            return Err(Error::Corrupt { offset: 0, expected: "a header that fits its hash", found });
        }
        let program = String::from_utf8(bytes[FIXED..end].to_vec()).map_err(|error| Error::Corrupt {
            offset: FIXED as u64,
            expected: "a name in UTF-8",
            found: error.to_string(),
        })?;
        let block_bytes = u32_at(&bytes, 8);
        if !block_bytes.is_power_of_two() {
            let found = format!("{block_bytes} bytes");
            return Err(Error::Corrupt { offset: 8, expected: "blocks of a power of two", found });
        }
        let flags = u32_at(&bytes, 36);
        if flags > MISSES_ONLY | SPLIT {
            let found = format!("{flags:#x}");
            return Err(Error::Corrupt { offset: 36, expected: "flags 1 and 2", found });
        }
        let header = Header {
            block_bytes,
            pid: u32_at(&bytes, 12),
            start_us: u64_at(&bytes, 16),
            budget_bytes: u64_at(&bytes, 24),
            misses_only: flags & MISSES_ONLY != 0,
            is_split: flags & SPLIT != 0,
            executable: u64_at(&bytes, 40),
            program,
        };
        Ok((header, bytes.len() as u64))
    }
}

/// Reads `count` more bytes.
fn extend(
    from: &mut impl Read,
    bytes: &mut Vec<u8>,
    count: usize,
    expected: &'static str,
) -> Result<(), Error> {
    let offset = bytes.len();
    bytes.resize(offset + count, 0);
    fill(from, &mut bytes[offset..], offset as u64, expected)
}

/// Fills `into`. False if no byte is left and `into` is not empty.
pub(crate) fn try_fill(
    from: &mut impl Read,
    into: &mut [u8],
    offset: u64,
    expected: &'static str,
) -> Result<bool, Error> {
    let mut got = 0;
    while got < into.len() {
        match from.read(&mut into[got..]) {
            Ok(0) if got == 0 => return Ok(false),
            Ok(0) => return Err(Error::CutShort { offset, expected }),
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(Error::Io { offset: offset + got as u64, cause }),
        }
    }
    Ok(true)
}

/// Fills `into`.
pub(crate) fn fill(
    from: &mut impl Read,
    into: &mut [u8],
    offset: u64,
    expected: &'static str,
) -> Result<(), Error> {
    if try_fill(from, into, offset, expected)? { Ok(()) } else { Err(Error::CutShort { offset, expected }) }
}
