//! Files as paged memory.

use crate::process::{Process, lock, process, started};
use crate::{Error, Plain, Result};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use terapage_sys::file::past_cache;
use terapage_sys::{fd, page_bytes};

/// A mapped file.
pub(crate) struct Mapping {
    at: usize,
    /// Bytes of the mapping, as asked for.
    len: usize,
    /// Bytes, from the first, that the file has.
    bytes: u64,
    offset: u64,
    path: PathBuf,
    file: File,
    writable: bool,
}

/// The lock under which a file is synced or unmapped, one at a time.
pub(crate) static SYNC: Mutex<()> = Mutex::new(());

/// The address of a mapping, and its length.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The first byte.
    pub at: *mut u8,
    /// The length in bytes.
    pub len: usize,
}

/// Maps `len` bytes of a file from `offset` (whole pages of 4096 bytes) on; `None` maps the rest of
/// the file. After the end of the file the memory reads as zeros, and writes there do not reach the
/// file. Each block costs 32 bytes of memory at once, touched or not, also in holes: 2 GiB for 1
/// TiB in blocks of 16 KiB.
///
/// # Errors
/// The file does not exist, or is neither a regular file nor a block device; it may not be written,
/// if `writable`; the range is empty; there is no room; some 250 files are already mapped.
pub fn map_file(path: &Path, offset: u64, len: Option<usize>, writable: bool) -> Result<Place> {
    let failed = |doing, source| Error::File { path: path.to_owned(), doing, source };
    let refused = |doing, errno| failed(doing, std::io::Error::from_raw_os_error(errno));
    let kind = std::fs::metadata(path).map_err(|error| failed("cannot be mapped", error))?.file_type();
    if kind.is_dir() {
        return Err(refused("cannot be mapped", libc::EISDIR));
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(refused("neither a file nor a block device", libc::ENODEV));
    }
    if !offset.is_multiple_of(page_bytes() as u64) {
        return Err(Error::Argument(format!("offset {offset} is not a multiple of {}", page_bytes())));
    }
    let doing = if writable { "cannot be opened to read and write" } else { "cannot be opened to read" };
    let mut file =
        OpenOptions::new().read(true).write(writable).open(path).map_err(|error| failed(doing, error))?;
    let size = file.seek(SeekFrom::End(0)).map_err(|error| failed("has no size", error))?;
    let rest = size.saturating_sub(offset);
    let len = len.unwrap_or(usize::try_from(rest).unwrap_or(usize::MAX));
    let bytes = rest.min(len as u64);
    if bytes == 0 {
        let why = format!(
            "{}: nothing to map: the file has {size} bytes, the offset is {offset} and the length {len}",
            path.display()
        );
        return Err(Error::Argument(why));
    }
    let (reader, read) = past_cache(&file, offset).map_err(|error| failed("cannot be read", error))?;
    if (read as u64) < bytes.min(page_bytes() as u64) {
        // Files in /sys are like this.
        return Err(refused("has fewer bytes than its size states", libc::ENODEV));
    }
    let process = process()?;
    // The program may close descriptors that it did not open, and open its own files under their
    // numbers.
    let file = File::from(fd::move_up(file.into())?);
    let at = process.take(len, 1)?;
    let mapping = Mapping { at, len, bytes, offset, path: path.to_owned(), file, writable };
    let mapped = process.pages().map_file(
        at,
        len.next_multiple_of(process.block),
        reader.as_ref().unwrap_or(&mapping.file),
        offset,
        bytes,
    );
    if let Err(error) = mapped {
        process.put(at, len)?;
        return Err(error);
    }
    lock(&process.ranges).mappings.insert(at, Arc::new(mapping));
    Ok(Place { at: at as *mut u8, len })
}

fn find(at: *const u8) -> Result<(&'static Process, Arc<Mapping>)> {
    let unknown = || Error::Unknown { at: at as usize, what: "mapping" };
    let process = started().ok_or_else(unknown)?;
    let mapping = lock(&process.ranges).mappings.get(&(at as usize)).cloned();
    Ok((process, mapping.ok_or_else(unknown)?))
}

