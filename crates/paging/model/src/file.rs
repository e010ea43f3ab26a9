//! Files of the program, which are real files.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Writes all of `bytes` to a file, from `offset` on.
///
/// # Errors
/// The kernel's error.
pub fn write_all(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    file.write_all_at(bytes, offset)
}
