//! Measures the cost of a miss: random reads of paged memory, with a store that does nothing, so
//! that only the pager is measured.
//!
//! `cargo run --release -p terapage-pager --example misses [SECONDS]`
//!
//! The data are 1 GiB behind a budget of 64 MiB, in blocks of 4 KiB, without prefetch and without
//! hashes: the store reads nothing, and the bytes are not checked. Each run has a separate process.
//! Runs with 1, 2 and 4 threads take turns.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};
use terapage_pager::{Options, Pager};
use terapage_store::{Below, BelowMut, Ended, Error as StoreError, Op, Store, StoreRing};
use terapage_sys::memory;
use terapage_sys::ring::Done;

const BLOCK: usize = 4 << 10;
const DATA: usize = 1 << 30;
const FRAMES: usize = (64 << 20) / BLOCK;
const ROUNDS: usize = 3;
const THREADS: [usize; 3] = [1, 2, 4];

/// A store that does nothing.
struct Null;

impl Store for Null {
    fn name(&self) -> String {
        "nothing".to_owned()
    }

    fn slots(&self) -> u32 {
        (DATA / BLOCK) as u32 * 2
    }

    fn grow(&mut self) -> Result<(), StoreError> {
        Err(StoreError::Full { name: self.name(), why: "it has all that it can have".to_owned() })
    }

    fn joins(&self, _slot: u32) -> bool {
        true
    }

    fn below(&self) -> Below<'_> {
        Below::Nothing
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Nothing
    }

    fn may_split(&self, _more: usize) -> bool {
        false
    }

    fn split(&mut self, _more: usize) {
        unreachable!("its slots cannot be split");
    }

    unsafe fn begin(&mut self, _ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        ended.push(Ended::well(op.id));
    }

    fn event(&mut self, _ring: &mut StoreRing<'_>, _done: Done, _ended: &mut Vec<Ended>) {
        unreachable!("it has begun nothing")
    }
}

/// Processor seconds of the process.
fn used_s() -> f64 {
    terapage_sys::thread::used_by_all_ns() as f64 / 1e9
}

/// Misses a second, and microseconds of processor time for each.
fn measure(threads: usize, seconds: f64) -> (f64, f64) {
    let options = Options {
        block: BLOCK,
        frames: FRAMES,
        prefetch: "off".to_owned(),
        verify: false,
        ..Options::default()
    };
    let pager = Pager::start(options, Box::new(|| Ok(Box::new(Null)))).expect("a pager");
    let base = memory::reserve(DATA + (2 << 20)).expect("addresses") as usize;
    let base = base.next_multiple_of(2 << 20);
    pager.add(base, DATA, 0).expect("a range");
    // SAFETY: the range is this run's own, mapped for as long as the process lives.
    (base..base + DATA).step_by(BLOCK).for_each(|at| unsafe { (at as *mut u64).write_volatile(at as u64) });
    let (before, used, began) = (pager.snapshot().major_faults, used_s(), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(thread as u64);
                while began.elapsed() < Duration::from_secs_f64(seconds) {
                    let at = base + random.random_range(0..DATA / BLOCK) * BLOCK;
                    // SAFETY: as above.
                    std::hint::black_box(unsafe { (at as *const u64).read_volatile() });
                }
            });
        }
    });
    let misses = (pager.snapshot().major_faults - before) as f64;
    (misses / began.elapsed().as_secs_f64(), (used_s() - used) * 1e6 / misses)
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, threads, seconds] = &arguments[..] {
        let (rate, cost) = measure(threads.parse().expect("a number"), seconds.parse().expect("seconds"));
        println!("{rate} {cost}");
        return Ok(());
    }
    let seconds = arguments.get(1).cloned().unwrap_or_else(|| "1".to_owned());
    let mut all = [const { Vec::new() }; THREADS.len()];
    for _ in 0..ROUNDS {
        for (threads, runs) in THREADS.into_iter().zip(&mut all) {
            let numbers = [threads.to_string(), seconds.clone()];
            let output = std::process::Command::new(std::env::current_exe()?).args(numbers).output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let found: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [rate, cost] = found[..] else { panic!("a run failed: {output:?}") };
            runs.push((rate, cost));
        }
    }
    for (threads, mut runs) in THREADS.into_iter().zip(all) {
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let [(least, _), (rate, cost), (most, _)] = runs[..] else { unreachable!("three rounds") };
        println!(
            "{threads} threads: {rate:.0} misses/s ({least:.0} to {most:.0}), {cost:.1} us of processor time each"
        );
    }
    Ok(())
}
