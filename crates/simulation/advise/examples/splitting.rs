//! Simulates `--block auto` over a program that was recorded in blocks of 4 KiB: when blocks of
//! four pages would be split, and what reads cost with the split, without it, and with pages
//! throughout.
//!
//!     cargo run --release -p terapage-advise --example splitting -- TRACE 45 60000 0.8
//!
//! The budget is in per cent of the footprint. The disk's costs are those of an operation and of a
//! byte, ns. In place of a recording, `sort:400` is a synthetic merge sort of 400 MiB of lines by
//! pointers, from the first merge of an eighth to the output.

use std::collections::{HashMap, HashSet, VecDeque};
use std::error::Error;
use terapage_advise::Recording;
use terapage_policy::belady::Use;
use terapage_policy::disk::Disk;
use terapage_policy::replacement::{Replacement, by_name};
use terapage_policy::soft::{PER_MILLE, SoftFrames};
use terapage_policy::splitting::Splitting;
use terapage_policy::{BLOCK, SPLIT_BLOCK};

/// Pages of a block.
const PAGES: u32 = (BLOCK / SPLIT_BLOCK) as u32;
/// A miss beside one of this many last misses is read ahead.
const STREAMS: usize = 32;
/// What a fault costs beside its read, and what a block costs that is read ahead, ns.
const FAULT_NS: f64 = 15_000.0;
const AHEAD_NS: f64 = 2_000.0;

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Here,
    Soft,
    Watched,
}

/// A memory of blocks of `pages` pages.
struct Memory {
    pages: u32,
    frames: usize,
    policy: Box<dyn Replacement>,
    soft: SoftFrames,
    places: HashMap<u32, Place>,
    leaving: VecDeque<u32>,
    soft_count: usize,
    stored: HashSet<u32>,
    missed: VecDeque<u32>,
    /// With blocks of four pages: the trials, and the used pages of blocks on trial.
    splitting: Option<(Splitting, HashMap<u32, u8>)>,
    demands: u64,
    ahead: u64,
    minor: u64,
}

impl Memory {
    fn new(frames: usize, pages: u32) -> Memory {
        let frames = frames * (PAGES / pages) as usize;
        let bytes = pages as usize * SPLIT_BLOCK;
        Memory {
            pages,
            frames,
            policy: by_name("auto", frames).expect("it exists"),
            soft: SoftFrames::new(frames, bytes, PER_MILLE),
            places: HashMap::new(),
            leaving: VecDeque::new(),
            soft_count: 0,
            stored: HashSet::new(),
            missed: VecDeque::new(),
            splitting: (pages == PAGES).then(|| (Splitting::new(frames), HashMap::new())),
            demands: 0,
            ahead: 0,
            minor: 0,
        }
    }

    fn cost_ns(&self, disk: &Disk) -> f64 {
        let bytes = self.pages as f64 * SPLIT_BLOCK as f64;
        self.demands as f64 * (FAULT_NS + disk.cost_ns(1.0, bytes))
            + self.ahead as f64 * (AHEAD_NS + disk.cost_ns(0.0, bytes))
    }

    fn free(&mut self, page: u32) {
        let block = page / self.pages;
        self.policy.remove(block);
        if self.places.remove(&block) == Some(Place::Soft) {
            self.leaving.retain(|&other| other != block);
            self.soft_count -= 1;
        }
        self.stored.remove(&block);
        if let Some((splitting, trials)) = &mut self.splitting {
            splitting.given_up(block..block + 1);
            if trials.remove(&block).is_some() {
                splitting.ends();
            }
        }
    }

    /// Takes one block out of the program.
    fn soften(&mut self) -> bool {
        let Some(block) = self.policy.victim() else { return false };
        self.places.insert(block, Place::Soft);
        self.leaving.push_back(block);
        self.soft_count += 1;
        if let Some((splitting, trials)) = &mut self.splitting {
            if trials.remove(&block).is_some() {
                splitting.ends();
            }
            splitting.leaves(block);
        }
        true
    }

    fn back(&mut self, block: u32) {
        self.places.insert(block, Place::Here);
        self.leaving.retain(|&other| other != block);
        self.soft_count -= 1;
    }

    fn touch(&mut self, page: u32) {
        let (block, at) = (page / self.pages, page % self.pages);
        match self.places.get(&block) {
            Some(Place::Here) => self.use_page(block, at),
            Some(Place::Soft) => {
                self.minor += 1;
                self.soft.touched();
                self.soften();
                self.back(block);
                self.policy.rescue(block);
                if let Some((splitting, _)) = &mut self.splitting {
                    splitting.rescued(block, at as usize);
                }
                for other in self.policy.neighbours(block) {
                    if self.places.get(&other) == Some(&Place::Soft) {
                        self.back(other);
                        self.policy.back(other);
                    }
                }
            }
            Some(Place::Watched) => {
                self.minor += 1;
                self.places.insert(block, Place::Here);
                self.policy.seen(block);
            }
            None => self.miss(block, at),
        }
        while let Some(block) = self.policy.watch() {
            self.places.insert(block, Place::Watched);
            if let Some((splitting, trials)) = &mut self.splitting
                && trials.remove(&block).is_some()
            {
                splitting.ends();
                splitting.given_up(block..block + 1);
            }
        }
    }

