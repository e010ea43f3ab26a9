//! The statistics of traces.

mod common;

use common::written;
use std::collections::{HashMap, HashSet};
use std::io::Cursor;
use terapage_blocktrace::{
    Format, Kind, Options, Profile, ProfileOptions, Request, WriterOptions, open, read,
};
use terapage_figures::SplitMix;
use terapage_report::Mark;

fn profile(requests: &[Request], synthetic: bool, options: ProfileOptions) -> Profile {
    let writing = WriterOptions { synthetic, ..WriterOptions::default() };
    let (bytes, _) = written(requests, Format::Tera, None, &writing, |volume| format!("d{volume}")).unwrap();
    Profile::of(read("x", Cursor::new(bytes), &Options::default()).unwrap(), options).unwrap()
}

#[test]
fn counts_are_those_of_a_naive_look() {
    let requests = common::requests(&mut SplitMix(5), 4000, 3, 1000, true);
    let profile = profile(&requests, false, ProfileOptions::default());
    let (mut all, mut read, mut written) = (HashSet::new(), HashSet::new(), HashSet::new());
    let (mut last_ends, mut sequential) = (HashMap::new(), 0);
    let mut references = 0;
    for request in &requests {
        let last_end = last_ends.insert(request.volume, request.end());
        sequential += u64::from(last_end == Some(request.offset));
        for block in request.offset / 4096..request.end().div_ceil(4096) {
            match request.kind {
                Kind::Read => read.insert((request.volume, block)),
                Kind::Write => written.insert((request.volume, block)),
                Kind::Trim => continue,
            };
            all.insert((request.volume, block));
            references += 1;
        }
    }
    let blocks = (profile.footprint_blocks, profile.read_blocks, profile.written_blocks);
    assert_eq!(blocks, (all.len() as f64, read.len() as f64, written.len() as f64));
    assert_eq!((profile.references, profile.sample_rate, profile.sample_error()), (references, 1.0, 0.0));
    let mixes = [&profile.reads, &profile.writes, &profile.trims];
    assert_eq!(mixes.iter().map(|mix| mix.sequential).sum::<u64>(), sequential);
    assert!(mixes.iter().all(|mix| mix.nearly_sequential >= mix.sequential));
    for (mix, kind) in mixes.into_iter().zip([Kind::Read, Kind::Write, Kind::Trim]) {
        let own: Vec<&Request> = requests.iter().filter(|request| request.kind == kind).collect();
        assert_eq!(mix.requests, own.len() as u64);
        assert_eq!(mix.bytes, own.iter().map(|request| u64::from(request.bytes)).sum::<u64>());
        let aligned =
            own.iter().filter(|request| request.offset % 4096 == 0 && request.bytes % 4096 == 0).count();
        assert_eq!(mix.aligned[1], aligned as u64);
        assert_eq!(mix.sizes.count(), mix.requests);
    }
    assert_eq!(profile.gaps_ns.count(), 3999);
    assert!((profile.gaps_ns.mean() * 3999.0 / profile.duration_ns as f64 - 1.0).abs() < 1e-9);
    assert_eq!(profile.windows.iter().map(|window| window.requests).sum::<u64>(), 4000);
    let first = all.len() as f64 / references as f64;
    assert!((profile.miss_ratio(1e18) - first).abs() < 1e-9, "only first touches miss at last");
    assert_eq!(profile.miss_ratio(0.0), 1.0);
    let (share, blocks, ratio) = *profile.lru_at_shares.last().unwrap();
    assert_eq!((share, blocks), (1.0, all.len() as f64));
    assert!((ratio - first).abs() < 1e-9);
}

#[test]
fn a_trace_beyond_the_bound_is_sampled_and_says_so() {
    let mut random = SplitMix(9);
    let requests: Vec<Request> = (0..200_000u64)
        .map(|time_ns| {
            let block = (random.next() % 300) * (random.next() % 300);
            Request { time_ns, offset: block * 4096, bytes: 4096, volume: 0, kind: Kind::Read }
        })
        .collect();
    let exact = profile(&requests, false, ProfileOptions::default());
    let options = ProfileOptions { tracked_blocks_max: 4000, ..ProfileOptions::default() };
    let sampled = profile(&requests, false, options);
    assert!(sampled.sample_rate < 1.0 && sampled.sampled_blocks <= 4000);
    let error = (sampled.footprint_blocks / exact.footprint_blocks - 1.0).abs();
    assert!(error < 5.0 * sampled.sample_error(), "{error}");
    let study = sampled.study("test");
    assert!(study.summary.iter().any(|paragraph| paragraph.contains("SHARDS")));
    assert!(exact.study("test").summary.iter().all(|paragraph| !paragraph.contains("SHARDS")));
}

#[test]
fn what_is_synthetic_says_so() {
    let requests = common::requests(&mut SplitMix(5), 100, 1, 1000, false);
    for (synthetic, mark) in [(false, Mark::Simulated), (true, Mark::Synthetic)] {
        let study = profile(&requests, synthetic, ProfileOptions::default()).study("test");
        assert!(study.plots.iter().flat_map(|plot| &plot.series).all(|series| series.mark == mark));
        assert_eq!(study.summary.iter().any(|paragraph| paragraph.contains("synthetic")), synthetic);
    }
}

#[test]
fn reports_of_real_traces_are_whole() {
    let Some(folder) = common::traces() else { return };
    for name in ["tpcc-small.trace", "disksim-postmark.trace", "msr-hm_0-head.csv", "arc-P3.lis.zst"] {
        let reader = open(&folder.join(name), &Options::default()).unwrap();
        let study = Profile::of(reader, ProfileOptions::default()).unwrap().study("test");
        for table in &study.tables {
            assert!(!table.rows.is_empty(), "{name}: {}", table.title);
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{name}: {}", table.title);
        }
        for series in study.plots.iter().flat_map(|plot| &plot.series) {
            assert!(!series.points.is_empty(), "{name}: {}", series.name);
            assert!(series.points.iter().all(|(_, y)| y.is_finite()), "{name}: {}", series.name);
        }
    }
}

#[test]
fn traces_without_requests_have_a_profile() {
    let nothing = profile(&[], false, ProfileOptions::default());
    assert_eq!((nothing.requests(), nothing.footprint_blocks), (0, 0.0));
    assert!(nothing.study("test").summary[0].contains("0 requests"));
}
