//! Measures the cost of a trace: random 8-byte reads of paged memory with a trace, and twice
//! without one, in turns.
//!
//! `cargo run --release -p terapage-pager --example trace_overhead [DIRECTORY]`
//!
//! The store is memory (the pager works as hard as it can), then a file in DIRECTORY (`.` if not
//! given). The data are 128 MiB behind a budget of 32 MiB, in blocks of 16 KiB, without prefetch.
//! Each run has a separate process. The difference between the two runs without a trace is the
//! machine's noise: a smaller cost cannot be seen.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use terapage_pager::{Error, MakeStore, Options, Pager};
use terapage_store::{FileStore, Ram, Store};
use terapage_sys::memory;
use terapage_trace::Reader;

const BLOCK: usize = 16 << 10;
const DATA: usize = 128 << 20;
const FRAMES: usize = (32 << 20) / BLOCK;
const READS: usize = 40_000;
/// Each of the three runs is first, second and third equally often.
const ROUNDS: usize = 6;

/// One measurement.
#[derive(Clone, Copy)]
struct Run {
    /// Microseconds for a read.
    read_us: f64,
    /// Processor seconds of the whole process.
    cpu_s: f64,
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
    pager.add(base, DATA, 0)?;
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
    Ok(Run { read_us, cpu_s: 0.0, trace_bytes, stalls })
}

fn make_store(directory: Option<&Path>) -> Box<MakeStore> {
    let directory = directory.map(Path::to_owned);
    Box::new(move || {
        let store: Box<dyn Store> = match &directory {
            None => Box::new(Ram::new(BLOCK, 2 * DATA)),
            Some(path) => Box::new(FileStore::open(path, BLOCK, None)?),
        };
        Ok(store)
    })
}

/// The same run in a separate process.
fn run_apart(directory: Option<&Path>, trace: Option<&Path>, seed: u64) -> std::io::Result<Run> {
    let (mut results, mut out) = std::io::pipe()?;
    // SAFETY: this process has one thread; the child ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = run(make_store(directory), trace.map(Path::to_owned), seed);
        let status = match done {
            Ok(run) => {
                let line = format!("{} {} {}", run.read_us, run.trace_bytes, run.stalls);
                i32::from(out.write_all(line.as_bytes()).is_err())
            }
            Err(error) => {
                eprintln!("trace_overhead: {error}");
                1
            }
        };
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    drop(out);
    let mut line = String::new();
    results.read_to_string(&mut line)?;
    // SAFETY: zeros are a valid rusage, and the call fills it.
    let (used, status) = unsafe {
        let (mut used, mut status) = (std::mem::zeroed::<libc::rusage>(), 0);
        libc::wait4(child, &mut status, 0, &mut used);
        (used, status)
    };
    let numbers: Vec<f64> = line.split(' ').filter_map(|text| text.parse().ok()).collect();
    let ([read_us, trace_bytes, stalls], 0) = (&numbers[..], status) else {
        return Err(std::io::Error::other(format!("a run failed, status {status:#x}")));
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Run {
        read_us: *read_us,
        cpu_s: seconds(used.ru_utime) + seconds(used.ru_stime),
        trace_bytes: *trace_bytes as u64,
        stalls: *stalls as u64,
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    (values[half] + values[values.len() - 1 - half]) / 2.0
}

fn compare(name: &str, directory: Option<&Path>, trace: &Path) -> std::io::Result<()> {
    println!("store: {name}");
    println!("  us a read: without, with, without again; processor seconds; the trace");
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let mut runs = [None; 3];
        for turn in 0..3 {
            let which = (round + turn) % 3;
            let to = (which == 1).then_some(trace);
            runs[which] = Some(run_apart(directory, to, round as u64)?);
        }
        let runs = runs.map(|run| run.expect("three turns"));
        let [plain, traced, again] = runs;
        println!(
            "  {:.2} {:.2} {:.2}; {:.2} {:.2} {:.2}; {} KiB, {} records, {} stalls",
            plain.read_us,
            traced.read_us,
            again.read_us,
            plain.cpu_s,
            traced.cpu_s,
            again.cpu_s,
            traced.trace_bytes >> 10,
            Reader::open(trace).map_err(std::io::Error::other)?.count(),
            traced.stalls,
        );
        rounds.push(runs);
    }
    for (what, value) in
        [("time of a read", (|run| run.read_us) as fn(&Run) -> f64), ("processor time", |run| run.cpu_s)]
    {
        let ratio = |which: usize| median(rounds.iter().map(|runs| value(&runs[which]) / value(&runs[0])));
        println!(
            "  {what}, median ratio: with/without {:.3}, without again/without {:.3}",
            ratio(1),
            ratio(2)
        );
    }
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
