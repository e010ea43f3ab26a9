//! The real store against a simulated server and network, with two clients.
//!
//! Everything runs in one thread. The seed decides which connection's commands the server executes
//! next, which connection is cut and what happens to its sent commands (lost, or executed late),
//! and when the server restarts, empty or with older bytes, or another client overwrites a value.
//! Each read is compared with a naive model: it must return the last written bytes, or an error;
//! and an error only after a loss.
//!
//! A seed repeats the choices. The kernel's sockets lie in between, so the arrival of bytes is not
//! repeated exactly: a failed run may need a few tries.

use super::*;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use terapage_sys::memory;
use terapage_sys::ring::{IoEngine, Ring};

const BLOCK: usize = 4096;
/// Blocks of a value.
const PER: u32 = (EXTENT / BLOCK) as u32 - 1;
/// The slots in use, in three values; the last value has only one.
pub(super) const SLOTS: [u32; 8] = [0, 1, 2, 3, PER, PER + 1, PER + 2, 2 * PER];
const CLIENTS: u64 = 2;

/// Rounds of operations in a run, and runs of a test unless `TERAPAGE_RUNS` says otherwise.
const ROUNDS: u32 = 40;
const RUNS: u64 = 12;
/// The factor by which these are fewer with a sentinel, which is not asked again at once.
const SLOWER: u64 = 4;
/// The number of runs in which a planted fault must be found: each known fault was found in one of
/// 22.
const RUNS_OF_FAULT: u64 = 400;

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

pub(super) fn is_planted(fault: Planted) -> bool {
    PLANTED.get() == Some(fault)
}

pub(super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// The events that a run may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    /// A sentinel, which is the server itself, names the server. Then bytes may be old, and only
    /// hashes show it.
    pub by_sentinel: bool,
    /// The caller compares hashes, as the pager does.
    pub hashes: bool,
    /// The server restarts, or another replaces it.
    pub restarts: bool,
    /// The store is a copy of a mirror, which learns what is lost.
    pub is_copy: bool,
}

/// A connection at the server.
struct Link {
    /// `None`: the connection is cut, and its sent commands are still to be executed.
    stream: Option<TcpStream>,
    id: u64,
    input: Vec<u8>,
    /// The number of steps until the server executes it.
    pause: u64,
    /// Whether it has asked for the server's identity: from then on it may be cut.
    is_in: bool,
}

/// The server, and the network before it.
pub(super) struct Sim {
    listener: TcpListener,
    keys: HashMap<Vec<u8>, Vec<u8>>,
    hashes: HashMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The contents of a replica some time ago.
    replica: HashMap<Vec<u8>, Vec<u8>>,
    run: u64,
    links: Vec<Link>,
    next_id: u64,
    random: Random,
}

impl Sim {
    pub fn new(seed: u64) -> Sim {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Sim {
            listener,
            keys: HashMap::new(),
            hashes: HashMap::new(),
            replica: HashMap::new(),
            run: 1,
            links: Vec::new(),
            next_id: 1,
            random: Random(seed),
        }
    }

