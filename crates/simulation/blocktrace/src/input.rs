//! Bytes of a file or of standard input, decompressed.

use crate::error::Problem;
use crate::sink::Compression;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Uncompressed bytes.
pub(crate) type Input = Box<dyn Read + Send>;

/// The most memory that an xz file may ask for, in KiB. `xz -9` asks for 65 MiB.
const XZ_KIB_MAX: u32 = 256 << 10;
/// The largest window that a zstd file may ask for, as a power of two: 128 MiB, as the zstd command
/// allows.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Opens a file, or standard input for `-`. It also returns the size of the file, if it is one.
pub(crate) fn open(path: &Path) -> Result<(Input, Option<u64>), Problem> {
    if path.as_os_str() == "-" {
        return Ok((Box::new(io::stdin()), None));
    }
    let fail = |cause| Problem::Open { file: path.display().to_string(), cause };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    Ok((Box::new(file), metadata.is_file().then_some(metadata.len())))
}

/// Decompresses the input if it begins like a compressed file.
pub(crate) fn decompress(input: Input) -> io::Result<(Input, Option<Compression>)> {
    let (magic, input) = peek(input, 6)?;
    Ok(match Compression::of_magic(&magic) {
        None => (input, None),
        Some(Compression::Gzip) => {
            let plain = flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(128 << 10, input));
            (Box::new(plain), Some(Compression::Gzip))
        }
        Some(Compression::Zstd) => {
            let mut plain = zstd::stream::read::Decoder::new(input)?;
            plain.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            (Box::new(plain), Some(Compression::Zstd))
        }
        Some(Compression::Xz) => {
            let input = BufReader::with_capacity(128 << 10, input);
            let plain = lzma_rust2::XzReader::new_mem_limit(input, true, XZ_KIB_MAX);
            (Box::new(plain), Some(Compression::Xz))
        }
    })
}

/// Returns the first bytes, at most `count`, and the whole input again. If reading fails after the
/// first of them, the returned input fails at the same place.
pub(crate) fn peek(mut input: Input, count: u64) -> io::Result<(Vec<u8>, Input)> {
    let mut head = Vec::new();
    let rest: Input = match input.by_ref().take(count).read_to_end(&mut head) {
        Ok(_) => input,
        Err(error) if head.is_empty() => return Err(error),
        Err(error) => Box::new(Failing(Some(error))),
    };
    let again = io::Cursor::new(head.clone()).chain(rest);
    Ok((head, Box::new(again)))
}

/// The byte-order mark of UTF-8, with which some programs begin text.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Passes over a byte-order mark at the beginning of text. `head` are the first bytes of `input`.
pub(crate) fn without_mark(mut head: Vec<u8>, mut input: Input) -> io::Result<(Vec<u8>, Input)> {
    if head.starts_with(MARK) && memchr::memchr(0, &head).is_none() {
        io::copy(&mut input.by_ref().take(MARK.len() as u64), &mut io::sink())?;
        head.drain(..MARK.len());
    }
    Ok((head, input))
}

/// Fails, and is empty from then on.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Counts the bytes that go through.
pub(crate) struct Counted {
    input: Input,
    count: Arc<AtomicU64>,
}

impl Counted {
    pub fn new(input: Input) -> (Counted, Arc<AtomicU64>) {
        let count = Arc::new(AtomicU64::new(0));
        (Counted { input, count: count.clone() }, count)
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.input.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(read) => {
                    self.count.fetch_add(read as u64, Ordering::Relaxed);
                    return Ok(read);
                }
            }
        }
    }
}
