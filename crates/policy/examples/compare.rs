//! Prints what each replacement policy makes of three synthetic traces, page-ins in
//! multiples of Belady's optimum.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terapage_policy::belady::{belady, simulate, simulate_soft};
use terapage_policy::replacement::{NAMES, by_name};

/// Blocks of each trace, about.
const FOOTPRINT: u32 = 3000;

/// Budgets, in per cent of the footprint.
const BUDGETS: &[usize] = &[30, 40, 50, 60, 80];

/// A merge sort by reference: passes of two streams over the line table, each line
/// compared at a place of the text that grows ordered as runs grow.
fn sort(rng: &mut SmallRng) -> Vec<u32> {
    let (text, table) = (FOOTPRINT * 2 / 5, FOOTPRINT * 3 / 5);
    let mut refs = Vec::new();
    let mut run = 30;
    while run < table {
        for start in (0..table).step_by(2 * run as usize) {
            for i in 0..run.min((table - start) / 2) {
                // The text that the two runs' lines lie in.
                let reach = (2 * run * text / table).max(1);
                let from = start * text / table;
                for side in [start + i, start + run.min((table - start) / 2) + i] {
                    refs.push(text + side);
                    refs.extend((0..8).map(|_| (from + rng.random_range(0..reach)).min(text - 1)));
                }
            }
        }
        run *= 2;
    }
    refs
}

/// Blocks by a power law of exponent 0.9, in no order.
fn zipf(rng: &mut SmallRng) -> Vec<u32> {
    let mut sums = Vec::new();
    let mut sum = 0.0;
    for rank in 1..=FOOTPRINT {
        sum += f64::from(rank).powf(-0.9);
        sums.push(sum);
    }
    let draws = (0..100_000).map(|_| {
        let at = rng.random_range(0.0..sum);
        sums.partition_point(|&sum| sum < at) as u32
    });
    draws.collect()
}

/// A loop over a fifth of the blocks, ten rounds of it between scans of half of the rest.
fn loop_and_scan(_: &mut SmallRng) -> Vec<u32> {
    let (hot, scan) = (FOOTPRINT / 5, FOOTPRINT * 2 / 5);
    let round = |round: u32| {
        let from = hot + round % 2 * scan;
        (0..10).flat_map(move |_| 0..hot).chain(from..from + scan)
    };
    (0..10).flat_map(round).collect()
}

fn main() {
    type Trace = fn(&mut SmallRng) -> Vec<u32>;
    let traces: [(&str, Trace); 3] = [("sort", sort), ("zipf", zipf), ("loop+scan", loop_and_scan)];
    for (name, trace) in traces {
        let refs = trace(&mut SmallRng::seed_from_u64(1));
        for (told, soft) in [("every touch", None), ("faults alone, 10 % soft", Some(10))] {
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
                        Some(share) => simulate_soft(policy.as_mut(), &refs, frames, frames / share),
                    };
                    print!(" {:.2} |", cost.page_ins as f64 / best as f64);
                }
                println!();
            }
        }
    }
}
