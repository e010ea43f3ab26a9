//! The simulation: events, queues, failures.

use crate::outcome::{Load, Outcome, Part};
use crate::parameters::Setup;
use crate::placement::{EXTENT, extents, next_extent, server_of, turn_of};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use terapage_event::{Nanos, Queue};

/// The number of pieces of the timeline.
const BINS: u64 = 50;

/// Bytes of one step of a resync. Chosen, not measured.
const RESYNC_STEP: u64 = 1 << 20;

/// In place of an operation's number, for a step of a resync.
const NONE: u32 = u32::MAX;

/// An event.
#[derive(Clone, Copy)]
enum Event {
    /// A client begins an operation.
    Begin(u32),
    /// A leg reaches its next stage.
    Leg(u32, Stage),
    Fail,
    Return,
    /// A client copies its next piece to the server that has returned.
    Resync(u32),
}

/// The stage of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The leg is sent to the server.
    Out,
    /// Its first byte is at the server's card.
    In,
    /// The server has received it.
    Work,
    /// The answer is sent.
    Back,
    /// The answer's first byte is at the client's card.
    Home,
    /// The client has received it.
    Finish,
    /// The leg has ended.
    Done,
    /// The client gives up on the leg.
    GivenUp,
}

/// A queue with one server: first come, first served.
#[derive(Clone, Copy, Default)]
struct Server {
    free_ns: Nanos,
    busy_ns: Nanos,
}

/// The part of an operation on one server.
#[derive(Clone, Copy)]
struct Leg {
    operation: u32,
    client: u32,
    server: u32,
    is_write: bool,
    /// The block is made from other parts than its own with what this brings.
    is_decoded: bool,
    bytes: u64,
    /// The time when the last byte of the message on the wire left the sender.
    sent_ns: Nanos,
}

#[derive(Clone, Copy)]
struct Operation {
    client: u32,
    /// The first of the operation's servers, and which of them has the first part.
    server: u32,
    turn: u32,
    is_write: bool,
    began_ns: Nanos,
    legs: u32,
    /// Servers that were asked, a bit for each.
    asked: u64,
}

/// What a client knows about the lost server, and the copying to that server.
#[derive(Clone, Copy, Default)]
struct Knows {
    is_down: bool,
    /// The client writes to that server again, and reads from the other one until everything is
    /// copied.
    is_back: bool,
    left: u64,
    /// Parts to come of the step of the resync.
    reads: u32,
    due_ns: Nanos,
}

struct Model<'a> {
    setup: &'a Setup,
    queue: Queue<Event>,
    chance: Pcg64Mcg,
    parts: [Vec<Server>; Part::ALL.len()],
    legs: Slab<Leg>,
    operations: Slab<Operation>,
    begun: Vec<u64>,
    knows: Vec<Knows>,
    /// For each client, whether it waits for a block that no server has any more.
    stopped: Vec<bool>,
    warm_ns: Nanos,
    is_lost: bool,
    reads_ns: Vec<Nanos>,
    sum_ns: f64,
    under_way: u64,
    area: f64,
    changed_ns: Nanos,
    to_copy: u32,
    outcome: Outcome,
}

/// Values by number. The numbers of removed values are used again.
struct Slab<T> {
    all: Vec<T>,
    free: Vec<u32>,
}

impl<T: Copy> Slab<T> {
    fn new() -> Slab<T> {
        Slab { all: Vec::new(), free: Vec::new() }
    }

    fn add(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.all[index as usize] = thing;
                index
            }
            None => {
                self.all.push(thing);
                self.all.len() as u32 - 1
            }
        }
    }

    fn take(&mut self, index: u32) -> T {
        self.free.push(index);
        self.all[index as usize]
    }
}

/// Runs a simulation. The same setup gives the same outcome.
pub fn simulate(setup: &Setup) -> Outcome {
    let mut model = Model::new(setup);
    model.run();
    model.found()
}

