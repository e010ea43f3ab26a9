//! Requests that are written are read again.

mod common;

use common::{all, requests, written};
use proptest::prelude::*;
use std::collections::HashMap;
use terapage_blocktrace::{Compression, Format, Kind, Losses, Options, Request, Writer, WriterOptions, read};
use terapage_figures::SplitMix;

/// The formats that keep requests whole, the unit of their times, and whether they keep trims.
const WHOLE: [(Format, u64, bool); 7] = [
    (Format::Msr, 100, false),
    (Format::Ssdsim, 1, false),
    (Format::Disksim, 1, false),
    (Format::Blkparse, 1, true),
    (Format::Spc, 1, false),
    (Format::Fio, 1000, true),
    (Format::Tera, 1, true),
];

fn named(format: Format) -> Options {
    Options { format: Some(format), ..Options::default() }
}

fn write(requests: &[Request], format: Format) -> Vec<u8> {
    written(requests, format, None, &WriterOptions::default(), |volume| format!("disk_{volume}")).unwrap().0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// From each format to each other format and back.
    #[test]
    fn every_pair_of_whole_formats_keeps_everything(seed: u64, count in 1usize..200, volumes in 1u16..5) {
        for (first, first_tick, first_trims) in WHOLE {
            for (second, second_tick, second_trims) in WHOLE {
                let tick_ns = first_tick.max(second_tick);
                let trims = first_trims && second_trims;
                let requests = requests(&mut SplitMix(seed), count, volumes, tick_ns, trims);
                let once = all(&write(&requests, first), &named(first)).unwrap();
                prop_assert_eq!(&once, &requests, "{}", first);
                let twice = all(&write(&once, second), &named(second)).unwrap();
                prop_assert_eq!(&twice, &requests, "{} to {}", first, second);
            }
        }
    }

    /// `tera` keeps any bytes, any offset and any length, frame after frame.
    #[test]
    fn tera_keeps_what_is_not_aligned(seed: u64, count in 1usize..50_000) {
        let mut random = SplitMix(seed);
        let mut time_ns = 0u64;
        let requests: Vec<Request> = (0..count).map(|number| {
            time_ns += if number == 0 { 0 } else { random.next() >> (20 + random.index(44)) };
            let kind = [Kind::Read, Kind::Write, Kind::Trim][random.index(3)];
            let bytes = 1 + (random.next() as u32 >> random.index(32)).min(u32::MAX - 1);
            let offset = (random.next() >> (1 + random.index(60))).min(i64::MAX as u64 - u64::from(bytes));
            Request { time_ns, offset, bytes, volume: random.index(number.min(300) + 1) as u16, kind }
        }).collect();
        // Volumes are numbered in the order in which they appear, so skipped numbers change.
        let requests = renumbered(requests);
        let bytes = write(&requests, Format::Tera);
        prop_assert!(all(&bytes, &Options::default()).unwrap() == requests);
    }
}

fn renumbered(mut requests: Vec<Request>) -> Vec<Request> {
    let mut numbers = HashMap::new();
    for request in &mut requests {
        let next = numbers.len() as u16;
        request.volume = *numbers.entry(request.volume).or_insert(next);
    }
    requests
}

#[test]
fn every_format_that_is_written_is_recognised() {
    for (format, tick_ns, trims) in WHOLE {
        for compression in [None, Some(Compression::Gzip), Some(Compression::Zstd), Some(Compression::Xz)] {
            let requests = requests(&mut SplitMix(7), 3000, 3, tick_ns, trims);
            let options = WriterOptions::default();
            let (bytes, losses) =
                written(&requests, format, compression, &options, |v| format!("d{v}")).unwrap();
            assert_eq!(losses, Losses { requests: 3000, ..Losses::default() });
            let mut reader = read("bytes", std::io::Cursor::new(bytes), &Options::default()).unwrap();
            assert_eq!((reader.meta().format, reader.meta().compression), (format, compression));
            assert_eq!(reader.by_ref().map(Result::unwrap).collect::<Vec<_>>(), requests);
            assert_eq!(reader.volumes().len(), 3);
        }
    }
}

#[test]
fn tera_says_who_it_is() {
    let options = WriterOptions {
        name: "zipf".into(),
        comment: "made up\nby hand".into(),
        synthetic: true,
        lossy: false,
    };
    let one = [Request { time_ns: 0, offset: 0, bytes: 1, volume: 0, kind: Kind::Trim }];
    let (bytes, _) = written(&one, Format::Tera, None, &options, |_| "disk one".into()).unwrap();
    let mut reader = read("x", std::io::Cursor::new(bytes.clone()), &Options::default()).unwrap();
    assert_eq!(reader.by_ref().count(), 1);
    let meta = reader.meta();
    assert_eq!(
        (meta.name.as_str(), meta.comment.as_str(), meta.synthetic),
        ("zipf", "made up\nby hand", true)
    );
    assert_eq!(reader.volumes(), ["disk one"]);
    // An empty trace is valid. Damage to any single byte is found.
    let (empty, _) = written(&[], Format::Tera, None, &options, |_| String::new()).unwrap();
    assert_eq!(all(&empty, &Options::default()), Ok(vec![]));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(all(&damaged, &Options::default()).is_err(), "byte {at}");
        assert!(all(&bytes[..at], &named(Format::Tera)).is_err(), "cut at {at}");
    }
}

