//! The results of policies for a recording, as the pager would run them, compared with the optimum,
//! at several budgets.

use crate::distances::{Distances, is_sampled};
use crate::optimum::Optimum;
use crate::recording::Uses;
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_figures::map;
use terapage_policy::belady::{Cost, Use, simulate_soft};
use terapage_policy::replacement::Replacement;
use terapage_policy::soft::{PER_MILLE, SoftFrames};

/// Why policies cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such policy.
    #[error("policy '{name}' is unknown")]
    Policy {
        /// The name that was asked for.
        name: String,
    },
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Budgets, in frames, ascending.
    pub frames: Vec<usize>,
    /// Names of policies.
    pub policies: Vec<String>,
    /// Makes the policy of a name for a number of frames; `None` if there is none.
    pub make: fn(&str, usize) -> Option<Box<dyn Replacement>>,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Frames kept soft, per mille; `None` for as many as the pager keeps.
    pub soft_per_mille: Option<usize>,
    /// The share of blocks to examine; 1 for all.
    pub rate: f64,
    /// The seed that selects those blocks.
    pub seed: u64,
}

/// One budget.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The budget, frames.
    pub frames: usize,
    /// The least and the greatest number of its frames that are soft.
    pub soft_frames: (usize, usize),
    /// Page-ins of the optimum, without first touches.
    pub optimum: f64,
    /// An upper bound for the optimum of the references that were not recorded; absent if none is
    /// known.
    pub optimum_at_most: Option<f64>,
    /// Page-ins of LRU that sees each recorded reference.
    pub lru: f64,
    /// One for each policy asked for.
    pub policies: Vec<Outcome>,
}

/// One policy at one budget, as the pager runs it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub policy: String,
    /// Page-ins, without first touches.
    pub page_ins: f64,
    /// Touches of blocks that had left the address space, but not memory.
    pub minor_faults: f64,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The footprint: the greatest number of blocks in use at once.
    pub footprint: f64,
    /// Blocks that ever came into use; a block that was freed and touched again counts again.
    pub touched: f64,
    /// References.
    pub references: u64,
    /// One for each budget.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Runs all policies and the optimum at all budgets, on all processors. `window` is the
    /// greatest number of blocks whose touches the recording missed at a time. `progress` receives
    /// the number of finished pieces of work, and of all pieces.
    ///
    /// # Errors
    /// An unknown policy.
    pub fn run(
        &self,
        uses: &Uses,
        window: usize,
        progress: impl Fn(usize, usize) + Sync,
    ) -> Result<Compared, Error> {
        for name in &self.policies {
            if (self.make)(name, 8).is_none() {
                return Err(Error::Policy { name: name.clone() });
            }
        }
        let chosen = |one: &Use| is_sampled(one.block(), self.rate, self.seed);
        let sampled: Vec<Use>;
        let (sample, lru) = if self.rate >= 1.0 {
            (&uses.list, Distances::exact(&uses.list))
        } else {
            sampled = uses.list.iter().copied().filter(chosen).collect();
            (&sampled, Distances::sampled(&uses.list, self.rate, self.seed))
        };
        Ok(Compared {
            block_bytes: self.block_bytes,
            footprint: uses.live_blocks as f64,
            touched: uses.touched_blocks as f64,
            references: uses.references as u64,
            rows: self.rows(sample, &lru, window, progress),
        })
    }

    fn rows(
        &self,
        sample: &[Use],
        lru: &Distances,
        window: usize,
        progress: impl Fn(usize, usize) + Sync,
    ) -> Vec<Row> {
        let optimum = Optimum::new(sample);
        let scaled = |frames: usize| ((frames as f64 * self.rate).round() as usize).max(1);
        let mut rows: Vec<Row> = self.frames.iter().map(|&frames| self.row(frames, lru)).collect();
        // For each budget: the optimum, its other bound, and the policies.
        let each = 2 + self.policies.len();
        let done = AtomicUsize::new(0);
        let results = map(rows.len() * each, |job| {
            let row = &rows[job / each];
            let frames = scaled(row.frames);
            let cost = match job % each {
                0 => Cost { page_ins: optimum.page_ins(frames), ..Cost::default() },
                1 if row.frames <= window => Cost::default(),
                1 => Cost { page_ins: optimum.page_ins(scaled(row.frames - window)), ..Cost::default() },
                at => self.simulate(
                    &self.policies[at - 2],
                    sample,
                    frames,
                    SoftFrames::between(scaled(row.soft_frames.0), scaled(row.soft_frames.1)),
                ),
            };
            progress(done.fetch_add(1, Relaxed) + 1, self.frames.len() * each);
            cost
        });
        for (job, cost) in results.into_iter().enumerate() {
            let row = &mut rows[job / each];
            let page_ins = cost.page_ins as f64 / self.rate;
            match job % each {
                0 => row.optimum = page_ins,
                1 => row.optimum_at_most = (row.frames > window).then_some(page_ins),
                at => row.policies.push(Outcome {
                    policy: self.policies[at - 2].clone(),
                    page_ins,
                    minor_faults: cost.minor_faults as f64 / self.rate,
                }),
            }
        }
        rows
    }

    fn row(&self, frames: usize, lru: &Distances) -> Row {
        let soft_frames = match self.soft_per_mille {
            Some(per_mille) => SoftFrames::exactly((frames * per_mille / 1000).min(frames - 1)),
            None => SoftFrames::new(frames, self.block_bytes as usize, PER_MILLE),
        };
        let lru = lru.page_ins(frames);
        Row {
            frames,
            soft_frames: soft_frames.bounds(),
            optimum: 0.0,
            optimum_at_most: None,
            lru,
            policies: Vec::new(),
        }
    }

    fn simulate(&self, policy: &str, uses: &[Use], frames: usize, soft: SoftFrames) -> Cost {
        let mut policy = (self.make)(policy, frames).expect("names were checked");
        simulate_soft(&mut *policy, uses, frames, soft)
    }
}
