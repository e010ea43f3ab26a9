//! An executable file in memory: the contents of its headers, and its segments mapped as the kernel
//! would map them.

use crate::machine::ELF_MACHINE;
use crate::raw::{is_error, raw};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use terapage_sys::runtimes::GO;
use terapage_sys::{PAGE_LEAST, page_bytes};

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// The most program headers: the kernel accepts no more than a page of them.
const HEADERS_MOST: usize = PAGE_LEAST / PROGRAM_HEADER + 1;

/// The bytes of notes that are inspected.
const NOTES: usize = 512;

/// Why a file cannot be loaded here, in words that follow "it".
pub type Odd = String;

/// The contents of a file's headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Whether it must lie at the addresses in its headers.
    pub is_fixed: bool,
    entry: usize,
    header_place: usize,
    header_count: usize,
    segments: Vec<Segment>,
    /// The part that becomes read only after the start (RELRO).
    sealed: Range<usize>,
    /// The loader that the file names.
    pub loader: Option<PathBuf>,
    /// Whether its stack must be executable.
    pub runs_stack: bool,
    /// Whether it is a Go program.
    pub is_go: bool,
    align: usize,
}

/// A segment. Addresses are the file's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    at: usize,
    bytes: usize,
    offset: usize,
    in_file: usize,
    rights: i32,
}

