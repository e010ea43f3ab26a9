//! The table, compared with a naive model: processes that take, return and die at any point, and a
//! lock that another process sometimes holds.

use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use terapage_lease::{Level, Locks, Needs, STEP_LEAST, Slot, TABLE_BYTES, Table, least_of};

const MIB: u64 = 1 << 20;
const LEAST: u64 = 4 * MIB;

/// The owner of each byte, for all processes.
#[derive(Default)]
struct Kernel {
    owners: RefCell<HashMap<u64, usize>>,
}

/// One process's way to the locks.
struct Way<'a> {
    kernel: &'a Kernel,
    process: usize,
}

impl Locks for Way<'_> {
    fn take(&self, byte: u64) -> bool {
        *self.kernel.owners.borrow_mut().entry(byte).or_insert(self.process) == self.process
    }

    fn give(&self, byte: u64) {
        let mut owners = self.kernel.owners.borrow_mut();
        if owners.get(&byte) == Some(&self.process) {
            owners.remove(&byte);
        }
    }

    fn is_free(&self, byte: u64) -> bool {
        self.kernel.owners.borrow().get(&byte).is_none_or(|&owner| owner == self.process)
    }
}

/// A simulated process: it has no more than it may have, except for memory that it has not returned
/// yet.
#[derive(Clone, Copy, Debug)]
struct Process {
    id: usize,
    slot: Slot,
    resident: u64,
    allowed: u64,
    unpaged: bool,
    /// The least that it would need for something that waits, and since when that has waited.
    wished: (u64, u64),
    /// What it cannot return.
    held: u64,
}

struct Machine<'a> {
    kernel: &'a Kernel,
    table: Table<'a>,
    processes: Vec<Process>,
    born: usize,
    now_ns: u64,
}

/// The number of the process that holds the table's lock while no process of the test does.
const SOMEBODY: usize = usize::MAX;
/// The byte of the table's lock.
const TABLE_BYTE: u64 = 1 << 20;

impl Machine<'_> {
    fn way(&self, process: usize) -> Way<'_> {
        Way { kernel: self.kernel, process }
    }

    fn start(&mut self, job: usize) {
        self.born += 1;
        let id = self.born;
        let Some(slot) = self.table.join(&self.way(id), job, id as u32, LEAST) else { return };
        self.processes.push(Process {
            id,
            slot,
            resident: 0,
            allowed: LEAST,
            unpaged: false,
            wished: (0, 0),
            held: 0,
        });
    }

    fn update(&mut self, at: usize, wants: u64, idle: bool, gain: f64) {
        let process = self.processes[at];
        let (wished, wished_ns) = process.wished;
        let needs = Needs {
            least: LEAST,
            resident: process.resident,
            wants,
            claim: 0,
            held: process.held,
            wished,
            wished_ns,
            now_ns: self.now_ns,
            gain,
            idle,
        };
        self.table.report(process.slot, &needs);
        if let Some(allowed) = self.table.share(&self.way(process.id), process.slot, &needs) {
            let process = &mut self.processes[at];
            (process.allowed, process.unpaged) = (allowed, false);
        }
    }

    /// The process takes memory that it may have, or returns some of its excess.
    fn take_and_give(&mut self, at: usize, most: u64) {
        let process = &mut self.processes[at];
        if process.resident < process.allowed {
            process.resident = process.allowed.min(process.resident + most);
        } else {
            process.resident -= most.min(process.resident - process.allowed);
        }
    }

    /// Its locks are released, and its memory is free.
    fn kill(&mut self, at: usize) {
        let process = self.processes.swap_remove(at);
        self.kernel.owners.borrow_mut().retain(|_, owner| *owner != process.id);
    }

    /// The process goes on, but its memory is in no budget any more.
    fn leave(&mut self, at: usize) {
        let process = self.processes.swap_remove(at);
        self.table.leave(&self.way(process.id), process.slot);
    }

    fn resident(&self) -> u64 {
        self.processes.iter().map(|process| process.resident).sum()
    }
}

