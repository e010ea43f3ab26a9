//! The work of an idle pager for others: removes the blocks of ended processes.
//!
//! It inspects a few of the namespaces, and removes a dead one under a lock, some keys at a time.
//! Its own operations come first.

use super::*;

/// The number of namespaces that are inspected in turn.
const LOOKED_AT: usize = 4;

/// The number of keys that are removed at a time, and the time between: at most some 240 MiB a
/// second.
const REMOVED: u32 = 12;
pub(super) const STEP_NS: u64 = 100 * MS;

/// After this number of steps the lock is renewed.
const STEPS_OF_LOCK: u32 = 100;

/// A removal without progress for this number of steps is given up: the lock has expired.
const STEPS_IDLE: u32 = 250;

/// What goes on.
#[derive(Default)]
pub(super) struct Sweeper {
    /// Whether a search is due.
    pub is_due: bool,
    /// The namespace that is being removed.
    victim: Option<Victim>,
    pub ticks: bool,
}

struct Victim {
    id: u64,
    values: u32,
    next: u32,
    is_locked: bool,
    steps: u32,
    idle: u32,
}

impl Far {
    /// Begins a search, if there is no other work.
    pub(super) fn look_for_dead(&mut self) {
        let all = namespace::all(&self.server.prefix);
        let lane = self.lane_of_key(&all);
        let is_busy = self.open > 0 || self.sweeper.victim.is_some();
        if !is_busy && self.lanes[lane].ready && self.time_s > 0 {
            self.ask(lane, Ask::Names, &[b"SMEMBERS", &all]);
        }
    }

    /// The names of all.
    pub(super) fn named(&mut self, reply: &Reply) {
        let own = self.space.name();
        let mut names: Vec<String> = reply.elements().iter().filter_map(Reply::text).collect();
        names.retain(|name| *name != own);
        for _ in 0..LOOKED_AT {
            if names.is_empty() {
                return;
            }
            let chance = namespace::random().unwrap_or(0) as usize;
            let name = names.swap_remove(chance % names.len());
            let Ok(id) = u64::from_str_radix(&name, 16) else { continue };
            let registry = Namespace::of(&self.server.prefix, id).registry();
            let lane = self.lane_of_key(&registry);
            if self.lanes[lane].ready {
                self.ask(lane, Ask::Described(id), &[b"HGETALL", &registry]);
            } else {
                self.lanes[lane].wanted = true;
            }
        }
    }

    /// One is described.
    pub(super) fn described(&mut self, id: u64, reply: &Reply) {
        let Reply::Array(_) = reply else { return };
        let described = life::hash(reply);
        let is_dead = life::is_dead(&described, self.time_s, self.server.grace);
        if !is_dead || self.sweeper.victim.is_some() {
            return;
        }
        let key = Namespace::of(&self.server.prefix, id).sweeper();
        let lane = self.lane_of_key(&key);
        if self.lanes[lane].ready {
            let values = life::values_of(&described);
            self.sweeper.victim = Some(Victim { id, values, next: 0, is_locked: false, steps: 0, idle: 0 });
            let words: [&[u8]; 6] = [b"SET", &key, b"1", b"NX", b"EX", life::LOCK_S.as_bytes()];
            self.ask(lane, Ask::Lock(id), &words);
        }
    }

    /// Either this process may remove it, or another one does.
    pub(super) fn locked(&mut self, id: u64, reply: Option<&Reply>) {
        let Some(victim) = self.sweeper.victim.as_mut().filter(|victim| victim.id == id) else { return };
        if matches!(reply, Some(Reply::Simple(_))) {
            victim.is_locked = true;
        } else {
            self.sweeper.victim = None;
        }
    }

    /// Whether the clock of removals is needed.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweeper.victim.is_some()
    }

    /// Removes some keys, if there is no other work.
    pub(super) fn sweep_on(&mut self) {
        let is_busy = self.open > 0;
        let Some(mut victim) = self.sweeper.victim.take() else { return };
        let space = Namespace::of(&self.server.prefix, victim.id);
        let (lock, registry, all) = (space.sweeper(), space.registry(), namespace::all(&self.server.prefix));
        victim.steps += 1;
        victim.idle += 1;
        if victim.idle > STEPS_IDLE {
            return;
        }
        if victim.is_locked && victim.steps.is_multiple_of(STEPS_OF_LOCK) {
            let words: [&[u8]; 6] = [b"SET", &lock, b"1", b"XX", b"EX", life::LOCK_S.as_bytes()];
            self.ask_ready(&lock, &words);
        }
        let until =
            if victim.is_locked && !is_busy { victim.values.min(victim.next + REMOVED) } else { victim.next };
        while victim.next < until && self.ask_ready(&space.value(victim.next), &[b"UNLINK"]) {
            (victim.next, victim.idle) = (victim.next + 1, 0);
        }
        if victim.next < victim.values || !victim.is_locked {
            self.sweeper.victim = Some(victim);
            return;
        }
        let are_ready = [&registry, &all, &lock].iter().all(|key| self.lanes[self.lane_of_key(key)].ready);
        if !are_ready {
            self.sweeper.victim = Some(victim);
            return;
        }
        self.ask_ready(&registry, &[b"UNLINK"]);
        let name = space.name();
        let lane = self.lane_of_key(&all);
        self.ask(lane, Ask::Swept, &[b"SREM", &all, name.as_bytes()]);
        self.ask_ready(&lock, &[b"UNLINK"]);
        // If there was one dead namespace, there may be more.
        self.look_for_dead();
    }

    /// Sends a command to the key's server, if possible: with the key after the command, or within
    /// it.
    fn ask_ready(&mut self, key: &[u8], words: &[&[u8]]) -> bool {
        let lane = self.lane_of_key(key);
        if !self.lanes[lane].ready {
            self.lanes[lane].wanted = true;
            return false;
        }
        if let [command] = words {
            self.ask(lane, Ask::Swept, &[command, key]);
        } else {
            self.ask(lane, Ask::Swept, words);
        }
        true
    }
}