/// A mapped image.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The number to add to the file's addresses.
    pub base: usize,
    /// Where it lies.
    pub pages: Range<usize>,
    pub entry: usize,
    pub headers: usize,
    pub header_count: usize,
    /// Static arrays: memory that is not stored in the file.
    pub arrays: Vec<Range<usize>>,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn half(bytes: &[u8], at: usize) -> usize {
    number(bytes, at).map_or(0, |word| u16::from_le_bytes(word).into())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    number(bytes, at).map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> usize {
    number(bytes, at).map_or(0, u64::from_le_bytes) as usize
}

/// More than any address of a program.
const BEYOND: usize = 1 << 47;

impl Image {
    /// Reads the headers of an executable.
    ///
    /// # Errors
    /// Why the file cannot be loaded.
    pub fn read(file: &File) -> Result<Image, Odd> {
        let mut head = [0; HEADER];
        let short = |error: io::Error| format!("cannot be read: {error}");
        file.read_exact_at(&mut head, 0).map_err(short)?;
        let count = half(&head, 56);
        if count > HEADERS_MOST || half(&head, 54) != PROGRAM_HEADER {
            return Err("has program headers that are not valid".into());
        }
        let mut table = vec![0; count * PROGRAM_HEADER];
        file.read_exact_at(&mut table, long(&head, 32) as u64).map_err(short)?;
        let mut image = Image::parse(&head, &table)?;
        let named = table.chunks(PROGRAM_HEADER).find(|header| word(header, 0) == libc::PT_INTERP);
        if let Some(header) = named {
            let mut path = vec![0; long(header, 32).min(page_bytes())];
            file.read_exact_at(&mut path, long(header, 8) as u64).map_err(short)?;
            let path = path.split(|&b| b == 0).next().unwrap_or_default();
            image.loader = Some(OsStr::from_bytes(path).into());
        }
        for header in table.chunks(PROGRAM_HEADER).filter(|header| word(header, 0) == libc::PT_NOTE) {
            let mut notes = [0; NOTES];
            let len = long(header, 32).min(NOTES);
            file.read_exact_at(&mut notes[..len], long(header, 8) as u64).map_err(short)?;
            image.is_go |= notes[..len].windows(GO.note.len()).any(|part| part == GO.note);
        }
        Ok(image)
    }

    /// The image of a header and a table of program headers; it names no loader yet.
    fn parse(head: &[u8], table: &[u8]) -> Result<Image, Odd> {
        const ET_EXEC: usize = 2;
        const ET_DYN: usize = 3;
        let is_ours = head.starts_with(b"\x7fELF\x02\x01") && half(head, 18) == ELF_MACHINE;
        let kind = half(head, 16);
        if !is_ours || !matches!(kind, ET_EXEC | ET_DYN) {
            return Err("is not an executable for this processor".into());
        }
        let mut image = Image {
            is_fixed: kind == ET_EXEC,
            entry: long(head, 24),
            header_place: 0,
            header_count: half(head, 56),
            segments: Vec::new(),
            sealed: 0..0,
            loader: None,
            runs_stack: false,
            is_go: false,
            align: page_bytes(),
        };
        let table_offset = long(head, 32);
        for header in table.chunks_exact(PROGRAM_HEADER) {
            let (offset, at) = (long(header, 8), long(header, 16));
            let (in_file, bytes) = (long(header, 32), long(header, 40));
            match word(header, 0) {
                libc::PT_LOAD => {
                    image.add(Segment { at, bytes, offset, in_file, rights: rights(word(header, 4)) })?;
                    let align = long(header, 48);
                    if align.is_power_of_two() && align < BEYOND {
                        image.align = image.align.max(align);
                    }
                    if (offset..offset + in_file).contains(&table_offset) {
                        image.header_place = at + (table_offset - offset);
                    }
                }
                libc::PT_GNU_STACK => image.runs_stack = word(header, 4) & libc::PF_X != 0,
                libc::PT_GNU_RELRO => image.sealed = at..at.saturating_add(bytes),
                _ => {}
            }
        }
        if image.segments.is_empty() {
            return Err("has no segment to load".into());
        }
        Ok(image)
    }

    fn add(&mut self, segment: Segment) -> Result<(), Odd> {
        let Segment { at, bytes, offset, in_file, rights } = segment;
        let fits = |len: usize, from: usize| from.checked_add(len).is_some_and(|to| to < BEYOND);
        let follows = self.segments.last().is_none_or(|last| at >= last.at + last.bytes);
        let is_page = at % page_bytes() == offset % page_bytes();
        let is_sound = fits(bytes, at) && fits(in_file, offset) && in_file <= bytes && follows && is_page;
        // Zeros after the file's bytes are written into their page.
        let has_odd_zeros = in_file > 0 && bytes > in_file && rights & libc::PROT_WRITE == 0;
        if !is_sound || has_odd_zeros {
            return Err("has odd segments".into());
        }
        if bytes > 0 {
            self.segments.push(segment);
        }
        Ok(())
    }

    /// The pages of the image, by its own addresses.
    fn pages(&self) -> Range<usize> {
        let from = self.segments.first().map_or(0, |first| first.at) / page_bytes() * page_bytes();
        let to = self.segments.last().map_or(0, |last| last.at + last.bytes);
        from..to.next_multiple_of(page_bytes())
    }

    /// Whether a fixed image lies within `range`.
    pub fn lies_within(&self, range: &Range<usize>) -> bool {
        let pages = self.pages();
        range.start <= pages.start && pages.end <= range.end
    }

    /// Maps the image: at its own addresses if it is fixed, otherwise at `place` or after it.
    ///
    /// # Errors
    /// Why that is impossible; then nothing stays mapped.
    pub fn map(&self, file: &File, place: usize) -> Result<Loaded, Odd> {
        let pages = self.pages();
        let len = pages.end - pages.start;
        let from = if self.is_fixed { pages.start } else { place.next_multiple_of(self.align) };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: only free addresses are taken.
        let at = unsafe { raw!(libc::SYS_mmap, from, len, libc::PROT_NONE, flags, -1_isize, 0) };
        if at != from as isize {
            if !is_error(at) {
                // SAFETY: the range was mapped just now.
                unsafe { raw!(libc::SYS_munmap, at, len) };
            }
            return Err("must lie at addresses that are not free".into());
        }
        let base = from.wrapping_sub(pages.start);
        let mut arrays = Vec::new();
        for segment in &self.segments {
            // SAFETY: the segment lies in the range that was reserved above.
            match unsafe { segment.map(file, base) } {
                Ok(array) => arrays.extend(self.unsealed(array, base)),
                Err(error) => {
                    // SAFETY: the range has no user.
                    unsafe { raw!(libc::SYS_munmap, from, len) };
                    return Err(format!("cannot be mapped: {error}"));
                }
            }
        }
        Ok(Loaded {
            base,
            pages: from..from + len,
            entry: base.wrapping_add(self.entry),
            headers: base.wrapping_add(self.header_place),
            header_count: self.header_count,
            arrays,
        })
    }

    /// The part of an array after the part that becomes read only.
    fn unsealed(&self, array: Range<usize>, base: usize) -> Option<Range<usize>> {
        let sealed = base.wrapping_add(self.sealed.start)..base.wrapping_add(self.sealed.end);
        let meets = array.start < sealed.end && sealed.start < array.end;
        let start = if meets { sealed.end } else { array.start };
        (start < array.end).then_some(start..array.end)
    }
}

fn rights(flags: u32) -> i32 {
    let each = [(libc::PF_R, libc::PROT_READ), (libc::PF_W, libc::PROT_WRITE), (libc::PF_X, libc::PROT_EXEC)];
    each.into_iter().filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, right)| all | right)
}

