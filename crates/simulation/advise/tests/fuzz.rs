//! Recordings whose form is right and whose records no pager could have written.

use std::io::Write;
use terapage_advise::Recording;
use terapage_fuzz::{Random, fuzz};
use terapage_policy::belady::Use;
use terapage_trace::{Event, Header, PageOut, Record, Writer};

/// Any event, of few blocks. Blocks far from others make tables of megabytes, so they are rare.
fn event(random: &mut Random) -> Event {
    let far = random.below(200) == 0;
    let block = random.one(if far { &[1 << 16, 1 << 22, u32::MAX] } else { &[0, 1, 2, 77][..] });
    let long = random.one(&[0, 1, 4096, 1 << 30, u64::MAX]);
    match random.below(9) {
        0 => Event::FirstTouch { block },
        1 => Event::FreshAhead { block },
        2 => Event::Present { block },
        3 => Event::MajorFault { block },
        4 => Event::Prefetched { block },
        5 => Event::PutBack { block },
        6 => Event::PageOut { block, how: random.one(&[PageOut::Dirty, PageOut::Clean, PageOut::Zero]) },
        7 => Event::Discard { block, count: random.one(&[0, 1, 80, u32::MAX]) },
        _ => Event::RegionAdd { start: random.one(&[0, 4096, long]), len: long, first: block },
    }
}

#[test]
fn references_far_from_one_another_take_no_memory_without_limit() {
    let header =
        Header { block_bytes: 16 << 10, budget_bytes: 1 << 20, program: "made".into(), ..Header::default() };
    let opened = |places: u32| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        for place in 0..places {
            let record = Record { time_us: place.into(), event: Event::FirstTouch { block: place << 16 } };
            writer.record(&record).unwrap();
        }
        file.write_all(&writer.finish().unwrap()).unwrap();
        Recording::open(file.path()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(opened(8), Ok(()));
    let why = opened(1025).unwrap_err();
    assert!(why.contains("1024 places"), "{why}");
}

#[test]
fn fuzzed_recordings_are_used_or_refused() {
    let (mut used, mut refused) = (0, 0);
    fuzz("recordings", 100, |random| {
        let header = Header {
            block_bytes: random.one(&[0, 1, 4096, 16 << 10, 12345, 1 << 31, u32::MAX]),
            budget_bytes: random.one(&[0, 1, 1 << 20, u64::MAX]),
            program: "made".into(),
            ..Header::default()
        };
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        let mut told = Vec::new();
        for _ in 0..random.below(40) {
            let record = Record { time_us: random.one(&[0, 10, u64::MAX]), event: event(random) };
            writer.record(&record).unwrap();
            told.push(record);
        }
        file.write_all(&writer.finish().unwrap()).unwrap();
        let Ok(recording) = Recording::open(file.path()) else {
            refused += 1;
            return;
        };
        used += 1;
        assert!(recording.frames() > 0, "{header:?}");
        for shift in 0..3 {
            let count = recording.merger(shift).count();
            let fits = |one: &Use| match *one {
                Use::Touch(block) | Use::Free(block) => (block as usize) < count,
            };
            assert!(recording.uses(shift).list.iter().all(fits), "{header:?} {shift} {told:?}");
        }
    });
    assert!(used > 0 && refused > 0, "{used} were used, {refused} refused");
}
