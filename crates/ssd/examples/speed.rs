//! Requests simulated a second on one core: 4 KiB requests at random places of drives in the steady state.
//!
//! ```console
//! cargo run --release -p terapage-ssd --example speed
//! ```

use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terapage_ssd::{Command, Config, Device, Front, Operation, Profile, Ssd};

const REQUESTS: u64 = 3_000_000;
const DEPTH: u64 = 64;
/// Commands that are made, and that the drive is told of, at once.
const AHEAD: u64 = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:34} {:>6} {:>10} {:>10} {:>9} {:>5}", "", "reads", "build s", "M req/s", "IOPS", "WA");
    for (title, nand, mapping, gib, spare) in [
        ("3D CT TLC, 16 KiB mapping, 256 GB", "3d-ct-tlc", None, 238, 0.28),
        ("3D CT TLC, 4 KiB mapping, 64 GiB", "3d-ct-tlc", Some(4096), 64, 0.28),
        ("MLC, 16 KiB mapping, 64 GiB", "2d-fg-mlc", None, 64, 0.28),
        ("MLC, 16 KiB mapping, 64 GiB, 7 %", "2d-fg-mlc", None, 64, 0.07),
    ] {
        for reads in [1.0, 0.5, 0.0] {
            if !wanted(title, reads) {
                continue;
            }
            let mut config = Config::new(Profile::by_name(nand)?, gib << 30);
            (config.mapping_bytes, config.over_provisioning, config.front) = (mapping, spare, Front::nvme());
            let start = Instant::now();
            let mut ssd = Ssd::new(&config)?;
            let build = start.elapsed();
            let start = Instant::now();
            let end = run(&mut ssd, reads);
            let rate = REQUESTS as f64 / start.elapsed().as_secs_f64() / 1e6;
            let (iops, wa) = (REQUESTS as f64 / end, ssd.counters().write_amplification());
            println!(
                "{title:34} {:>5.0}% {:>10.2} {rate:>10.2} {iops:>9.0} {wa:>5.2}",
                reads * 100.0,
                build.as_secs_f64()
            );
        }
    }
    Ok(())
}

/// Whether the arguments, parts of a title and shares of reads such as `0%`, ask for this run; none ask for all.
fn wanted(title: &str, reads: f64) -> bool {
    let line = format!("{title} {:.0}%.", reads * 100.0);
    std::env::args().skip(1).all(|part| line.contains(&part))
}

/// Gives the simulated seconds.
fn run(ssd: &mut Ssd, reads: f64) -> f64 {
    let mut random = SmallRng::seed_from_u64(1);
    let pages = ssd.sectors() / 8;
    let mut command = |tag| {
        let operation = if random.random_bool(reads) { Operation::Read } else { Operation::Write };
        Command { tag, operation, sector: random.random_range(0..pages) * 8, sectors: 8 }
    };
    let (mut done, mut ahead, mut submitted, mut ended, mut now) = (Vec::new(), Vec::new(), 0, 0, 0);
    while ended < REQUESTS {
        while submitted < REQUESTS && submitted - ended < DEPTH {
            if ahead.is_empty() {
                ahead.extend((submitted..submitted + AHEAD).rev().map(&mut command));
                ssd.foresee(&ahead);
            }
            ssd.submit(now, ahead.pop().expect("it was filled"), &mut done);
            submitted += 1;
        }
        now = ssd.next_time().unwrap_or(now);
        ssd.step(&mut done);
        ended += done.len() as u64;
        done.clear();
    }
    now as f64 / 1e9
}
