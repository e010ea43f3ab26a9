//! The file of a trace.

use super::{Recorder, Shared};
use crate::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terapage_sys::fd::Fd;
use terapage_sys::thread;
use terapage_trace::{Header, Writer};

impl Recorder {
    /// Creates the file and starts the writing thread.
    pub fn start(path: &Path, block: usize, frames: usize) -> Result<(Recorder, Arc<Shared>), Error> {
        let path = with_pid(path);
        let failed = |source| Error::Trace { path: path.clone(), source };
        let file = TraceFile::create(&path).map_err(failed)?;
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let program = std::env::current_exe().unwrap_or_default();
        let header = Header {
            block_bytes: block as u32,
            pid: thread::pid() as u32,
            start_us: started.map_or(0, |started| started.as_micros() as u64),
            budget_bytes: (block * frames) as u64,
            executable: Header::hash_of(&program),
            program: program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            ..Header::default()
        };
        let writer = Writer::new(file, &header).map_err(failed)?;
        Recorder::begin(writer, path)
    }
}

/// A file whose descriptor has a high number, away from the program's.
pub(super) struct TraceFile(Fd);

impl TraceFile {
    /// Creates the file, or empties it if no other code writes to it.
    pub(super) fn create(path: &Path) -> io::Result<TraceFile> {
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.is_file() {
            file.try_lock().map_err(|error| match error {
                std::fs::TryLockError::WouldBlock => io::Error::other(
                    "another process writes its trace there (%p in the name gives each its own)",
                ),
                std::fs::TryLockError::Error(error) => error,
            })?;
            file.set_len(0)?;
        }
        let fd = Fd::adopt(OwnedFd::from(file)).map_err(|error| error.source)?;
        Ok(TraceFile(fd))
    }
}

impl Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the descriptor is open, and this `File` never closes it: its owner does.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(self.0.raw()) });
        (&*file).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The path, with the process's number for each `%p`.
pub(super) fn with_pid(path: &Path) -> PathBuf {
    let pid = thread::pid().to_string();
    let mut named = Vec::new();
    let mut rest = path.as_os_str().as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"%p") {
            named.extend(pid.as_bytes());
            rest = after;
        } else {
            named.push(first);
            rest = tail;
        }
    }
    std::ffi::OsString::from_vec(named).into()
}
