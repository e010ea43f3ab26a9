//! Prints the page-ins of each replacement policy on four synthetic traces, in multiples of
//! Belady's optimum.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terapage_policy::belady::{belady, simulate, simulate_soft};
use terapage_policy::replacement::{NAMES, by_name};
use terapage_policy::soft::SoftFrames;

/// The approximate number of blocks of each trace.
const FOOTPRINT: u32 = 20_000;

/// Budgets, in per cent of the footprint.
const BUDGETS: &[usize] = &[30, 40, 50, 60, 80, 95];

/// The number of text blocks over which the lines of one block of the table are spread.
const LINES: u32 = 32;

/// A merge sort of lines by a table of pointers, as in GNU sort: the text lies in the first blocks,
/// the table behind it. The text is read, sorted, and written out.
fn sort(rng: &mut SmallRng) -> Vec<u32> {
    let (text, table) = (FOOTPRINT * 2 / 5, FOOTPRINT * 3 / 5);
    let mut refs: Vec<u32> = (0..table).flat_map(|line| [line * text / table, text + line]).collect();
    merge_sort(&mut refs, rng, 0, table);
    for line in 0..table {
        refs.push(text + line);
        refs.extend((0..LINES).map(|_| rng.random_range(0..text)));
    }
    refs
}

/// Sorts the blocks `from..to` of the table: each half, then both as two streams, whose lines lie
/// anywhere in the part of the text from which these blocks were made.
fn merge_sort(refs: &mut Vec<u32>, rng: &mut SmallRng, from: u32, to: u32) {
    let (text, table) = (FOOTPRINT * 2 / 5, FOOTPRINT * 3 / 5);
    let middle = from.midpoint(to);
    if to - from > 4 {
        merge_sort(refs, rng, from, middle);
        merge_sort(refs, rng, middle, to);
    }
    let lines = from * text / table..to * text / table + 1;
    for (left, right) in (from..middle).zip(middle..to) {
        for line in [left, right] {
            refs.push(text + line);
            refs.extend((0..LINES).map(|_| rng.random_range(lines.clone()).min(text - 1)));
        }
    }
}

/// Blocks by a power law of exponent 0.9, in no order.
fn zipf(rng: &mut SmallRng) -> Vec<u32> {
    let mut sums = Vec::new();
    let mut sum = 0.0;
    for rank in 1..=FOOTPRINT {
        sum += f64::from(rank).powf(-0.9);
        sums.push(sum);
    }
    let draws = (0..1_000_000).map(|_| {
        let at = rng.random_range(0.0..sum);
        sums.partition_point(|&sum| sum < at) as u32
    });
    draws.collect()
}

/// Ten rounds over a fifth of the blocks, between scans of half of the other blocks.
fn loop_and_scan(_: &mut SmallRng) -> Vec<u32> {
    let (hot, scan) = (FOOTPRINT / 5, FOOTPRINT * 2 / 5);
    let round = |round: u32| {
        let from = hot + round % 2 * scan;
        (0..10).flat_map(move |_| 0..hot).chain(from..from + scan)
    };
    (0..10).flat_map(round).collect()
}

/// Twelve passes over all blocks, one after the other.
fn passes(_: &mut SmallRng) -> Vec<u32> {
    (0..12).flat_map(|_| 0..FOOTPRINT).collect()
}

fn main() {
    type Trace = fn(&mut SmallRng) -> Vec<u32>;
    let traces: [(&str, Trace); 4] =
        [("sort", sort), ("zipf", zipf), ("loop+scan", loop_and_scan), ("passes", passes)];
    for (name, trace) in traces {
        let refs = trace(&mut SmallRng::seed_from_u64(1));
        for (told, soft) in [("every touch", None), ("faults alone, 2 % soft", Some(50))] {
            println!("\n{name}, told of {told}\n");
            println!("| budget | Belady | {} |", NAMES.join(" | "));
            println!("| --- |{}", " --- |".repeat(NAMES.len() + 1));
            for percent in BUDGETS {
                let frames = FOOTPRINT as usize * percent / 100;
                let best = belady(&refs, frames);
                print!("| {percent} % | {best} |");
                for name in NAMES {
                    let mut policy = by_name(name, frames).expect("the name is in NAMES");
                    let cost = match soft {
                        None => simulate(policy.as_mut(), &refs, frames),
                        Some(share) => {
                            simulate_soft(policy.as_mut(), &refs, frames, SoftFrames::exactly(frames / share))
                        }
                    };
                    print!(" {:.2} |", cost.page_ins as f64 / best as f64);
                }
                println!();
            }
        }
    }
}
