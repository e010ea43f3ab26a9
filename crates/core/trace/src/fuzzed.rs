//! Files whose hashes are right and whose content is not, as somebody could write them on purpose.

use crate::{Event, FRAME_BYTES, Header, Misses, PageOut, Reader, Record, Writer, references};
use terapage_fuzz::{Random, fuzz};

/// Numbers as long as they can be written, and longer.
const EXTREMES: [&[u8]; 5] = [&[0xff; 9], &[0x80; 12], &[0; 8], &[0xff, 0x7f], &[]];

/// Damages bytes, mostly.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    if random.below(4) > 0 {
        terapage_fuzz::damage(random, bytes, &EXTREMES);
    }
}

/// A trace of frames, each of damaged records, that are packed and hashed as they should be.
fn trace(random: &mut Random) -> Vec<u8> {
    let program = random.one(&["sort", "", "\u{1F600}\n"]).to_owned();
    let number = random.one(&[0, 1, 4096, 1 << 32, u64::MAX]);
    let header = Header {
        block_bytes: random.one(&[4096, 1 << 31, number as u32]),
        pid: number as u32,
        start_us: number,
        budget_bytes: number,
        program,
        ..Header::default()
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for _ in 0..random.below(4) {
        for _ in 0..random.below(12) {
            let block = random.one(&[0, 1, 77, u32::MAX]);
            let long = random.one(&[0, 4096, u64::MAX]);
            let event = random.one(&[
                Event::FirstTouch { block },
                Event::MajorFault { block },
                Event::PageOut { block, how: PageOut::Dirty },
                Event::Discard { block, count: long as u32 },
                Event::RegionAdd { start: long, len: long, first: block },
            ]);
            writer.record(&Record { time_us: random.one(&[0, 5, 1 << 40, u64::MAX]), event }).unwrap();
        }
        writer.damage(|records| damage(random, records));
        writer.flush().unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn fuzzed_traces_are_records_or_an_error() {
    let (mut whole, mut wrong) = (0, 0);
    fuzz("traces", 1000, |random| {
        let mut bytes = trace(random);
        if random.below(4) == 0 {
            damage(random, &mut bytes);
        }
        let Ok(mut reader) = Reader::new(&bytes[..]) else { return };
        let (mut time_us, mut count) = (0, 0);
        let error = loop {
            match reader.next() {
                Some(Ok(record)) => {
                    assert!(record.time_us >= time_us, "time goes backwards: {}", bytes.escape_ascii());
                    time_us = record.time_us;
                    count += 1;
                }
                Some(Err(error)) => break Some(error.to_string()),
                None => break None,
            }
        };
        assert!(count < 4 * FRAME_BYTES && reader.next().is_none(), "{}", bytes.escape_ascii());
        let one_line = error.as_ref().is_none_or(|text| !text.is_empty() && !text.contains('\n'));
        assert!(one_line, "{error:?}: {}", bytes.escape_ascii());
        *(if error.is_some() { &mut wrong } else { &mut whole }) += 1;
        references(Reader::new(&bytes[..]).unwrap()).ok();
    });
    assert!(whole > 0 && wrong > 0, "{whole} were whole, {wrong} wrong");
}

#[test]
fn fuzzed_learnt_files_are_taken_or_refused() {
    let header = Header { block_bytes: 4096, misses_only: true, ..Header::default() };
    let (mut taken, mut refused) = (0, 0);
    fuzz("learnt files", 1000, |random| {
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        for at in 0..random.below(12) {
            let block = random.one(&[0, 1, 77, u32::MAX]);
            let len = random.one(&[0, 4096, 1 << 20, u64::MAX]);
            let added = Event::RegionAdd { start: 0, len, first: block };
            let event = if at < 2 { added } else { Event::MajorFault { block } };
            writer.record(&Record { time_us: 0, event }).unwrap();
        }
        writer.damage(|records| damage(random, records));
        let bytes = writer.finish().unwrap();
        let read = Misses::read_from(&bytes[..]);
        let fits = |learnt: &Misses| learnt.regions.len() + learnt.keys.len() < FRAME_BYTES;
        let taken_here = matches!(&read, Ok(Some(learnt)) if fits(learnt));
        assert!(taken_here || !matches!(read, Ok(Some(_))), "{}", bytes.escape_ascii());
        *(if taken_here { &mut taken } else { &mut refused }) += 1;
    });
    assert!(taken > 0 && refused > 0, "{taken} were taken, {refused} refused");
}
