//! Preconditioning: sets an SSD, in one pass over the mapping, to the state to which long writing
//! would lead.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::analytic::Steady;
use crate::config::Precondition;
use crate::die::Open;
use crate::ssd::Ssd;

pub(crate) fn fill(ssd: &mut Ssd) {
    match ssd.config.preconditioning {
        Precondition::None => {}
        Precondition::Sequential { filled } => sequential(ssd, share(ssd, filled)),
        Precondition::Steady { filled } => steady(ssd, share(ssd, filled)),
    }
}

fn share(ssd: &Ssd, filled: f64) -> u32 {
    (f64::from(ssd.geometry.units) * filled).round() as u32
}

/// Places units in order, striped over the dies in programs of all planes.
fn sequential(ssd: &mut Ssd, units: u32) {
    let geometry = ssd.geometry;
    for unit in 0..units {
        let stripe = unit / geometry.row_slots;
        let die = stripe % geometry.dies;
        let open = match ssd.dies[die as usize].host {
            Some(open) => open,
            None => match ssd.blocks.open(die) {
                Some(block) => Open { block, used: 0 },
                None => return,
            },
        };
        put(ssd, unit, geometry.first_slot(open.block) + open.used);
        let used = open.used + 1;
        ssd.dies[die as usize].host = (used < geometry.block_slots).then_some(Open { used, ..open });
        if used == geometry.block_slots {
            ssd.blocks.close(open.block);
        }
    }
    // Programs that have begun count as complete.
    for die in &mut ssd.dies {
        if let Some(open) = &mut die.host {
            open.used = open.used.next_multiple_of(geometry.program_slots);
        }
        if let Some(open) = die.host
            && open.used == geometry.block_slots
        {
            die.host = None;
            ssd.blocks.close(open.block);
        }
    }
}

fn put(ssd: &mut Ssd, unit: u32, slot: u32) {
    let block = ssd.geometry.block_of(slot);
    ssd.map.put_in_slot(unit, slot);
    ssd.blocks.gain(block);
    ssd.dies[ssd.geometry.die_of(block) as usize].valid += 1;
    #[cfg(test)]
    ssd.ledger.programmed(slot, 0);
}

/// Places units at random over all valid slots. Each die gets blocks as full as in [`Steady`], one
/// free block, and two open ones that are partly written.
fn steady(ssd: &mut Ssd, units: u32) {
    let mut random = SmallRng::seed_from_u64(ssd.config.seed);
    let geometry = ssd.geometry;
    let mut unit = 0;
    for die in 0..geometry.dies {
        let units_here = units / geometry.dies + u32::from(die < units % geometry.dies);
        unit = steady_die(ssd, die, unit, units_here, &mut random);
    }
    shuffle(ssd, units, &mut random);
}

/// Gives slots of `die` to `units` units, from number `unit` on. Returns the next number.
fn steady_die(ssd: &mut Ssd, die: u32, mut unit: u32, units: u32, random: &mut SmallRng) -> u32 {
    let geometry = ssd.geometry;
    let slots = geometry.block_slots;
    let rows = slots / geometry.row_slots;
    let mut left = units;
    // The open blocks are young, so everything that was written to them is still valid. Together
    // they are as full as one block.
    let host = random.random_range(0..rows) * geometry.row_slots;
    for (collected, used) in [(false, host), (true, slots - geometry.row_slots - host)] {
        let held = used.min(left);
        if held == 0 {
            continue;
        }
        if let Some(block) = ssd.blocks.open(die) {
            for at in 0..held {
                put(ssd, unit, geometry.first_slot(block) + at);
                unit += 1;
            }
            left -= held;
            let used = held.next_multiple_of(geometry.program_slots);
            let state = &mut ssd.dies[die as usize];
            let open = if collected { &mut state.collected } else { &mut state.host };
            *open = Some(Open { block, used });
        }
    }
    let count = ssd.blocks.free_count(die) - 1;
    for (valid, age) in fills(slots, count, left) {
        let Some(block) = ssd.blocks.open(die) else { break };
        put_at_random(ssd, block, unit, valid, random);
        unit += valid;
        ssd.blocks.close(block);
        let age = (age * f64::from(geometry.units)) as u64;
        ssd.blocks.set_closed(block, AGE_OF_THE_DRIVE - age.min(AGE_OF_THE_DRIVE));
    }
    unit
}

/// The clock of the drive in the beginning, in units programmed.
const AGE_OF_THE_DRIVE: u64 = 1 << 40;

/// The valid slots of `count` blocks of `slots` slots that together hold `units`, and the time
/// since each was closed, in writes of the whole drive: half of a block's units are overwritten
/// after ln 2 of those.
fn fills(slots: u32, count: u32, units: u32) -> Vec<(u32, f64)> {
    let held = f64::from(count) * f64::from(slots);
    if units == 0 || f64::from(units) >= held {
        let fill = |block: u32| (units.saturating_sub(block * slots)).min(slots);
        return (0..count).map(|block| (fill(block), 0.0)).collect();
    }
    let mut fill = Steady::new(slots, held / f64::from(units)).fill(count);
    let mut sum: u64 = fill.iter().map(|&valid| u64::from(valid)).sum();
    // Rounding may leave too many or too few units: each of the fullest blocks takes one more. If
    // there is so much room that blocks lose all their units before they are collected, the
    // emptiest blocks lose theirs.
    let mut at = 0;
    while sum > u64::from(units) {
        let surplus = (sum - u64::from(units)) as u32;
        let taken = if surplus > count { fill[at].min(surplus) } else { fill[at].min(1) };
        fill[at] -= taken;
        sum -= u64::from(taken);
        at = (at + 1) % count as usize;
    }
    let mut at = count as usize;
    while sum < u64::from(units) {
        at = if at == 0 { count as usize - 1 } else { at - 1 };
        if fill[at] < slots {
            fill[at] += 1;
            sum += 1;
        }
    }
    fill.into_iter().map(|valid| (valid, (f64::from(slots) / f64::from(valid.max(1))).ln())).collect()
}

/// Gives units, from number `unit` on, to `valid` of the block's slots; each choice of slots is
/// equally likely.
fn put_at_random(ssd: &mut Ssd, block: u32, mut unit: u32, valid: u32, random: &mut SmallRng) {
    let (first, slots) = (ssd.geometry.first_slot(block), ssd.geometry.block_slots);
    let (units_of, slots_of) = ssd.map.arrays();
    let mut wanted = valid;
    for at in 0..slots {
        // With this probability, the slot is one of the `wanted` among the `slots - at` that are
        // left.
        let chosen = (u64::from(random.random::<u32>()) * u64::from(slots - at)) >> 32;
        if chosen < u64::from(wanted) {
            units_of[unit as usize] = first + at;
            slots_of[(first + at) as usize] = unit;
            unit += 1;
            wanted -= 1;
        }
    }
    ssd.blocks.set_valid(block, valid);
    ssd.dies[ssd.geometry.die_of(block) as usize].valid += valid;
}

/// Exchanges the slots of units at random; before this, the units are in the order of their slots.
fn shuffle(ssd: &mut Ssd, units: u32, random: &mut SmallRng) {
    let (units_of, slots_of) = ssd.map.arrays();
    units_of[..units as usize].shuffle(random);
    for (unit, &slot) in units_of[..units as usize].iter().enumerate() {
        slots_of[slot as usize] = unit as u32;
    }
    #[cfg(test)]
    for &slot in &units_of[..units as usize] {
        ssd.ledger.programmed(slot, 0);
    }
    ssd.blocks.age(AGE_OF_THE_DRIVE);
}
