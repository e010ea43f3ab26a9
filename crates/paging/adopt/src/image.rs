//! The host's file: a static executable that may lie anywhere.

use crate::Why;
use crate::remote::Remote;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const LOADED: u32 = 1;
const INTERPRETER: u32 = 3;
/// An executable that may lie anywhere (`ET_DYN`).
const ANYWHERE: u16 = 3;

/// What the file's headers say.
pub struct Image {
    pub path: PathBuf,
    pub entry: usize,
    /// Where its program headers lie, and how many there are.
    pub headers: usize,
    pub header_count: usize,
    segments: Vec<Segment>,
}

struct Segment {
    at: usize,
    bytes: usize,
    offset: usize,
    in_file: usize,
    rights: i32,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(number(bytes, at))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number(bytes, at))
}

fn long(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(number(bytes, at)) as usize
}

impl Image {
    /// Reads the headers of the host at `path`.
    pub fn read(path: &Path) -> Result<Image, Why> {
        let why = |error: std::io::Error| format!("the host {} cannot be read ({error})", path.display());
        let file = File::open(path).map_err(why)?;
        let mut head = [0; HEADER];
        file.read_exact_at(&mut head, 0).map_err(why)?;
        let (count, place) = (usize::from(half(&head, 56)), long(&head, 32));
        let mut table = vec![0; count * PROGRAM_HEADER];
        file.read_exact_at(&mut table, place as u64).map_err(why)?;
        // The program, while it is stopped, does not wait for the disk.
        std::io::copy(&mut &file, &mut std::io::sink()).map_err(why)?;
        let is_ours = head.starts_with(b"\x7fELF\x02\x01") && half(&head, 16) == ANYWHERE;
        let has_loader = table.chunks(PROGRAM_HEADER).any(|header| word(header, 0) == INTERPRETER);
        let segments: Vec<Segment> =
            table.chunks(PROGRAM_HEADER).filter(|header| word(header, 0) == LOADED).map(segment).collect();
        if !is_ours || has_loader || segments.is_empty() {
            return Err(format!("{} is not the static host", path.display()));
        }
        let first = &segments[0];
        Ok(Image {
            path: path.to_owned(),
            entry: long(&head, 24),
            headers: first.at + place - first.offset,
            header_count: count,
            segments,
        })
    }

    /// Maps the image into a process. Returns the number to add to its addresses. `scratch` is
    /// memory of the process, for the path.
    pub fn map(&self, remote: &mut Remote, scratch: usize) -> Result<usize, Why> {
        let mut path = self.path.as_os_str().as_bytes().to_vec();
        path.push(0);
        remote.put(scratch, &path)?;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        let what = format!("the host {} cannot be opened there", self.path.display());
        let here = libc::AT_FDCWD as usize;
        let fd = remote.call(&what, libc::SYS_openat, [here, scratch, flags, 0, 0, 0])?;
        let end = self.segments.iter().map(|segment| segment.at + segment.bytes).max().unwrap_or(0);
        let len = end.next_multiple_of(PAGE);
        let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        let what = "the host cannot be mapped";
        let base = remote.call(what, libc::SYS_mmap, [0, len, 0, private, usize::MAX, 0])?;
        for segment in &self.segments {
            segment.map(remote, base, fd)?;
        }
        remote.call("the host's file", libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
        Ok(base)
    }
}

fn segment(header: &[u8]) -> Segment {
    let flags = word(header, 4);
    let right = |flag: u32, right: i32| if flags & flag != 0 { right } else { 0 };
    Segment {
        at: long(header, 16),
        bytes: long(header, 40),
        offset: long(header, 8),
        in_file: long(header, 32),
        rights: right(1, libc::PROT_EXEC) | right(2, libc::PROT_WRITE) | right(4, libc::PROT_READ),
    }
}

impl Segment {
    fn map(&self, remote: &mut Remote, base: usize, fd: usize) -> Result<(), Why> {
        let what = "the host cannot be mapped";
        let at = base + self.at;
        let (page, within) = (at / PAGE * PAGE, at % PAGE);
        let fixed = (libc::MAP_PRIVATE | libc::MAP_FIXED) as usize;
        let rights = self.rights as usize;
        let filled = at + self.in_file;
        let mut zeros = page;
        if self.in_file > 0 {
            let file = [page, self.in_file + within, rights, fixed, fd, self.offset - within];
            remote.call(what, libc::SYS_mmap, file)?;
            zeros = filled.next_multiple_of(PAGE);
            if self.rights & libc::PROT_WRITE != 0 {
                remote.put(filled, &vec![0; zeros - filled])?;
            }
        }
        let end = (at + self.bytes).next_multiple_of(PAGE);
        if zeros < end {
            let flags = fixed | libc::MAP_ANONYMOUS as usize;
            remote.call(what, libc::SYS_mmap, [zeros, end - zeros, rights, flags, usize::MAX, 0])?;
        }
        Ok(())
    }
}
