//! Computes how policies would do if they learned of each recorded touch: page-ins in multiples of
//! Belady's optimum, at a budget in per cent of the footprint.
//!
//!     cargo run --release -p terapage-advise --example told -- TRACE 4K 45

use std::collections::HashMap;
use std::error::Error;
use terapage_advise::Recording;
use terapage_advise::optimum::Optimum;
use terapage_config::Size;
use terapage_policy::belady::{Use, simulate};
use terapage_policy::replacement::{NAMES, by_name};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.len() != 3 {
        return Err("usage: told TRACE BLOCK PERCENT".into());
    }
    let recording = Recording::open(words[0].as_ref())?;
    let block: Size = words[1].parse()?;
    let percent: f64 = words[2].parse()?;
    let uses = recording.uses(recording.shift(block.0)?);
    let frames = ((uses.live_blocks as f64 * percent / 100.0) as usize).max(2);
    let best = Optimum::new(&uses.list).page_ins(frames);
    println!("{} touches, {frames} frames of {}: the optimum is {best} page-ins", uses.references, words[1]);
    let told = |name: &str, page_ins: u64| println!("{name:9} {:.2}", page_ins as f64 / best.max(1) as f64);
    told("constant", constant(&uses.list, frames));
    for name in NAMES {
        let mut policy = by_name(name, frames).expect("the name is in NAMES");
        told(name, simulate(policy.as_mut(), &uses.list, frames).page_ins);
    }
    Ok(())
}

/// Page-ins if the most touched blocks keep their frames to the end, and all others leave after
/// each touch. This is the best possible if touches do not depend on earlier ones. A block that was
/// discarded and is touched again counts as another block.
fn constant(uses: &[Use], frames: usize) -> u64 {
    let mut alive: HashMap<u32, u64> = HashMap::new();
    let mut touches = Vec::new();
    for one in uses {
        match one {
            Use::Touch(block) => *alive.entry(*block).or_default() += 1,
            Use::Free(block) => touches.extend(alive.remove(block)),
        }
    }
    touches.extend(alive.into_values());
    touches.sort_unstable();
    touches.iter().rev().skip(frames).map(|touches| touches - 1).sum()
}