impl<'a> Model<'a> {
    fn new(setup: &'a Setup) -> Model<'a> {
        let hosts = setup.servers.div_ceil(setup.servers_per_host);
        let count = |part| match part {
            Part::Pager | Part::ClientOut | Part::ClientIn => setup.clients,
            Part::ServerIn | Part::ServerOut => hosts,
            Part::Server => setup.servers,
        };
        let parts = Part::ALL.map(|part| vec![Server::default(); count(part) as usize]);
        let clients = setup.clients as usize;
        Model {
            setup,
            queue: Queue::with_capacity(clients * setup.depth as usize * 2),
            chance: Pcg64Mcg::seed_from_u64(setup.seed),
            parts,
            legs: Slab::new(),
            operations: Slab::new(),
            begun: vec![0; clients],
            knows: vec![Knows::default(); clients],
            stopped: vec![false; clients],
            warm_ns: setup.end_ns / 10,
            is_lost: false,
            reads_ns: Vec::new(),
            sum_ns: 0.0,
            under_way: 0,
            area: 0.0,
            changed_ns: 0,
            to_copy: 0,
            outcome: Outcome { timeline: vec![0; BINS as usize], ..Outcome::default() },
        }
    }

    fn run(&mut self) {
        for client in 0..self.setup.clients {
            for _ in 0..self.setup.depth {
                // Clients start out of step, as programs do.
                let at = if self.setup.varies { self.chance.random_range(0..100_000) } else { 0 };
                self.queue.at(at, Event::Begin(client));
            }
        }
        if self.setup.fail_ns > 0 {
            self.queue.at(self.setup.fail_ns, Event::Fail);
        }
        if self.setup.return_ns > 0 {
            self.queue.at(self.setup.return_ns, Event::Return);
        }
        while self.queue.next_time().is_some_and(|time| time < self.setup.end_ns) {
            let Some((now, event)) = self.queue.pop() else { break };
            self.outcome.events += 1;
            match event {
                Event::Begin(client) => self.begin(client, now),
                Event::Leg(leg, stage) => self.go_on(leg, stage, now),
                Event::Fail => self.is_lost = true,
                Event::Return => self.come_back(now),
                Event::Resync(client) => self.copy_more(client, now),
            }
        }
    }

    /// Lets a part serve for `ns` as soon as it is free. It returns the times at which the service
    /// begins and ends.
    fn serve(&mut self, part: Part, index: u32, now: Nanos, ns: f64) -> (Nanos, Nanos) {
        let (warm_ns, end_ns) = (self.warm_ns, self.setup.end_ns);
        let server = &mut self.parts[part as usize][index as usize];
        let from = server.free_ns.max(now);
        let to = from + ns.round() as Nanos;
        server.free_ns = to;
        server.busy_ns += to.min(end_ns).saturating_sub(from.max(warm_ns));
        (from, to)
    }

    fn random_ns(&mut self, mean_ns: f64) -> f64 {
        if !self.setup.varies {
            return mean_ns;
        }
        -mean_ns * (1.0 - self.chance.random::<f64>()).ln()
    }

    fn count(&mut self, now: Nanos, more: i64) {
        let (from, to) = (self.changed_ns.max(self.warm_ns), now.max(self.warm_ns));
        self.area += (to - from) as f64 * self.under_way as f64;
        self.under_way = self.under_way.saturating_add_signed(more);
        self.changed_ns = now;
    }

    fn begin(&mut self, client: u32, now: Nanos) {
        // The client's program has ended.
        if self.stopped[client as usize] {
            return;
        }
        let extent = next_extent(self.setup, self.begun[client as usize], &mut self.chance);
        self.begun[client as usize] += 1;
        let is_write = self.chance.random::<f64>() < self.setup.writes;
        let server = server_of(self.setup, client, extent);
        self.count(now, 1);
        let turn = turn_of(self.setup, extent);
        let operation = Operation { client, server, turn, is_write, began_ns: now, legs: 0, asked: 0 };
        let operation = self.operations.add(operation);
        self.begin_legs(operation, now);
    }

    /// Sends an operation to its server, or, for a page-out, to all its servers. A page-in of a
    /// coded block goes to as many servers as are needed.
    fn begin_legs(&mut self, index: u32, now: Nanos) {
        let operation = self.operations.all[index as usize];
        let (parts, needed) = (self.setup.parts, self.setup.needed as usize);
        let all = (0..parts).map(|part| operation.server + (operation.turn + part) % parts);
        let knows = self.knows[operation.client as usize];
        // Only the first server can be lost.
        let is_there = |server: u32| server != 0 || !knows.is_down;
        let is_whole = |server: u32| is_there(server) && (server != 0 || !knows.is_back);
        let chosen: Vec<u32> = if operation.is_write {
            all.filter(|&server| is_there(server)).collect()
        } else if needed > 1 {
            all.filter(|&server| is_whole(server)).take(needed).collect()
        } else {
            let free = |&server: &u32| (self.parts[Part::Server as usize][server as usize].free_ns, server);
            all.filter(|&server| is_whole(server)).min_by_key(free).into_iter().collect()
        };
        if chosen.len() < needed {
            self.stopped[operation.client as usize] = true;
            return;
        }
        // The block's own parts are the first ones.
        let own =
            |&server: &u32| (server + parts - operation.server - operation.turn) % parts < needed as u32;
        let is_decoded = needed > 1 && !operation.is_write && !chosen.iter().all(own);
        let is_less = operation.is_write && chosen.len() < parts as usize;
        self.outcome.detours += u64::from(is_less || is_decoded);
        let noted = &mut self.operations.all[index as usize];
        noted.legs = chosen.len() as u32;
        noted.asked = chosen.iter().fold(0, |asked, server| asked | 1 << (server - operation.server));
        for (number, server) in chosen.into_iter().enumerate() {
            let last = number + 1 == needed;
            self.ask(index, server, is_decoded && last, now);
        }
    }

    /// Begins the leg of an operation to a server.
    fn ask(&mut self, index: u32, server: u32, is_decoded: bool, now: Nanos) {
        let Operation { client, is_write, .. } = self.operations.all[index as usize];
        let bytes = self.setup.part_bytes();
        self.begin_leg(
            Leg { operation: index, client, server, is_write, is_decoded, bytes, sent_ns: 0 },
            now,
        );
    }

    /// Asks another server in the place of one that was given up.
    fn ask_another(&mut self, index: u32, now: Nanos) {
        let operation = self.operations.all[index as usize];
        let is_whole = |server: u32| {
            let knows = self.knows[operation.client as usize];
            server != 0 || !knows.is_down && !knows.is_back
        };
        let parts = self.setup.parts;
        let all = (0..parts).map(|part| (operation.turn + part) % parts);
        let next = all
            .into_iter()
            .find(|part| operation.asked >> part & 1 == 0 && is_whole(operation.server + part));
        let Some(part) = next else {
            self.stopped[operation.client as usize] = true;
            return;
        };
        self.outcome.detours += 1;
        self.operations.all[index as usize].asked |= 1 << part;
        self.ask(index, operation.server + part, true, now);
    }

    /// What it takes to make the parts of a block, or the block from other parts, ns.
    fn code_ns(&self) -> f64 {
        self.setup.code_bytes * self.setup.block as f64
    }

    fn begin_leg(&mut self, leg: Leg, now: Nanos) {
        // The pager works before a page-out, and after a page-in.
        let mut ns = if leg.is_write { self.setup.pager_ns(leg.bytes) } else { self.setup.client_request_ns };
        if leg.is_write && self.setup.needed > 1 {
            // Each part takes its share of that.
            ns += self.code_ns() / f64::from(self.setup.parts);
        }
        let (_, to) = self.serve(Part::Pager, leg.client, now, ns);
        let index = self.legs.add(leg);
        self.queue.at(to, Event::Leg(index, Stage::Out));
    }

    fn go_on(&mut self, index: u32, stage: Stage, now: Nanos) {
        let leg = self.legs.all[index as usize];
        let (out, back) = self.setup.messages(leg.is_write, leg.bytes);
        let host = leg.server / self.setup.servers_per_host;
        let (client_nic, server_nic) = (self.setup.client_nic, self.setup.server_nic);
        let is_gone = self.is_lost && leg.server == 0;
        match stage {
            Stage::In | Stage::Work | Stage::Back if is_gone => {
                self.queue.at(now + self.setup.detect_ns, Event::Leg(index, Stage::GivenUp));
            }
            Stage::Out => self.send(index, (Part::ClientOut, leg.client), out, client_nic, Stage::In, now),
            Stage::In => self.receive(index, (Part::ServerIn, host), out, server_nic, Stage::Work, now),
            Stage::Work => {
                let ns = self.random_ns(self.setup.work_ns(leg.is_write, leg.bytes));
                let (_, to) = self.serve(Part::Server, leg.server, now, ns);
                self.queue.at(to, Event::Leg(index, Stage::Back));
            }
            Stage::Back => self.send(index, (Part::ServerOut, host), back, server_nic, Stage::Home, now),
            Stage::Home => {
                self.receive(index, (Part::ClientIn, leg.client), back, client_nic, Stage::Finish, now);
            }
            Stage::Finish => {
                let ns = if leg.is_write { 0.0 } else { self.setup.client_bytes * leg.bytes as f64 };
                let ns = if leg.is_decoded { ns + self.code_ns() } else { ns };
                let (_, to) = self.serve(Part::Pager, leg.client, now, ns);
                let wake_ns = if leg.is_write { 0 } else { self.setup.wake_ns };
                self.queue.at(to + wake_ns, Event::Leg(index, Stage::Done));
            }
            Stage::Done | Stage::GivenUp => self.end_leg(index, stage == Stage::Done, now),
        }
    }

    /// Sends a message through a card. Its first byte reaches the other end after the wire's
    /// latency.
    fn send(&mut self, leg: u32, (part, at): (Part, u32), bytes: u64, rate: f64, next: Stage, now: Nanos) {
        let (from, to) = self.serve(part, at, now, bytes as f64 / rate);
        self.legs.all[leg as usize].sent_ns = to;
        self.queue.at(from + self.setup.latency_ns, Event::Leg(leg, next));
    }

    /// Receives a message through a card. It has arrived once its last byte has.
    fn receive(&mut self, leg: u32, (part, at): (Part, u32), bytes: u64, rate: f64, next: Stage, now: Nanos) {
        let (_, to) = self.serve(part, at, now, bytes as f64 / rate);
        let last = self.legs.all[leg as usize].sent_ns + self.setup.latency_ns;
        self.queue.at(to.max(last), Event::Leg(leg, next));
    }

    fn end_leg(&mut self, index: u32, well: bool, now: Nanos) {
        let leg = self.legs.take(index);
        if leg.operation == NONE {
            return self.copied(leg, now);
        }
        if !well {
            self.knows[leg.client as usize].is_down = true;
            // A page-in goes to another server; a page-out has its other parts, if there are any.
            if !leg.is_write && self.setup.needed > 1 {
                return self.ask_another(leg.operation, now);
            }
            if !leg.is_write || self.setup.parts == 1 {
                return self.begin_legs(leg.operation, now);
            }
            self.outcome.detours += 1;
        }
        let operation = &mut self.operations.all[leg.operation as usize];
        operation.legs -= 1;
        if operation.legs == 0 {
            let operation = self.operations.take(leg.operation);
            self.end(operation, now);
        }
    }

    fn end(&mut self, operation: Operation, now: Nanos) {
        let took_ns = now - operation.began_ns;
        self.count(now, -1);
        let bin = (now * BINS / self.setup.end_ns).min(BINS - 1);
        self.outcome.timeline[bin as usize] += self.setup.block;
        self.outcome.longest_ns = self.outcome.longest_ns.max(took_ns);
        if now >= self.warm_ns {
            self.outcome.operations += 1;
            self.outcome.bytes += self.setup.block;
            self.sum_ns += took_ns as f64;
            if !operation.is_write {
                self.reads_ns.push(took_ns);
            }
        }
        let think_ns = self.random_ns(self.setup.think_ns as f64).round() as Nanos;
        self.queue.at(now + think_ns, Event::Begin(operation.client));
    }

    /// The lost server returns empty. Each client writes to it again, and copies the blocks that
    /// the server had.
    fn come_back(&mut self, now: Nanos) {
        self.is_lost = false;
        if self.setup.parts == 1 {
            return;
        }
        let all = 0..extents(self.setup);
        for client in 0..self.setup.clients {
            let had = all.clone().filter(|&extent| server_of(self.setup, client, extent) == 0).count();
            let left = had as u64 * EXTENT / u64::from(self.setup.needed);
            let knows = Knows { is_down: false, is_back: left > 0, left, reads: 0, due_ns: now };
            self.knows[client as usize] = knows;
            self.to_copy += u32::from(left > 0);
            if left > 0 {
                self.queue.at(now, Event::Resync(client));
            }
        }
    }

    /// Reads the next piece from the other server, or what is needed of it from the others.
    fn copy_more(&mut self, client: u32, now: Nanos) {
        let knows = &mut self.knows[client as usize];
        let bytes = knows.left.min(RESYNC_STEP);
        knows.reads = self.setup.needed;
        for server in 1..=self.setup.needed {
            let leg = Leg {
                operation: NONE,
                client,
                server,
                is_write: false,
                is_decoded: false,
                bytes,
                sent_ns: 0,
            };
            self.begin_leg(leg, now);
        }
    }

    /// A step of a resync was read, and is now written; or it was written, and the next step
    /// follows.
    fn copied(&mut self, leg: Leg, now: Nanos) {
        let knows = &mut self.knows[leg.client as usize];
        if !leg.is_write {
            self.outcome.read_for_resync += leg.bytes;
            knows.reads -= 1;
            if knows.reads > 0 {
                return;
            }
            return self.begin_leg(Leg { server: 0, is_write: true, ..leg }, now);
        }
        knows.left -= leg.bytes;
        knows.due_ns += (leg.bytes as f64 / self.setup.resync) as Nanos;
        self.outcome.resynced += leg.bytes;
        if knows.left > 0 {
            let due_ns = knows.due_ns.max(now);
            return self.queue.at(due_ns, Event::Resync(leg.client));
        }
        knows.is_back = false;
        self.to_copy -= 1;
        if self.to_copy == 0 {
            self.outcome.whole_again_ns = now;
        }
    }

    fn found(mut self) -> Outcome {
        let end_ns = self.setup.end_ns;
        self.count(end_ns, 0);
        let mut outcome = self.outcome;
        let time_ns = end_ns - self.warm_ns;
        outcome.time_ns = time_ns;
        outcome.under_way = self.area / time_ns as f64;
        outcome.mean_ns = self.sum_ns / outcome.operations.max(1) as f64;
        outcome.reads = self.reads_ns.len() as u64;
        self.reads_ns.sort_unstable();
        let at = |share: f64| {
            let index = (self.reads_ns.len() as f64 * share) as usize;
            self.reads_ns.get(index).or(self.reads_ns.last()).copied().unwrap_or(0)
        };
        (outcome.median_ns, outcome.p99_ns) = (at(0.5), at(0.99));
        outcome.stopped = self.stopped.iter().filter(|&&stopped| stopped).count() as u32;
        outcome.loads = Part::ALL
            .map(|part| {
                let shares = self.parts[part as usize].iter();
                let shares = shares.map(|server| server.busy_ns as f64 / time_ns as f64);
                let most = shares.clone().fold(0.0, f64::max);
                Load { part, mean: shares.sum::<f64>() / self.parts[part as usize].len() as f64, most }
            })
            .to_vec();
        outcome
    }
}
