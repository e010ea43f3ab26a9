//! A stencil of 7 points in three dimensions, several steps in time for each pass over the data
//! (temporal blocking): after the authors' later papers (CCGrid 2015, PACRIM 2017), which do their
//! own asynchronous I/O. Here memory is paged, and the program announces which planes it will need.
//!
//! Planes are computed in blocks. Step `t` of a block computes the block's planes moved down by
//! `t`: the planes that it reads from the block below were computed by step `t - 1` or before, and
//! the planes that it overwrites are no longer needed. So any depth gives the same numbers as
//! single steps.

use crate::workload::kernels::{Clock, Common, Total, as_f64, fold, in_rows, start_value};
use crate::workload::{Buffer, OwnCounters};
use anyhow::ensure;
use std::ops::Range;

/// Points along each side of a plane: 128 KiB.
const SIDE: usize = 128;

/// Points of a plane.
const PLANE: usize = SIDE * SIDE;

/// Weights of the point itself and of its six neighbours.
const MIDDLE: f64 = 0.4;
const AROUND: f64 = 0.1;

/// Operations at each point.
const FLOPS: f64 = 8.0;

/// Options.
#[derive(Debug, clap::Args)]
pub struct Temporal {
    #[command(flatten)]
    common: Common,
    /// Steps in time for each pass over the data.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    depth: u32,
    /// Planes of a block.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    block: u32,
}

/// The shape of a pass over the data.
#[derive(Clone, Copy)]
struct Shape {
    threads: usize,
    block: usize,
    depth: usize,
}

impl Temporal {
    /// Runs the workload.
    ///
    /// # Errors
    /// There is too little data.
    pub fn run(self) -> anyhow::Result<()> {
        let Common { bytes, threads, iterations, map } = self.common;
        let mut buffer = Buffer::new(bytes, map.as_ref())?;
        let clock = Clock { counters: OwnCounters::open(), threads };
        let numbers = as_f64(buffer.words());
        let grid = numbers.len() / 2 / PLANE * PLANE;
        ensure!(grid >= 3 * PLANE, "too few bytes for three planes of both grids");
        let (one, rest) = numbers.split_at_mut(grid);
        let other = &mut rest[..grid];
        for grid in [&mut *one, &mut *other] {
            in_rows(grid, PLANE, threads, |plane, out| {
                for (i, out) in out.iter_mut().enumerate() {
                    *out = start_value(plane * PLANE + i);
                }
            });
        }
        let shape = Shape { threads, block: self.block as usize, depth: self.depth as usize };
        let mut total = Total::default();
        let swept = (2 * grid * 8) as u64 * u64::from(iterations);
        clock.time(&mut total, swept, || steps(one, other, iterations as usize, shape));
        let last = if iterations % 2 == 0 { one } else { other };
        let check = last.iter().fold(0, |known, number| fold(known, number.to_bits()));
        let points = ((grid / PLANE - 2) * (SIDE - 2) * (SIDE - 2)) as f64 * f64::from(iterations);
        clock.say("temporal", total, points * FLOPS, check)
    }
}

/// `count` steps from `one` to `other` and back, with `depth` of them in each pass over the data.
fn steps(one: &mut [f64], other: &mut [f64], count: usize, shape: Shape) {
    let mut done = 0;
    while done < count {
        let depth = shape.depth.min(count - done);
        match done % 2 {
            0 => pass(one, other, Shape { depth, ..shape }),
            _ => pass(other, one, Shape { depth, ..shape }),
        }
        done += depth;
    }
}

/// One pass over the data: `depth` steps, the first of which reads `one`.
fn pass(one: &mut [f64], other: &mut [f64], shape: Shape) {
    let Shape { threads, block, depth } = shape;
    let planes = one.len() / PLANE;
    let blocks = (planes + depth).div_ceil(block);
    for number in 0..blocks {
        let first = number * block;
        let next = first + block..first + 2 * block;
        for grid in [&*one, &*other] {
            advise(grid, next.clone(), libc::MADV_WILLNEED);
        }
        for step in 0..depth {
            let part = of_step(first, block, step, planes);
            match step % 2 {
                0 => sweep(one, other, part, threads),
                _ => sweep(other, one, part, threads),
            }
        }
        // Planes below those that the next block reads.
        let over = first.saturating_sub(depth + block)..first.saturating_sub(depth);
        for grid in [&*one, &*other] {
            advise(grid, over.clone(), libc::MADV_COLD);
        }
    }
}

