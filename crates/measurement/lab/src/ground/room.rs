//! Room on a file system.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes free to us on the file system of `path`.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    let name: &CStr = &name;
    // SAFETY: statvfs is plain data, for which zeros are a value.
    let mut answer: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `name` ends in a zero byte; both live through the call.
    if unsafe { libc::statvfs(name.as_ptr(), &mut answer) } != 0 {
        return None;
    }
    Some(answer.f_bavail * answer.f_frsize)
}
