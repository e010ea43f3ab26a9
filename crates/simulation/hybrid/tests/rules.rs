//! The rules of the cache, one by one.

use terapage_event::Nanos;
use terapage_hybrid::{Cache, CacheKind, CacheOptions, FixedLatency, MemoryTiming};
use terapage_ssd::{Command, Device, Done, Operation};

const BELOW_NS: u64 = 1_000_000;

/// 100 lines of 8 sectors over a device that takes a millisecond for each command.
fn options() -> CacheOptions {
    CacheOptions { bytes: 100 * 4096, evict_bytes: 4096, pad: false, ..CacheOptions::default() }
}

struct Rig {
    cache: Cache<FixedLatency>,
    now: Nanos,
}

impl Rig {
    fn new(options: &CacheOptions) -> Self {
        Rig { cache: Cache::new(FixedLatency::new(1 << 20, BELOW_NS, 0), options).expect("good"), now: 0 }
    }

    /// Sends a command of `sectors` and waits for its end. It returns the time that the command
    /// took.
    fn send(&mut self, operation: Operation, sector: u64, sectors: u32) -> Nanos {
        let mut done = Vec::new();
        let begin = self.now;
        self.cache.submit(begin, Command { tag: 9, operation, sector, sectors }, &mut done);
        while done.is_empty() {
            self.cache.step(&mut done);
        }
        assert_eq!(done.len(), 1);
        let Done { tag, time } = done[0];
        assert_eq!(tag, 9);
        self.now = time;
        time - begin
    }

    fn line(&mut self, operation: Operation, line: u64) -> Nanos {
        self.send(operation, line * 8, 8)
    }

    /// Lets all commands under way end.
    fn rest(&mut self) {
        let mut done = Vec::new();
        while let Some(time) = self.cache.next_time() {
            self.now = time;
            self.cache.step(&mut done);
        }
        assert!(done.is_empty());
    }
}

#[test]
fn writes_take_the_memorys_time_until_a_fifth_is_free() {
    let mut rig = Rig::new(&options());
    for line in 0..80 {
        assert_eq!(rig.line(Operation::Write, line), 800);
    }
    assert_eq!(rig.cache.free_lines(), 20);
    assert_eq!(rig.cache.counters().below_writes, 0, "no data move before the mark is reached");
    rig.line(Operation::Write, 80);
    let counters = rig.cache.counters();
    assert_eq!((counters.below_writes, counters.below_written_sectors), (1, 8));
    assert_eq!(rig.cache.dirty(0), None, "the oldest line left");
    assert_eq!(rig.cache.free_lines(), 20);
}

#[test]
fn a_high_water_mark_makes_room_in_batches() {
    let mut rig = Rig::new(&CacheOptions { high_water: 0.5, ..options() });
    for line in 0..81 {
        rig.line(Operation::Write, line);
    }
    assert_eq!(rig.cache.counters().below_writes, 30, "from 20 free lines to 50");
    assert_eq!(rig.cache.free_lines(), 49);
}

#[test]
fn the_free_fifth_takes_a_burst_and_then_writes_wait() {
    let mut rig = Rig::new(&options());
    for line in 0..100 {
        assert_eq!(rig.line(Operation::Write, line) % 100, 0);
    }
    assert_eq!(rig.cache.counters().waited, 0, "20 lines on their way out have room");
    let waited = rig.line(Operation::Write, 100);
    assert_eq!(rig.cache.counters().waited, 1);
    assert!(waited > BELOW_NS / 2, "{waited} ns: until the first line is below");
}

#[test]
fn what_is_read_is_copied_and_leaves_without_a_write() {
    let mut rig = Rig::new(&options());
    assert_eq!(rig.line(Operation::Read, 5), BELOW_NS);
    assert_eq!(
        rig.line(Operation::Read, 5),
        800 + 800,
        "the copy is being written when the second read comes"
    );
    for line in 100..180 {
        rig.line(Operation::Read, line);
    }
    let counters = rig.cache.counters();
    assert_eq!((counters.evicted, counters.dropped, counters.below_writes), (1, 1, 0));
    assert_eq!(rig.line(Operation::Read, 5), BELOW_NS);
}

#[test]
fn only_missing_sectors_are_read() {
    let mut rig = Rig::new(&options());
    rig.send(Operation::Write, 3, 2);
    assert_eq!(rig.send(Operation::Read, 3, 2), 200);
    assert_eq!(rig.send(Operation::Read, 0, 5), BELOW_NS);
    let counters = rig.cache.counters();
    assert_eq!((counters.below_reads, counters.below_read_sectors), (1, 3));
    assert_eq!((counters.read_hits, counters.read_line_hits), (1, 1));
    let mut rig = Rig::new(&CacheOptions { whole_lines: true, ..options() });
    rig.send(Operation::Read, 2, 1);
    assert_eq!(rig.cache.counters().below_read_sectors, 8);
    assert_eq!(rig.cache.dirty(7), Some(false));
}

