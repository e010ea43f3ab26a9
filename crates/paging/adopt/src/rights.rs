//! Whether a process lacks the right to handle the kernel's page faults.

use crate::Why;
use crate::remote::Remote;
use terapage_sys::userfaultfd::DEVICE;

/// `UFFD_USER_MODE_ONLY`.
const PROGRAMS_ONLY: usize = 1;

/// The request to the device that makes a userfaultfd.
const MAKE: usize = 0xaa00;

/// Whether the process lacks the right, which the pager would use as its first. `scratch` is a page
/// of the process.
///
/// # Errors
/// It may not even handle the faults of programs.
pub fn lacks(remote: &mut Remote, scratch: usize) -> Result<bool, Why> {
    let own = libc::O_CLOEXEC as usize;
    if makes(remote, libc::SYS_userfaultfd, [own, 0, 0, 0, 0, 0])? {
        return Ok(false);
    }
    remote.put(scratch, DEVICE.to_bytes_with_nul())?;
    let open = [libc::AT_FDCWD as usize, scratch, libc::O_RDWR as usize | own, 0, 0, 0];
    let device = remote.answer(libc::SYS_openat, open)?;
    if device >= 0 {
        let may = makes(remote, libc::SYS_ioctl, [device as usize, MAKE, own, 0, 0, 0])?;
        remote.answer(libc::SYS_close, [device as usize, 0, 0, 0, 0, 0])?;
        if may {
            return Ok(false);
        }
    }
    if makes(remote, libc::SYS_userfaultfd, [own | PROGRAMS_ONLY, 0, 0, 0, 0, 0])? {
        return may_be_guarded().map(|()| true);
    }
    Err("it may not handle its page faults, and not even those outside the kernel (Linux 5.11; some \
         containers forbid that)"
        .into())
}

/// Refuses guarded mode where each program has its libraries where only guarded ones should.
pub fn may_be_guarded() -> Result<(), Why> {
    let upwards = std::fs::read_to_string("/proc/sys/vm/legacy_va_layout").unwrap_or_default();
    match upwards.trim() {
        "" | "0" => Ok(()),
        _ => Err("it may not handle its page faults, and vm.legacy_va_layout=1 forbids guarded mode".into()),
    }
}

/// Whether a call makes a descriptor, which is closed.
fn makes(remote: &mut Remote, number: i64, arguments: [usize; 6]) -> Result<bool, Why> {
    let fd = remote.answer(number, arguments)?;
    if fd >= 0 {
        remote.answer(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0])?;
    }
    Ok(fd >= 0)
}
