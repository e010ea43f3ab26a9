//! Calls whose pointer is what a command says.

use super::sockets::filter;
use crate::Outcome;
use crate::step::{Step, Visit};

const SET: u32 = 1;
const STAT: u32 = 2;
const INFO: u32 = 3;

/// `fcntl`
pub fn fcntl(visit: &mut Visit) -> Step {
    let argument = visit.long(2);
    match visit.int(1) {
        // GETLK, OFD_GETLK; SETLK, SETLKW and their OFD kin: `struct flock`
        5 | 36 => visit.changes(argument, 32),
        6 | 7 | 37 | 38 => visit.reads(argument, 32),
        // SETOWN_EX, GETOWN_EX, GETOWNER_UIDS
        15 => visit.reads(argument, 8),
        16 | 17 => visit.writes(argument, 8),
        // Hints about the life of data, of the inode and of the file.
        1035 | 1037 => visit.writes(argument, 8),
        1036 | 1038 => visit.reads(argument, 8),
        // GETDELEG, SETDELEG
        1039 => visit.changes(argument, 8),
        1040 => visit.reads(argument, 8),
        0..=4 | 8..=11 | 1024..=1034 => Ok(()),
        _ => Err(Outcome::Unknown),
    }
}

/// `shmctl`
pub fn shmctl(visit: &mut Visit) -> Step {
    let buffer = visit.long(2);
    match visit.int(1) {
        SET => visit.reads(buffer, 112),
        // STAT, SHM_STAT, SHM_STAT_ANY
        STAT | 13 | 15 => visit.writes(buffer, 112),
        INFO => visit.writes(buffer, 72),
        // SHM_INFO
        14 => visit.writes(buffer, 48),
        // RMID, LOCK, UNLOCK
        0 | 11 | 12 => Ok(()),
        _ => Err(Outcome::Unknown),
    }
}

/// `struct semid64_ds`
const SEMAPHORES: usize = if cfg!(target_arch = "aarch64") { 88 } else { 104 };
/// Values of a set, each of 2 bytes; a set has no more (`SEMMSL`).
const VALUES: usize = 32000 * 2;

/// `semctl`
pub fn semctl(visit: &mut Visit) -> Step {
    let argument = visit.long(3);
    match visit.int(2) {
        SET => visit.reads(argument, SEMAPHORES),
        STAT | 18 | 20 => visit.writes(argument, SEMAPHORES),
        INFO | 19 => visit.writes(argument, 40),
        // GETALL, SETALL
        13 => visit.writes(argument, VALUES),
        17 => visit.reads(argument, VALUES),
        0 | 11 | 12 | 14 | 15 | 16 => Ok(()),
        _ => Err(Outcome::Unknown),
    }
}

/// `msgctl`
pub fn msgctl(visit: &mut Visit) -> Step {
    let buffer = visit.long(2);
    match visit.int(1) {
        SET => visit.reads(buffer, 120),
        STAT | 11 | 13 => visit.writes(buffer, 120),
        INFO | 12 => visit.writes(buffer, 32),
        0 => Ok(()),
        _ => Err(Outcome::Unknown),
    }
}

/// `mq_notify`: with SIGEV_THREAD, the value is a pointer to what comes as a message.
pub fn mq_notify(visit: &mut Visit) -> Step {
    let event = visit.long(1);
    if event == 0 {
        return Ok(());
    }
    let (cookie, how) = (visit.word(event, 0)?, visit.u32(event, 12)?);
    if how == 2 { visit.reads(cookie, 32) } else { Ok(()) }
}

/// `kcmp`: a file is one that an epoll waits for.
pub fn kcmp(visit: &mut Visit) -> Step {
    if visit.int(2) == 7 { visit.reads(visit.long(4), 12) } else { Ok(()) }
}

/// `seccomp`
pub fn seccomp(visit: &mut Visit) -> Step {
    let argument = visit.long(2);
    match visit.int(0) {
        // MODE_STRICT, MODE_FILTER, GET_ACTION_AVAIL, GET_NOTIF_SIZES
        0 => Ok(()),
        1 => filter(visit, argument),
        2 => visit.reads(argument, 4),
        3 => visit.writes(argument, 6),
        _ => Err(Outcome::Unknown),
    }
}

/// `landlock_add_rule`
pub fn landlock_add_rule(visit: &mut Visit) -> Step {
    match visit.int(1) {
        // PATH_BENEATH, which is packed, and NET_PORT
        1 => visit.reads(visit.long(2), 12),
        2 => visit.reads(visit.long(2), 16),
        _ => Err(Outcome::Unknown),
    }
}

/// `reboot`: RESTART2 has a text.
pub fn reboot(visit: &mut Visit) -> Step {
    if visit.int(2) == 0xa1b2_c3d4 { visit.text(visit.long(3), 256) } else { Ok(()) }
}

/// `kexec_load`: 16 segments at most, each a buffer, its length, and where it shall go.
pub fn kexec_load(visit: &mut Visit) -> Step {
    let (count, segments) = (visit.long(1), visit.long(2));
    if count > 16 {
        return Ok(());
    }
    visit.reads(segments, count * 32)?;
    for i in 0..count {
        let (buffer, len) = (visit.word(segments, i * 32)?, visit.word(segments, i * 32 + 8)?);
        visit.reads(buffer, len)?;
    }
    Ok(())
}

/// `quotactl`
pub fn quotactl(visit: &mut Visit) -> Step {
    quota(visit, visit.int(0) >> 8)
}

/// `quotactl_fd`
pub fn quotactl_fd(visit: &mut Visit) -> Step {
    quota(visit, visit.int(1) >> 8)
}

fn quota(visit: &mut Visit, command: u32) -> Step {
    let buffer = visit.long(3);
    match command {
        // SYNC, QUOTAOFF
        0x80_0001 | 0x80_0003 | 0x5807 => Ok(()),
        0x80_0002 => visit.text(buffer, 4096),
        0x80_0004 => visit.writes(buffer, 4),
        // GETINFO, SETINFO, GETQUOTA, SETQUOTA, GETNEXTQUOTA
        0x80_0005 => visit.writes(buffer, 24),
        0x80_0006 => visit.reads(buffer, 24),
        0x80_0007 | 0x80_0009 => visit.writes(buffer, 72),
        0x80_0008 => visit.reads(buffer, 72),
        // XFS's: on, off, remove; get and set limits; statistics in two versions; the next.
        0x5801 | 0x5802 | 0x5806 => visit.reads(buffer, 4),
        0x5803 | 0x5809 => visit.writes(buffer, 112),
        0x5804 => visit.reads(buffer, 112),
        0x5805 => visit.writes(buffer, 80),
        0x5808 => visit.changes(buffer, 160),
        _ => Err(Outcome::Unknown),
    }
}
