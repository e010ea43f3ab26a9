//! Real traces: each is recognised, and its counts agree with counts that are computed here in
//! another way.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use terapage_blocktrace::{Compression, Format, Kind, Options, Request, open};

/// Reads, writes, bytes and the end of time (in nanoseconds after the first), by splitting lines at
/// blanks or commas.
#[derive(Debug, PartialEq)]
struct Sums {
    reads: u64,
    writes: u64,
    bytes: u64,
    last_ns: u64,
}

fn sums(requests: &[Request]) -> Sums {
    let count = |kind| requests.iter().filter(|request| request.kind == kind).count() as u64;
    Sums {
        reads: count(Kind::Read),
        writes: count(Kind::Write),
        bytes: requests.iter().map(|request| u64::from(request.bytes)).sum(),
        last_ns: requests.last().map_or(0, |request| request.time_ns),
    }
}

/// Fields by column: time, its nanoseconds, length, its bytes, and the last column of a read.
fn naive(
    text: &str,
    separator: char,
    time: (usize, f64),
    length: (usize, u64),
    read: impl Fn(&[&str]) -> bool,
) -> Sums {
    let mut sums = Sums { reads: 0, writes: 0, bytes: 0, last_ns: 0 };
    let mut first = None;
    for line in text.lines() {
        let fields: Vec<&str> = line.split(separator).map(str::trim).collect();
        *(if read(&fields) { &mut sums.reads } else { &mut sums.writes }) += 1;
        sums.bytes += fields[length.0].parse::<u64>().unwrap() * length.1;
        let now: f64 = fields[time.0].parse::<f64>().unwrap();
        let first = *first.get_or_insert(now);
        sums.last_ns = ((now - first) * time.1).round() as u64;
    }
    sums
}

fn read(path: &Path, format: Format) -> Vec<Request> {
    let mut reader = open(path, &Options::default()).unwrap();
    assert_eq!(reader.meta().format, format, "{}", path.display());
    let requests: Vec<Request> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(reader.counts().requests, requests.len() as u64);
    assert_eq!((reader.counts().skipped, reader.counts().late), (0, 0));
    let highest = requests.iter().map(|request| request.volume).max().unwrap();
    assert_eq!(usize::from(highest) + 1, reader.volumes().len());
    requests
}

#[test]
fn ssdsim_and_mqsim_traces_are_read_whole() {
    let Some(folder) = common::traces() else { return };
    for name in ["tpcc-small.trace", "wsrch-small.trace", "ssdsim-example.ascii"] {
        let path = folder.join(name);
        let text = fs::read_to_string(&path).unwrap();
        let expected = naive(&text, ' ', (0, 1.0), (3, 512), |fields| fields[4] == "1");
        assert_eq!(sums(&read(&path, Format::Ssdsim)), expected, "{name}");
    }
}

#[test]
fn a_disksim_trace_is_read_whole() {
    let Some(folder) = common::traces() else { return };
    let path = folder.join("disksim-postmark.trace");
    let text = fs::read_to_string(&path).unwrap();
    let expected = naive(&text, ' ', (0, 1e6), (3, 512), |fields| fields[4] == "1");
    let found = sums(&read(&path, Format::Disksim));
    // Binary fractions of milliseconds differ a little from the decimal ones.
    assert!(found.last_ns.abs_diff(expected.last_ns) < 1000);
    assert_eq!(Sums { last_ns: expected.last_ns, ..found }, expected);
}

#[test]
fn an_msr_trace_is_read_whole() {
    let Some(folder) = common::traces() else { return };
    let path = folder.join("msr-hm_0-head.csv");
    let requests = read(&path, Format::Msr);
    assert_eq!(requests.len(), 29);
    let first = Request { time_ns: 0, offset: 9056014336, bytes: 2048, volume: 0, kind: Kind::Write };
    assert_eq!(requests[0], first);
    assert_eq!(requests[1].time_ns, 21_500);
    let text = fs::read_to_string(&path).unwrap();
    let expected = naive(&text, ',', (0, 100.0), (5, 1), |fields| fields[3] == "Read");
    assert_eq!(Sums { last_ns: 0, ..sums(&requests) }, Sums { last_ns: 0, ..expected });
    assert_eq!(requests[28].time_ns, (128166385727959458 - 128166385295514663) * 100);
    assert_eq!(open(&path, &Options::default()).unwrap().by_ref().count(), 29);
}

#[test]
fn a_compressed_arc_trace_is_read_whole() {
    let Some(folder) = common::traces() else { return };
    let path = folder.join("arc-P3.lis.zst");
    let requests = read(&path, Format::Arc);
    let text = zstd::decode_all(fs::File::open(&path).unwrap()).unwrap();
    let text = String::from_utf8(text).unwrap();
    let blocks: u64 = text.lines().map(|line| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(requests.len(), text.lines().count());
    assert_eq!(sums(&requests), Sums { reads: 238_578, writes: 0, bytes: blocks * 512, last_ns: 0 });
    let in_4k = Options { unit_bytes: Some(4096), ..Options::default() };
    let bytes: u64 = open(&path, &in_4k).unwrap().map(|request| u64::from(request.unwrap().bytes)).sum();
    assert_eq!(bytes, blocks * 4096);
}

#[test]
fn the_volumes_of_a_trace_can_be_picked() {
    let Some(folder) = common::traces() else { return };
    let path = folder.join("tpcc-small.trace");
    let options = Options { volumes: vec!["4".into(), "13".into()], ..Options::default() };
    let mut reader = open(&path, &options).unwrap();
    let count = reader.by_ref().map(Result::unwrap).count() as u64;
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().filter(|line| matches!(line.split(' ').nth(1), Some("4" | "13"))).count() as u64;
    assert_eq!((count, reader.counts().unwanted), (lines, 6999 - lines));
    assert_eq!(reader.volumes(), ["4", "13"]);
}

#[test]
fn compressed_traces_are_the_same_whatever_their_names() {
    let Some(folder) = common::traces() else { return };
    let text = fs::read(folder.join("tpcc-small.trace")).unwrap();
    let plain = common::all(&text, &Options::default()).unwrap();
    assert_eq!(plain.len(), 6999);
    let place = tempfile::tempdir().unwrap();
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Xz] {
        // Two concatenated members or frames, as `cat a.gz b.gz` makes them.
        let (a, b) = text.split_at(text.len() / 2);
        let packed: Vec<u8> = [a, b].into_iter().flat_map(|part| pack(part, compression)).collect();
        let path = place.path().join("trace.without.suffix");
        fs::write(&path, &packed).unwrap();
        let mut reader = open(&path, &Options::default()).unwrap();
        assert_eq!(reader.meta().compression, Some(compression));
        let requests: Vec<Request> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(requests, plain, "{compression:?}");
        assert_eq!(reader.read_bytes(), packed.len() as u64);
        // A truncated file is an error, not an end.
        fs::write(&path, &packed[..packed.len() / 3]).unwrap();
        let error = match open(&path, &Options::default()) {
            Ok(mut reader) => reader.find_map(Result::err).unwrap().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("cannot be read further"), "{error}");
    }
}

fn pack(bytes: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        Compression::Xz => {
            let options = lzma_rust2::XzOptions::with_preset(1);
            let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
    }
}