    fn use_page(&mut self, block: u32, at: u32) {
        let Some((splitting, trials)) = &mut self.splitting else { return };
        let Some(pages) = trials.get_mut(&block).filter(|pages| **pages >> at & 1 == 0) else { return };
        *pages |= 1 << at;
        self.minor += 1;
        splitting.used(block, at as usize);
        if *pages == 15 {
            trials.remove(&block);
            splitting.ends();
        }
    }

    fn miss(&mut self, block: u32, at: u32) {
        if self.places.len() == self.frames {
            while self.soft_count <= self.soft.now() && self.soften() {}
            let gone = self.leaving.pop_front().expect("a full memory has a soft block");
            self.places.remove(&gone);
            self.soft_count -= 1;
            self.policy.gone(gone);
            self.soft.gone();
            self.stored.insert(gone);
            if let Some((splitting, _)) = &mut self.splitting {
                splitting.gone(gone);
            }
        }
        self.places.insert(block, Place::Here);
        self.policy.insert(block);
        if !self.stored.contains(&block) {
            return;
        }
        let streams = self.missed.iter().any(|&other| other.abs_diff(block) == 1);
        self.missed.push_back(block);
        if self.missed.len() > STREAMS {
            self.missed.pop_front();
        }
        *if streams { &mut self.ahead } else { &mut self.demands } += 1;
        if let Some((splitting, trials)) = &mut self.splitting {
            splitting.come(1);
            if !streams && splitting.major_fault(block, at as usize) {
                trials.insert(block, 1 << at);
            }
        }
    }
}

/// Bytes of a line, and of its pointer and what else the table holds for it.
const LINE: u64 = 49;
const POINTER: u64 = 48;

/// A merge sort of lines by a table of pointers: the text lies in the first pages, the table behind
/// it. Merged lines lie anywhere in the part of the text that their pointers came from.
fn sort(mib: u64) -> Vec<Use> {
    let lines = (mib << 20) / LINE;
    let table = ((lines * LINE) >> 12) as u32 + 1;
    let mut uses: Vec<Use> = (0..table + ((lines * POINTER) >> 12) as u32 + 1).map(Use::Touch).collect();
    let mut state = 1_u64;
    // Each part is merged before the next begins, and the output reads all of the text again.
    let mut merge = |first: u64, count: u64| {
        for line in first..first + count {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let other = first + (((state >> 33) * count) >> 31);
            uses.push(Use::Touch(((other.min(lines - 1) * LINE) >> 12) as u32));
            if (line * POINTER) >> 12 != ((line + 1) * POINTER) >> 12 {
                uses.push(Use::Touch(table + ((line * POINTER) >> 12) as u32));
            }
        }
    };
    for half in 0..2 {
        for quarter in 0..2 {
            for eighth in 0..2 {
                merge((half * 4 + quarter * 2 + eighth) * lines / 8, lines / 8);
            }
            merge((half * 2 + quarter) * lines / 4, lines / 4);
        }
        merge(half * lines / 2, lines / 2);
    }
    merge(0, lines);
    merge(0, lines);
    uses
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.len() != 4 {
        return Err("usage: splitting TRACE PERCENT OPERATION_NS BYTE_NS".into());
    }
    let percent: f64 = words[1].parse()?;
    let disk = Disk::assumed(words[2].parse()?, words[3].parse()?);
    let (list, pages) = match words[0].strip_prefix("sort:") {
        Some(mib) => {
            let mib: u64 = mib.parse()?;
            (sort(mib), (mib << 8) + (((mib << 20) / LINE * POINTER) >> 12))
        }
        None => {
            let recording = Recording::open(words[0].as_ref())?;
            let uses = recording.uses(recording.shift(SPLIT_BLOCK as u64)?);
            (uses.list, uses.live_blocks as u64)
        }
    };
    let frames = ((pages as f64 * percent / 100.0) as usize / PAGES as usize).max(8);
    println!("{} uses, {frames} frames of 16 KiB", list.len());
    let (mut blocks, mut pages) = (Memory::new(frames, PAGES), Memory::new(frames, 1));
    let mut split_at = None;
    let step = list.len() / 10 + 1;
    for (at, one) in list.iter().enumerate() {
        match one {
            Use::Touch(page) => {
                blocks.touch(*page);
                pages.touch(*page);
            }
            Use::Free(page) => {
                blocks.free(*page);
                pages.free(*page);
            }
        }
        let shown = blocks.splitting.as_mut().is_some_and(|(splitting, _)| splitting.judge(&disk));
        if shown && split_at.is_none() {
            println!("split after {} % of the touches", at * 100 / list.len());
            split_at = Some((blocks.cost_ns(&disk), pages.cost_ns(&disk)));
        }
        if at % step == step - 1 || at + 1 == list.len() {
            println!(
                "{:3} %: blocks {} faults, {} ahead, {} minor, {:.2} s; pages {} faults, {} ahead, {:.2} s",
                (at + 1) * 100 / list.len(),
                blocks.demands,
                blocks.ahead,
                blocks.minor,
                blocks.cost_ns(&disk) / 1e9,
                pages.demands,
                pages.ahead,
                pages.cost_ns(&disk) / 1e9
            );
        }
    }
    let (of_blocks, of_pages) = (blocks.cost_ns(&disk), pages.cost_ns(&disk));
    let auto = split_at.map_or(of_blocks, |(before, pages_before)| before + of_pages - pages_before);
    println!("blocks {:.2} s, pages {:.2} s, auto {:.2} s", of_blocks / 1e9, of_pages / 1e9, auto / 1e9);
    Ok(())
}