#[test]
fn a_read_of_what_is_on_its_way_waits_for_it() {
    let mut rig = Rig::new(&options());
    let mut done = Vec::new();
    for (tag, now) in [(1, 0), (2, BELOW_NS / 2)] {
        rig.cache.submit(now, Command { tag, operation: Operation::Read, sector: 0, sectors: 4 }, &mut done);
    }
    while rig.cache.next_time().is_some() {
        rig.cache.step(&mut done);
    }
    assert_eq!(done, [Done { tag: 1, time: BELOW_NS }, Done { tag: 2, time: BELOW_NS }]);
    assert_eq!(rig.cache.counters().below_reads, 1);
}

#[test]
fn write_only_copies_nothing_and_space_while_there_is_much() {
    let mut rig = Rig::new(&CacheOptions { kind: CacheKind::WriteOnly, ..options() });
    rig.line(Operation::Read, 0);
    assert_eq!(rig.cache.free_lines(), 100);
    rig.line(Operation::Write, 1);
    assert_eq!(rig.line(Operation::Read, 1), 800, "what was written is found");
    let mut rig = Rig::new(&CacheOptions { kind: CacheKind::Space, copy_above: 0.9, ..options() });
    for line in 0..50 {
        rig.line(Operation::Read, line);
    }
    assert_eq!(rig.cache.free_lines(), 90);
}

#[test]
fn dirty_neighbours_leave_together_and_gaps_are_filled() {
    for pad in [false, true] {
        let mut rig = Rig::new(&CacheOptions { evict_bytes: 16384, pad, ..options() });
        rig.line(Operation::Write, 0);
        rig.line(Operation::Read, 1);
        rig.line(Operation::Write, 2);
        rig.send(Operation::Write, 24, 1);
        for line in 100..177 {
            rig.line(Operation::Write, line);
        }
        let counters = rig.cache.counters();
        assert_eq!((counters.evicted, counters.cleaned), (1, 2));
        let (writes, sectors, padding) = if pad { (1, 25, 8) } else { (2, 17, 0) };
        assert_eq!(counters.below_writes, writes, "pad {pad}");
        assert_eq!(counters.below_written_sectors, sectors);
        assert_eq!(counters.padded_sectors, padding);
        rig.rest();
        rig.line(Operation::Write, 300);
        rig.line(Operation::Write, 301);
        let later = rig.cache.counters();
        assert_eq!(later.dropped - counters.dropped, 2, "the neighbours are clean by now");
    }
}

#[test]
fn a_volatile_cache_is_flushed_in_time() {
    let flush_after_ns = 50_000_000;
    let kind = CacheKind::Dram;
    let mut rig = Rig::new(&CacheOptions { kind, flush_after_ns, ..options() });
    rig.line(Operation::Write, 0);
    rig.line(Operation::Write, 1);
    assert_eq!(rig.cache.counters().unsafe_sectors, 16);
    rig.rest();
    assert!((flush_after_ns..flush_after_ns + 2 * BELOW_NS).contains(&rig.now), "{}", rig.now);
    let counters = rig.cache.counters();
    assert_eq!((counters.unsafe_sectors, counters.unsafe_sectors_max), (0, 16));
    assert_eq!(rig.line(Operation::Read, 0), 800, "it is clean, and still here");
}

#[test]
fn a_trim_forgets_what_is_dirty() {
    let mut rig = Rig::new(&options());
    rig.send(Operation::Write, 0, 16);
    rig.send(Operation::Trim, 0, 12);
    assert_eq!((rig.cache.dirty(0), rig.cache.dirty(12)), (None, Some(true)));
    assert_eq!((rig.cache.free_lines(), rig.cache.counters().unsafe_sectors), (99, 4));
}

#[test]
fn impossible_options_are_refused() {
    let cases = [
        CacheOptions { bytes: 100, ..options() },
        CacheOptions { line_bytes: 3000, ..options() },
        CacheOptions { line_bytes: 65536, ..options() },
        CacheOptions { evict_bytes: 5000, ..options() },
        CacheOptions { evict_bytes: 0, ..options() },
        CacheOptions { low_water: 0.5, high_water: 0.4, ..options() },
        CacheOptions { low_water: f64::NAN, ..options() },
        CacheOptions { high_water: 1.0, ..options() },
        CacheOptions { copy_above: 2.0, ..options() },
        CacheOptions { policy: "magic".to_owned(), ..options() },
        CacheOptions { memory: MemoryTiming { banks: 0, ..MemoryTiming::default() }, ..options() },
    ];
    for case in cases {
        let error = Cache::new(FixedLatency::new(1 << 20, 1, 0), &case).err();
        assert!(error.is_some(), "{case:?}");
    }
    let far = Cache::new(FixedLatency::new(1 << 36, 1, 0), &CacheOptions { line_bytes: 512, ..options() });
    assert!(far.is_err());
}
