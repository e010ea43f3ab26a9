//! `ptrace`: only this process's side. The memory of the traced process is its own matter.

use crate::Direction::InOut;
use crate::Outcome;
use crate::step::{Step, Visit};

/// `ptrace`, by its request.
pub fn visit(visit: &mut Visit) -> Step {
    let (address, data) = (visit.long(2), visit.long(3));
    match visit.int(0) {
        // PEEKTEXT, PEEKDATA, PEEKUSR; GETEVENTMSG
        1..=3 | 0x4201 => visit.writes(data, 8),
        // GETSIGINFO, SETSIGINFO
        0x4202 => visit.writes(data, 128),
        0x4203 => visit.reads(data, 128),
        // GETREGSET, SETREGSET: one buffer
        0x4204 => {
            let [buffer, len] = visit.structure_as(data, InOut)?;
            visit.writes(buffer, len)
        }
        0x4205 => {
            let [buffer, len] = visit.structure_as(data, InOut)?;
            visit.reads(buffer, len)
        }
        0x4209 => peek_signals(visit),
        // GETSIGMASK, SECCOMP_GET_METADATA, GET_SYSCALL_INFO, GET_RSEQ_CONFIGURATION,
        // GET_SYSCALL_USER_DISPATCH_CONFIG: as long as the address says
        0x420a | 0x420d..=0x420f | 0x4211 => visit.changes(data, address.min(65536)),
        // SETSIGMASK, SET_SYSCALL_USER_DISPATCH_CONFIG, SET_SYSCALL_INFO
        0x420b | 0x4210 | 0x4212 => visit.reads(data, address.min(65536)),
        // SECCOMP_GET_FILTER: 4,096 instructions at most
        0x420c => visit.writes(data, 4096 * 8),
        // TRACEME, POKE*, CONT, KILL, SINGLESTEP, ATTACH, DETACH, SYSCALL, SYSEMU*;
        // SETOPTIONS, SEIZE, INTERRUPT, LISTEN
        0 | 4..=9 | 16 | 17 | 24 | 31 | 32 | 0x4200 | 0x4206..=0x4208 => Ok(()),
        request => of_machine(visit, request),
    }
}

/// PEEKSIGINFO: where to begin, flags, how many.
fn peek_signals(visit: &mut Visit) -> Step {
    let [_, flags_and_count] = visit.structure::<2>(visit.long(2))?;
    visit.writes(visit.long(3), ((flags_and_count >> 32) as u32 as i32).max(0) as usize * 128)
}

/// x86-64's GETREGS, SETREGS, GETFPREGS, SETFPREGS, GET_THREAD_AREA, SET_THREAD_AREA, ARCH_PRCTL.
fn of_machine(visit: &mut Visit, request: u32) -> Step {
    let (address, data) = (visit.long(2), visit.long(3));
    if cfg!(target_arch = "aarch64") {
        return Err(Outcome::Unknown);
    }
    match request {
        12 => visit.writes(data, 216),
        13 => visit.reads(data, 216),
        14 => visit.writes(data, 512),
        15 => visit.reads(data, 512),
        25 => visit.writes(data, 16),
        26 => visit.reads(data, 16),
        30 => visit.writes(address, 8),
        // SINGLEBLOCK
        33 => Ok(()),
        _ => Err(Outcome::Unknown),
    }
}
