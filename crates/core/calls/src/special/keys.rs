//! `keyctl`

use crate::Direction::In;
use crate::Outcome;
use crate::step::{Step, Visit};

/// The type of a key, with its NUL.
const TYPE: usize = 32;
/// A description, or another text.
const TEXT: usize = 4096;
/// Payloads are shorter.
const PAYLOAD: usize = 1 << 20;

/// `keyctl`, by its operation.
pub fn visit(visit: &mut Visit) -> Step {
    let (second, third, fourth) = (visit.long(2), visit.long(3), visit.long(4));
    match visit.int(0) {
        // JOIN_SESSION_KEYRING
        1 => visit.text(visit.long(1), TEXT),
        // UPDATE, INSTANTIATE
        2 | 12 => visit.reads(second, third.min(PAYLOAD)),
        // DESCRIBE, READ, GET_SECURITY
        6 | 11 | 17 => visit.writes(second, third),
        // SEARCH, RESTRICT_KEYRING
        10 | 29 => {
            visit.text(second, TYPE)?;
            visit.text(third, TEXT)
        }
        // INSTANTIATE_IOV
        20 => visit.buffers(second, third, In),
        23 => dh_compute(visit),
        // PKEY_QUERY
        24 => {
            visit.text(third, TEXT)?;
            visit.writes(fourth, 56)
        }
        25..=28 => pkey(visit),
        // CAPABILITIES
        31 => visit.writes(visit.long(1), second),
        // Operations whose arguments are numbers only.
        0 | 3..=5 | 7..=9 | 13..=16 | 18 | 19 | 21 | 22 | 30 | 32 => Ok(()),
        _ => Err(Outcome::Unknown),
    }
}

/// DH_COMPUTE: three keys, a buffer, and how keys are derived: the name of a hash, and other data.
fn dh_compute(visit: &mut Visit) -> Step {
    visit.reads(visit.long(1), 12)?;
    visit.writes(visit.long(2), visit.long(3))?;
    let derivation = visit.long(4);
    if derivation == 0 {
        return Ok(());
    }
    let [name, other, len, ..] = visit.structure::<7>(derivation)?;
    visit.text(name, 128)?;
    visit.reads(other, len as u32 as usize)
}

/// ENCRYPT, DECRYPT, SIGN, VERIFY: the lengths are in a structure, after the key's number.
fn pkey(visit: &mut Visit) -> Step {
    let parameters = visit.long(1);
    visit.reads(parameters, 40)?;
    visit.text(visit.long(2), TEXT)?;
    let input = visit.u32(parameters, 4)? as usize;
    let output = visit.u32(parameters, 8)? as usize;
    visit.reads(visit.long(3), input)?;
    // VERIFY reads both.
    if visit.int(0) == 28 { visit.reads(visit.long(4), output) } else { visit.writes(visit.long(4), output) }
}