    pub fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// Executes one command of one of the connections, if there is any.
    pub fn step(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
            let (id, pause) = (self.next_id, 0);
            self.next_id += 1;
            self.links.push(Link { stream: Some(stream), id, input: Vec::new(), pause, is_in: false });
        }
        self.links.iter_mut().for_each(Link::receive);
        self.links.retain(|link| link.stream.is_some() || link.command().is_some());
        let mut able = Vec::new();
        for (index, link) in self.links.iter_mut().enumerate() {
            link.pause = link.pause.saturating_sub(1);
            if link.pause == 0 && link.command().is_some() {
                able.push(index);
            }
        }
        if !able.is_empty() {
            let index = able[self.random.below(able.len() as u64) as usize];
            self.serve(index);
        }
    }

    fn serve(&mut self, index: usize) {
        let may_cut = self.links[index].is_in && self.links[index].stream.is_some();
        let fault = if may_cut && self.random.one_in(40) { self.random.below(4) } else { 4 };
        if fault < 2 {
            // The client receives nothing; the server has not executed the command yet, or never
            // will.
            self.links[index].cut();
            self.links[index].pause = 1 + self.random.below(300);
            if fault == 1 {
                self.links[index].input.clear();
            }
            return;
        }
        let id = self.links[index].id;
        let Some((words, len)) = self.links[index].command() else { return };
        self.links[index].input.drain(..len);
        self.links[index].is_in |= words[0] == b"INFO";
        let mut reply = Vec::new();
        self.execute(id, &words, &mut reply);
        // `CLIENT KILL` may have removed an earlier one.
        let Some(link) = self.links.iter_mut().find(|link| link.id == id) else { return };
        if self.random.one_in(10) {
            link.pause = self.random.below(60);
        }
        let end = match fault {
            2 => 0,
            3 => reply.len() / 2,
            _ => reply.len(),
        };
        let sent = link.stream.as_mut().map(|stream| stream.write_all(&reply[..end]));
        if fault < 4 || sent.is_some_and(|sent| sent.is_err()) {
            link.cut();
        }
    }

    fn execute(&mut self, id: u64, words: &[Vec<u8>], out: &mut Vec<u8>) {
        let number = |index: usize| -> usize {
            let word = words.get(index).and_then(|word| std::str::from_utf8(word).ok());
            word.and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        match &words[0][..] {
            b"HELLO" => {
                out.extend_from_slice(b"*2\r\n");
                resp::text(out, b"id");
                resp::header(out, ':', id as usize);
            }
            b"INFO" => {
                let info = format!(
                    "redis_version:7.0.15\r\nrun_id:run{}\r\nrole:master\r\nmaxmemory:0\r\n\
                     maxmemory_policy:noeviction\r\nloading:0\r\ncluster_enabled:0\r\n",
                    self.run
                );
                resp::text(out, info.as_bytes());
            }
            b"CLIENT" => {
                let before = self.links.len();
                self.links.retain(|link| link.id != number(3) as u64);
                resp::header(out, ':', before - self.links.len());
            }
            b"SETRANGE" => {
                let (value, from) = (self.keys.entry(words[1].clone()).or_default(), number(2));
                let len = value.len().max(from + words[3].len());
                value.resize(len, 0);
                value[from..from + words[3].len()].copy_from_slice(&words[3]);
                resp::header(out, ':', len);
            }
            b"GETRANGE" => {
                let value = self.keys.get(&words[1]).map_or(&[][..], Vec::as_slice);
                let end = (number(3) + 1).min(value.len());
                resp::text(out, value.get(number(2)..end).unwrap_or_default());
            }
            b"UNLINK" => {
                let gone = |key: &&Vec<u8>| {
                    let was_hash = self.hashes.remove(*key).is_some();
                    self.keys.remove(*key).is_some() || was_hash
                };
                let gone = words[1..].iter().filter(gone).count();
                resp::header(out, ':', gone);
            }
            b"TIME" => resp::command(out, &[b"1700000000", b"0"]),
            b"SENTINEL" => resp::command(out, &[b"127.0.0.1", self.port().to_string().as_bytes()]),
            b"HSET" => {
                let hash = self.hashes.entry(words[1].clone()).or_default();
                let before = hash.len();
                hash.extend(words[2..].chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())));
                resp::header(out, ':', hash.len() - before);
            }
            b"HDEL" => {
                if let Some(hash) = self.hashes.get_mut(&words[1]) {
                    words[2..].iter().for_each(|field| drop(hash.remove(field)));
                }
                resp::header(out, ':', 1);
            }
            b"HGETALL" => {
                let all = self.hashes.get(&words[1]).into_iter().flatten();
                let words: Vec<&[u8]> = all.flat_map(|(field, value)| [&field[..], &value[..]]).collect();
                resp::command(out, &words);
            }
            b"SADD" | b"SREM" => resp::header(out, ':', 1),
            _ => out.extend_from_slice(b"-ERR unknown command\r\n"),
        }
    }

    /// The server restarts: empty, or replaced by its replica.
    fn restart(&mut self) {
        self.links.clear();
        self.run += 1;
        self.next_id = 1;
        let replica = std::mem::take(&mut self.replica);
        self.hashes.clear();
        self.keys = if self.random.one_in(2) { replica } else { HashMap::new() };
    }

    /// Another client overwrites a block.
    fn scribble(&mut self) {
        let mut keys: Vec<_> = self.keys.keys().cloned().collect();
        keys.sort_unstable();
        if !keys.is_empty() {
            let key = &keys[self.random.below(keys.len() as u64) as usize];
            let (value, at) = (self.keys.get_mut(key).unwrap(), self.random.below(3) as usize * BLOCK);
            let end = (at + BLOCK).min(value.len());
            value[at.min(end)..end].fill(0x5a);
        }
    }
}

