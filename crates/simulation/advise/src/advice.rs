//! Turns a recording and a machine into advice: how much memory, which blocks, which policy, which
//! store.

use crate::cache::Measured;
use crate::device::Device;
use crate::distances::Distances;
use crate::knee::knee;
use crate::recording::{self, Recording, Uses};
use crate::replay::{Forecast, Setup, Timing, compute_us, overlap, replay};
use serde::Serialize;
use terapage_config::Size;
use terapage_figures::{map, processors};

/// If a budget is smaller than this number of windows of the recording, and than all data, touches
/// that would cost time were not recorded. Chosen, not measured.
const SEEN: f64 = 1.5;

/// Points of the curve on which the knee is searched. Chosen, not measured.
const POINTS: usize = 50;

/// The distance of a predicted slow-down from a measured one, as a share, as found by
/// `tests/advise/check` (docs/advise.md).
pub const ERROR: f64 = 0.20;

/// Memory over a network, as measured over loopback on a machine with 2 cores: 64 KiB took 46 us,
/// of which the transfer of the bytes took 20 us; the rate was 1.4 GB/s with one request in flight
/// and 2.9 GB/s with 16. Stated, since Terapage has no far memory yet.
pub fn far_memory() -> Device {
    Device::stated("far memory", 26.0, 2.9e9, 2.9e9)
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A block size that the recording does not allow.
    #[error("--block: {cause}")]
    Block {
        /// Why.
        cause: recording::Error,
    },
    /// No budget was named.
    #[error("--memory: no budget is given (write 40% or 1.5G)")]
    NoBudget,
}

/// What is asked.
pub struct Question<'a> {
    /// The recorded program.
    pub recording: &'a Recording,
    /// The native time, seconds.
    pub native_s: f64,
    /// Threads that run at once.
    pub parallelism: f64,
    /// The machine.
    pub measured: &'a Measured,
    /// The store's device.
    pub device: &'a Device,
    /// Budgets, bytes, ascending.
    pub budgets: Vec<u64>,
    /// Block sizes, bytes, the usual one first.
    pub blocks: Vec<u64>,
    /// Policies, the usual one first.
    pub policies: Vec<String>,
    /// The slow-down that is accepted for less memory.
    pub accepted: f64,
}

/// A predicted run.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// The budget, bytes.
    pub budget_bytes: u64,
    /// The block, bytes.
    pub block_bytes: u64,
    /// The replacement policy.
    pub policy: String,
    /// The store.
    pub store: String,
    /// Time over native time.
    pub slow_down: f64,
    /// The possible error of that, in both directions.
    pub error: f64,
    /// Whether the budget is so close to the recording's window that touches are missing that would
    /// cost time.
    pub too_low: bool,
    /// Everything else.
    pub forecast: Forecast,
}

/// Advice.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The most data that the program had in use at once, bytes.
    pub footprint_bytes: u64,
    /// The bytes that the program ever touched: memory that was freed and used again counts again.
    pub touched_bytes: u64,
    /// For smaller budgets, touches that would cost time were not recorded.
    pub enough_bytes: u64,
    /// Memory below which page-ins grow steeply, bytes, if there is such a size.
    pub knee_bytes: Option<u64>,
    /// With the usual block and policy, for each budget.
    pub budgets: Vec<Prediction>,
    /// The budget, block and policy to use; if no budget fits, those of the largest budget.
    pub choice: Prediction,
    /// Whether the slow-down of the choice is accepted.
    pub fits: bool,
    /// If the slow-down is not accepted: the smallest of some larger budgets with an accepted
    /// slow-down.
    pub would_fit: Option<Prediction>,
    /// The same with the other blocks.
    pub blocks: Vec<Prediction>,
    /// All policies at the chosen budget, with the chosen block.
    pub policies: Vec<Prediction>,
    /// Far memory at the chosen budget.
    pub far: Prediction,
}

/// The number of larger budgets that are tried if no requested budget fits.
const LARGER: u64 = 8;

/// The fewest frames that are simulated.
const FRAMES_MIN: usize = 8;

impl Advice {
    /// What is predicted for something else than was asked for, where this many threads run at
    /// once.
    pub fn notes(&self, parallelism: f64) -> Vec<String> {
        let few = |one: &&Prediction| one.budget_bytes / one.block_bytes < FRAMES_MIN as u64;
        let all = self.budgets.iter().chain(&self.blocks).filter(few);
        let mut notes: Vec<String> = all
            .map(|one| {
                let (budget, block) = (Size(one.budget_bytes), Size(one.block_bytes));
                format!("{budget} are fewer than {FRAMES_MIN} blocks of {block}: {FRAMES_MIN} are simulated")
            })
            .collect();
        let most = overlap(parallelism, processors());
        if most < parallelism {
            notes.push(format!(
                "{parallelism:.1} threads at once count as {most:.0}: the pager's thread takes one of the {} processors",
                processors()
            ));
        }
        notes
    }
}

/// Another block or policy is advised only if it is better by more than this share: a smaller gain
/// is within the error. Chosen, not measured.
const CLEARLY: f64 = 0.05;

/// The budget from which on a recording with this window has all touches that cost time: one and a
/// half windows, or all of the data and some soft frames, if that is less.
fn enough(window_bytes: u64, footprint_bytes: u64) -> u64 {
    ((window_bytes as f64 * SEEN) as u64).min(footprint_bytes + footprint_bytes / 16)
}

