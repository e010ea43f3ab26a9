//! The real store of a family of processes against the simulated server of
//! [`protocol`](super::protocol): forks, ends of children and of the parent, in any order, while
//! connections are cut and the server executes commands late, or does not note a fork.
//!
//! Each process reads what it had at its fork. While one lives that needs them, no blocks go.

use super::protocol::{Pager, Random, SLOTS, Setup, Sim, first_seed};
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rounds of a run, and runs of a test unless `TERAPAGE_RUNS` says otherwise.
const ROUNDS: u32 = 30;
const RUNS: u64 = 20;
const PROCESSES: usize = 5;

const SETUP: Setup = Setup { by_sentinel: false, hashes: false, restarts: false, is_copy: true };

impl Far {
    /// The store as a fork's child has it in its copy of memory.
    fn copied(&self) -> Far {
        let mut copy = Far::new(self.server.clone(), self.block).unwrap();
        (copy.is_copy, copy.is_deaf) = (self.is_copy, self.is_deaf);
        (copy.space, copy.holder, copy.role) = (self.space.clone(), self.holder.clone(), self.role);
        (copy.claims, copy.is_registered) = (self.claims, self.is_registered);
        (copy.announced, copy.announce, copy.created) = (self.announced, self.announce, self.created);
        (copy.values, copy.slots, copy.used) = (self.values.clone(), self.slots, self.used.clone());
        (copy.used_of, copy.lost, copy.why_lost) =
            (self.used_of.clone(), self.lost.clone(), self.why_lost.clone());
        copy.nodes[0].run_id.clone_from(&self.nodes[0].run_id);
        copy
    }
}

/// A process of the family: its pager, its parent and the number of the fork, and whether it lives.
struct Process {
    pager: Pager,
    parent: Option<usize>,
    fork: u32,
    forks: u32,
    lives: bool,
    /// Slots that stay as they are: it was forked, or a living child reads them.
    frozen: [bool; SLOTS.len()],
}

/// Lets the server work in a thread of its own while a call waits for it.
fn beside<T>(sim: &mut Sim, call: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                sim.step();
            }
        });
        let result = call();
        is_over.store(true, Ordering::SeqCst);
        result
    })
}

struct Family {
    sim: Sim,
    random: Random,
    all: Vec<Process>,
}

impl Family {
    fn new(seed: u64) -> Family {
        let sim = Sim::new(seed);
        let pager = Pager::new(0, SETUP, sim.port());
        let first =
            Process { pager, parent: None, fork: 0, forks: 0, lives: true, frozen: [false; SLOTS.len()] };
        Family { sim, random: Random(!seed), all: vec![first] }
    }

    fn fork(&mut self, process: usize) {
        let Family { sim, random, all } = self;
        let one = &mut all[process];
        one.forks += 1;
        let fork = one.forks;
        // Another copy of the mirror notes it if this one does not.
        if random.one_in(2) {
            beside(sim, || one.pager.store.share(fork).ok());
        } else {
            let holds = one.pager.store.holds();
            one.pager.store.holder.will_fork(fork, holds);
        }
        let mut store = one.pager.store.copied();
        store.inherit().unwrap();
        let pager = one.pager.forked(store, sim.port());
        let is_read = pager.model.map(|version| version.is_some());
        (0..SLOTS.len()).for_each(|index| one.frozen[index] |= is_read[index]);
        let child = Process {
            pager,
            parent: Some(process),
            fork,
            forks: 0,
            lives: true,
            frozen: [true; SLOTS.len()],
        };
        all.push(child);
    }

    fn family_lives(&self, process: usize) -> bool {
        let mut children = (0..self.all.len()).filter(|&index| self.all[index].parent == Some(process));
        self.all[process].lives || children.any(|child| self.family_lives(child))
    }

    fn end(&mut self, process: usize) {
        let Family { sim, all, .. } = self;
        let one = &mut all[process];
        one.lives = false;
        beside(sim, || one.pager.store.close());
        let mut ended = process;
        while let Some(parent) = self.all[ended].parent.filter(|_| !self.family_lives(ended)) {
            let fork = self.all[ended].fork;
            self.all[parent].pager.store.unshare(fork);
            ended = parent;
        }
    }

    /// All living processes read, and the first one writes what nobody else reads.
    fn round(&mut self) -> Result<(), String> {
        let living: Vec<usize> = (0..self.all.len()).filter(|&index| self.all[index].lives).collect();
        for &index in &living {
            let one = &mut self.all[index];
            one.pager.begin_some(&mut self.random, &one.frozen);
        }
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let mut is_over = true;
            for &index in &living {
                is_over &= self.all[index].pager.go_on(SETUP, false)?;
            }
            if is_over {
                break;
            }
            assert!(Instant::now() < until, "operations do not end");
            (0..1 + self.random.below(4)).for_each(|_| self.sim.step());
        }
        living.iter().for_each(|&index| self.all[index].pager.doing.clear());
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            self.round()?;
            let living: Vec<usize> = (0..self.all.len()).filter(|&index| self.all[index].lives).collect();
            if living.is_empty() {
                return Ok(());
            }
            let process = living[self.random.below(living.len() as u64) as usize];
            match self.random.below(8) {
                0 | 1 if self.all.len() < PROCESSES => self.fork(process),
                2 => self.end(process),
                _ => {}
            }
        }
        while let Some(process) = self.all.iter().position(|one| one.lives) {
            self.end(process);
            self.round()?;
        }
        Ok(())
    }
}

#[test]
fn a_family_keeps_its_blocks_until_the_last_one_ends() {
    let first = first_seed();
    let given = std::env::var("TERAPAGE_RUNS").ok().and_then(|text| text.parse().ok());
    for seed in first..first + given.unwrap_or(RUNS) {
        let mut family = Family::new(seed);
        let result = family.run();
        let Family { sim, all, .. } = family;
        drop(sim);
        all.into_iter().for_each(|one| one.pager.rest());
        result.unwrap_or_else(|why| panic!("TERAPAGE_SEED={seed}: {why}"));
    }
}

#[test]
fn a_server_that_did_not_note_a_fork_is_not_waited_for_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    // Whoever connects gets no answer.
    let connections = || std::iter::from_fn(|| listener.accept().ok()).count();
    let port = listener.local_addr().unwrap().port();
    let server = Server::parse(&format!("valkey://127.0.0.1:{port}")).unwrap();
    let mut parent = Far::new(server, 4096).unwrap();
    (parent.is_copy, parent.is_registered) = (true, true);
    assert!(matches!(parent.share(1), Err(Error::Later { .. })));
    assert_eq!(connections(), 1);
    let mut child = parent.copied();
    child.inherit().unwrap();
    assert!(!child.presence().answers, "its mirror would read there first");
    assert!(child.lanes.iter().all(|lane| lane.wanted), "it would never hear that the server answers");
    child.close();
    assert!(matches!(parent.share(2), Err(Error::Later { .. })));
    assert_eq!(connections(), 0, "the child's end, or the next fork, waits for it");
    // Where no other copy notes it, this one is asked again.
    assert!(parent.share(2).is_err());
    assert_eq!(connections(), 1);
}
