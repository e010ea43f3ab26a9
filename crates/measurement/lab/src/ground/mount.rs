//! Loop devices and mounts: making and removing them.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// linux/loop.h.
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
/// Asks for the number of a free loop device.
pub const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const LOOP_BLOCK_BYTES: u32 = 4096;

/// `struct loop_config`, with `struct loop_info64` in the middle.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    numbers: [u64; 5],
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

/// Puts a file behind a loop device, with direct I/O if the file system supports it.
///
/// # Errors
/// The device is taken, or the kernel refuses.
pub fn configure(device: &File, behind: &File) -> io::Result<()> {
    // SAFETY: LoopConfig is plain data, for which zeros are a value.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = behind.as_raw_fd() as u32;
    config.block_size = LOOP_BLOCK_BYTES;
    config.flags = LO_FLAGS_DIRECT_IO;
    // SAFETY: both descriptors are open for the call, and `config` has the expected form.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// linux/mount.h.
const FSOPEN_CLOEXEC: u32 = 1;
const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const FSMOUNT_CLOEXEC: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;

/// Mounts a new file system by the calls that say why they refuse: the error quotes the kernel.
///
/// # Errors
/// The kernel refuses.
pub fn mount(kind: &str, devices: &[PathBuf], options: &str, point: &Path) -> io::Result<()> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
    let (kind, empty, target) = (text(kind.as_bytes())?, text(b"")?, text(point.as_os_str().as_bytes())?);
    // SAFETY: `kind` ends in a zero byte and lives through the call.
    let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    let set = |command: u32, key: Option<&str>, value: Option<&[u8]>| -> io::Result<()> {
        let key = key.map(|key| text(key.as_bytes())).transpose()?;
        let value = value.map(text).transpose()?;
        let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        // SAFETY: the descriptor is open, and both texts, if present, end in a zero byte and live
        // through the call.
        let answer = unsafe {
            let (key, value) = (pointer(&key), pointer(&value));
            libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key, value, 0)
        };
        if answer == 0 { Ok(()) } else { Err(with_words(&context, io::Error::last_os_error())) }
    };
    set(FSCONFIG_SET_STRING, Some("source"), Some(devices[0].as_os_str().as_bytes()))?;
    for device in &devices[1..] {
        set(FSCONFIG_SET_STRING, Some("device"), Some(device.as_os_str().as_bytes()))?;
    }
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some((key, value)) => set(FSCONFIG_SET_STRING, Some(key), Some(value.as_bytes()))?,
            None => set(FSCONFIG_SET_FLAG, Some(option), None)?,
        }
    }
    set(FSCONFIG_CMD_CREATE, None, None)?;
    // SAFETY: the descriptor is open for the call; no memory is passed.
    let mounted =
        descriptor(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0u32) })?;
    // SAFETY: the descriptor is open; both texts end in a zero byte and live through the call.
    let moved = unsafe {
        let (from, to) = (mounted.as_raw_fd(), libc::AT_FDCWD);
        libc::syscall(
            libc::SYS_move_mount,
            from,
            empty.as_ptr(),
            to,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    if moved == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The descriptor that a call gave.
fn descriptor(answer: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(answer) {
        // SAFETY: the kernel has just made the descriptor, and it has no other owner.
        Ok(number) if number >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An error with the kernel's explanation: messages that begin with `e`.
fn with_words(context: &OwnedFd, error: io::Error) -> io::Error {
    let Ok(context) = context.try_clone() else { return error };
    let (mut file, mut words, mut buffer) = (File::from(context), Vec::new(), [0; 512]);
    while let Ok(count @ 1..) = file.read(&mut buffer) {
        let message = String::from_utf8_lossy(&buffer[..count]).into_owned();
        if let Some(message) = message.strip_prefix("e ") {
            words.push(message.trim().to_owned());
        }
    }
    if words.is_empty() { error } else { io::Error::new(error.kind(), words.join("; ")) }
}

/// linux/btrfs.h: `_IOW(0x94, 5, struct btrfs_ioctl_vol_args)`, which is a number and a name.
const BTRFS_IOC_FORGET_DEV: libc::Ioctl = 0x5000_9405_u32 as libc::Ioctl;

#[repr(C)]
struct BtrfsName {
    fd: i64,
    name: [u8; 4088],
}

/// Makes btrfs forget one of several devices, which is not mounted; no error if btrfs does not know
/// it.
pub fn forget(device: &Path) -> io::Result<()> {
    let control = match OpenOptions::new().read(true).write(true).open("/dev/btrfs-control") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let name = device.as_os_str().as_bytes();
    let mut argument = Box::new(BtrfsName { fd: 0, name: [0; 4088] });
    argument
        .name
        .get_mut(..name.len())
        .ok_or_else(|| io::Error::other("too long a name"))?
        .copy_from_slice(name);
    // SAFETY: the descriptor is open, and the argument has the form that the call wants.
    match unsafe { libc::ioctl(control.as_raw_fd(), BTRFS_IOC_FORGET_DEV, &raw const *argument) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // The device is unknown, or no longer there.
            error if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Ok(()),
            error => Err(error),
        },
    }
}

/// Removes a mount; no error if there is none.
pub fn unmount(point: &Path) -> io::Result<()> {
    let name = CString::new(point.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        // SAFETY: `name` is a string that ends in a zero byte and lives through the call.
        if unsafe { libc::umount2(name.as_ptr(), libc::UMOUNT_NOFOLLOW) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // Its last process is about to end.
            Some(libc::EBUSY) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
            Some(libc::EINVAL | libc::ENOENT) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// The same.
const LOOP_CLR_FD: libc::Ioctl = 0x4c01;

/// Detaches the file from a loop device; no error if the device has another file, or none.
pub fn detach(device: &Path, file: &Path) -> io::Result<()> {
    let name = device.file_name().unwrap_or_default();
    let behind = fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file"));
    let behind = behind.unwrap_or_default();
    // The path of a removed file has a mark.
    let behind = behind.trim_end_matches('\n').trim_end_matches(" (deleted)");
    if behind.as_bytes() != file.as_os_str().as_bytes() {
        return Ok(());
    }
    let opened = File::open(device)?;
    // SAFETY: the descriptor is open for the call; no memory is passed.
    match unsafe { libc::ioctl(opened.as_raw_fd(), LOOP_CLR_FD, 0) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(()),
            error => Err(error),
        },
    }
}
