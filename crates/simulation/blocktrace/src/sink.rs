//! The destination of a written trace: a file that appears once it is complete, or standard output;
//! with compression if requested.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The compressions that are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// gzip, RFC 1952; `.gz`.
    Gzip,
    /// Zstandard, RFC 8878; `.zst`.
    Zstd,
    /// xz; `.xz`.
    Xz,
}

impl Compression {
    /// By the suffix of a file's name.
    pub fn of_name(path: &Path) -> Option<Compression> {
        match path.extension().and_then(OsStr::to_str)? {
            "gz" => Some(Compression::Gzip),
            "zst" => Some(Compression::Zstd),
            "xz" => Some(Compression::Xz),
            _ => None,
        }
    }

    /// By the first bytes of a file.
    pub fn of_magic(head: &[u8]) -> Option<Compression> {
        match head {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            // A skippable frame may come first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
            _ => None,
        }
    }
}

/// A file in the making, or standard output.
enum Target {
    /// A file without a name until it is complete, so that nothing stays behind, however the
    /// process ends.
    Nameless(File, PathBuf),
    /// A temporary file, if the file system has no files without a name. It is removed on drop.
    File(tempfile::NamedTempFile, PathBuf),
    Other(Box<dyn Write + Send>),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::Nameless(file, _) => file.write(bytes),
            Target::File(file, _) => file.write(bytes),
            Target::Other(other) => other.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::Nameless(file, _) => file.flush(),
            Target::File(file, _) => file.flush(),
            Target::Other(other) => other.flush(),
        }
    }
}

/// The compressor before the target.
enum Packed {
    Plain(BufWriter<Target>),
    Gzip(flate2::write::GzEncoder<BufWriter<Target>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<Target>>),
    Xz(Box<lzma_rust2::XzWriter<BufWriter<Target>>>),
}

/// The destination of a trace. Nothing stays behind unless [`Sink::finish`] is called.
pub(crate) struct Sink(Packed);

impl Sink {
    /// Writes to `path` (`-` is standard output), compressed by its suffix. An existing file of
    /// that name is replaced at the end.
    pub fn create(path: &Path) -> io::Result<Sink> {
        if path.as_os_str() == "-" {
            return Sink::new(Target::Other(Box::new(io::stdout())), None);
        }
        let compression = Compression::of_name(path);
        // A path that is not a regular file, such as a pipe or /dev/null, is written directly.
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Sink::new(Target::Other(Box::new(File::create(path)?)), compression);
        }
        // A link is kept, and the file to which it points is replaced.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut name = OsStr::new(".").to_os_string();
        name.push(path.file_name().unwrap_or_default());
        let target = match nameless(folder) {
            Ok(file) => Target::Nameless(file, path.to_path_buf()),
            Err(_) => Target::File(new_file(folder, &name)?, path.to_path_buf()),
        };
        Sink::new(target, compression)
    }

    /// Writes to anything.
    pub fn to(target: Box<dyn Write + Send>, compression: Option<Compression>) -> io::Result<Sink> {
        Sink::new(Target::Other(target), compression)
    }

    fn new(target: Target, compression: Option<Compression>) -> io::Result<Sink> {
        let target = BufWriter::with_capacity(256 << 10, target);
        Ok(Sink(match compression {
            None => Packed::Plain(target),
            Some(Compression::Gzip) => {
                Packed::Gzip(flate2::write::GzEncoder::new(target, flate2::Compression::default()))
            }
            Some(Compression::Zstd) => Packed::Zstd(zstd::stream::write::Encoder::new(target, 3)?),
            Some(Compression::Xz) => {
                let options = lzma_rust2::XzOptions::with_preset(6);
                Packed::Xz(Box::new(lzma_rust2::XzWriter::new(target, options)?))
            }
        }))
    }

    /// Ends the compression, and gives the file its name.
    pub fn finish(self) -> io::Result<()> {
        let target = match self.0 {
            Packed::Plain(target) => target,
            Packed::Gzip(encoder) => encoder.finish()?,
            Packed::Zstd(encoder) => encoder.finish()?,
            Packed::Xz(encoder) => encoder.finish()?,
        };
        match target.into_inner().map_err(io::IntoInnerError::into_error)? {
            Target::Nameless(file, path) => name(&file, &path),
            Target::File(file, path) => file.persist(path).map(drop).map_err(|error| error.error),
            Target::Other(mut other) => other.flush(),
        }
    }
}

/// A file without a name, with the permissions of a new file.
fn nameless(folder: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(File::from(open(folder, flags, Mode::from_raw_mode(0o666))?))
}

/// Gives a nameless file a name, and replaces a file that has this name.
fn name(file: &File, path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    use std::os::fd::AsRawFd;
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |to: &Path| linkat(CWD, own.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW);
    match link(path) {
        // A link cannot replace a file, but a rename can.
        Err(rustix::io::Errno::EXIST) => {
            let part = path.with_file_name(format!(
                ".{}.{}.part",
                path.file_name().unwrap_or_default().to_string_lossy(),
                std::process::id()
            ));
            link(&part)?;
            std::fs::rename(&part, path).inspect_err(|_| {
                // The error of the rename is the one that matters.
                let _ = std::fs::remove_file(&part);
            })
        }
        other => Ok(other?),
    }
}

/// A temporary file with the permissions of a new file; other temporary files are only for their
/// owner.
fn new_file(folder: &Path, name: &OsStr) -> io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let rights = std::fs::Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(name).suffix(".part").permissions(rights).tempfile_in(folder)
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Packed::Plain(target) => target.write(bytes),
            Packed::Gzip(encoder) => encoder.write(bytes),
            Packed::Zstd(encoder) => encoder.write(bytes),
            Packed::Xz(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Packed::Plain(target) => target.flush(),
            Packed::Gzip(encoder) => encoder.flush(),
            Packed::Zstd(encoder) => encoder.flush(),
            Packed::Xz(encoder) => encoder.flush(),
        }
    }
}