/// The planes of a block that a step computes; the first and the last plane of all stay unchanged.
fn of_step(first: usize, block: usize, step: usize, planes: usize) -> Range<usize> {
    let inner = |plane: usize| plane.saturating_sub(step).clamp(1, planes - 1);
    inner(first)..inner(first + block)
}

/// Tells the kernel, or the pager instead, which planes are needed soon, or no longer needed.
fn advise(grid: &[f64], planes: Range<usize>, advice: libc::c_int) {
    const PAGE: usize = 4096;
    let all = grid.len() / PLANE;
    let (from, to) = (planes.start.min(all) * PLANE, planes.end.min(all) * PLANE);
    let part = &grid[from..to];
    let start = (part.as_ptr() as usize).next_multiple_of(PAGE);
    let end = (part.as_ptr() as usize + size_of_val(part)) / PAGE * PAGE;
    if start < end {
        // SAFETY: the pages lie inside the grid, and neither advice changes their bytes.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, advice) };
    }
}

/// Computes planes of `to` from those of `from`.
fn sweep(from: &[f64], to: &mut [f64], planes: Range<usize>, threads: usize) {
    let start = planes.start * PLANE;
    in_rows(&mut to[start..planes.end * PLANE], SIDE, threads, |first, part| {
        for (line, out) in part.chunks_exact_mut(SIDE).enumerate() {
            let row = (first + line) % SIDE;
            if row == 0 || row + 1 == SIDE {
                continue;
            }
            let at = start + (first + line) * SIDE;
            let middle = &from[at..at + SIDE];
            let [below, above, left, right] =
                [at - PLANE, at + PLANE, at - SIDE, at + SIDE].map(|at| &from[at + 1..at + SIDE - 1]);
            let neighbours = middle[..SIDE - 2].iter().zip(&middle[2..]);
            let others = below.iter().zip(above).zip(left.iter().zip(right));
            let inner = out[1..SIDE - 1].iter_mut().zip(&middle[1..SIDE - 1]);
            for (((out, middle), (before, after)), ((below, above), (left, right))) in
                inner.zip(neighbours).zip(others)
            {
                *out = MIDDLE * middle + AROUND * (before + after + below + above + left + right);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{AROUND, MIDDLE, PLANE, SIDE, Shape, of_step, start_value, steps};

    fn start(planes: usize) -> Vec<f64> {
        (0..planes * PLANE).map(start_value).collect()
    }

    /// One step over all planes, in the simplest way.
    fn naive(from: &[f64], to: &mut [f64]) {
        let planes = from.len() / PLANE;
        for z in 1..planes - 1 {
            for y in 1..SIDE - 1 {
                for x in 1..SIDE - 1 {
                    let at = z * PLANE + y * SIDE + x;
                    let around = from[at - 1]
                        + from[at + 1]
                        + from[at - PLANE]
                        + from[at + PLANE]
                        + from[at - SIDE]
                        + from[at + SIDE];
                    to[at] = MIDDLE * from[at] + AROUND * around;
                }
            }
        }
    }

    #[test]
    fn any_depth_and_block_give_what_plain_steps_give() {
        let planes = 11;
        for count in [1, 4, 7] {
            let (mut a, mut b) = (start(planes), start(planes));
            for step in 0..count {
                match step % 2 {
                    0 => naive(&a, &mut b),
                    _ => naive(&b, &mut a),
                }
            }
            for (depth, block, threads) in
                [(1, 4, 1), (3, 4, 2), (4, 2, 1), (16, 3, 2), (2, 32, 1), (5, 1, 3)]
            {
                let (mut one, mut other) = (start(planes), start(planes));
                steps(&mut one, &mut other, count, Shape { threads, block, depth });
                let same = if count % 2 == 0 { one == a } else { other == b };
                assert!(same, "{count} steps, depth {depth}, block {block}");
            }
        }
    }

    #[test]
    fn each_step_has_each_inner_plane_once() {
        let (planes, block) = (37_usize, 5);
        for depth in [1, 3, 8] {
            for step in 0..depth {
                let parts =
                    (0..(planes + depth).div_ceil(block)).map(|n| of_step(n * block, block, step, planes));
                let all: Vec<usize> = parts.flatten().collect();
                assert_eq!(all, (1..planes - 1).collect::<Vec<_>>(), "step {step}");
            }
        }
    }
}
