//! The format: written records can be read again, broken traces are errors, and the example of the
//! docs is right.

use proptest::prelude::*;
use terapage_trace::{Error, Event, Header, PageOut, Reader, Record, Writer, references};

fn header() -> Header {
    Header {
        block_bytes: 16384,
        pid: 77,
        start_us: 1_700_000_000_000_000,
        budget_bytes: 4 << 30,
        executable: 0x0123_4567_89ab_cdef,
        program: "sort".to_owned(),
        ..Header::default()
    }
}

fn event() -> impl Strategy<Value = Event> {
    let near = prop_oneof![0u32..100, any::<u32>()];
    (0..13, near, any::<u64>(), any::<u64>()).prop_map(|(kind, block, a, b)| match kind {
        0 => Event::FirstTouch { block },
        1 => Event::FreshAhead { block },
        2 => Event::Present { block },
        3 => Event::MajorFault { block },
        4 => Event::MinorFault { block },
        5 => Event::PrefetchMarker { block },
        6 => Event::Prefetched { block },
        7 => Event::PageOut { block, how: PageOut::Dirty },
        8 => Event::PageOut { block, how: PageOut::Clean },
        9 => Event::PageOut { block, how: PageOut::Zero },
        10 => Event::Discard { block, count: a as u32 },
        11 => Event::PutBack { block },
        _ => Event::RegionAdd { start: a, len: b, first: block },
    })
}

fn records(most: usize) -> impl Strategy<Value = Vec<Record>> {
    let step = prop_oneof![0u64..100, 0u64..1 << 40];
    prop::collection::vec((step, event()), 0..most).prop_map(|steps| {
        let mut time_us = 0;
        let record = |(step, event)| {
            time_us += step;
            Record { time_us, event }
        };
        steps.into_iter().map(record).collect()
    })
}

/// A trace of `records`, with a frame for each `per_frame` records.
fn trace(records: &[Record], per_frame: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for part in records.chunks(per_frame) {
        for record in part {
            writer.record(record).unwrap();
        }
        writer.flush().unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, Error> {
    Reader::new(bytes)?.collect()
}

proptest! {
    #[test]
    fn what_is_written_comes_back(records in records(300), per_frame in 1usize..100) {
        let bytes = trace(&records, per_frame);
        let reader = Reader::new(&bytes[..]).unwrap();
        prop_assert_eq!(reader.header(), &header());
        prop_assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap(), records);
    }

    #[test]
    fn a_trace_cut_short_gives_its_whole_frames(
        records in records(100), per_frame in 1usize..20, cut in any::<prop::sample::Index>(),
    ) {
        let bytes = trace(&records, per_frame);
        let cut = cut.index(bytes.len());
        let error = read(&bytes[..cut]).unwrap_err();
        prop_assert!(matches!(error, Error::CutShort { .. }), "{error}");
        let Ok(reader) = Reader::new(&bytes[..cut]) else { return Ok(()) };
        let mut reader = reader.allow_cut_short();
        let got: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        prop_assert!(records.starts_with(&got));
        prop_assert!(got.len() % per_frame == 0 || got.len() == records.len());
        prop_assert!(reader.cut_short().is_some());
    }

    #[test]
    fn a_changed_bit_is_an_error(
        records in records(100), at in any::<prop::sample::Index>(), bit in 0u32..8,
    ) {
        let mut bytes = trace(&records, 20);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn garbage_is_an_error(garbage in prop::collection::vec(any::<u8>(), 0..300), keep in 0usize..60) {
        let mut bytes = trace(&[], 1);
        bytes.truncate(keep);
        bytes.extend(&garbage);
        let whole = trace(&[], 1);
        prop_assert!(read(&bytes).is_err() || bytes == whole);
    }
}

#[test]
fn many_records_make_several_frames_and_few_bytes() {
    let fault = |at: u32| Record { time_us: u64::from(at) * 50, event: Event::MajorFault { block: at } };
    let records: Vec<_> = (0..2_000_000).map(fault).collect();
    let bytes = trace(&records, usize::MAX);
    assert!(bytes.len() < records.len() / 10, "{} bytes", bytes.len());
    assert_eq!(read(&bytes).unwrap(), records);
}

#[test]
fn bytes_after_the_end_are_an_error() {
    let mut bytes = trace(&[], 1);
    let len = bytes.len();
    bytes.push(0);
    let error = read(&bytes).unwrap_err();
    assert!(matches!(error, Error::Corrupt { offset, .. } if offset == len as u64), "{error}");
}

#[test]
fn errors_say_where_and_what() {
    assert_eq!(
        read(b"").unwrap_err().to_string(),
        "the trace is cut short at byte 0: expected the magic \"TERATRC\" and version 2"
    );
    assert_eq!(
        read(b"TERATRC\x01").unwrap_err().to_string(),
        r#"at byte 0: expected the magic "TERATRC" and version 2, found "TERATRC\x01""#
    );
}

#[test]
fn a_block_that_begins_again_gets_a_new_number() {
    let record = |event| Ok(Record { time_us: 0, event });
    let touched = references([
        record(Event::RegionAdd { start: 0, len: 1 << 20, first: 0 }),
        record(Event::FirstTouch { block: 4 }),
        record(Event::FreshAhead { block: 5 }),
        record(Event::PageOut { block: 4, how: PageOut::Dirty }),
        record(Event::MajorFault { block: 4 }),
        record(Event::Discard { block: 4, count: 1 }),
        record(Event::FirstTouch { block: 4 }),
        record(Event::MinorFault { block: 4 }),
        record(Event::Prefetched { block: 7 }),
        record(Event::PrefetchMarker { block: 5 }),
    ]);
    assert_eq!(touched.unwrap(), [4, 5, 4, 8, 8, 7, 5]);
    let too_many =
        [record(Event::FirstTouch { block: u32::MAX }), record(Event::FirstTouch { block: u32::MAX })];
    assert!(matches!(references(too_many), Err(Error::Blocks)));
}

/// The example of `docs/design/formats.md`.
fn example() -> Vec<Record> {
    let record = |time_us, event| Record { time_us, event };
    vec![
        record(5, Event::RegionAdd { start: 0x7f00_0000_0000, len: 1 << 20, first: 0 }),
        record(20, Event::FirstTouch { block: 0 }),
        record(21, Event::FreshAhead { block: 1 }),
        record(300, Event::PageOut { block: 0, how: PageOut::Dirty }),
        record(1000, Event::MajorFault { block: 0 }),
    ]
}

#[test]
fn the_example_of_the_docs_is_what_is_written_and_read() {
    let docs = include_str!("../../../../docs/design/formats.md");
    let (_, after) = docs.split_once("```bytes\n").expect("the docs have the example");
    let (text, _) = after.split_once("```").expect("the example ends");
    // Each line has bytes, two spaces or more, and the meaning of the bytes.
    let bytes: Vec<u8> = text
        .lines()
        .flat_map(|line| line.split("  ").next().unwrap_or_default().split(' '))
        .map(|byte| u8::from_str_radix(byte, 16).expect("a byte in hexadecimal digits"))
        .collect();
    assert_eq!(read(&bytes).unwrap(), example());
    assert_eq!(Reader::new(&bytes[..]).unwrap().header(), &header());
    let written = trace(&example(), usize::MAX);
    let hex: Vec<_> = written.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(bytes, written, "{}", hex.join(" "));
}
