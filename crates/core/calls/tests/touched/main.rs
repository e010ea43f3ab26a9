//! The table against the running kernel. Each case makes a call whose memory ends where mapped
//! memory ends. The call must do as with room behind: so the kernel touches no more than the table
//! says. Then one piece of memory after the other is moved beyond the end by one byte, and the call
//! must do otherwise: so the kernel touches all that the table says. Where the kernel may touch
//! less (a buffer that it does not fill), a case says so.
//!
//! Each call is made in a process of its own, whose end clears up.

mod absent;
mod descriptors;
mod paths;
mod processes;
mod seen;
mod sockets;
mod waits;
mod world;
mod zone;

use std::collections::BTreeSet;

use terapage_calls::{Machine, Outcome, rows};
use world::{Case, Done, HERE, attempt};

/// What is wrong with a case, or how many pieces of memory are exact and how many are bounds.
fn judge(number: usize, case: &Case, seed: u64) -> Result<(usize, usize), String> {
    let free = attempt(number, case, seed, &[], None);
    let Done::Result { result, ends, loose, outcome } = free else {
        return Err(format!("with room: {free:?}"));
    };
    if outcome != Outcome::Known && outcome != Outcome::Kept {
        return Err(format!("the visit says {outcome:?}"));
    }
    if (-4095..0).contains(&result) && !case.fails {
        return Err(format!("with room: error {}", -result));
    }
    let at_end = attempt(number, case, seed, &ends, None);
    match at_end {
        Done::Result { result: same, .. } if same == result || case.varies && same >= 0 => (),
        _ => return Err(format!("at the end of memory: {at_end:?}, not {result}")),
    }
    let (mut exact, mut bounds) = (0, 0);
    for (piece, end) in ends.iter().enumerate() {
        if *end == 0 {
            return Err(format!("piece {piece} is not announced"));
        }
        let beyond = attempt(number, case, seed, &ends, Some(piece));
        match beyond {
            Done::Result { result: other, .. } if other != result && (!case.varies || other < 0) => {
                exact += 1
            }
            _ if loose & 1 << piece != 0 => bounds += 1,
            _ => return Err(format!("piece {piece}, one byte short: {beyond:?}, too")),
        }
    }
    Ok((exact, bounds))
}

const GROUPS: [&[Case]; 5] =
    [descriptors::CASES, paths::CASES, processes::CASES, sockets::CASES, waits::CASES];

/// A number that a variable says.
fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |number| number.parse().unwrap())
}

#[test]
fn calls_on_absent_memory_do_the_same() {
    let _alone = world::Alone::new();
    assert!(absent::run(&GROUPS, number("TERAPAGE_SEED", 1), number("TERAPAGE_RUNS", 400)));
}

#[test]
fn calls_that_are_prepared_together_keep_their_files_apart() {
    let _alone = world::Alone::new();
    assert!(absent::gets_its_datagram());
}

#[test]
fn the_kernel_touches_what_the_table_says() {
    let _alone = world::Alone::new();
    let seed = number("TERAPAGE_SEED", 1);
    let only = std::env::var("TERAPAGE_CASE").ok();
    let (mut proven, mut wrong, mut exact, mut bounds) = (BTreeSet::new(), Vec::new(), 0, 0);
    for case in GROUPS.iter().copied().flatten() {
        if only.as_ref().is_some_and(|only| only != case.name) {
            continue;
        }
        // Older calls are x86-64's only.
        let Some((number, _)) = rows(HERE).find(|(_, row)| row.name == case.name) else {
            assert!(rows(Machine::X86).any(|(_, row)| row.name == case.name), "{}", case.name);
            continue;
        };
        for seed in seed..seed + 3 {
            match judge(number, case, seed) {
                Ok(pieces) => {
                    exact += pieces.0;
                    bounds += pieces.1;
                    proven.insert(case.name);
                }
                Err(_) if world::is_missing(number, case) => {
                    println!("SKIPPED: {}: not in this kernel, or not allowed", case.name);
                    break;
                }
                Err(objection) => wrong.push(format!("{} ({seed}): {objection}", case.name)),
            }
        }
    }
    let with_memory: Vec<_> =
        rows(HERE).filter(|(_, row)| row.pointers() != 0).map(|(_, row)| row.name).collect();
    let others: Vec<_> = with_memory.iter().filter(|name| !proven.contains(*name)).copied().collect();
    println!(
        "{} of {} rows with memory are proven by the kernel: {exact} pieces exact, {bounds} as bounds",
        proven.len(),
        with_memory.len()
    );
    println!("not proven: {}", others.join(" "));
    assert!(wrong.is_empty(), "{wrong:#?}");
}
