//! The SSD is compared with a naive map, which knows the place of the bytes of each write.

use crate::buffer::Buffer;
use crate::geometry::Geometry;

/// The write that each place has, which no real SSD knows.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// The last write of each unit; `None` if it was trimmed. 0 is the preconditioning.
    pub units: Vec<Option<u64>>,
    pub slots: Vec<u64>,
    writes: u64,
}

impl Ledger {
    pub(crate) fn new(geometry: &Geometry) -> Ledger {
        let units = vec![Some(0); geometry.units as usize];
        Ledger { units, slots: vec![u64::MAX; geometry.slots() as usize], writes: 0 }
    }

    pub(crate) fn written(&mut self, buffer: &mut Buffer, unit: u32, entry: u32) {
        self.writes += 1;
        self.units[unit as usize] = Some(self.writes);
        buffer.entry_mut(entry).version = self.writes;
    }

    pub(crate) fn trimmed(&mut self, unit: u32) {
        self.units[unit as usize] = None;
    }

    pub(crate) fn moved(&mut self, buffer: &mut Buffer, slot: u32, entry: u32) {
        buffer.entry_mut(entry).version = self.slots[slot as usize];
    }

    pub(crate) fn programmed(&mut self, slot: u32, version: u64) {
        self.slots[slot as usize] = version;
    }
}

use proptest::prelude::*;
use terapage_event::MICROSECOND;

use crate::blocks::State;
use crate::buffer::Stage;
use crate::map::Place;
use crate::{
    Acknowledge, Command, Config, Device, Front, GcPolicy, IdleCollection, Operation, Precondition, Profile,
    Slc, Ssd,
};

/// Drives of 48 to 400 units, with all options.
fn configs() -> impl Strategy<Value = Config> {
    let chip = (1..=2u32, prop::sample::select(vec![1, 3]), prop::sample::select(vec![None, Some(2048)]));
    let shape = (1..=2u32, 1..=2u32, 200_000..1_600_000u64, 0.01..0.5);
    let options = (any::<[bool; 7]>(), 0..3u8, 0..4u32, 1..6u64, 1..4u32, any::<u64>());
    (chip, shape, options).prop_map(|(chip, shape, options)| {
        let mut nand = Profile::by_name("2d-fg-mlc").unwrap();
        (nand.page_bytes, nand.pages_per_block) = (4096, 12);
        (nand.planes, nand.write_unit) = (chip.0, chip.1);
        let (capacity, over_provisioning) = (shape.2, shape.3);
        let (
            [suspend, programmed, cost_benefit, flush, idle, level, fail],
            newer,
            fill,
            buffer,
            read_burst,
            seed,
        ) = options;
        let mut config = Config::new(nand, capacity);
        (config.channels, config.dies_per_channel) = (shape.0, shape.1);
        (config.over_provisioning, config.suspend) = (over_provisioning, suspend);
        (config.mapping_bytes, config.read_burst, config.seed) = (chip.2, read_burst, seed);
        config.buffer_bytes = Some(buffer * u64::from(chip.1) * 4096);
        config.front = if flush { Front::sata() } else { Front::instant() };
        config.gc = if cost_benefit { GcPolicy::CostBenefit } else { GcPolicy::Greedy };
        if programmed {
            config.acknowledge = Acknowledge::Programmed;
        } else if flush {
            config.flush_after_ns = None;
        }
        config.idle_collection = idle.then_some(IdleCollection { after_ns: 200_000, free_blocks: 3 });
        config.wear_gap = level.then_some(1);
        match newer {
            0 => {}
            1 => {
                config.nand.slc = Some(Slc { read_ns: 20_000, program_ns: 90_000, bits: 3 });
                config.slc_cache_bytes = capacity / 8;
            }
            _ => {
                config.placements = vec![capacity / 3, capacity / 2];
                config.buffer_bytes = config.buffer_bytes.map(|bytes| 3 * bytes);
            }
        }
        if fail {
            (config.bad_blocks, config.erase_failures) = (0.1, 0.3);
            config.over_provisioning += 2.0;
        }
        config.preconditioning = match fill {
            0 => Precondition::None,
            1 => Precondition::Sequential { filled: 0.7 },
            2 => Precondition::Steady { filled: 0.6 },
            _ => Precondition::Steady { filled: 1.0 },
        };
        config
    })
}

