//! Damaged traces: whatever the bytes, a reader returns valid requests or one error, and ends.
//!
//! Small samples of every format are damaged by a seeded mutator: bits are flipped, and parts cut,
//! moved, repeated, or replaced by extreme numbers or parts of other formats.

mod common;

use common::{requests, written};
use std::io::Cursor;
use terapage_blocktrace::{Compression, Format, Kind, Options, Request, WriterOptions, read};
use terapage_figures::SplitMix;
use terapage_fuzz::{Random, damage, fuzz};

/// The samples: the name of each format, and a trace of it.
fn samples() -> Vec<(Format, Vec<u8>)> {
    let mut samples = Vec::new();
    for format in Format::ALL.into_iter().filter(|format| format.is_written()) {
        let lossy = WriterOptions { lossy: true, name: "sample".into(), ..WriterOptions::default() };
        let requests = requests(&mut SplitMix(11), 60, 3, 1000, true);
        let (bytes, _) = written(&requests, format, None, &lossy, |volume| format!("hm_{volume}")).unwrap();
        samples.push((format, bytes));
    }
    let revised = "0.000004981 RS 1432 128 seq 13770.6865422 0.000255738 13770.6862\n\
        0.010347144 WS 1572960 8 rand 341.358274019 0.000137415 341.358048\n\
        0.020573163 RS 1448 96 rand 2.0402e-05 0.000246558 0\n";
    samples.push((Format::MsrRevised, revised.to_string().into_bytes()));
    samples.push((Format::Arc, b"230027 8 0 0\n1842745 64 0 1\n216082 8 0 2\n109228 32 0 3\n".to_vec()));
    let two =
        "fio version 2 iolog\n/dev/a add\n/dev/a write 0 16384\n/dev/a wait 10 0\n/dev/b read 512 4096\n";
    samples.push((Format::Fio, two.as_bytes().to_vec()));
    for version in [1u16, 2] {
        samples.push((Format::Vscsi, vscsi(version)));
    }
    if let Some(folder) = common::traces() {
        for (format, name) in [
            (Format::Msr, "msr-hm_0-head.csv"),
            (Format::Ssdsim, "tpcc-small.trace"),
            (Format::Disksim, "disksim-postmark.trace"),
        ] {
            let text = std::fs::read(folder.join(name)).unwrap();
            samples.push((format, text[..text.len().min(2000)].to_vec()));
        }
    }
    samples
}

fn vscsi(version: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..20u32 {
        let words = [0x28u16.to_le_bytes(), (version << 8).to_le_bytes()].concat();
        let ints: Vec<u8> = [number, 4096, 1].iter().flat_map(|int| int.to_le_bytes()).collect();
        let parts = if version == 1 { [ints, words] } else { [words, ints] };
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        for long in [u64::from(number) * 64, u64::from(number) * 1000] {
            bytes.extend_from_slice(&long.to_le_bytes());
        }
        if version == 2 {
            bytes.extend_from_slice(&77u64.to_le_bytes());
        }
    }
    bytes
}

/// Extreme numbers, which break careless readers.
const EXTREMES: [&[u8]; 14] = [
    b"0",
    b"-1",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775807",
    b"4294967296",
    b"99999999999999999999999999999999",
    b"1e308",
    b"nan",
    b"",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\0\0\0\0\0\0\0\0",
    b"\xff\xff\xff\x7f",
    b"\r\n\n",
];

/// Damages a trace; parts may also come from another one, and whole fields of lines be replaced.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>, donor: &[u8]) {
    let at = random.below(bytes.len() + 1);
    match random.below(4) {
        0 => {
            let end = at + random.below(bytes.len() - at + 1).min(random.below(64));
            let from = random.below(donor.len());
            let part = &donor[from..(from + random.below(200)).min(donor.len())];
            bytes.splice(at..end, part.iter().copied());
        }
        1 => {
            let blank = |byte: &u8| matches!(byte, b' ' | b',' | b'\n');
            let start = bytes[..at].iter().rposition(blank).map_or(0, |place| place + 1);
            let end = bytes[at..].iter().position(blank).map_or(bytes.len(), |place| at + place);
            bytes.splice(start..end, random.one(&EXTREMES).iter().copied());
        }
        _ => damage(random, bytes, &EXTREMES),
    }
}

