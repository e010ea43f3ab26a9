//! Measures the cost of a recorded event in the pager's thread, and how often the thread had to
//! wait for the file.
//!
//! `cargo run --release -p terapage-pager --example event_cost [DIRECTORY]`
//!
//! It records bursts of events, with pauses in which they are compressed and written to a file in
//! DIRECTORY (`.` if not given).

#[path = "../src/error.rs"]
#[allow(dead_code, reason = "the recorder has few errors")]
mod error;
#[path = "../src/event_count.rs"]
#[allow(dead_code, reason = "for other threads too")]
mod event_count;
#[path = "../src/sync.rs"]
#[allow(dead_code, unused_imports, reason = "for the mailbox too")]
mod sync;
#[path = "../src/trace/mod.rs"]
#[allow(dead_code, reason = "one kind of event stands for all")]
mod trace;

use std::path::PathBuf;
use terapage_sys::thread::{now_ns, sleep_ms};
use trace::{Kind, Recorder};

const BURSTS: u32 = 100;
const EVENTS: u32 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let path = directory.join(format!("terapage-event-cost-{}", std::process::id()));
    let (mut recorder, shared) = Recorder::start(&path, 4096, 8)?;
    let mut spent_ns = 0;
    for burst in 0..BURSTS {
        let since_ns = now_ns();
        for index in 0..EVENTS {
            recorder.events(Kind::MajorFault, [index.wrapping_mul(burst)]);
        }
        spent_ns += now_ns() - since_ns;
        sleep_ms(10);
    }
    recorder.end();
    let ended = shared.wait_end();
    std::fs::remove_file(&path)?;
    ended?;
    let each_ns = spent_ns as f64 / f64::from(BURSTS * EVENTS);
    println!("{each_ns:.1} ns an event, {} waits for the file", shared.stalls());
    Ok(())
}
