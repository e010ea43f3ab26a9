//! Programs with much or little computation for each page that they touch, after Midorikawa, Tan
//! 2013, Figures 5 to 13. All code is the lab's own. Each result is the same for any number of
//! threads, so it is compared between contenders.

use crate::workload::{Buffer, OwnCounters, Pass};
use anyhow::ensure;
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;
use terapage_rig::spinner::{processors, run_on};

/// Options that all have.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// Bytes of all arrays.
    #[arg(long)]
    pub bytes: u64,
    /// Threads, or `all`: as many as there are processors.
    #[arg(long, default_value = "1", value_parser = threads_of)]
    pub threads: usize,
    /// The number of passes over the data.
    #[arg(long, default_value_t = 2)]
    pub iterations: u32,
    /// Maps this file instead of allocating.
    #[arg(long)]
    pub map: Option<PathBuf>,
}

/// A number of threads, or `all`.
pub fn threads_of(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(thread::available_parallelism().map_or(1, usize::from)),
        _ => text.parse().ok().filter(|count| (1..=1024).contains(count)).ok_or("1 to 1024, or all".into()),
    }
}

/// Copy, scale, add, triad.
#[derive(Debug, clap::Args)]
pub struct Arrays {
    #[command(flatten)]
    common: Common,
    /// Keeps each thread on a separate processor.
    #[arg(long)]
    pin: bool,
    /// Goes over the data as often as asked, however short that is, and prints only a check, for
    /// the time of the whole process.
    #[arg(long, conflicts_with = "pin")]
    whole: bool,
}

/// A stencil.
#[derive(Debug, clap::Args)]
pub struct Stencil {
    #[command(flatten)]
    common: Common,
    /// Points of the mask along each side.
    #[arg(long, value_parser = mask_of)]
    mask: usize,
}

fn mask_of(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|side| side % 2 == 1 && *side <= 31).ok_or("an odd number up to 31".into())
}

/// Jacobi's iteration.
#[derive(Debug, clap::Args)]
pub struct Poisson {
    #[command(flatten)]
    common: Common,
}

/// Measures pieces of work one after the other and prints their times.
pub struct Clock {
    /// The pager's counters.
    pub counters: OwnCounters,
    /// Threads that take part.
    pub threads: usize,
}

/// The totals of a pass.
#[derive(Clone, Copy, Default)]
pub struct Total {
    seconds: f64,
    bytes: u64,
    page_in: Option<u64>,
    page_out: Option<u64>,
}

impl Total {
    /// Adds the total of a repetition.
    fn add(&mut self, more: Total) {
        self.seconds += more.seconds;
        self.bytes += more.bytes;
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        self.page_in = sum(self.page_in, more.page_in);
        self.page_out = sum(self.page_out, more.page_out);
    }
}

/// A pass over arrays takes at least this long: twice as long as the report calls short.
const LEAST_S: f64 = 0.2;

/// The most repetitions. If these are too few, there is too little data to measure.
const LAPS_MOST: u32 = 50;

impl Clock {
    /// Measures a piece of work, and adds it to the total.
    pub fn time(&self, total: &mut Total, bytes: u64, work: impl FnOnce()) {
        let before = self.counters.in_and_out();
        let start = Instant::now();
        work();
        total.seconds += start.elapsed().as_secs_f64();
        total.bytes += bytes;
        let after = self.counters.in_and_out();
        let more = |known: Option<u64>, now: Option<u64>, then: Option<u64>| {
            Some(known.unwrap_or(0) + now?.saturating_sub(then?))
        };
        total.page_in = more(total.page_in, after.0, before.0);
        total.page_out = more(total.page_out, after.1, before.1);
    }

    /// Prints a pass.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn say(&self, pass: &str, total: Total, flops: f64, check: u64) -> anyhow::Result<()> {
        let pass = Pass {
            pass: pass.into(),
            seconds: total.seconds,
            bytes: total.bytes,
            threads: self.threads,
            page_in_bytes: total.page_in,
            page_out_bytes: total.page_out,
            flops: Some(flops),
            check: Some(format!("{check:016x}")),
            ..Pass::default()
        };
        println!("{}", serde_json::to_string(&pass)?);
        Ok(())
    }
}