impl Segment {
    /// Maps the segment, and returns its writable pages that are not in the file.
    ///
    /// # Safety
    /// The range belongs to the caller.
    unsafe fn map(&self, file: &File, base: usize) -> io::Result<Range<usize>> {
        let at = base.wrapping_add(self.at);
        let (page, within) = (at / page_bytes() * page_bytes(), at % page_bytes());
        let done = |answer: isize| match is_error(answer) {
            true => Err(io::Error::from_raw_os_error(-answer as i32)),
            false => Ok(()),
        };
        let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED;
        let (mut zeros, end) = (page, (at + self.bytes).next_multiple_of(page_bytes()));
        if self.in_file > 0 {
            let len = self.in_file + within;
            let offset = self.offset - within;
            // SAFETY: the caller owns the range.
            done(unsafe { raw!(libc::SYS_mmap, page, len, self.rights, fixed, file.as_raw_fd(), offset) })?;
            let filled = at + self.in_file;
            zeros = filled.next_multiple_of(page_bytes());
            if self.bytes > self.in_file {
                // Up to the end of the page, because loaders use the memory after the segment, too.
                // SAFETY: these bytes are in the segment's last page from the file, which is
                // writable if there are bytes after the file's.
                unsafe { (filled as *mut u8).write_bytes(0, zeros - filled) };
            }
        }
        if zeros < end {
            let flags = fixed | libc::MAP_ANONYMOUS;
            // SAFETY: the caller owns the range.
            done(unsafe { raw!(libc::SYS_mmap, zeros, end - zeros, self.rights, flags, -1_isize, 0) })?;
        }
        let is_data = self.rights == libc::PROT_READ | libc::PROT_WRITE;
        Ok(if is_data { zeros.min(end)..end } else { end..end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of kind `kind`, and a table of program headers.
    fn file(kind: u16, headers: &[[usize; 7]]) -> (Vec<u8>, Vec<u8>) {
        let mut head = vec![0; HEADER];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[16..18].copy_from_slice(&kind.to_le_bytes());
        head[18] = ELF_MACHINE as u8;
        head[24..32].copy_from_slice(&0x40_1000_u64.to_le_bytes());
        head[32] = HEADER as u8;
        head[54] = PROGRAM_HEADER as u8;
        head[56] = headers.len() as u8;
        let mut table = Vec::new();
        for [kind, flags, offset, at, in_file, bytes, align] in headers {
            table.extend_from_slice(&(*kind as u32).to_le_bytes());
            table.extend_from_slice(&(*flags as u32).to_le_bytes());
            for value in [*offset, *at, *at, *in_file, *bytes, *align] {
                table.extend_from_slice(&(value as u64).to_le_bytes());
            }
        }
        (head, table)
    }

    fn parse(kind: u16, headers: &[[usize; 7]]) -> Result<Image, Odd> {
        let (head, table) = file(kind, headers);
        Image::parse(&head, &table)
    }

    #[test]
    fn headers_are_read() {
        let text = [1, 5, 0, 0x40_0000, 0x1800, 0x1800, 0x1000];
        let data = [1, 6, 0x1800, 0x40_2800, 0x100, 0x5000, 0x20_0000];
        let image = parse(2, &[text, data, [0x6474_e551, 6, 0, 0, 0, 0, 16]]).unwrap();
        assert!(image.is_fixed && !image.runs_stack && image.align == 0x20_0000);
        assert_eq!((image.pages(), image.header_place), (0x40_0000..0x40_8000, 0x40_0040));
        assert!(image.lies_within(&(0x1000..1 << 32)) && !image.lies_within(&(0x40_1000..1 << 32)));
    }

    #[test]
    fn odd_files_are_refused() {
        let refused = |header: [usize; 7]| parse(2, &[header]).unwrap_err();
        assert_eq!(refused([1, 5, 1, 0x40_0000, 8, 8, 0x1000]), "has odd segments");
        assert_eq!(refused([1, 5, 0, 0x40_0000, 8, 9, 0x1000]), "has odd segments");
        assert_eq!(refused([1, 6, 0, 0x40_0000, 9, 8, 0x1000]), "has odd segments");
        assert_eq!(refused([1, 6, 0, usize::MAX - 7, 8, 8, 0x1000]), "has odd segments");
        assert_eq!(refused([4, 6, 0, 0, 0, 0, 4]), "has no segment to load");
        assert!(parse(1, &[]).unwrap_err().contains("not an executable"));
        let both = [[1, 6, 0, 0x40_1000, 8, 8, 1], [1, 6, 0, 0x40_0000, 8, 8, 1]];
        assert_eq!(parse(2, &both).unwrap_err(), "has odd segments");
    }

    /// No headers make it panic, and what it takes lies in the file's own pages.
    #[test]
    fn fuzzed_headers_are_taken_or_refused() {
        let words =
            [0, 1, 2, 6, 0x1000, 0x40_0000, 0x40_1000, 1 << 46, 1 << 63, usize::MAX - 0xfff, usize::MAX];
        let (mut taken, mut refused) = (0, 0);
        terapage_fuzz::fuzz("headers to load", 10_000, |random| {
            let text = [1, 5, 0, 0x40_0000, 0x1800, 0x1800, 0x1000];
            let mut headers = vec![text, [1, 6, 0x1800, 0x40_2800, 0x100, 0x5000, 0x20_0000]];
            headers
                .extend((0..random.below(3)).map(|_| [random.one(&words[..4]), 6, 0, 0x40_9000, 8, 8, 16]));
            for _ in 0..random.below(4) {
                let header = random.below(headers.len());
                headers[header][random.below(7)] = random.one(&words);
            }
            let (mut head, mut table) = file(random.one(&[2, 3]), &headers);
            for bytes in [&mut head, &mut table] {
                if random.below(8) == 0 {
                    let at = random.below(bytes.len());
                    bytes[at] = random.number() as u8;
                }
                bytes.truncate(if random.below(16) == 0 { random.below(bytes.len()) } else { bytes.len() });
            }
            refused += 1;
            if let Ok(image) = Image::parse(&head, &table) {
                let pages = image.pages();
                assert!(pages.start < pages.end && pages.end < 1 << 63, "{image:?}");
                assert!(
                    image.segments.iter().all(|segment| {
                        pages.start <= segment.at && segment.at + segment.bytes <= pages.end
                    })
                );
                (taken, refused) = (taken + 1, refused - 1);
            }
        });
        assert!(taken > 0 && refused > 0, "{taken} were taken, {refused} refused");
    }

    #[test]
    fn this_test_is_mapped_as_the_kernel_maps_it() {
        let file = File::open("/proc/self/exe").unwrap();
        let image = Image::read(&file).unwrap();
        assert!(!image.is_fixed && image.loader.is_some());
        let loaded = image.map(&file, 0x2000_0000_0000).unwrap();
        assert_eq!(loaded.base, 0x2000_0000_0000);
        // SAFETY: the headers were mapped just now.
        let mapped = unsafe {
            let len = loaded.header_count * PROGRAM_HEADER;
            std::slice::from_raw_parts(loaded.headers as *const u8, len)
        };
        let mut table = vec![0; mapped.len()];
        file.read_exact_at(&mut table, HEADER as u64).unwrap();
        assert_eq!(mapped, table);
        for array in &loaded.arrays {
            // SAFETY: the array was mapped just now.
            let bytes = unsafe { std::slice::from_raw_parts(array.start as *const u8, array.len()) };
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
        let again = image.map(&file, 0x2000_0000_0000);
        assert_eq!(again.unwrap_err(), "must lie at addresses that are not free");
    }
}