/// An operation, its beginning as a share of the device, its sectors, and the time to the next one.
fn commands() -> impl Strategy<Value = Vec<(u8, f64, u32, u64)>> {
    prop::collection::vec((0..10u8, 0.0..1.0, 1..60u32, 0..900u64), 1..500)
}

fn check(ssd: &Ssd) {
    let geometry = &ssd.geometry;
    for unit in 0..geometry.units {
        let version = ssd.ledger.units[unit as usize];
        match ssd.map.place(unit) {
            Place::Nowhere => assert_eq!(version, None, "unit {unit} is lost"),
            Place::Slot(slot) => {
                assert_eq!(Some(ssd.ledger.slots[slot as usize]), version, "unit {unit} is an old one");
                assert_eq!(ssd.map.unit_in(slot), Some(unit));
            }
            Place::Entry(entry) => {
                let entry = ssd.buffer.entry(entry);
                assert_eq!((entry.unit, Some(entry.version)), (unit, version));
            }
        }
    }
    let mut free = vec![0; geometry.dies as usize];
    let mut valid_in = vec![0; geometry.dies as usize];
    for block in 0..geometry.blocks() {
        let first = geometry.first_slot(block);
        let valid = ssd.map.units_in(first, geometry.block_slots).flatten().count() as u32;
        assert_eq!(valid, ssd.blocks.valid(block), "valid slots of block {block}");
        valid_in[geometry.die_of(block) as usize] += valid;
        if ssd.blocks.state(block) == State::Free {
            assert_eq!(valid, 0, "block {block} is free and valid");
            free[geometry.die_of(block) as usize] += u32::from(!geometry.is_slc(block));
        }
        assert!(valid == 0 || ssd.blocks.state(block) != State::Bad, "block {block} is bad and valid");
    }
    for die in 0..geometry.dies {
        let state = &ssd.dies[die as usize];
        assert_eq!(free[die as usize], ssd.blocks.free_count(die));
        assert_eq!(valid_in[die as usize], state.valid);
        assert!(state.valid + state.moving.len <= state.units_max);
    }
}

/// Checks that nothing is under way any more.
fn check_idle(ssd: &Ssd, room: u32) {
    check(ssd);
    assert!(ssd.active.is_empty() && ssd.reads.is_empty() && ssd.stalled.is_empty());
    let waiting: u32 = ssd.waiting.iter().map(|part| part.len).sum();
    assert_eq!(ssd.buffer_room + waiting, room);
    assert!(ssd.waiting.iter().all(|part| part.len < ssd.geometry.program_slots));
    assert!(waiting == 0 || ssd.config.flush_after_ns.is_none());
    let moving: u32 = ssd.dies.iter().map(|die| die.moving.len).sum();
    assert_eq!(ssd.buffer.len() as u32, waiting + moving);
    for die in &ssd.dies {
        let mut at = die.moving.head;
        while at != crate::buffer::NONE {
            assert!(matches!(ssd.buffer.entry(at).stage, Stage::Moving { .. }));
            at = ssd.buffer.entry(at).next;
        }
    }
    assert_eq!(ssd.idle_dies, ssd.geometry.dies);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_unit_is_where_its_last_write_is(config in configs(), commands in commands()) {
        let mut ssd = Ssd::new(&config).unwrap();
        for unit in 0..ssd.geometry.units {
            if ssd.map.place(unit) == Place::Nowhere {
                ssd.ledger.trimmed(unit);
            }
        }
        check(&ssd);
        let room = ssd.buffer_room;
        let (mut now, mut done) = (0, Vec::new());
        for (tag, &(operation, place, sectors, gap)) in commands.iter().enumerate() {
            let operation = match operation {
                0..3 => Operation::Read,
                3..9 => Operation::Write,
                _ => Operation::Trim,
            };
            let sector = (place * (ssd.sectors() - 60) as f64) as u64;
            ssd.submit(now, Command { tag: tag as u64, operation, sector, sectors }, &mut done);
            now += gap * MICROSECOND;
            while ssd.next_time().is_some_and(|time| time <= now) {
                ssd.step(&mut done);
            }
            if tag % 50 == 0 {
                check(&ssd);
            }
        }
        while ssd.next_time().is_some() {
            ssd.step(&mut done);
        }
        let mut tags: Vec<u64> = done.iter().map(|done| done.tag).collect();
        tags.sort_unstable();
        prop_assert_eq!(tags, (0..commands.len() as u64).collect::<Vec<u64>>());
        check_idle(&ssd, room);
    }
}