#[test]
fn oraclegeneral_knows_the_next_request() {
    let (offsets, nexts) = ([8u64, 16, 8, 24, 16, 8], [3i64, 5, 6, -1, -1, -1]);
    let requests: Vec<Request> = (0u64..)
        .zip(offsets)
        .map(|(number, sector)| Request {
            time_ns: number * 1_000_000_000,
            offset: sector * 512,
            bytes: 4096,
            volume: 0,
            kind: Kind::Read,
        })
        .collect();
    let bytes = write(&requests, Format::OracleGeneral);
    let found: Vec<i64> =
        bytes.chunks(24).map(|record| i64::from_le_bytes(record[16..].try_into().unwrap())).collect();
    assert_eq!(found, nexts);
    assert_eq!(all(&bytes, &Options::default()).unwrap(), requests);
    // A trace of several chunks, compared with a naive look-ahead.
    let many = common::requests(&mut SplitMix(3), 150_000, 1, 1_000_000, false);
    let many: Vec<Request> = many
        .into_iter()
        .map(|r| Request { kind: Kind::Read, offset: r.offset % (512 * 5000), ..r })
        .collect();
    let bytes = write(&many, Format::OracleGeneral);
    let mut following = HashMap::new();
    for (number, record) in (1..=many.len() as i64).rev().zip(bytes.chunks(24).rev()) {
        let next = following.insert(record[4..12].to_vec(), number).unwrap_or(-1);
        assert_eq!(record[16..], next.to_le_bytes());
    }
}

#[test]
fn what_does_not_fit_is_refused_or_counted() {
    let odd = Request { time_ns: 150, offset: 100, bytes: 500, volume: 0, kind: Kind::Write };
    let trim = Request { kind: Kind::Trim, offset: 512, bytes: 512, ..odd };
    let other = Request { kind: Kind::Read, volume: 1, ..trim };
    let attempt = |requests: &[Request], format, lossy| {
        let options = WriterOptions { lossy, ..WriterOptions::default() };
        written(requests, format, None, &options, |v| v.to_string())
    };
    for (request, format, why) in [
        (odd, Format::Ssdsim, "sectors of 512 bytes"),
        (trim, Format::Msr, "no trims"),
        (odd, Format::OracleGeneral, "reads from writes"),
        (odd, Format::Arc, "read, not written"),
    ] {
        let error = attempt(&[request], format, false).unwrap_err();
        assert!(error.starts_with("request 1 does not fit: ") && error.contains(why), "{error}");
    }
    let error = attempt(&[Request { volume: 0, ..other }, other], Format::OracleGeneral, false).unwrap_err();
    assert!(error.starts_with("request 2 does not fit: the format has one volume"), "{error}");
    let (bytes, losses) = attempt(&[odd, trim, other], Format::Disksim, true).unwrap();
    assert_eq!(losses, Losses { requests: 2, trims: 1, grown: 1, ..Losses::default() });
    let grown = Request { time_ns: 0, offset: 0, bytes: 1024, ..odd };
    assert_eq!(all(&bytes, &Options::default()).unwrap()[0], grown);
    let (_, losses) = attempt(&[odd], Format::OracleGeneral, true).unwrap();
    assert_eq!(losses, Losses { requests: 1, times_cut: 1, grown: 1, kinds: 1, ..Losses::default() });
}

#[test]
fn files_appear_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv.gz");
    std::fs::write(&path, "before").unwrap();
    let request = Request { time_ns: 0, offset: 0, bytes: 512, volume: 0, kind: Kind::Trim };
    let mut writer = Writer::create(&path, Format::Msr, &WriterOptions::default()).unwrap();
    assert!(writer.write(&request, "a").is_err());
    drop(writer);
    assert_eq!(std::fs::read(&path).unwrap(), b"before");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let mut writer = Writer::create(&path, Format::Msr, &WriterOptions::default()).unwrap();
    writer.write(&Request { kind: Kind::Read, ..request }, "a").unwrap();
    writer.finish().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let reader = terapage_blocktrace::open(&path, &Options::default()).unwrap();
    assert_eq!((reader.meta().format, reader.meta().compression), (Format::Msr, Some(Compression::Gzip)));
    let missing = Writer::create(&folder.path().join("no/out"), Format::Msr, &WriterOptions::default());
    assert!(missing.err().unwrap().to_string().contains("cannot be written"));
}

/// The example in docs/block-traces.md, byte for byte.
#[test]
fn the_documented_bytes_are_the_written_ones() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/block-traces.md"))
        .unwrap();
    let example = page.split("```bytes\n").nth(1).unwrap().split("```").next().unwrap();
    let hex = example.lines().map(|line| line.split("  ").next().unwrap());
    let documented: Vec<u8> =
        hex.flat_map(|line| line.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap())).collect();
    let first = Request { time_ns: 0, offset: 8192, bytes: 4096, volume: 0, kind: Kind::Write };
    let requests = [first, Request { time_ns: 5000, offset: 12288, ..first }];
    let options = WriterOptions { name: "demo".into(), synthetic: true, ..WriterOptions::default() };
    let (bytes, _) = written(&requests, Format::Tera, None, &options, |_| "disk".into()).unwrap();
    assert_eq!(bytes, documented);
    assert_eq!(all(&bytes, &Options::default()).unwrap(), requests);
}