/// Reads the whole trace and checks every request.
fn survives(bytes: &[u8], options: &Options) {
    let Ok(mut reader) = read("fuzz", Cursor::new(bytes.to_vec()), options) else { return };
    // Every format needs at least a byte for a request once it is decompressed, and these samples
    // are small.
    let limit = 4_000_000;
    let (mut count, mut last_ns, mut errors) = (0u64, 0, 0);
    for request in reader.by_ref() {
        assert_eq!(errors, 0, "requests after an error");
        let Ok(request) = request else {
            errors += 1;
            continue;
        };
        count += 1;
        assert!(count < limit, "does it ever end?");
        assert!(holds(&request, last_ns, options), "{request:?}");
        last_ns = request.time_ns;
    }
    let counts = reader.counts();
    assert_eq!(counts.requests, count);
    assert!(counts.skipped <= options.skip_bad);
    assert!(reader.next().is_none());
}

/// Properties of every request.
fn holds(request: &Request, last_ns: u64, options: &Options) -> bool {
    let end = request.offset.checked_add(u64::from(request.bytes));
    let limit = options.capacity.unwrap_or(i64::MAX as u64);
    request.bytes > 0 && request.time_ns >= last_ns && end.is_some_and(|end| end <= limit)
}

#[test]
fn fuzzed_traces_do_no_harm() {
    let samples = samples();
    fuzz("block traces", 80_000, |random| {
        let (format, sample) = &samples[random.below(samples.len())];
        let mut bytes = sample.clone();
        let donor = &samples[random.below(samples.len())].1;
        mutate(random, &mut bytes, donor);
        let options = Options {
            format: random.one(&[None, Some(*format)]),
            skip_bad: random.one(&[0, 0, 3, u64::MAX]),
            capacity: random.one(&[None, Some(1 << 30)]),
            disorder_ns: random.one(&[0, 1_000_000, u64::MAX]),
            unit_bytes: random.one(&[None, Some(u32::MAX)]),
            ..Options::default()
        };
        let outcome = std::panic::catch_unwind(|| survives(&bytes, &options));
        assert!(outcome.is_ok(), "{format}, {options:?}: \"{}\"", bytes.escape_ascii());
    });
    assert_memory_is_bounded();
}

#[test]
fn fuzzed_compression_does_no_harm() {
    let requests = requests(&mut SplitMix(11), 300, 3, 1000, false);
    let samples = [Compression::Gzip, Compression::Zstd, Compression::Xz].map(|compression| {
        let options = WriterOptions::default();
        let packed = written(&requests, Format::Msr, Some(compression), &options, |v| v.to_string());
        (compression, packed.unwrap().0)
    });
    fuzz("compressed block traces", 1200, |random| {
        let (compression, sample) = &samples[random.below(samples.len())];
        let mut bytes = sample.clone();
        mutate(random, &mut bytes, sample);
        let outcome = std::panic::catch_unwind(|| survives(&bytes, &Options::default()));
        assert!(outcome.is_ok(), "{compression:?}: \"{}\"", bytes.escape_ascii());
    });
    assert_memory_is_bounded();
}

/// The checks above notice a wrong request.
#[test]
fn requests_that_lie_do_not_hold() {
    let good = Request { time_ns: 5, offset: 0, bytes: 1, volume: 0, kind: Kind::Read };
    let options = Options { capacity: Some(4096), ..Options::default() };
    assert!(holds(&good, 5, &options));
    assert!(!holds(&good, 6, &options));
    assert!(!holds(&Request { bytes: 0, ..good }, 0, &options));
    assert!(!holds(&Request { offset: 4096, ..good }, 0, &options));
    assert!(!holds(&Request { offset: u64::MAX, ..good }, 0, &Options::default()));
}

/// A reader does not trust lengths in damaged files: its peak memory stays small.
fn assert_memory_is_bounded() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kib: u64 = line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse().expect("a number"));
    assert!(peak_kib < 1 << 20, "{peak_kib} KiB");
}