fn with_machine(budget: u64, test: impl FnOnce(&mut Machine<'_>)) {
    let words: Vec<AtomicU64> = (0..TABLE_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
    let kernel = Kernel::default();
    let table = Table::begin(&words, budget);
    test(&mut Machine { kernel: &kernel, table, processes: Vec::new(), born: 0, now_ns: 10 });
}

/// All processes want all memory: after some rounds they have the budget, and no more.
fn settle(machine: &mut Machine<'_>, budget: u64) {
    for _ in 0..60 {
        for at in 0..machine.processes.len() {
            machine.update(at, u64::MAX / 4, false, 0.0);
            machine.take_and_give(at, u64::MAX / 4);
        }
    }
    let least = machine.processes.len() as u64 * LEAST;
    let resident = machine.resident();
    assert!(resident <= budget.max(least), "{resident} of {budget}");
    if !machine.processes.is_empty() {
        assert!(resident + MIB >= budget.min(resident + MIB * 64), "{resident} of {budget}: memory is lost");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Start,
    Update(usize, u64, bool, f64),
    Take(usize, u64),
    Unpaged(usize, u64),
    Kill(usize),
    Leave(usize),
    /// In the next steps another process holds the table's lock.
    Busy(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Start),
        8 => (any::<usize>(), 0..1000u64, any::<bool>(), 0.0..9.0f64).prop_map(|(at, wants, idle, gain)| Step::Update(at, wants * MIB, idle, gain)),
        8 => (any::<usize>(), 0..300u64).prop_map(|(at, most)| Step::Take(at, most * MIB)),
        1 => (any::<usize>(), 0..100u64).prop_map(|(at, lease)| Step::Unpaged(at, lease * MIB)),
        1 => any::<usize>().prop_map(Step::Kill),
        1 => any::<usize>().prop_map(Step::Leave),
        1 => any::<bool>().prop_map(Step::Busy),
    ]
}

proptest! {
    #[test]
    fn they_never_have_more_than_the_budget_and_the_least(budget in 16..600u64, steps in proptest::collection::vec(step(), 1..200)) {
        let budget = budget * MIB;
        with_machine(budget, |machine| {
            for step in steps {
                let count = machine.processes.len();
                match step {
                    Step::Start if count < 20 => machine.start(0),
                    Step::Update(at, wants, idle, gain) if count > 0 => machine.update(at % count, wants, idle, gain),
                    Step::Take(at, most) if count > 0 => machine.take_and_give(at % count, most),
                    Step::Unpaged(at, lease) if count > 0 => {
                        let at = at % count;
                        let process = machine.processes[at];
                        let is_new = process.resident == 0 && process.allowed == LEAST;
                        let taken = (is_new || process.unpaged)
                            && machine.table.take_unpaged(&machine.way(process.id), process.slot, lease.max(process.allowed));
                        if taken {
                            let process = &mut machine.processes[at];
                            (process.allowed, process.unpaged) = (lease.max(process.allowed), true);
                        }
                    }
                    Step::Kill(at) if count > 0 => machine.kill(at % count),
                    Step::Leave(at) if count > 0 => machine.leave(at % count),
                    Step::Busy(true) => drop(machine.way(SOMEBODY).take(TABLE_BYTE)),
                    Step::Busy(false) => machine.way(SOMEBODY).give(TABLE_BYTE),
                    _ => {}
                }
                // Each process may have its minimum even if nothing was free.
                let most = budget + machine.processes.len() as u64 * LEAST;
                assert!(machine.resident() <= most, "{} of {most}", machine.resident());
            }
            machine.way(SOMEBODY).give(TABLE_BYTE);
            settle(machine, budget);
        });
    }
}

#[test]
fn one_that_wants_has_what_idle_ones_had() {
    with_machine(2048 * MIB, |machine| {
        (0..8).for_each(|_| machine.start(0));
        settle(machine, 2048 * MIB);
        assert!(
            machine.processes.iter().all(|process| process.resident > 200 * MIB),
            "{:?}",
            machine.processes
        );
        let mut rounds = 0;
        while machine.processes[0].resident < 2048 * MIB * 85 / 100 {
            for at in 0..8 {
                let resident = machine.processes[at].resident;
                let (wants, idle) = if at == 0 { (resident * 4 + 64 * MIB, false) } else { (resident, true) };
                machine.update(at, wants, idle, 0.0);
                machine.take_and_give(at, u64::MAX / 4);
            }
            rounds += 1;
            assert!(rounds < 8, "{:?}", machine.processes);
        }
    });
}

#[test]
fn leases_of_the_dead_come_back() {
    with_machine(400 * MIB, |machine| {
        (0..4).for_each(|_| machine.start(0));
        settle(machine, 400 * MIB);
        (0..3).for_each(|_| machine.kill(0));
        settle(machine, 400 * MIB);
        assert!(machine.processes[0].resident > 399 * MIB, "{:?}", machine.processes);
        assert_eq!(machine.table.overview(0).processes, 1);
    });
}

#[test]
fn the_lease_of_a_process_that_leaves_is_free_at_once_and_its_slot_is_used_again() {
    with_machine(400 * MIB, |machine| {
        (0..2).for_each(|_| machine.start(0));
        settle(machine, 400 * MIB);
        let left = machine.processes[0];
        machine.leave(0);
        let all = machine.table.overview(0);
        assert_eq!((all.processes, all.leased), (1, machine.processes[0].allowed));
        assert!(machine.way(SOMEBODY).is_free(left.slot.number() as u64));
        machine.start(0);
        assert_eq!(machine.processes[1].slot, left.slot);
        machine.kill(1);
        settle(machine, 400 * MIB);
        assert!(machine.processes[0].resident > 399 * MIB, "{:?}", machine.processes);
    });
}

#[test]
fn a_job_in_a_job_has_less_and_its_number_is_used_again() {
    with_machine(400 * MIB, |machine| {
        let inner = machine.table.add_job(&machine.way(77), 0, 50 * MIB).unwrap();
        let deeper = machine.table.add_job(&machine.way(78), inner, 500 * MIB).unwrap();
        assert_eq!([inner, deeper].map(|job| machine.table.budget(job)), [50 * MIB; 2]);
        machine.start(0);
        (0..2).for_each(|_| machine.start(deeper));
        settle(machine, 400 * MIB);
        let resident: Vec<u64> = machine.processes.iter().map(|process| process.resident / MIB).collect();
        assert!(resident[1] + resident[2] <= 50 && resident[0] >= 349, "{resident:?}");
        // The processes live, so the number belongs to them, whichever still holds the lock.
        machine.kernel.owners.borrow_mut().retain(|_, owner| ![77, 78].contains(owner));
        let other = machine.table.add_job(&machine.way(79), 0, MIB).unwrap();
        assert!(other != inner && other != deeper);
        (0..2).for_each(|_| machine.kill(1));
        settle(machine, 400 * MIB);
        let again = [80, 81].map(|id| machine.table.add_job(&machine.way(id), 0, 20 * MIB).unwrap());
        assert_eq!(again, [inner, deeper]);
    });
}

#[test]
fn too_many_processes_are_told_once() {
    with_machine(10 * MIB, |machine| {
        (0..2).for_each(|_| machine.start(0));
        assert!(!machine.table.is_too_small(0));
        machine.start(0);
        assert!(machine.table.is_too_small(0) && !machine.table.is_too_small(0));
        assert_eq!(least_of(10 * MIB, 16 << 10), 10 * MIB / 8);
        assert_eq!(least_of(1 << 40, 16 << 10), LEAST);
        assert_eq!(least_of(MIB, 2 << 20), 16 * MIB, "eight blocks");
    });
}

#[test]
fn other_words_are_no_table() {
    let words: Vec<AtomicU64> = (0..TABLE_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
    assert!(Table::of(&words).is_none() && Table::of(&words[..9]).is_none());
    Table::begin(&words, MIB);
    assert_eq!(Table::of(&words).unwrap().budget(0), MIB);
}

fn level(available: u64) -> Level {
    Level { limit: 1000 * MIB, available: available * MIB, stalled_us: 0 }
}

#[test]
fn only_waits_for_memory_of_the_level_that_decides_raise_the_reserve() {
    // The machine has 10,000 MiB free, and others wait within limits of their own.
    for (elsewhere, here, budget) in [(1_000_000, 0, 500), (0, 1_000_000, 499)] {
        with_machine(1000 * MIB, |machine| {
            machine.table.follow_machine();
            machine.start(0);
            machine.processes[0].resident = 500 * MIB;
            machine.update(0, 500 * MIB, false, 0.0);
            for second in 1..9 {
                let around =
                    Level { limit: 20_000 * MIB, available: 10_000 * MIB, stalled_us: second * elsewhere };
                // Just enough for a budget of what there is.
                let levels = [around, Level { stalled_us: second * here, ..level(66) }];
                machine.table.look(&levels, second * 1_000_000_000);
            }
            let found = machine.table.budget(0) / MIB;
            assert!(
                (found >= 500) == (budget >= 500),
                "{found} MiB, {elsewhere} us elsewhere and {here} here"
            );
        });
    }
}

#[test]
fn a_budget_that_follows_the_machine_grows_and_shrinks_with_it() {
    with_machine(1000 * MIB, |machine| {
        machine.table.follow_machine();
        machine.start(0);
        let look = |table: &Table<'_>, available: u64, now_ms: u64| {
            assert!(table.is_due(now_ms * 1_000_000, 1));
            table.look(&[level(available)], now_ms * 1_000_000);
            assert!(!table.is_due(now_ms * 1_000_000, 1));
        };
        let mut now_ms = 1;
        let mut follow = |machine: &mut Machine<'_>, others: u64| {
            for _ in 0..200 {
                let available = (1000 - others).saturating_sub(machine.resident() / MIB);
                look(&machine.table, available, now_ms);
                now_ms += 25;
                machine.update(0, u64::MAX / 4, false, 0.0);
                machine.take_and_give(0, 16 * MIB);
            }
            machine.resident() / MIB
        };
        let alone = follow(machine, 0);
        assert!((850..950).contains(&alone), "{alone} MiB");
        let beside = follow(machine, 500);
        assert!((400..460).contains(&beside), "{beside} MiB");
        assert!(machine.table.is_near());
        let again = follow(machine, 0);
        assert!((850..950).contains(&again), "{again} MiB");
        assert_eq!(machine.table.ceiling(0), 1000 * MIB);
    });
}

#[test]
fn a_process_takes_a_step_although_another_has_taken_what_the_look_found() {
    with_machine(1000 * MIB, |machine| {
        machine.table.follow_machine();
        machine.start(0);
        machine.start(0);
        machine.update(0, u64::MAX / 4, false, 0.0);
        machine.table.look(&[level(500)], 1);
        assert!(machine.table.grows());
        let found = machine.table.budget(0);
        machine.processes[1].resident = found;
        machine.update(1, u64::MAX / 4, false, 0.0);
        machine.update(0, u64::MAX / 4, false, 0.0);
        let one = machine.processes[0];
        assert!(one.allowed >= one.resident + STEP_LEAST, "{} bytes", one.allowed);
    });
}

/// A job that follows the machine, with a process that has these bytes and wants more.
fn follow_with(machine: &mut Machine<'_>, resident: u64) {
    machine.table.follow_machine();
    machine.start(0);
    machine.processes[0].resident = resident;
    machine.update(0, u64::MAX / 4, false, 0.0);
}

#[test]
fn forked_processes_that_share_memory_take_more_while_some_is_free() {
    with_machine(1000 * MIB, |machine| {
        follow_with(machine, 600 * MIB);
        machine.start(0);
        machine.processes[1].resident = 600 * MIB;
        machine.update(1, 600 * MIB, false, 0.0);
        machine.table.look(&[level(400)], 1);
        assert!(machine.table.grows());
        machine.update(0, u64::MAX / 4, false, 0.0);
        assert!(machine.processes[0].allowed >= 600 * MIB + STEP_LEAST, "{:?}", machine.processes);
    });
}

#[test]
fn a_budget_stays_as_it_is_if_nothing_can_be_read() {
    with_machine(1000 * MIB, |machine| {
        follow_with(machine, 300 * MIB);
        machine.table.look(&[level(700)], 1);
        let found = machine.table.budget(0);
        machine.processes[0].resident = 100 * MIB;
        machine.update(0, u64::MAX / 4, false, 0.0);
        machine.table.look(&[], 2);
        assert_eq!((machine.table.budget(0), machine.table.grows()), (found, false));
    });
}

#[test]
fn without_the_lock_a_process_learns_that_it_has_too_much() {
    with_machine(1000 * MIB, |machine| {
        follow_with(machine, 800 * MIB);
        let needs = Needs { least: LEAST, resident: 800 * MIB, wants: u64::MAX / 4, ..Needs::default() };
        machine.table.look(&[level(0)], 1);
        machine.way(SOMEBODY).take(TABLE_BYTE);
        let (way, slot) = (machine.way(1), machine.processes[0].slot);
        assert_eq!(machine.table.share(&way, slot, &needs), None);
        let share = machine.table.share_without_lock(slot, &needs);
        assert!(share < 800 * MIB, "{} MiB", share / MIB);
        machine.way(SOMEBODY).give(TABLE_BYTE);
        assert_eq!(machine.table.share(&way, slot, &needs), Some(share));
    });
}

#[test]
fn who_waits_longest_gets_what_it_wishes_and_nobody_has_too_much() {
    const BUDGET: u64 = 64 * MIB;
    with_machine(BUDGET, |machine| {
        (0..4).for_each(|_| machine.start(0));
        settle(machine, BUDGET);
        assert!(machine.processes.iter().all(|process| process.allowed <= 17 * MIB));
        // Both would need more than the budget.
        machine.processes[2].wished = (40 * MIB, 7);
        machine.processes[1].wished = (40 * MIB, 8);
        for (first, second) in [(2, 1), (1, 2)] {
            // Each returns before anybody takes more.
            for _ in 0..4 {
                for at in 0..4 {
                    machine.update(at, u64::MAX / 4, false, 0.0);
                    machine.take_and_give(at, u64::MAX / 4);
                    machine.update(at, u64::MAX / 4, false, 0.0);
                    assert!(machine.resident() <= BUDGET);
                }
            }
            assert!(machine.processes[first].allowed >= 40 * MIB, "{:?}", machine.processes);
            assert!(machine.processes[second].allowed < 40 * MIB);
            // What it waited for goes on, and then waits again.
            machine.processes[first].wished = (40 * MIB, 9);
        }
    });
}

#[test]
fn nobody_waits_with_a_process_that_is_stopped() {
    const BUDGET: u64 = 64 * MIB;
    let rounds = |machine: &mut Machine<'_>, runs: &[usize], seconds: u64| {
        for _ in 0..4 * seconds {
            machine.now_ns += 250_000_000;
            for &at in runs.iter().chain(runs) {
                machine.update(at, u64::MAX / 4, false, 0.0);
                machine.take_and_give(at, u64::MAX / 4);
                assert!(machine.resident() <= BUDGET);
            }
        }
    };
    with_machine(BUDGET, |machine| {
        (0..4).for_each(|_| machine.start(0));
        settle(machine, BUDGET);
        machine.processes[2].wished = (40 * MIB, 7);
        machine.processes[1].wished = (40 * MIB, 8);
        // Process 2 has said what it wishes, and is stopped.
        machine.update(2, u64::MAX / 4, false, 0.0);
        rounds(machine, &[0, 1, 3], 3);
        assert!(machine.processes[1].allowed < 40 * MIB, "the older wish comes first");
        rounds(machine, &[0, 1, 3], 4);
        assert!(machine.processes[1].allowed >= 40 * MIB, "{:?}", machine.processes);
        machine.processes[1].wished = (0, 0);
        rounds(machine, &[0, 1, 3], 40);
        let others = [0, 1, 3].map(|at| machine.processes[at].resident);
        let left = BUDGET - machine.processes[2].resident.max(machine.processes[2].allowed);
        assert!(others.iter().sum::<u64>() + MIB >= left, "{others:?} of {left}");
        // It goes on, and waits no longer than before.
        rounds(machine, &[0, 1, 2, 3], 4);
        assert!(machine.processes[2].allowed >= 40 * MIB, "{:?}", machine.processes);
        // It is killed while it wishes.
        machine.processes[2].wished = (60 * MIB, 7);
        rounds(machine, &[2], 1);
        machine.kill(2);
        rounds(machine, &[0, 1, 2], 40);
        assert!(machine.resident() + MIB >= BUDGET, "{:?}", machine.processes);
    });
}

#[test]
fn what_cannot_be_returned_stays() {
    const BUDGET: u64 = 64 * MIB;
    with_machine(BUDGET, |machine| {
        machine.start(0);
        settle(machine, BUDGET);
        machine.processes[0].held = 30 * MIB;
        machine.start(0);
        machine.processes[1].wished = (56 * MIB, 1);
        for _ in 0..9 {
            for at in 0..2 {
                machine.update(at, u64::MAX / 4, false, 0.0);
                machine.take_and_give(at, u64::MAX / 4);
            }
            assert!(machine.processes[0].allowed >= LEAST + 30 * MIB);
        }
        assert!(machine.resident() <= BUDGET);
        // The other has what is left, and gets the rest once it can be returned.
        machine.processes[0].held = 0;
        for at in [0, 1] {
            machine.update(at, u64::MAX / 4, false, 0.0);
            machine.take_and_give(at, u64::MAX / 4);
            machine.update(at, u64::MAX / 4, false, 0.0);
        }
        assert!(machine.processes[1].allowed >= 56 * MIB);
    });
}
