//! Files that will be written.

use rustix::fs::{Access, access};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Checks that a file can be made or replaced at `path`, or that a pipe there can be written.
/// Anything else at the path is refused: a link, such as `/dev/stdout`, would be removed.
pub(crate) fn takes_output(path: &Path) -> Result<(), String> {
    match std::fs::symlink_metadata(path).map(|found| found.file_type()) {
        Ok(kind) if kind.is_fifo() => return Ok(()),
        // Links in /dev and /proc lead to files that are already open and must not be replaced.
        Ok(kind) if kind.is_symlink() && !["/dev", "/proc"].iter().any(|place| path.starts_with(place)) => {
            let target = path.canonicalize().or_else(|_| std::fs::read_link(path));
            let name =
                target.map_or_else(|_| "another file".to_owned(), |target| target.display().to_string());
            return Err(format!("is a symbolic link (name its target: {name})"));
        }
        Ok(kind) if !kind.is_file() => {
            return Err("exists, and is neither a regular file nor a pipe (name another file)".to_owned());
        }
        _ => {}
    }
    can_be_made(path)
}

/// Checks that a file can be written or made at `path`; `-` stands for standard output. An existing
/// file is not touched, and a pipe is not opened.
///
/// # Errors
/// The file cannot be written; the text is one line, and follows the path.
pub fn can_be_written(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        _ if path == Path::new("-") => Ok(()),
        Ok(found) if found.is_dir() => Err("is a directory (name a file)".to_owned()),
        Ok(found) if !found.is_file() => Ok(()),
        Ok(_) => std::fs::File::options()
            .append(true)
            .open(path)
            .map(drop)
            .map_err(|error| format!("cannot be written: {error} (name another file)")),
        Err(_) => can_be_made(path),
    }
}

/// Checks that a file can be made in the directory of `path`.
fn can_be_made(path: &Path) -> Result<(), String> {
    let directory = match path.parent() {
        Some(directory) if directory.as_os_str().is_empty() => Path::new("."),
        Some(directory) => directory,
        None => return Err("is not a file (name a file)".to_owned()),
    };
    if !directory.is_dir() {
        return Err("is in a directory that does not exist (make it, or name another file)".to_owned());
    }
    access(directory, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("is in a directory that cannot be written: {error} (name another file)"))
}