impl Mapping {
    fn sync(&self, process: &Process) -> Result<u64> {
        let size = (self.bytes as usize).next_multiple_of(process.block);
        let written = process.pages().sync_file(self.at, size, &self.file, self.offset, self.bytes);
        written.map_err(|error| match error {
            terapage_pager::Error::System(error) => {
                let durable = error.call == terapage_pager::FDATASYNC;
                let doing = if durable { "cannot be made durable" } else { "cannot be written" };
                Error::File { path: self.path.clone(), doing, source: error.source }
            }
            other => other.into(),
        })
    }

    fn remove(&self, process: &Process) -> Result<()> {
        lock(&process.ranges).mappings.remove(&self.at);
        process.pages().unmap_file(self.at, self.len.next_multiple_of(process.block))?;
        process.put(self.at, self.len)
    }
}

/// Writes the changes in the mapping at `at` back to its file, and waits until they are durable.
/// Returns the bytes written; 0 for a read-only mapping.
///
/// # Errors
/// No mapping begins there, or the file cannot be written: the next call tries the missing parts
/// again.
pub fn sync(at: *const u8) -> Result<u64> {
    let _sync = lock(&SYNC);
    let (process, mapping) = find(at)?;
    if mapping.writable { mapping.sync(process) } else { Ok(0) }
}

/// Ends the mapping at `at`, after a [`sync`].
///
/// # Safety
/// No code uses the memory from now on, unless the call fails.
///
/// # Errors
/// The errors of [`sync`]; then the mapping still exists, with all its changes.
pub unsafe fn unmap(at: *const u8) -> Result<()> {
    let _sync = lock(&SYNC);
    let (process, mapping) = find(at)?;
    if mapping.writable {
        mapping.sync(process)?;
    }
    mapping.remove(process)
}

/// A file of any size as memory: it is read when it is touched, and, with
/// [`open_rw`](Self::open_rw), written back by [`sync`](Self::sync).
///
/// No other program may change the file meanwhile. If a block is read again and differs from the
/// first time, the program is stopped.
///
/// ```no_run
/// let file = terapage::MappedFile::open("measurements.f64")?;
/// let sum: f64 = file.as_slice::<f64>().iter().sum();
/// # Ok::<(), terapage::Error>(())
/// ```
#[derive(Debug)]
pub struct MappedFile {
    place: Place,
}

// SAFETY: only the mapping owns the memory, while it lives.
unsafe impl Send for MappedFile {}
// SAFETY: a change needs a `&mut`.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps all of a file. Changes to the memory stay in the memory.
    ///
    /// # Errors
    /// As for [`map_file`].
    pub fn open(path: impl AsRef<Path>) -> Result<MappedFile> {
        map_file(path.as_ref(), 0, None, false).map(|place| MappedFile { place })
    }

    /// Maps all of a file, for changes.
    ///
    /// # Errors
    /// As for [`map_file`].
    pub fn open_rw(path: impl AsRef<Path>) -> Result<MappedFile> {
        map_file(path.as_ref(), 0, None, true).map(|place| MappedFile { place })
    }

    /// Writes the changes back to the file, durably. Returns the bytes written.
    ///
    /// # Errors
    /// The file cannot be written. The next call tries again.
    pub fn sync(&self) -> Result<u64> {
        sync(self.place.at)
    }

    /// Syncs and ends the mapping. Dropping it does the same, without a result.
    ///
    /// # Errors
    /// The errors of [`sync`](Self::sync); then the changes are lost.
    pub fn close(self) -> Result<()> {
        self.sync().map(|_| ())
    }

    /// The mapping as values, as many as fit completely.
    pub fn as_slice<T: Plain>(&self) -> &[T] {
        // SAFETY: any bytes are valid for a `Plain`, and a mapping begins at a page.
        unsafe { self.align_to().1 }
    }

    /// The mapping as values that can be changed.
    pub fn as_mut_slice<T: Plain>(&mut self) -> &mut [T] {
        // SAFETY: a `Plain` may be changed to any bytes, and a mapping begins at a page.
        unsafe { self.align_to_mut().1 }
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as `self`, and changes only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.place.at, self.place.len) }
    }
}

impl DerefMut for MappedFile {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping lives as long as `self`, which is borrowed for changing.
        unsafe { std::slice::from_raw_parts_mut(self.place.at, self.place.len) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let _sync = lock(&SYNC);
        if let Ok((process, mapping)) = find(self.place.at) {
            if mapping.writable {
                mapping.sync(process).ok();
            }
            mapping.remove(process).ok();
        }
    }
}
