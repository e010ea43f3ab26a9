//! What a trace costs: random 8-byte reads of paged memory, with and without one, in turns.
//!
//! `cargo run --release -p terapage-pager --example trace_overhead [DIRECTORY]`
//!
//! The store is memory (the pager works as hard as it can), then a file in DIRECTORY (`.` if
//! not given). The data are 128 MiB behind a budget of 32 MiB, in blocks of 16 KiB, without prefetch.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::time::Instant;
use terapage_pager::{Error, MakeStore, Options, Pager};
use terapage_store::{Files, Placement, Ram, Store};
use terapage_sys::memory;

const BLOCK: usize = 16 << 10;
const DATA: usize = 128 << 20;
const FRAMES: usize = (32 << 20) / BLOCK;
const READS: usize = 40_000;
const ROUNDS: usize = 5;

/// One measurement.
struct Run {
    /// Microseconds for a read.
    read_us: f64,
    /// Bytes of the trace.
    trace_bytes: u64,
    stalls: u64,
}

fn run(make_store: Box<MakeStore>, trace: Option<PathBuf>, seed: u64) -> Result<Run, Error> {
    let options = Options {
        block: BLOCK,
        frames: FRAMES,
        prefetch: "off".to_owned(),
        trace: trace.clone(),
        ..Options::default()
    };
    let pager = Pager::start(options, make_store)?;
    let base = (memory::reserve(DATA + BLOCK)? as usize).next_multiple_of(BLOCK);
    pager.add(base, DATA)?;
    // SAFETY: the range is this run's own, mapped for as long as the process lives.
    let words = unsafe { std::slice::from_raw_parts_mut(base as *mut u64, DATA / 8) };
    words.iter_mut().step_by(512).enumerate().for_each(|(at, word)| *word = at as u64 + 1);
    let mut random = StdRng::seed_from_u64(seed);
    let mut sum = 0u64;
    let since = Instant::now();
    for _ in 0..READS {
        sum = sum.wrapping_add(words[random.random_range(0..words.len())]);
    }
    let read_us = since.elapsed().as_secs_f64() * 1e6 / READS as f64;
    std::hint::black_box(sum);
    pager.finish_trace()?;
    let stalls = pager.trace_stalls();
    let trace_bytes = trace.and_then(|path| std::fs::metadata(path).ok()).map_or(0, |file| file.len());
    pager.discard(base, DATA)?;
    Ok(Run { read_us, trace_bytes, stalls })
}

fn make_store(directory: Option<&Path>) -> Box<MakeStore> {
    let directory = directory.map(Path::to_owned);
    Box::new(move || {
        let store: Box<dyn Store> = match &directory {
            None => Box::new(Ram::new(BLOCK, 2 * DATA)),
            Some(path) => Box::new(Files::open(std::slice::from_ref(path), Placement::Simple, BLOCK, None)?),
        };
        Ok(store)
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(name: &str, directory: Option<&Path>, trace: &Path) -> Result<(), Error> {
    println!("store: {name}");
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let plain = || run(make_store(directory), None, round as u64);
        let traced = || run(make_store(directory), Some(trace.to_owned()), round as u64);
        // Each goes first in turn: the machine drifts.
        let (plain, traced) = if round % 2 == 0 {
            let plain = plain()?;
            (plain, traced()?)
        } else {
            let traced = traced()?;
            (plain()?, traced)
        };
        println!(
            "  {:.2} us a read without, {:.2} us with: {:.3}; the trace {} KiB, {} stalls",
            plain.read_us,
            traced.read_us,
            traced.read_us / plain.read_us,
            traced.trace_bytes >> 10,
            traced.stalls,
        );
        ratios.push(traced.read_us / plain.read_us);
        without.push(plain.read_us);
        with.push(traced.read_us);
    }
    let (without, with, ratio) = (median(&mut without), median(&mut with), median(&mut ratios));
    println!("  medians: {without:.2} us without, {with:.2} us with; of the ratios {ratio:.3}");
    Ok(())
}

fn main() {
    let directory = PathBuf::from(std::env::args_os().nth(1).unwrap_or(".".into()));
    let trace = directory.join(format!("trace-overhead-{}.trace", std::process::id()));
    let compared = compare("memory", None, &trace)
        .and_then(|()| compare(&directory.display().to_string(), Some(&directory), &trace));
    std::fs::remove_file(&trace).ok();
    if let Err(error) = compared {
        eprintln!("trace_overhead: {error}");
        std::process::exit(1);
    }
}
