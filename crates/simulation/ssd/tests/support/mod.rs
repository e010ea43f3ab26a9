//! Helpers that drive a device.

use std::collections::HashMap;

use terapage_event::Nanos;
use terapage_ssd::{Command, Device, Done, Operation, Profile};

/// A chip of one plane with 4 KiB pages, a fast bus and commands that take no time, so that closed
/// forms are simple.
pub fn plain_chip() -> Profile {
    let mut chip = Profile::by_name("2d-fg-mlc").unwrap();
    (chip.planes, chip.page_bytes, chip.pages_per_block) = (1, 4096, 64);
    (chip.command_ns, chip.bus_bytes_per_second) = (0, 4_096_000_000);
    chip
}

/// Keeps `depth` commands in the device until `commands` have been submitted. Returns the time of
/// the last end.
pub fn closed_loop(
    device: &mut impl Device,
    depth: u64,
    commands: u64,
    mut command: impl FnMut(u64) -> (Operation, u64, u32),
) -> Nanos {
    let mut done: Vec<Done> = Vec::new();
    let (mut submitted, mut now) = (0, device.next_time().unwrap_or(0));
    let mut ended = 0;
    loop {
        while submitted < commands && submitted - ended < depth {
            let (operation, sector, sectors) = command(submitted);
            device.submit(now, Command { tag: submitted, operation, sector, sectors }, &mut done);
            submitted += 1;
        }
        if ended == commands {
            return now;
        }
        now = device.next_time().expect("commands are in the device, and nothing will happen");
        device.step(&mut done);
        ended += done.len() as u64;
        done.clear();
    }
}

/// Submits commands at their times. It returns the latency of each, by tag.
pub fn open_loop(
    device: &mut impl Device,
    commands: impl Iterator<Item = (Nanos, Operation, u64, u32)>,
) -> Vec<Nanos> {
    let mut done = Vec::new();
    let mut starts = HashMap::new();
    let mut latencies = Vec::new();
    let mut take = |done: &mut Vec<Done>, starts: &mut HashMap<u64, Nanos>| {
        for Done { tag, time } in done.drain(..) {
            let start = starts.remove(&tag).expect("a command ends once");
            if latencies.len() <= tag as usize {
                latencies.resize(tag as usize + 1, 0);
            }
            latencies[tag as usize] = time - start;
        }
    };
    for (tag, (time, operation, sector, sectors)) in (0..).zip(commands) {
        while device.next_time().is_some_and(|next| next <= time) {
            device.step(&mut done);
            take(&mut done, &mut starts);
        }
        starts.insert(tag, time);
        device.submit(time, Command { tag, operation, sector, sectors }, &mut done);
    }
    while device.next_time().is_some() {
        device.step(&mut done);
        take(&mut done, &mut starts);
    }
    assert!(starts.is_empty(), "{} commands never ended", starts.len());
    latencies
}
