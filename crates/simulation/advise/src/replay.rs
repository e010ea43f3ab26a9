//! A simulated pager: the steps of a recording with another budget, with the pager's own policies,
//! soft frames, prefetch and page-outs, and the time that this takes.
//!
//! Time is that of the program. A step's own time passes, but more slowly if the pager's thread
//! occupies a processor that the program would use. A touch that has to wait adds the wait, divided
//! by the number of threads that can run meanwhile. The store is one server that reads or writes at
//! its rate (`stream`). A demand read does not queue behind that, but takes its own latency.

use crate::costs::Costs;
use crate::device::Device;
use crate::recording::{Recording, Step, What};
use pager::Pager;
use serde::Serialize;

mod pager;

/// A budget and policies to run a recording with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The base-2 logarithm of the number of recorded blocks in a block.
    pub shift: u32,
    /// The budget, in such blocks.
    pub frames: usize,
    /// A name of `terapage_policy::replacement::NAMES`.
    pub policy: String,
    /// A name of `terapage_policy::prefetch::NAMES`.
    pub prefetch: String,
}

/// The speed of the program and of the machine.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The time that the program takes with enough memory, microseconds.
    pub native_us: f64,
    /// Processor time over time: threads that run at once, 1 or more.
    pub parallelism: f64,
    /// Processors of the machine.
    pub processors: usize,
    /// The costs of the pager's work.
    pub costs: Costs,
    /// The store's device.
    pub device: Device,
    /// The device that the costs were measured on.
    pub measured: Device,
}

impl Timing {
    /// Threads of the program that run at once while the pager's thread takes a processor.
    pub fn overlap(&self) -> f64 {
        overlap(self.parallelism, self.processors)
    }
}

/// The mean number of running threads, of `parallelism`, that still run while the pager's thread
/// occupies one of the processors.
pub fn overlap(parallelism: f64, processors: usize) -> f64 {
    let left = processors.saturating_sub(1).max(1);
    parallelism.clamp(1.0, left as f64)
}

/// The work of a run, in blocks, and the time that it would take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Forecast {
    /// Blocks read while a thread waits.
    pub demand: u64,
    /// Blocks read ahead.
    pub prefetched: u64,
    /// Blocks that were touched again before they had left memory.
    pub minor_faults: u64,
    /// Touches of prefetched blocks that were kept out of the program to detect the touches.
    pub markers: u64,
    /// Blocks of fresh memory.
    pub first_touches: u64,
    /// Blocks written.
    pub written: u64,
    /// The whole time, microseconds.
    pub total_us: f64,
    /// Of this, waiting for demand reads.
    pub demand_us: f64,
    /// Time spent waiting for blocks that were read ahead but had not arrived.
    pub stream_us: f64,
    /// Minor faults and markers.
    pub minor_us: f64,
    /// Fresh memory, less its native cost; can be negative.
    pub first_us: f64,
    /// Time spent waiting for a frame that was being written.
    pub write_us: f64,
}

impl Forecast {
    /// Blocks read from the store.
    pub fn page_ins(&self) -> u64 {
        self.demand + self.prefetched
    }
}

/// Runs a recording. `compute` is the program's own time before each step, from [`compute_us`].
///
/// # Panics
/// If a policy's name is unknown, or there are no frames.
pub fn replay(recording: &Recording, compute: &[f32], setup: &Setup, timing: &Timing) -> Forecast {
    let mut pager = Pager::new(recording, setup, timing);
    for (step, compute_us) in recording.steps.iter().zip(compute) {
        pager.compute(f64::from(*compute_us));
        pager.step(step);
    }
    pager.end(timing.native_us, compute)
}

/// The program's own time before each step, microseconds; the sum is `native_us`.
///
/// The times in the recording include the work of the recording pager. The time of the quickest
/// tenth of the faults of a kind counts as that work, and the rest is scaled.
pub fn compute_us(recording: &Recording, native_us: f64) -> Vec<f32> {
    let kind = |step: &Step| match step.what {
        What::Touch => 0,
        What::First => 1,
        What::Ahead | What::Present => 2,
        What::Discard(_) => 3,
    };
    let mut gaps: [Vec<u32>; 4] = Default::default();
    for pair in recording.steps.windows(2) {
        gaps[kind(&pair[0])].push(pair[1].gap_us);
    }
    let work: Vec<u32> = gaps
        .iter_mut()
        .map(|gaps| {
            let tenth = gaps.len() / 10;
            if gaps.is_empty() { 0 } else { *gaps.select_nth_unstable(tenth).1 }
        })
        .collect();
    let mut compute: Vec<f32> = Vec::with_capacity(recording.steps.len());
    let mut before = None;
    for step in &recording.steps {
        let work = before.map_or(0, |before| work[before]);
        compute.push(step.gap_us.saturating_sub(work) as f32);
        before = Some(kind(step));
    }
    let sum: f64 = compute.iter().map(|us| f64::from(*us)).sum();
    let each = native_us / compute.len().max(1) as f64;
    for us in &mut compute {
        *us = if sum > 0.0 { (f64::from(*us) * native_us / sum) as f32 } else { each as f32 };
    }
    compute
}
