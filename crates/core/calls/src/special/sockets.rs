//! Addresses with their lengths, messages, and options of sockets.

use crate::Direction::{self, In, InOut, Out};
use crate::Outcome;
use crate::step::{Step, Visit, not_negative};

/// `struct sockaddr_storage`
const ADDRESS: usize = 128;

/// The address of a peer, with its length in the argument after it.
fn address(visit: &mut Visit, argument: usize) -> Step {
    let start = visit.long(argument);
    if start == 0 {
        return Ok(());
    }
    let len = visit.u32(visit.long(argument + 1), 0)?;
    visit.writes(start, not_negative(len).min(ADDRESS))
}

/// `accept`, `getsockname` and their kin.
pub fn address_1(visit: &mut Visit) -> Step {
    address(visit, 1)
}

/// `recvfrom`
pub fn address_4(visit: &mut Visit) -> Step {
    address(visit, 4)
}

/// A message: name and its length, array of buffers and its length, control data and their length,
/// flags. The kernel writes lengths and flags of those that it receives.
fn message(visit: &mut Visit, at: usize, direction: Direction) -> Step {
    let whole = if direction == In { In } else { InOut };
    let [name, name_len, buffers, count, control, control_len, _] = visit.structure_as(at, whole)?;
    visit.touch(name, not_negative(name_len as u32).min(ADDRESS), direction)?;
    if control_len <= i32::MAX as usize {
        visit.touch(control, control_len, direction)?;
    }
    visit.buffers(buffers, count, direction)
}

/// `sendmsg`
pub fn send_message(visit: &mut Visit) -> Step {
    message(visit, visit.long(1), In)
}

/// `recvmsg`
pub fn receive_message(visit: &mut Visit) -> Step {
    message(visit, visit.long(1), Out)
}

/// Several messages, each with its length behind it.
fn messages(visit: &mut Visit, count: usize, direction: Direction) -> Step {
    let mut at = visit.long(1);
    for _ in 0..count {
        message(visit, at, direction)?;
        visit.writes(at.saturating_add(56), 4)?;
        at = at.checked_add(64).ok_or(Outcome::Known)?;
    }
    Ok(())
}

/// `sendmmsg`: the kernel sends 1,024 at most.
pub fn send_messages(visit: &mut Visit) -> Step {
    messages(visit, visit.int(2).min(1024) as usize, In)
}

/// `recvmmsg`
pub fn receive_messages(visit: &mut Visit) -> Step {
    messages(visit, visit.int(2) as usize, Out)
}

const IP: u32 = 0;
const SOCKET: u32 = 1;
const TCP: u32 = 6;
const IPV6: u32 = 41;
const SCTP: u32 = 132;
const PACKET: u32 = 263;
const XDP: u32 = 283;

/// `setsockopt`
pub fn set_option(visit: &mut Visit) -> Step {
    let value = visit.long(3);
    match (visit.int(1), visit.int(2)) {
        // ATTACH_FILTER, ATTACH_REUSEPORT_CBPF, PACKET_FANOUT_DATA
        (SOCKET, 26 | 51) | (PACKET, 22) if visit.signed(4) >= 16 => filter(visit, value),
        // ZEROCOPY, UMEM_REG: the kernel sends from the memory later, or holds on to it.
        (SOCKET, 60) | (XDP, 4) => Err(Outcome::Asynchronous),
        // Tables of packet filters have pointers inside, and so has CONNECTX3.
        (IP | IPV6, 64 | 96 | 128..=130) | (SCTP, 111) => Err(Outcome::Unknown),
        _ => Ok(()),
    }
}

/// A filter of packets or of calls: how many instructions of 8 bytes, and where.
pub fn filter(visit: &mut Visit, at: usize) -> Step {
    let [count, instructions] = visit.structure(at)?;
    visit.reads(instructions, usize::from(count as u16) * 8)
}

/// `getsockopt`
pub fn get_option(visit: &mut Visit) -> Step {
    let value = visit.long(3);
    if value == 0 {
        return Ok(());
    }
    let len = not_negative(visit.u32(visit.long(4), 0)?);
    match (visit.int(1), visit.int(2)) {
        // GET_FILTER counts instructions.
        (SOCKET, 26) => visit.writes(value, len * 8),
        // ZEROCOPY_RECEIVE has pointers inside, AO_GET_KEYS counts keys, and so on as above.
        (TCP, 35 | 41) | (SCTP, 111) | (IP | IPV6, 128..=131) => Err(Outcome::Unknown),
        _ => visit.changes(value, len),
    }
}
