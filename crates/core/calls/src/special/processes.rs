//! Starting threads and programs, and what the kernel keeps for each thread.

use crate::step::{Step, Visit};

const PIDFD: usize = 0x1000;
const PARENT_SETTID: usize = 0x10_0000;
const CHILD_CLEARTID: usize = 0x20_0000;
const CHILD_SETTID: usize = 0x100_0000;

/// Where the numbers of a new thread go.
fn numbers(visit: &mut Visit, flags: usize, parent: usize, child: usize) -> Step {
    if flags & PARENT_SETTID != 0 {
        visit.writes(parent, 4)?;
    }
    if flags & CHILD_CLEARTID != 0 {
        visit.keeps(child, 4)?;
    } else if flags & CHILD_SETTID != 0 {
        visit.writes(child, 4)?;
    }
    Ok(())
}

/// `clone`: the last two arguments change places between the machines.
pub fn clone(visit: &mut Visit) -> Step {
    let child = visit.long(if cfg!(target_arch = "aarch64") { 4 } else { 3 });
    let (flags, parent) = (visit.long(0), visit.long(2));
    if flags & PIDFD != 0 {
        visit.writes(parent, 4)?;
    }
    numbers(visit, flags, parent, child)
}

/// `clone3`: a structure of 64 bytes at least, which may become longer.
pub fn clone3(visit: &mut Visit) -> Step {
    let (args, len) = (visit.long(0), visit.long(1));
    if len < 64 {
        return Ok(());
    }
    visit.reads(args, len.min(65536))?;
    let flags = visit.word(args, 0)?;
    if flags & PIDFD != 0 {
        let pidfd = visit.word(args, 8)?;
        visit.writes(pidfd, 4)?;
    }
    let (child, parent) = (visit.word(args, 16)?, visit.word(args, 24)?);
    numbers(visit, flags, parent, child)?;
    // The numbers that the thread shall have, in each of the nested namespaces, of which 32 exist.
    if len >= 80 {
        let (ids, count) = (visit.word(args, 64)?, visit.word(args, 72)?);
        visit.reads(ids, count.min(32) * 4)?;
    }
    Ok(())
}

/// An argument of a program is no longer (`MAX_ARG_STRLEN`, of the largest pages).
const LONGEST: usize = if cfg!(target_arch = "aarch64") { 32 * 65536 } else { 32 * 4096 };

/// `execve`
pub fn execve(visit: &mut Visit) -> Step {
    visit.texts(visit.long(1), LONGEST)?;
    visit.texts(visit.long(2), LONGEST)
}

/// `execveat`
pub fn execveat(visit: &mut Visit) -> Step {
    visit.texts(visit.long(2), LONGEST)?;
    visit.texts(visit.long(3), LONGEST)
}

/// `set_tid_address`: the kernel clears the word when the thread ends.
pub fn set_tid_address(visit: &mut Visit) -> Step {
    visit.keeps(visit.long(0), 4)
}

/// `set_robust_list`: the head. The kernel walks the list from there when the thread ends.
pub fn set_robust_list(visit: &mut Visit) -> Step {
    visit.keeps(visit.long(0), visit.long(1).min(24))
}

/// `rseq`: the kernel writes where the thread runs whenever that changes. Flag 1 unregisters.
pub fn rseq(visit: &mut Visit) -> Step {
    let (area, len) = (visit.long(0), visit.int(1).min(4096) as usize);
    if visit.int(2) & 1 != 0 { visit.changes(area, len) } else { visit.keeps(area, len) }
}

/// `sigaltstack`: frames of signals come onto that stack. Flag 2 means none.
pub fn sigaltstack(visit: &mut Visit) -> Step {
    let new = visit.long(0);
    if new == 0 {
        return Ok(());
    }
    let (stack, flags) = (visit.word(new, 0)?, visit.u32(new, 8)?);
    let len = visit.word(new, 16)?;
    if flags & 2 == 0 { visit.keeps(stack, len) } else { Ok(()) }
}

/// `sched_setattr`: a structure that begins with its length, which the kernel corrects.
pub fn sched_setattr(visit: &mut Visit) -> Step {
    let attr = visit.long(1);
    visit.changes(attr, 4)?;
    let len = visit.u32(attr, 0)? as usize;
    visit.changes(attr, if len == 0 { 48 } else { len.min(65536) })
}

/// `perf_event_open`: the length is in the second word. Dynamic kinds of events may have the name of
/// a file or function.
pub fn perf_event_open(visit: &mut Visit) -> Step {
    let attr = visit.long(0);
    visit.changes(attr, 8)?;
    let (kind, len) = (visit.u32(attr, 0)?, visit.u32(attr, 4)? as usize);
    visit.changes(attr, if len == 0 { 64 } else { len.min(65536) })?;
    if kind < 6 {
        return Ok(());
    }
    let name = visit.word(attr, 56)?;
    visit.text(name, 4096)
}
