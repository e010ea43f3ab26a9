//! Files of the program's, which are real ones.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Writes all of `bytes` to a file, from `offset` on.
///
/// # Errors
/// What the kernel says.
pub fn write_all(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    file.write_all_at(bytes, offset)
}
