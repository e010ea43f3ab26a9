//! `prctl` and `arch_prctl`

use super::sockets::filter;
use crate::Outcome;
use crate::step::{Step, Visit};

/// `prctl`, by its option.
pub fn visit(visit: &mut Visit) -> Step {
    let first = visit.long(1);
    match visit.int(0) {
        // GET_PDEATHSIG, GET_UNALIGN, GET_FPEMU, GET_FPEXC, GET_ENDIAN, GET_TSC,
        // GET_CHILD_SUBREAPER
        2 | 5 | 9 | 11 | 19 | 25 | 37 => visit.writes(first, 4),
        // SET_NAME, GET_NAME
        15 => visit.text(first, 15),
        16 => visit.writes(first, 16),
        // SET_SECCOMP
        22 if visit.int(1) == 2 => filter(visit, visit.long(2)),
        35 => set_mm(visit),
        // GET_TID_ADDRESS, GET_SHADOW_STACK_STATUS
        40 | 74 => visit.writes(first, 8),
        // SET_TAGGED_ADDR_CTRL: an address with a tag would not look like paged memory.
        55 if visit.long(1) & 1 != 0 => Err(Outcome::Unknown),
        // SET_SYSCALL_USER_DISPATCH: the kernel reads the byte before each call.
        59 if visit.long(1) != 0 => visit.keeps(visit.long(4), 1),
        // SCHED_CORE: GET
        62 if visit.long(1) == 0 => visit.writes(visit.long(4), 8),
        // SET_VMA: the name of anonymous memory
        0x5356_4d41 => visit.text(visit.long(4), 80),
        // GET_AUXV
        0x4155_5856 => visit.writes(first, visit.long(2)),
        // GET_CFI
        80 => visit.writes(visit.long(2), 8),
        // Operations whose arguments are numbers only, SET_PTRACER among them.
        1..=79 | 81 | 0x5961_6d61 => Ok(()),
        _ => Err(Outcome::Unknown),
    }
}

/// SET_MM: addresses, except for AUXV, MAP and MAP_SIZE.
fn set_mm(visit: &mut Visit) -> Step {
    let (address, len) = (visit.long(2), visit.long(3));
    match visit.int(1) {
        12 => visit.reads(address, len.min(4096)),
        14 if len == 104 => {
            visit.reads(address, len)?;
            let vector = visit.word(address, 88)?;
            let len = visit.u32(address, 96)?;
            visit.reads(vector, len.min(4096) as usize)
        }
        15 => visit.writes(address, 4),
        _ => Ok(()),
    }
}

/// `arch_prctl`
pub fn arch(visit: &mut Visit) -> Step {
    match visit.int(0) {
        // GET_FS, GET_GS; features of the processor; GET_UNTAG_MASK, GET_MAX_TAG_BITS; shadow stack
        0x1003 | 0x1004 | 0x1021 | 0x1022 | 0x1024 | 0x4001 | 0x4003 | 0x5005 => {
            visit.writes(visit.long(1), 8)
        }
        // SET_GS, SET_FS; GET_CPUID, SET_CPUID; REQ_XCOMP_*; MAP_VDSO_*; FORCE_TAGGED_SVA
        0x1001 | 0x1002 | 0x1011 | 0x1012 | 0x1023 | 0x1025 | 0x2001..=0x2003 | 0x4004 => Ok(()),
        // Shadow stacks
        0x5001..=0x5004 => Ok(()),
        // ENABLE_TAGGED_ADDR, as for `prctl`, and what is new.
        _ => Err(Outcome::Unknown),
    }
}
