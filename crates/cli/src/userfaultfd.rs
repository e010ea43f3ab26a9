//! Whether the kernel reports faults to this process.

use linux::{IOC_NEW, UFFD_API, UFFDIO_API, UffdioApi};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use terapage_sys::machine::reaches_guarded;
use terapage_sys::personality::{self, ADDR_COMPAT_LAYOUT};
use terapage_sys::userfaultfd::{DEVICE_VARIABLE, Inherited};

/// Why they cannot.
pub enum Refusal {
    /// This user may not.
    Permission,
    /// The kernel was built without userfaultfd, or a container's filter hides it.
    Missing,
    /// The kernel can neither move pages nor write-protect them: on Arm, before Linux 6.8.
    Old,
    /// Anything else.
    Other(io::Error),
}

impl Refusal {
    /// What is wrong.
    pub fn what(&self) -> String {
        match self {
            Refusal::Permission => "this user may not handle page faults with userfaultfd".to_owned(),
            Refusal::Missing => "this kernel or container has no userfaultfd".to_owned(),
            Refusal::Old => "this kernel can neither move pages nor write-protect them".to_owned(),
            Refusal::Other(error) => format!("userfaultfd failed: {error}"),
        }
    }

    /// What mends it, in a line.
    pub fn fix(&self) -> &'static str {
        match self {
            Refusal::Permission
                if crate::doctor::container::is_inside() && !crate::doctor::fix::has_device() =>
            {
                Refusal::Missing.fix()
            }
            Refusal::Permission => "sudo terapage doctor --fix; terapage doctor has other ways",
            Refusal::Missing => {
                "docker run --device /dev/userfaultfd ..., or --security-opt seccomp=unconfined"
            }
            Refusal::Old => "use Linux 6.8 or later",
            Refusal::Other(_) => "sudo chmod a+rw /dev/userfaultfd",
        }
    }
}

/// Commands that give the right, beside `doctor --fix`: each is a line.
pub const OTHER_WAYS: &str = "\
sudo setpriv --reuid $USER --init-groups --inh-caps +sys_ptrace --ambient-caps +sys_ptrace terapage run ...   # one program
sudo sysctl vm.unprivileged_userfaultfd=1   # everybody, until the next start";

/// The kernel's `UFFD_FEATURE_MOVE`.
pub const FEATURE_MOVE: u64 = 1 << 16;
/// The kernel's `UFFD_FEATURE_PAGEFAULT_FLAG_WP`.
const FEATURE_PROTECT: u64 = 1 << 0;

mod linux {
    //! The parts of linux/userfaultfd.h that are needed to ask.

    pub const UFFD_API: u64 = 0xAA;
    pub const IOC_NEW: libc::Ioctl = 0xAA00;
    pub const UFFDIO_API: libc::Ioctl = 0xC018_AA3F_u32 as libc::Ioctl;

    #[repr(C)]
    pub struct UffdioApi {
        pub api: u64,
        pub features: u64,
        pub ioctls: u64,
    }
    const _: () = assert!(size_of::<UffdioApi>() == 0x18);
}

/// Asks for a userfaultfd that also sees the kernel's own faults, and answers with the
/// kernel's features.
pub fn features() -> Result<u64, Refusal> {
    let descriptor = open()?;
    let mut api = UffdioApi { api: UFFD_API, features: 0, ioctls: 0 };
    // SAFETY: the descriptor is a userfaultfd, and `api` is the struct that the call reads and
    // writes.
    let rc = unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_API, &raw mut api) };
    if rc != 0 {
        return Err(Refusal::Other(io::Error::last_os_error()));
    }
    let is_able = api.features & (FEATURE_MOVE | FEATURE_PROTECT) != 0;
    if is_able { Ok(api.features) } else { Err(Refusal::Old) }
}

/// What is said of guarded mode.
pub const GUARDED: &str = "without rights: system calls are guarded";

/// Whether a test wants to know how it is without the right (`TERAPAGE_GUARD=force`).
pub fn is_forced() -> bool {
    std::env::var_os("TERAPAGE_GUARD").is_some_and(|wish| wish == "force")
}

/// Whether programs are paged without the right: this user lacks it, or a test wants to know how
/// that is (`TERAPAGE_GUARD=force`).
pub fn guards() -> bool {
    let is_upwards =
        || std::fs::read_to_string("/proc/sys/vm/legacy_va_layout").is_ok_and(|text| text.trim() != "0");
    reaches_guarded()
        && (is_forced() || matches!(features(), Err(Refusal::Permission)))
        && terapage_sys::userfaultfd::may_serve_programs()
        // Guarded programs are known by the layout of their addresses.
        && !is_upwards()
        && may_lay_out()
}

/// What is executed gets the layout of guarded programs (`preload`: `guard/layout.rs`).
pub fn lay_out_guarded() -> io::Result<()> {
    personality::set(personality::get()? | ADDR_COMPAT_LAYOUT).map(drop)
}

/// Whether that layout can be set: filters of containers forbid most personalities.
fn may_lay_out() -> bool {
    let before = personality::get();
    let may = lay_out_guarded().is_ok();
    before.is_ok_and(|before| personality::set(before).is_ok()) && may
}

/// The descriptor that an outer `terapage run` has passed on.
pub fn inherited() -> Option<Inherited> {
    std::env::var(DEVICE_VARIABLE).ok()?.parse().ok().filter(Inherited::is_there)
}

fn open() -> Result<OwnedFd, Refusal> {
    if let Some(inherited) = inherited() {
        // SAFETY: this call takes flags by value and no memory.
        let fd = unsafe { libc::ioctl(inherited.number(), IOC_NEW, libc::O_CLOEXEC) };
        if fd >= 0 {
            // SAFETY: the kernel just gave this descriptor, and nothing else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    if let Ok(device) = File::options().read(true).write(true).open("/dev/userfaultfd") {
        // SAFETY: this call takes flags by value and no memory.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), IOC_NEW, libc::O_CLOEXEC) };
        if fd >= 0 {
            // SAFETY: the kernel just gave this descriptor, and nothing else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    // SAFETY: this call takes flags by value and no memory.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            // Everybody may, and yet not this process: a container's filter.
            Some(libc::EPERM) if everybody_may() => Refusal::Missing,
            Some(libc::EPERM | libc::EACCES) => Refusal::Permission,
            Some(libc::ENOSYS) => Refusal::Missing,
            _ => Refusal::Other(error),
        });
    }
    // SAFETY: the kernel just gave this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn everybody_may() -> bool {
    std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|text| text.trim() == "1")
}
