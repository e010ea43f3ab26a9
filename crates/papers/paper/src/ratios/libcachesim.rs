//! `sim cache`'s policies beside libCacheSim's program, if it is on this machine.

use super::Beside;
use anyhow::Context;
use std::collections::HashMap;
use std::process::Command;
use terapage_eviction::{Log, by_name, least};
use terapage_figures::SplitMix;
use terapage_policy::objects::{Request, simulate};
use terapage_rig::tools::find;

/// Policies, by their names here and there.
const POLICIES: [(&str, &str); 17] = [
    ("lru", "lru"),
    ("fifo", "fifo"),
    ("clock", "clock"),
    ("2q", "twoq"),
    ("s3fifo", "s3fifo"),
    ("sieve", "sieve"),
    ("arc", "arc"),
    ("slru", "slru"),
    ("lfu", "lfu"),
    ("gdsf", "gdsf"),
    ("lirs", "lirs"),
    ("lfuda", "lfuda"),
    ("wtinylfu", "wtinylfu"),
    ("lhd", "lhd"),
    ("hyperbolic", "hyperbolic"),
    ("random", "random"),
    (LEAST, "belady"),
];

/// The least misses of any policy.
const LEAST: &str = "optimum";
/// Requests, and the objects among which they are.
const REQUESTS: usize = 300_000;
const OBJECTS: u64 = 30_000;
/// Objects that fit into the cache.
const CACHE: usize = 3000;

/// The file of the trace; libCacheSim computes the optimum only for a name like this.
const TRACE: &str = "trace.oracleGeneral";

/// What the trace is.
pub const NOTE: &str = "Miss ratios of 300,000 requests for 30,000 objects in a cache of 3,000: most by Zipf's law, \
    and scans. docs/sim-cache.md says which rule differs where they do.";

/// Whether both are the same to the digits that libCacheSim prints.
pub fn is_same(one: &Beside) -> bool {
    (one.ours - one.theirs).abs() <= 0.000_051
}

/// Runs both; `None` if there is no libCacheSim.
///
/// # Errors
/// libCacheSim fails, or prints something else.
pub fn compared() -> anyhow::Result<Option<Vec<Beside>>> {
    let Ok(program) = find("cachesim") else { return Ok(None) };
    let folder = tempfile::tempdir()?;
    let objects = trace();
    std::fs::write(folder.path().join(TRACE), encoded(&objects))?;
    let mut all = Vec::new();
    for (name, theirs) in POLICIES {
        let output = Command::new(&program)
            .args([TRACE, "oracleGeneral", theirs, &CACHE.to_string(), "--ignore-obj-size=true"])
            .current_dir(folder.path())
            .output()
            .with_context(|| format!("{} {theirs}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let ratio = miss_ratio(&text);
        let ratio = ratio.with_context(|| {
            format!("{} {theirs}: no miss ratio in what it prints ({})", program.display(), output.status)
        })?;
        all.push(Beside {
            with: "libCacheSim".into(),
            what: name.into(),
            theirs: ratio,
            ours: misses(name, &objects)? as f64 / REQUESTS as f64,
            unit: "",
        });
    }
    Ok(Some(all))
}

/// The last miss ratio that libCacheSim printed.
pub fn miss_ratio(text: &str) -> Option<f64> {
    let (_, rest) = text.rsplit_once(" miss ratio ")?;
    rest.split(',').next()?.trim().parse().ok()
}

/// Objects by Zipf's law, and now and then a scan of a tenth of them.
fn trace() -> Vec<u32> {
    let mut random = SplitMix(9);
    let mut objects = Vec::new();
    while objects.len() < REQUESTS {
        if random.below(20_000) == 0 {
            let first = random.below(OBJECTS) as u32;
            objects.extend((first..).take(OBJECTS as usize / 10).map(|object| object % OBJECTS as u32));
        }
        // The logarithm of the rank is uniform, which is Zipf's law with exponent 1.
        let rank = (OBJECTS as f64).powf(random.unit()) as u64 - 1;
        objects.push((rank * 7919 % OBJECTS) as u32);
    }
    objects.truncate(REQUESTS);
    objects
}

/// libCacheSim's oracleGeneral: time, object, size, and the number of the next request for it.
fn encoded(objects: &[u32]) -> Vec<u8> {
    let mut next: HashMap<u32, i64> = HashMap::new();
    let mut records: Vec<[u8; 24]> = Vec::with_capacity(objects.len());
    for (at, object) in objects.iter().enumerate().rev() {
        let number = at as i64 + 1;
        let mut record = [0; 24];
        record[..4].copy_from_slice(&((number / 1000) as u32).to_le_bytes());
        record[4..12].copy_from_slice(&(u64::from(*object) + 1).to_le_bytes());
        record[12..16].copy_from_slice(&1_u32.to_le_bytes());
        record[16..].copy_from_slice(&next.insert(*object, number).unwrap_or(-1).to_le_bytes());
        records.push(record);
    }
    records.into_iter().rev().flatten().collect()
}

fn misses(name: &str, objects: &[u32]) -> anyhow::Result<u64> {
    let requests = objects.iter().map(|object| Request::Get(*object, 1));
    if name == LEAST {
        let mut log = Log::default();
        requests.into_iter().try_for_each(|request| log.push(request))?;
        return Ok(least(&log, &log.next_uses()?, CACHE)?.0);
    }
    let mut policy = by_name(name, CACHE).with_context(|| format!("no policy is called {name}"))?;
    Ok(simulate(policy.as_mut(), requests, CACHE).misses)
}