/// A hash of words that depends on their order.
pub fn fold(known: u64, word: u64) -> u64 {
    (known ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Does `work` on parts of `out`, whose length is a multiple of `row`, with a thread for each part;
/// `work` gets the number of the part's first row.
pub fn in_rows<T: Send>(out: &mut [T], row: usize, threads: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let rows = out.len() / row;
    let each = rows.div_ceil(threads).max(1);
    if threads == 1 {
        return work(0, out);
    }
    thread::scope(|scope| {
        for (part, out) in out.chunks_mut(each * row).enumerate() {
            let work = &work;
            scope.spawn(move || work(part * each, out));
        }
    });
}

/// The multiplier of `scale` and `triad`.
const SCALAR: f64 = 3.0;

impl Arrays {
    /// Runs the program and verifies its results.
    ///
    /// # Errors
    /// An element is wrong.
    pub fn run(self) -> anyhow::Result<()> {
        let Common { bytes, threads, iterations, map } = self.common;
        let mut buffer = Buffer::new(bytes, map.as_ref())?;
        let clock = Clock { counters: OwnCounters::open(), threads };
        let numbers = as_f64(buffer.words());
        let (a, b, c) = thirds(numbers);
        let laps_most = if self.whole { 1 } else { LAPS_MOST };
        let measured = arrays(&clock, (a, b, c), (iterations, laps_most), self.pin)?;
        match self.whole {
            true => {
                println!("{:016x}", measured.check);
                Ok(())
            }
            false => measured.say(&clock),
        }
    }
}

/// Words as numbers.
pub fn as_f64(words: &mut [u64]) -> &mut [f64] {
    // SAFETY: both have the same size and alignment, and every bit pattern is a number.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
}

/// Words as pairs of short numbers.
fn as_f32(words: &mut [u64]) -> &mut [f32] {
    // SAFETY: two numbers fit into a word, whose alignment is larger than theirs; every bit pattern
    // is a number.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 2) }
}

/// Three parts of equal length, whole pages each.
fn thirds(numbers: &mut [f64]) -> (&mut [f64], &mut [f64], &mut [f64]) {
    let part = numbers.len() / 3 / 512 * 512;
    let (a, rest) = numbers.split_at_mut(part);
    let (b, rest) = rest.split_at_mut(part);
    let (c, _) = rest.split_at_mut(part);
    (a, b, c)
}

/// Three arrays, or a thread's parts of them.
type Three<'a> = (&'a mut [f64], &'a mut [f64], &'a mut [f64]);

/// The threads' parts: equally many, of whole pages.
fn parts((a, b, c): Three<'_>, threads: usize) -> Vec<Three<'_>> {
    let each = (a.len() / 512).div_ceil(threads).max(1) * 512;
    let of_a = a.chunks_mut(each);
    of_a.zip(b.chunks_mut(each)).zip(c.chunks_mut(each)).map(|((a, b), c)| (a, b, c)).collect()
}

/// Runs one of the four kernels on a thread's parts.
fn array_pass(kind: usize, (a, b, c): &mut Three<'_>) {
    match kind {
        0 => c.copy_from_slice(a),
        1 => b.iter_mut().zip(&**c).for_each(|(b, c)| *b = SCALAR * c),
        2 => c.iter_mut().zip(&**a).zip(&**b).for_each(|((c, a), b)| *c = a + b),
        _ => a.iter_mut().zip(&**b).zip(&**c).for_each(|((a, b), c)| *a = b + SCALAR * c),
    }
}

/// The times of the four kernels in turn, repeated `times` times. The threads live through all of
/// it and wait for each other before and after each pass. Starting a thread for each pass takes
/// long compared with a pass of a few milliseconds, and the kernel may at first put two on one
/// processor.
fn timed(clock: &Clock, arrays: Three<'_>, times: u32, pin: bool) -> [Total; 4] {
    let bytes = arrays.0.len() as u64 * 8;
    let mut all = parts(arrays, clock.threads);
    let gate = Barrier::new(all.len());
    let own_processors = if pin { processors() } else { Vec::new() };
    let settle = |number: usize, (a, b, c): &mut Three<'_>| {
        if let Some(processor) = own_processors.get(number % own_processors.len().max(1)) {
            run_on(*processor);
        }
        a.fill(1.0);
        b.fill(2.0);
        c.fill(0.0);
    };
    let own = all.swap_remove(0);
    let mut totals = [Total::default(); 4];
    thread::scope(|scope| {
        for (number, mut part) in all.into_iter().enumerate() {
            let (gate, settle) = (&gate, &settle);
            scope.spawn(move || {
                settle(number + 1, &mut part);
                for kind in (0..times).flat_map(|_| 0..4) {
                    gate.wait();
                    array_pass(kind, &mut part);
                    gate.wait();
                }
            });
        }
        let mut own = own;
        settle(0, &mut own);
        for kind in (0..times).flat_map(|_| 0..4) {
            gate.wait();
            clock.time(&mut totals[kind], if kind < 2 { 2 } else { 3 } * bytes, || {
                array_pass(kind, &mut own);
                gate.wait();
            });
        }
    });
    totals
}

/// What the four kernels took.
struct Kernels {
    totals: [Total; 4],
    /// The number of times that each element of an array was computed by each kernel, all told.
    elements: f64,
    check: u64,
}

impl Kernels {
    /// Prints a pass for each kernel.
    fn say(self, clock: &Clock) -> anyhow::Result<()> {
        let flops = [0.0, 1.0, 1.0, 2.0];
        for ((pass, total), flops) in
            ["copy", "scale", "add", "triad"].into_iter().zip(self.totals).zip(flops)
        {
            clock.say(pass, total, flops * self.elements, self.check)?;
        }
        Ok(())
    }
}

/// Runs the four kernels `times` times in turn, and all of that up to `laps_most` times, until each
/// kernel has taken long enough to be measured. Verifies each element.
fn arrays(
    clock: &Clock,
    (a, b, c): Three<'_>,
    (times, laps_most): (u32, u32),
    pin: bool,
) -> anyhow::Result<Kernels> {
    let count = a.len();
    ensure!(count > 0, "too few bytes for three arrays");
    // In a pass of a few milliseconds, most of the time is the start. So passes over little data
    // are repeated, each time from the same values.
    let mut totals = [Total::default(); 4];
    let mut laps = 0;
    while laps < laps_most && (laps == 0 || totals.iter().any(|total| total.seconds < LEAST_S)) {
        let more = timed(clock, (&mut *a, &mut *b, &mut *c), times, pin);
        totals.iter_mut().zip(more).for_each(|(total, more)| total.add(more));
        laps += 1;
    }
    // The same operations on single numbers: the expected value of each element.
    let (mut one, mut two, mut three) = (1.0f64, 2.0f64, 0.0f64);
    for _ in 0..times {
        three = one;
        two = SCALAR * three;
        three = one + two;
        one = two + SCALAR * three;
    }
    for (name, array, wanted) in [("a", &*a, one), ("b", &*b, two), ("c", &*c, three)] {
        if let Some(i) = array.iter().position(|found| found.to_bits() != wanted.to_bits()) {
            anyhow::bail!("element {i} of {name} is {} instead of {wanted}", array[i]);
        }
    }
    let elements = count as f64 * f64::from(times) * f64::from(laps);
    Ok(Kernels { totals, elements, check: fold(one.to_bits(), three.to_bits()) })
}

impl Stencil {
    /// Runs the workload.
    ///
    /// # Errors
    /// There is too little data for a mask.
    pub fn run(self) -> anyhow::Result<()> {
        let Common { bytes, threads, iterations, map } = self.common;
        let mut buffer = Buffer::new(bytes, map.as_ref())?;
        let clock = Clock { counters: OwnCounters::open(), threads };
        let numbers = as_f64(buffer.words());
        let (width, height) = plane(numbers.len() / 2);
        ensure!(height >= self.mask && width >= self.mask, "too few bytes for a mask of {}", self.mask);
        let (one, rest) = numbers.split_at_mut(width * height);
        let other = &mut rest[..width * height];
        in_rows(one, width, threads, |row, out| {
            for (i, out) in out.iter_mut().enumerate() {
                *out = start_value(row * width + i);
            }
        });
        let mut total = Total::default();
        let (mut from, mut to) = (one, other);
        for _ in 0..iterations {
            clock.time(&mut total, 2 * 8 * (width * height) as u64, || {
                stencil(from, to, width, self.mask, threads);
            });
            (from, to) = (to, from);
        }
        let points = ((width - self.mask + 1) * (height - self.mask + 1)) as f64 * f64::from(iterations);
        let check = from.iter().fold(0, |known, number| fold(known, number.to_bits()));
        clock.say("stencil", total, points * 2.0 * (self.mask * self.mask) as f64, check)
    }
}

/// The sides of a nearly square plane of `count` points; rows are whole pages if there are enough
/// points.
fn plane(count: usize) -> (usize, usize) {
    let side = (count as f64).sqrt() as usize;
    let width = if side >= 1024 { side / 512 * 512 } else { side.max(1) };
    (width, count / width)
}

/// The initial value of a point.
pub fn start_value(i: usize) -> f64 {
    (fold(1, i as u64) >> 40) as f64 / 1024.0
}

/// The weight of each point of a mask.
fn weight(mask: usize, down: usize, across: usize) -> f64 {
    1.0 / (mask * mask) as f64 + (down * mask + across) as f64 * 1e-6
}

/// Each point becomes a weighted sum of those under the mask; points at the border stay unchanged.
fn stencil(from: &[f64], to: &mut [f64], width: usize, mask: usize, threads: usize) {
    let (half, height) = (mask / 2, from.len() / width);
    in_rows(to, width, threads, |first, part| {
        for (row, out) in part.chunks_exact_mut(width).enumerate().map(|(i, out)| (first + i, out)) {
            out.copy_from_slice(&from[row * width..(row + 1) * width]);
            if row < half || row + half >= height {
                continue;
            }
            let inner = &mut out[half..width - half];
            inner.fill(0.0);
            for down in 0..mask {
                let above = &from[(row + down - half) * width..][..width];
                for across in 0..mask {
                    let weight = weight(mask, down, across);
                    let shifted = &above[across..across + inner.len()];
                    inner.iter_mut().zip(shifted).for_each(|(sum, value)| *sum += weight * value);
                }
            }
        }
    });
}

/// Operations at each point: those of Himeno's benchmark without its residual, which takes another
/// two.
const POISSON_FLOPS: f64 = 32.0;

/// The relaxation factor of each step.
const OMEGA: f32 = 0.8;

/// The grids of Poisson's equation in general coordinates: coefficients `a`, `b`, `c`, pressure
/// `p`, `bnd` for the border, and two for work.
struct Grids<'a> {
    a: [&'a mut [f32]; 4],
    b: [&'a mut [f32]; 3],
    c: [&'a mut [f32]; 3],
    p: &'a mut [f32],
    bnd: &'a mut [f32],
    wrk1: &'a mut [f32],
    wrk2: &'a mut [f32],
    /// The number of points along each side; points along the last side are adjacent in memory.
    sides: [usize; 3],
}

/// Grids, all told.
const GRIDS: usize = 14;

impl<'a> Grids<'a> {
    /// Cuts memory into grids, with the standard problem's values.
    fn new(memory: &'a mut [f32], sides: [usize; 3], threads: usize) -> Grids<'a> {
        let points = sides.iter().product();
        let mut parts = memory.chunks_exact_mut(points);
        let mut next = |value: f32| {
            let part = parts.next().expect("there is memory for all grids");
            in_rows(part, sides[2], threads, |_, out| out.fill(value));
            part
        };
        let a = [next(1.0), next(1.0), next(1.0), next(1.0 / 6.0)];
        let b = [next(0.0), next(0.0), next(0.0)];
        let c = [next(1.0), next(1.0), next(1.0)];
        let (p, bnd, wrk1, wrk2) = (next(0.0), next(1.0), next(0.0), next(0.0));
        let last = (sides[0] - 1) as f32;
        in_rows(p, sides[1] * sides[2], threads, |plane, out| {
            for (i, out) in out.chunks_exact_mut(sides[1] * sides[2]).enumerate() {
                let i = (plane + i) as f32;
                out.fill(i * i / (last * last));
            }
        });
        Grids { a, b, c, p, bnd, wrk1, wrk2, sides }
    }

    /// One step of Jacobi's iteration.
    fn step(&mut self, threads: usize) {
        let [planes, rows, row] = self.sides;
        let plane = rows * row;
        let Grids { a, b, c, p, bnd, wrk1, wrk2, .. } = self;
        let (a, b, c) = (a.each_ref(), b.each_ref(), c.each_ref());
        let (p_now, bnd, wrk1) = (&**p, &**bnd, &**wrk1);
        in_rows(wrk2, row, threads, |first, part| {
            for (line, out) in part.chunks_exact_mut(row).enumerate().map(|(i, out)| (first + i, out)) {
                let (i, j) = (line / rows, line % rows);
                if i == 0 || i + 1 == planes || j == 0 || j + 1 == rows {
                    continue;
                }
                let at = line * row;
                let [ip, im] = [at + plane, at - plane].map(|at| &p_now[at..at + row]);
                let [jp, jm, mid] = [at + row, at - row, at].map(|at| &p_now[at..at + row]);
                let [ipjp, ipjm] = [at + plane + row, at + plane - row].map(|at| &p_now[at..at + row]);
                let [imjp, imjm] = [at - plane + row, at - plane - row].map(|at| &p_now[at..at + row]);
                let [a0, a1, a2, a3] = a.map(|grid| &grid[at..at + row]);
                let [b0, b1, b2] = b.map(|grid| &grid[at..at + row]);
                let [c0, c1, c2] = c.map(|grid| &grid[at..at + row]);
                let (bnd, wrk1) = (&bnd[at..at + row], &wrk1[at..at + row]);
                for k in 1..row - 1 {
                    let sum = a0[k] * ip[k]
                        + a1[k] * jp[k]
                        + a2[k] * mid[k + 1]
                        + b0[k] * (ipjp[k] - ipjm[k] - imjp[k] + imjm[k])
                        + b1[k] * (jp[k + 1] - jm[k + 1] - jp[k - 1] + jm[k - 1])
                        + b2[k] * (ip[k + 1] - im[k + 1] - ip[k - 1] + im[k - 1])
                        + c0[k] * im[k]
                        + c1[k] * jm[k]
                        + c2[k] * mid[k - 1]
                        + wrk1[k];
                    out[k] = mid[k] + OMEGA * (sum * a3[k] - mid[k]) * bnd[k];
                }
            }
        });
        let wrk2 = &**wrk2;
        in_rows(p, row, threads, |first, part| {
            for (line, out) in part.chunks_exact_mut(row).enumerate().map(|(i, out)| (first + i, out)) {
                let (i, j) = (line / rows, line % rows);
                if i > 0 && i + 1 < planes && j > 0 && j + 1 < rows {
                    out[1..row - 1].copy_from_slice(&wrk2[line * row + 1..(line + 1) * row - 1]);
                }
            }
        });
    }
}

/// Sides of the largest grids that fit, twice as long along the last.
fn sides(numbers: usize) -> [usize; 3] {
    let side = ((numbers / GRIDS / 2) as f64).cbrt() as usize;
    [side, side, side * 2]
}

impl Poisson {
    /// Runs the workload.
    ///
    /// # Errors
    /// There is too little data.
    pub fn run(self) -> anyhow::Result<()> {
        let Common { bytes, threads, iterations, map } = self.common;
        let mut buffer = Buffer::new(bytes, map.as_ref())?;
        let clock = Clock { counters: OwnCounters::open(), threads };
        let numbers = as_f32(buffer.words());
        let sides = sides(numbers.len());
        ensure!(sides[0] >= 3, "too few bytes for {GRIDS} grids");
        let mut grids = Grids::new(numbers, sides, threads);
        let mut total = Total::default();
        let points: usize = sides.iter().product();
        for _ in 0..iterations {
            clock.time(&mut total, (points * GRIDS * 4) as u64, || grids.step(threads));
        }
        let inner: usize = sides.iter().map(|side| side - 2).product();
        let check = grids.p.iter().fold(0, |known, number| fold(known, number.to_bits().into()));
        clock.say("poisson", total, inner as f64 * POISSON_FLOPS * f64::from(iterations), check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(threads: usize) -> Clock {
        Clock { counters: OwnCounters::open(), threads }
    }

    #[test]
    fn arrays_hold_what_single_numbers_do() {
        for threads in [1, 2, 3] {
            let mut numbers = vec![0.0; 3 * 512 * 5 + 100];
            arrays(&clock(threads), thirds(&mut numbers), (3, 1), threads > 2).expect("right elements");
            let (a, ..) = thirds(&mut numbers);
            // Each round multiplies a by 15: b = 3 a; c = a + b; a = b + 3 c. 15 a.
            assert!(a.iter().all(|a| *a == 15.0 * 15.0 * 15.0));
        }
    }

    /// The stencil, point by point.
    fn naive_stencil(from: &[f64], width: usize, mask: usize) -> Vec<f64> {
        let (half, height) = (mask / 2, from.len() / width);
        let mut to = from.to_vec();
        for y in half..height - half {
            for x in half..width - half {
                let mut sum = 0.0;
                for down in 0..mask {
                    for across in 0..mask {
                        let value = from[(y + down - half) * width + x + across - half];
                        sum += weight(mask, down, across) * value;
                    }
                }
                to[y * width + x] = sum;
            }
        }
        to
    }

    #[test]
    fn the_stencil_is_that_of_its_definition_for_any_number_of_threads() {
        let (width, height) = (37, 29);
        let from: Vec<f64> = (0..width * height).map(start_value).collect();
        for mask in [1, 3, 15] {
            let wanted = naive_stencil(&from, width, mask);
            for threads in [1, 2, 5] {
                let mut found = vec![-1.0; from.len()];
                stencil(&from, &mut found, width, mask, threads);
                assert!(found == wanted, "mask {mask}, {threads} threads");
            }
        }
        assert_eq!(plane(4 << 20), (2048, 2048));
        assert_eq!(plane(100), (10, 10));
    }

    /// One step, point by point, on copies.
    fn naive_step(grids: &Grids<'_>) -> Vec<f32> {
        let [planes, rows, row] = grids.sides;
        let at = |i: usize, j: usize, k: usize| (i * rows + j) * row + k;
        let p = &*grids.p;
        let mut next = p.to_vec();
        for i in 1..planes - 1 {
            for j in 1..rows - 1 {
                for k in 1..row - 1 {
                    let o = at(i, j, k);
                    let corners = |a: usize, b: usize, c: usize, d: usize| p[a] - p[b] - p[c] + p[d];
                    let ij = corners(
                        at(i + 1, j + 1, k),
                        at(i + 1, j - 1, k),
                        at(i - 1, j + 1, k),
                        at(i - 1, j - 1, k),
                    );
                    let jk = corners(
                        at(i, j + 1, k + 1),
                        at(i, j - 1, k + 1),
                        at(i, j + 1, k - 1),
                        at(i, j - 1, k - 1),
                    );
                    let ki = corners(
                        at(i + 1, j, k + 1),
                        at(i - 1, j, k + 1),
                        at(i + 1, j, k - 1),
                        at(i - 1, j, k - 1),
                    );
                    let (a, b, c) = (&grids.a, &grids.b, &grids.c);
                    let sum = a[0][o] * p[at(i + 1, j, k)]
                        + a[1][o] * p[at(i, j + 1, k)]
                        + a[2][o] * p[at(i, j, k + 1)]
                        + b[0][o] * ij
                        + b[1][o] * jk
                        + b[2][o] * ki
                        + c[0][o] * p[at(i - 1, j, k)]
                        + c[1][o] * p[at(i, j - 1, k)]
                        + c[2][o] * p[at(i, j, k - 1)]
                        + grids.wrk1[o];
                    next[o] = p[o] + OMEGA * (sum * grids.a[3][o] - p[o]) * grids.bnd[o];
                }
            }
        }
        next
    }

    #[test]
    fn a_step_is_that_of_its_definition_for_any_number_of_threads() {
        let sides = [6, 7, 12];
        let points: usize = sides.iter().product();
        for threads in [1, 2, 3] {
            let mut memory = vec![0.0; points * GRIDS];
            let mut grids = Grids::new(&mut memory, sides, threads);
            assert_eq!(grids.p[points - 1], 1.0);
            // All coefficients differ from the standard problem's, so that confusing two of them is
            // detected.
            let mut seed = 0;
            let Grids { a, b, c, p, bnd, wrk1, .. } = &mut grids;
            for grid in a.iter_mut().chain(b).chain(c).chain([p, bnd, wrk1]) {
                for value in grid.iter_mut() {
                    seed += 1;
                    *value = (start_value(seed) / 16384.0) as f32 - 0.5;
                }
            }
            for _ in 0..3 {
                let wanted = naive_step(&grids);
                grids.step(threads);
                assert!(*grids.p == *wanted, "{threads} threads");
            }
        }
        assert_eq!(super::sides(GRIDS * 2 * 1001), [10, 10, 20]);
    }
}
