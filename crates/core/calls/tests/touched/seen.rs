//! What a call has left behind, as words that can be compared: its result, its memory, its files.

use crate::world::World;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// What was seen of one call.
pub type Seen = Vec<u64>;

const PAGE: usize = 4096;

fn bytes(seen: &mut Seen, bytes: &[u8]) {
    seen.push(bytes.len() as u64);
    for part in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        seen.push(u64::from_ne_bytes(word));
    }
}

/// The memory of a call. Addresses of its own pieces are replaced by the pieces' numbers.
pub fn memory(seen: &mut Seen, world: &World, ends: &[usize]) {
    for (piece, &end) in world.pieces.iter().zip(ends) {
        let len = (end + 64).min(piece.limit - piece.start).min(12_000);
        let mut copy = vec![0_u8; len];
        // SAFETY: the piece reaches to its limit.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(piece.start as *const u8, len) };
        for word in copy.chunks_mut(8) {
            if let Some(same) = without_address(world, word) {
                word.copy_from_slice(&same.to_ne_bytes()[..word.len()]);
            }
        }
        bytes(seen, &copy);
    }
}

/// What stands for the beginning of an address in one of the call's own pieces.
fn without_address(world: &World, word: &[u8]) -> Option<usize> {
    world.pieces.iter().enumerate().filter(|(_, piece)| piece.limit >= PAGE).find_map(|(number, piece)| {
        if word.len() == 8 {
            let value = usize::from_ne_bytes(word.try_into().expect("8 bytes"));
            let is_inside = (piece.start..=piece.limit).contains(&value);
            return is_inside.then(|| 0x5afe << 48 | number << 32 | (value - piece.start));
        }
        // Zeros are the beginning of many addresses, but of different ones in the two zones.
        let is_begun = word.len() > 1
            && word.iter().any(|&byte| byte != 0)
            && *word == piece.start.to_ne_bytes()[..word.len()];
        is_begun.then_some(number)
    })
}

/// Which signals are blocked, and the stack for handlers.
pub fn signals(seen: &mut Seen, world: &World) {
    // SAFETY: plain data, for which zeros are a value; room for the answers.
    unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &raw mut stack);
        let at = stack.ss_sp as usize;
        let same = without_address(world, &at.to_ne_bytes()).unwrap_or(at);
        let mut blocked = 0_u64;
        libc::syscall(libc::SYS_rt_sigprocmask, 0, 0, &raw mut blocked, 8);
        seen.extend([same as u64, stack.ss_size as u64, u64::from(stack.ss_flags as u32), blocked]);
    }
}

/// The files of a directory.
pub fn directory(seen: &mut Seen) {
    let Ok(entries) = std::fs::read_dir(".") else { return };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    for name in names {
        bytes(seen, name.as_encoded_bytes());
        let Ok(about) = std::fs::symlink_metadata(&name) else { continue };
        seen.extend([u64::from(about.mode()), about.len(), about.mtime() as u64, about.atime() as u64]);
        if about.is_symlink() {
            bytes(seen, std::fs::read_link(&name).unwrap_or_default().as_os_str().as_encoded_bytes());
        } else if about.is_file() {
            attributes(seen, &name);
            bytes(seen, &std::fs::read(&name).unwrap_or_default());
        } else {
            seen.push(u64::from(about.file_type().is_fifo()));
        }
    }
}

fn attributes(seen: &mut Seen, name: &std::ffi::OsStr) {
    let name = std::ffi::CString::new(name.as_encoded_bytes()).expect("no NUL in a name");
    let mut room = [0_u8; 256];
    for attribute in [c"user.a", c"user.b"] {
        // SAFETY: texts, and room for a value.
        let len = unsafe {
            libc::getxattr(name.as_ptr(), attribute.as_ptr(), room.as_mut_ptr().cast(), room.len())
        };
        bytes(seen, &room[..len.max(0) as usize]);
    }
}

/// A descriptor, and the device and number of its file.
pub type Descriptor = (i32, [u64; 2]);

/// The file of a descriptor.
fn file(fd: i32) -> Option<libc::stat> {
    // SAFETY: plain data, for which zeros are a value; room for the answer.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut status) == 0).then_some(status)
    }
}

/// The open descriptors with these numbers.
pub fn open(from: i32, to: i32) -> Vec<Descriptor> {
    (from..to).filter_map(|fd| file(fd).map(|status| (fd, [status.st_dev, status.st_ino]))).collect()
}

/// What lies in open files, which is taken out of pipes and sockets. There is room for a part of
/// it.
///
/// The pager opens and closes files meanwhile. So a descriptor may have been noted as one call's
/// while the pager had it, and now be another call's: then it has another file.
pub fn descriptors(seen: &mut Seen, all: &[Descriptor], room: &mut [u8]) {
    let most = room.len();
    for &(fd, before) in all {
        let Some(status) = file(fd).filter(|status| [status.st_dev, status.st_ino] == before) else {
            continue;
        };
        seen.push(u64::from(status.st_mode));
        let at = room.as_mut_ptr().cast();
        // SAFETY: the room has this length.
        let got = unsafe {
            match status.st_mode & libc::S_IFMT {
                libc::S_IFREG => {
                    seen.push(libc::lseek(fd, 0, libc::SEEK_CUR) as u64);
                    libc::pread(fd, at, most, 0)
                }
                libc::S_IFIFO => {
                    libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK | libc::fcntl(fd, libc::F_GETFL));
                    libc::read(fd, at, most)
                }
                libc::S_IFSOCK => libc::recv(fd, at, most, libc::MSG_DONTWAIT),
                _ => 0,
            }
        };
        seen.push(got as u64);
        bytes(seen, &room[..got.max(0) as usize]);
    }
}