impl Question<'_> {
    /// Answers. `progress` is called after each predicted run.
    ///
    /// # Errors
    /// A block size that the recording does not allow, or an empty list of budgets.
    pub fn answer(&self, progress: impl Fn() + Sync) -> Result<Advice, Error> {
        let recording = self.recording;
        for block in &self.blocks {
            recording.shift(*block).map_err(|cause| Error::Block { cause })?;
        }
        let uses = recording.uses(0);
        let knee_bytes = self.knee(&uses);
        let bytes = |blocks: usize| blocks as u64 * recording.block_bytes;
        let (footprint_bytes, touched_bytes) = (bytes(uses.live_blocks), bytes(uses.touched_blocks));
        let enough_bytes = enough(bytes(recording.window), footprint_bytes);
        drop(uses);
        let compute = compute_us(recording, self.native_s * 1e6);
        let predict = |jobs: Vec<(u64, u64, String, &Device)>| {
            map(jobs.len(), |at| {
                let (budget, block, policy, device) = &jobs[at];
                let prediction = self.predict(&compute, enough_bytes, *budget, *block, policy, device);
                progress();
                prediction
            })
        };
        let usual = (self.blocks[0], self.policies[0].clone());
        let jobs =
            self.budgets.iter().flat_map(|budget| self.blocks.iter().map(move |block| (*budget, *block)));
        let all =
            predict(jobs.map(|(budget, block)| (budget, block, usual.1.clone(), self.device)).collect());
        let (budgets, blocks): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|prediction| prediction.block_bytes == usual.0);
        let mut choice = self.choose(&budgets, &blocks).ok_or(Error::NoBudget)?;
        let (budget, block) = (choice.budget_bytes, choice.block_bytes);
        let policies = self.policies.iter().map(|policy| (budget, block, policy.clone(), self.device));
        let policies = predict(policies.collect());
        for other in &policies {
            if other.slow_down < choice.slow_down * (1.0 - CLEARLY) {
                choice = other.clone();
            }
        }
        let far = self.predict(&compute, enough_bytes, budget, block, &usual.1, &far_memory());
        let fits = self.fits(&choice);
        let would_fit = if fits {
            None
        } else {
            let more = self.larger(choice.budget_bytes, footprint_bytes).into_iter();
            let more = more.map(|budget| (budget, usual.0, usual.1.clone(), self.device));
            predict(more.collect()).into_iter().find(|prediction| self.fits(prediction))
        };
        Ok(Advice {
            footprint_bytes,
            touched_bytes,
            enough_bytes,
            knee_bytes,
            budgets,
            choice,
            fits,
            would_fit,
            blocks,
            policies,
            far,
        })
    }

    /// Whether the slow-down is accepted. A bound never is.
    fn fits(&self, prediction: &Prediction) -> bool {
        prediction.slow_down <= self.accepted && !prediction.too_low
    }

    /// Budgets that are larger than the requested ones, up to a tenth more than the data. Chosen,
    /// not measured.
    fn larger(&self, asked: u64, footprint: u64) -> Vec<u64> {
        let most = footprint + footprint / 10;
        (1..=LARGER).map(|part| asked + most.saturating_sub(asked) * part / LARGER).collect()
    }

    /// The least budget that is accepted with any block, and the block that is clearly best there;
    /// if none is accepted, the largest budget.
    fn choose(&self, usual: &[Prediction], others: &[Prediction]) -> Option<Prediction> {
        let best = |usual: &Prediction| {
            let same = others.iter().filter(|other| other.budget_bytes == usual.budget_bytes);
            same.fold(usual.clone(), |best, other| {
                if other.slow_down < best.slow_down * (1.0 - CLEARLY) { other.clone() } else { best }
            })
        };
        let best: Vec<Prediction> = usual.iter().map(best).collect();
        best.iter().find(|prediction| self.fits(prediction)).or(best.last()).cloned()
    }

    /// The number of predicted runs.
    pub fn runs(&self) -> usize {
        self.budgets.len() * self.blocks.len() + self.policies.len()
    }

    /// Memory below which page-ins grow steeply, bytes.
    fn knee(&self, uses: &Uses) -> Option<u64> {
        let lru = Distances::exact(&uses.list);
        let curve: Vec<(f64, f64)> = (1..=POINTS)
            .map(|part| (uses.live_blocks * part / POINTS).max(1))
            .map(|frames| (frames as f64, lru.page_ins(frames)))
            .collect();
        knee(&curve).map(|at| curve[at].0 as u64 * self.recording.block_bytes)
    }

    fn predict(
        &self,
        compute: &[f32],
        enough: u64,
        budget: u64,
        block: u64,
        policy: &str,
        device: &Device,
    ) -> Prediction {
        let recording = self.recording;
        let shift = recording.shift(block).unwrap_or(0);
        let costs = self.measured.costs_for(block).unwrap_or_else(|| self.measured.costs[0].clone());
        let setup = Setup {
            shift,
            frames: ((budget / block) as usize).max(FRAMES_MIN),
            policy: policy.to_owned(),
            prefetch: "auto".to_owned(),
        };
        let native_us = self.native_s * 1e6;
        let timing = Timing {
            native_us,
            parallelism: self.parallelism,
            processors: processors(),
            costs,
            device: device.clone(),
            measured: self.measured.device.clone(),
        };
        let forecast = replay(recording, compute, &setup, &timing);
        let slow_down = forecast.total_us / native_us.max(1.0);
        Prediction {
            budget_bytes: budget,
            block_bytes: block,
            policy: policy.to_owned(),
            store: device.name.clone(),
            slow_down,
            // Only the time beyond the native time is uncertain.
            error: (slow_down - 1.0).abs() * ERROR + 0.05,
            too_low: budget < enough,
            forecast,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::enough;

    #[test]
    fn room_for_all_data_is_always_enough() {
        assert_eq!(enough(200, 1600), 300);
        // A recording whose window is nearly all of the data still tells that all of it fits.
        assert_eq!(enough(1440, 1600), 1700);
    }
}
