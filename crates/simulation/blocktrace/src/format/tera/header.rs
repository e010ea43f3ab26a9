//! The header: the properties of the trace as a whole.

use super::{Bytes, check, stop};
use crate::fault::field;
use crate::format::vscsi::{int, long};
use crate::reader::Stop;
use crate::writer::WriterOptions;
use twox_hash::XxHash3_64;

/// The first bytes of a file; the last of them is the version.
pub(super) const MAGIC: &[u8; 8] = b"TERABLK\x01";
/// The longest name or comment, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// The bit of a synthetic trace.
const SYNTHETIC: u32 = 1;

pub(super) struct Header {
    pub name: String,
    pub comment: String,
    pub synthetic: bool,
}

impl Header {
    pub fn new(options: &WriterOptions) -> Header {
        let (name, comment) = (cut(&options.name), cut(&options.comment));
        Header { name, comment, synthetic: options.synthetic }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        let flags = if self.synthetic { SYNTHETIC } else { 0 };
        for number in [flags, self.name.len() as u32, self.comment.len() as u32] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(self.comment.as_bytes());
        let hash = XxHash3_64::oneshot(&out[start..]);
        out.extend_from_slice(&hash.to_le_bytes());
    }
}

/// Cuts a text to the longest that can be read again.
fn cut(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}

pub(super) fn read(bytes: &mut Bytes) -> Result<Header, Stop> {
    let mut head = Vec::new();
    bytes.exact(20, &mut head)?;
    if !head.starts_with(MAGIC) {
        return stop(field("a tera trace of version 1", &head[..8]));
    }
    let (flags, name, comment) = (int(&head, 8), int(&head, 12) as usize, int(&head, 16) as usize);
    if name > TEXT_BYTES_MAX || comment > TEXT_BYTES_MAX {
        return stop(field("a name and a comment of at most 64 KiB", &head[12..20]));
    }
    let mut text = Vec::new();
    bytes.exact(name + comment + 8, &mut text)?;
    let hash = long(&text, name + comment);
    text.truncate(name + comment);
    head.extend_from_slice(&text);
    check(hash, XxHash3_64::oneshot(&head))?;
    if flags & !SYNTHETIC != 0 {
        return stop(field("flags of version 1", flags.to_string().as_bytes()));
    }
    let comment = String::from_utf8_lossy(&text[name..]).into_owned();
    let name = String::from_utf8_lossy(&text[..name]).into_owned();
    Ok(Header { name, comment, synthetic: flags & SYNTHETIC != 0 })
}