impl Link {
    fn receive(&mut self) {
        let mut bytes = [0; 16 << 10];
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut bytes) {
                Ok(0) => self.stream = None,
                Ok(len) => self.input.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.stream = None,
            }
        }
    }

    /// The first complete command, and its length.
    fn command(&self) -> Option<(Vec<Vec<u8>>, usize)> {
        let (reply, len) = resp::parse(&self.input).expect("commands are well formed")?;
        let word = |word: &Reply| match word {
            Reply::Bulk(bytes) => bytes.clone(),
            other => panic!("no word of a command: {other:?}"),
        };
        Some((reply.elements().iter().map(word).collect(), len))
    }

    fn cut(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

/// An operation of a client's.
pub(super) struct Doing {
    kind: OpKind,
    /// The number of the slot.
    index: usize,
    version: u64,
    pieces: Vec<Piece>,
    tries: u32,
    result: Option<Result<(), Failure>>,
}

/// A pager, from the store's point of view.
pub(super) struct Pager {
    number: u64,
    ring: Ring,
    pub store: Far,
    at: usize,
    /// The versions that were last written, and are not lost.
    pub model: [Option<u64>; SLOTS.len()],
    /// Slots that were reported lost, and were not written since.
    told: Vec<u32>,
    version: u64,
    pub doing: Vec<Doing>,
    ended: Vec<Ended>,
}

impl Pager {
    pub fn new(number: u64, setup: Setup, port: u16) -> Pager {
        let sentinel = if setup.by_sentinel { "&sentinel=m" } else { "" };
        let url = format!("valkey://127.0.0.1:{port}?stall=20s{sentinel}");
        let len = SLOTS.len() * BLOCK;
        let mut pager = Pager {
            number,
            ring: Ring::with(IoEngine::of_tests(), 64, true).unwrap(),
            store: Far::new(Server::parse(&url).unwrap(), BLOCK).unwrap(),
            at: memory::reserve(len).unwrap() as usize,
            model: [None; SLOTS.len()],
            told: Vec::new(),
            version: 0,
            doing: Vec::new(),
            ended: Vec::new(),
        };
        if setup.is_copy {
            pager.store.is_copy();
        }
        while pager.store.slots() <= SLOTS[SLOTS.len() - 1] {
            pager.store.grow().unwrap();
        }
        pager
    }

    /// The pager of a fork's child, with its copy of the store.
    pub fn forked(&self, store: Far, port: u16) -> Pager {
        let (model, version) = (self.model, self.version);
        let bare = Pager::new(self.number, BARE, port);
        Pager { store, model, version, ..bare }
    }

    /// Begins reads of some slots, and writes of some that are not frozen.
    pub fn begin_some(&mut self, random: &mut Random, frozen: &[bool; SLOTS.len()]) {
        for (index, &frozen) in frozen.iter().enumerate() {
            match (random.below(4), self.model[index]) {
                (0, _) if !frozen => self.note(OpKind::Write, index),
                (1 | 2, Some(_)) => self.note(OpKind::Read, index),
                _ => {}
            }
        }
        (0..self.doing.len()).for_each(|id| self.begin(id));
    }

    /// Handles what ends after the server has gone.
    pub fn rest(mut self) {
        for _ in 0..20 {
            self.ring.enter(0).unwrap();
            while let Some(done) = self.ring.done() {
                self.store.event(&mut StoreRing::new(&mut self.ring, 0, 48), done, &mut self.ended);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// The words that a slot has in a version.
    fn word(&self, index: usize, version: u64) -> u64 {
        Random(version << 16 | (index as u64) << 8 | self.number).next()
    }

    fn block(&mut self, index: usize) -> &mut [u8] {
        // SAFETY: mapped in `new`, and used only by this pager; none of it is under way.
        unsafe { memory::bytes(self.at + index * BLOCK, BLOCK) }
    }

    fn begin_round(&mut self, random: &mut Random) {
        for (index, slot) in SLOTS.into_iter().enumerate() {
            if self.model[index].is_some() && random.one_in(25) {
                self.model[index] = None;
                self.store.forget(slot..slot + 1);
                continue;
            }
            let kind = match (random.below(4), self.model[index]) {
                (0, _) => OpKind::Write,
                (1 | 2, Some(_)) => OpKind::Read,
                _ => continue,
            };
            self.note(kind, index);
        }
        (0..self.doing.len()).for_each(|id| self.begin(id));
    }

    fn note(&mut self, kind: OpKind, index: usize) {
        self.version += 1;
        let version = if kind == OpKind::Write { self.version } else { 0 };
        let word = self.word(index, version).to_le_bytes();
        self.block(index).chunks_exact_mut(8).for_each(|bytes| bytes.copy_from_slice(&word));
        let pieces = vec![Piece::new(self.at + index * BLOCK, BLOCK)];
        self.doing.push(Doing { kind, index, version, pieces, tries: 0, result: None });
    }

    fn begin(&mut self, id: usize) {
        let doing = &self.doing[id];
        let (slot, kind) = (SLOTS[doing.index], doing.kind);
        let op = Op { id: id as u32, kind, slot, pieces: &doing.pieces, urgent: doing.version == 0 };
        // SAFETY: pieces and memory stay until the operation has ended, and have no other user.
        unsafe { self.store.begin(&mut StoreRing::new(&mut self.ring, 0, 48), op, &mut self.ended) };
    }

    /// Lets the store work; returns whether all operations have ended.
    pub fn go_on(&mut self, setup: Setup, may_lose: bool) -> Result<bool, String> {
        self.ring.enter(0).unwrap();
        while let Some(done) = self.ring.done() {
            self.store.event(&mut StoreRing::new(&mut self.ring, 0, 48), done, &mut self.ended);
            let told = &mut self.told;
            self.store.take_lost(&mut |slots| told.extend(slots));
            for end in std::mem::take(&mut self.ended) {
                self.ended_one(end, setup, may_lose)?;
            }
        }
        for end in std::mem::take(&mut self.ended) {
            self.ended_one(end, setup, may_lose)?;
        }
        Ok(self.doing.iter().all(|doing| doing.result.is_some()))
    }

    fn ended_one(&mut self, end: Ended, setup: Setup, may_lose: bool) -> Result<(), String> {
        let id = end.id as usize;
        let (kind, index, version) = (self.doing[id].kind, self.doing[id].index, self.doing[id].version);
        self.doing[id].tries += 1;
        let tries = self.doing[id].tries;
        let slot = SLOTS[index];
        match (kind, &end.result) {
            (_, Err(failure)) if failure.passing => {
                self.begin(id);
                return Ok(());
            }
            (OpKind::Write, Ok(())) => {
                self.model[index] = Some(version);
                self.told.retain(|&told| told != slot);
            }
            (OpKind::Read, Ok(())) => {
                let wanted = self.model[index].expect("only what was written is read");
                let word = self.word(index, wanted).to_le_bytes();
                let good = self.block(index).chunks_exact(8).all(|bytes| bytes == word);
                if !good && !setup.hashes {
                    return Err(format!("slot {slot} of client {}: wrong bytes", self.number));
                }
                let mut ring = StoreRing::new(&mut self.ring, 0, 48);
                self.store.judge(&mut ring, end.id, slot..slot + 1, good, &mut self.ended);
                if !good && tries < 4 {
                    self.begin(id);
                    return Ok(());
                }
                if !good && !may_lose {
                    return Err(format!("slot {slot} of client {}: what was written is lost", self.number));
                }
                if !good {
                    self.model[index] = None;
                }
            }
            (_, Err(failure)) if !may_lose => {
                return Err(format!("slot {slot} of client {}: {kind:?}: {}", self.number, failure.why));
            }
            (OpKind::Read, Err(failure)) if setup.is_copy && !self.told.contains(&slot) => {
                return Err(format!("slot {slot} is lost, and nobody learnt it: {}", failure.why));
            }
            (_, Err(_)) => self.model[index] = None,
        }
        self.doing[id].result = Some(end.result);
        Ok(())
    }
}

/// The error of a run, if there is one.
fn run(seed: u64, setup: Setup) -> Result<(), String> {
    let mut sim = Sim::new(seed);
    let mut random = Random(!seed);
    let mut pagers: Vec<Pager> = (0..CLIENTS).map(|number| Pager::new(number, setup, sim.port())).collect();
    let mut may_lose = false;
    let between_restarts = if setup.by_sentinel { 4000 } else { 1500 };
    let mut result = Ok(());
    'all: for _ in 0..ROUNDS {
        pagers.iter_mut().for_each(|pager| pager.begin_round(&mut random));
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let mut is_over = true;
            for pager in &mut pagers {
                match pager.go_on(setup, may_lose) {
                    Ok(ended) => is_over &= ended,
                    Err(why) => {
                        result = Err(why);
                        break 'all;
                    }
                }
            }
            if is_over {
                break;
            }
            assert!(Instant::now() < until, "TERAPAGE_SEED={seed}: operations do not end");
            (0..1 + random.below(4)).for_each(|_| sim.step());
            if random.one_in(between_restarts / 2) {
                sim.replica = sim.keys.clone();
            }
            if setup.restarts && random.one_in(between_restarts) {
                may_lose = true;
                sim.restart();
            }
            if setup.by_sentinel && setup.restarts && random.one_in(between_restarts) {
                may_lose = true;
                sim.scribble();
            }
        }
        pagers.iter_mut().for_each(|pager| pager.doing.clear());
    }
    // All connections are cut, so that nothing is under way in the memory of the stores.
    drop(sim);
    pagers.into_iter().for_each(Pager::rest);
    result
}

pub(super) fn first_seed() -> u64 {
    let given = std::env::var("TERAPAGE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) << 16);
    println!("TERAPAGE_SEED={seed}");
    seed
}

/// Without hashes: bytes are right by the protocol alone.
const BARE: Setup = Setup { by_sentinel: false, hashes: false, restarts: false, is_copy: false };

fn all_go_well(setup: Setup) {
    let first = first_seed();
    let given = std::env::var("TERAPAGE_RUNS").ok().and_then(|text| text.parse().ok());
    let runs = given.unwrap_or(RUNS) / if setup.by_sentinel { SLOWER } else { 1 };
    for seed in first..first + runs.max(1) {
        run(seed, setup).unwrap_or_else(|why| panic!("TERAPAGE_SEED={seed}: {why}"));
    }
}

fn is_found(fault: Option<Planted>, setup: Setup) {
    let first = first_seed();
    PLANTED.set(fault);
    let found = (first..first + RUNS_OF_FAULT).find_map(|seed| Some((seed, run(seed, setup).err()?)));
    PLANTED.set(None);
    let (seed, why) = found.unwrap_or_else(|| panic!("not found: {fault:?}, {setup:?}"));
    println!("{fault:?}: found in run {}, TERAPAGE_SEED={seed}: {why}", seed - first + 1);
}

#[test]
fn what_is_cut_loses_nothing() {
    all_go_well(BARE);
}

#[test]
fn a_server_that_is_started_again_gives_no_wrong_bytes() {
    all_go_well(Setup { restarts: true, ..BARE });
}

#[test]
fn with_hashes_a_stale_replica_and_other_writers_give_no_wrong_bytes() {
    all_go_well(Setup { by_sentinel: true, hashes: true, restarts: true, ..BARE });
}

#[test]
fn a_mirror_is_told_all_that_its_copy_has_lost() {
    all_go_well(Setup { restarts: true, is_copy: true, ..BARE });
}

#[test]
fn a_cut_connection_that_is_not_ended_is_found() {
    is_found(Some(Planted::NoKill), BARE);
}

#[test]
fn an_unknown_write_that_counts_as_done_is_found() {
    is_found(Some(Planted::UnknownIsDone), BARE);
}

#[test]
fn a_restart_that_is_not_noticed_is_found() {
    is_found(Some(Planted::AnyRun), Setup { restarts: true, ..BARE });
}

#[test]
fn a_read_of_what_was_lost_meanwhile_is_found() {
    is_found(Some(Planted::LostIsRead), Setup { restarts: true, ..BARE });
}

#[test]
fn hashes_that_are_not_compared_are_found() {
    is_found(None, Setup { by_sentinel: true, restarts: true, ..BARE });
}
