//! The store on one server, or on a cluster's: operations into commands, answers into ends.
//!
//! What goes wrong has three kinds of answer. A connection that is cut is made again and what was
//! under way is asked for again: of a write that may have reached the server, only once the old
//! connection is known to be dead there (`CLIENT KILL`), or it might overtake a newer one. A
//! refusal that may pass is waited for. What is lost is lost: a server that was started again, a
//! key that is gone. Nothing is waited for longer than `stall`.

mod answers;
mod guide;
mod nodes;
mod planted;
#[cfg(test)]
mod protocol;
mod sweep;
mod time;

use crate::bits::Bits;
use crate::client;
use crate::connection::{Command, Connection, Event, plain};
use crate::fleet;
use crate::info::Info;
use crate::life::{self, Holder};
use crate::namespace::{self, Namespace};
use crate::receiver::{Answer, Want};
use crate::refusals::{self, Remedy};
use crate::resp::{self, Reply};
use crate::tls::Session;
use crate::url::{Address, Server};
use guide::{GUIDE, Guide};
use nodes::{Kind, Lane, Node};
use planted::{Planted, is_planted};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};
use sweep::Sweeper;
use terapage_store::{EXTENT, Ended, Error, Failure, Notes, Op, OpKind, Store, StoreRing, Why};
use terapage_sys::ring::{self, Done, Piece};
use terapage_sys::thread::{now_ns, say};

/// Values that one step of growth is good for.
const GROWTH: u32 = 8;

/// Values have numbers of 24 bits.
const EXTENTS_MAX: u32 = 1 << 24;

/// Values that are announced in the registry at once.
const ANNOUNCED: u32 = 64;

/// Bytes that a connection has under way at most, unless it is one operation: of reads that a
/// thread waits for, and of the rest.
const UNDER_WAY: [usize; 2] = [1 << 20, 4 << 20];

/// The connections to each server: for reads that a thread waits for, and for the rest.
const URGENT: usize = 0;
const REST: usize = 1;
const CLASSES: usize = 2;

/// The last byte of a value.
static MARK: &[u8; 1] = b"\x01";

/// Tokens that are no connection's.
const TICK: u64 = 1 << 13;
const BEAT: u64 = 2 << 13;
const SWEEP: u64 = 3 << 13;

const MS: u64 = 1_000_000;

/// How often it is looked at what takes long, while something is under way.
const TICK_NS: u64 = 100 * MS;

/// How often a namespace shows that it is in use, and how many of those pass between two looks at
/// the server.
const BEAT_NS: u64 = 10_000 * MS;
const BEATS_OF_LOOK: u32 = 6;

/// A connection on which nothing goes on for so long is given up, if `stall` is not shorter.
const PATIENCE_NS: u64 = 5_000 * MS;

/// Without a connection for so long, operations fail for now: a mirror has them done elsewhere. The
/// caller tries again; where it may be told to wait longer than it does, this waits instead.
const QUICK_NS: u64 = 500 * MS;
const TRIED_FOR: Duration = Duration::from_secs(30);

/// How long what was refused rests, and the longest time between two tries to connect.
const PAUSE_NS: u64 = 250 * MS;
const BACKOFF_NS_MAX: u64 = 2_000 * MS;

/// How long the end of a process may take, and asking before a growth is refused.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Hello,
    Select,
    Session,
    Kill(u64),
    Part(u32),
    Register,
    List,
    Create(u32),
    Unlink(u32),
    Time,
    Beat,
    Look,
    Asking,
    Map,
    Names,
    Described(u64),
    Lock(u64),
    Swept,
    Leave,
}

/// Whether it is noted on the server that the process leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    Asked,
    Noted,
}

/// A part of an operation, in one value.
struct Part {
    op: u32,
    kind: OpKind,
    slot: u32,
    count: u32,
    pieces: Vec<Piece>,
    urgent: bool,
    since_ns: u64,
    /// Where it waits, or is asked.
    lane: usize,
    /// It is asked behind `ASKING`, of a server that is about to have its value.
    asked: bool,
    /// How often it was sent elsewhere.
    moves: u32,
    /// When it is to be asked again, if it was refused.
    due_ns: u64,
    /// Answers of a wrong length.
    wrong: u32,
}

/// An operation under way.
struct Open {
    parts: u32,
    failure: Option<Failure>,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Absent,
    Asked,
    There,
}

/// Nothing was done for too long: what comes next does not wait again.
struct GivenUp {
    why: String,
    /// Only writes were refused, and are tried again from then on. Otherwise, until the server
    /// answers.
    writes_until_ns: Option<u64>,
}

/// A store in a server's memory.
pub struct Far {
    server: Server,
    kind: Kind,
    nodes: Vec<Node>,
    /// Of a cluster: the node of each slot.
    routes: Vec<u16>,
    guide: Guide,
    block: usize,
    /// Blocks of a value.
    per: u32,
    slots: u32,
    pub(crate) space: Namespace,
    pub(crate) holder: Holder,
    /// This process writes to it; a fork's child only reads its parent's.
    is_own: bool,
    pub(crate) is_registered: bool,
    /// Of a cluster: answers to come to its being registered, and when it may be asked for again.
    acks: u32,
    register_ns: u64,
    /// Values that are announced, and that are to be.
    announced: u32,
    announce: u32,
    values: Vec<Value>,
    created: u32,
    used: Bits,
    /// Slots of each value that are used.
    used_of: Vec<u32>,
    /// Slots whose bytes are lost.
    lost: Option<Bits>,
    why_lost: String,
    /// A server has taken the place of another, and may lack what was written last.
    taken_over: Option<String>,
    /// Slots whose bytes were wrong since.
    doubted: Bits,
    parts: Notes<Part>,
    ops: Notes<Open>,
    open: usize,
    /// Parts that wait for their value to be made.
    aside: Vec<u32>,
    /// Parts that were refused for now.
    paused: Vec<u32>,
    lanes: Vec<Lane>,
    sweeper: Sweeper,
    /// What time it is at the server, seconds; 0: it was not asked.
    time_s: u64,
    /// What went wrong last.
    trouble: String,
    ticks: bool,
    beats: bool,
    beat: u32,
    warned: bool,
    leaving: Leaving,
}

impl Far {
    /// A store on `server`, of slots of `block` bytes. Nothing is asked of the server yet.
    ///
    /// # Errors
    /// The server's name has no address.
    pub fn new(server: Server, block: usize) -> Result<Far, Error> {
        let name = server.shown();
        let unfit = |why: String| Error::Unfit { name: name.clone(), why };
        let addresses = fleet::addresses(&server).map_err(|error| unfit(error.to_string()))?;
        let kind = match (&server.sentinel, server.cluster) {
            (Some(_), _) => Kind::Sentinel,
            (None, Some(true)) => Kind::Cluster,
            (None, _) => Kind::Alone,
        };
        // Of the others it is asked for.
        let node = if kind == Kind::Alone { addresses.clone() } else { Vec::new() };
        let space = Namespace::new(&server.prefix);
        let space = space.map_err(|error| unfit(format!("has no name to be had: {error}")))?;
        Ok(Far {
            server,
            kind,
            nodes: vec![Node::new(node, u32::from(crate::slots::SLOTS))],
            routes: Vec::new(),
            guide: Guide::new(addresses),
            block,
            per: ((EXTENT / block) as u32 - 1).max(1),
            slots: 0,
            holder: Holder::of_this_process(&space),
            space,
            is_own: true,
            is_registered: false,
            acks: 0,
            register_ns: 0,
            announced: 0,
            announce: 0,
            values: Vec::new(),
            created: 0,
            used: Bits::default(),
            used_of: Vec::new(),
            lost: None,
            why_lost: String::new(),
            taken_over: None,
            doubted: Bits::default(),
            parts: Notes::default(),
            ops: Notes::default(),
            open: 0,
            aside: Vec::new(),
            paused: Vec::new(),
            lanes: (0..CLASSES).map(Lane::new).collect(),
            sweeper: Sweeper::default(),
            time_s: 0,
            trouble: String::new(),
            ticks: false,
            beats: false,
            beat: 0,
            warned: false,
            leaving: Leaving::No,
        })
    }

    /// The namespace on the server.
    pub fn namespace(&self) -> &Namespace {
        &self.space
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Bytes of a value: its blocks, and one more, by which a value that was lost and made anew by
    /// a write is told from the one that was made for it.
    fn value_bytes(&self) -> usize {
        self.per as usize * self.block + 1
    }

    fn per_extent(&self) -> u32 {
        (EXTENT / self.block) as u32
    }

    fn values_for(&self, slots: u32) -> u32 {
        slots.div_ceil(self.per)
    }

    /// Values that the server may have room for.
    fn most_values(&self) -> u32 {
        let value = self.value_bytes() as u64;
        let by_limit = self.server.limit_bytes.map_or(u64::MAX, |limit| limit / value);
        let by_room = self.nodes.iter().map(|node| node.most_values(value)).min().unwrap_or(u64::MAX);
        let by_number = u64::from(EXTENTS_MAX.min(u32::MAX / self.per - 1));
        by_limit.min(by_room).min(by_number) as u32
    }

    /// The parts of an operation, one for each value that it touches.
    fn split(&mut self, op: &Op<'_>) -> Vec<u32> {
        let since_ns = now_ns();
        let (mut slot, mut left) = (op.slot, (op.bytes() / self.block) as u32);
        let mut pieces = op.pieces.to_vec();
        let mut parts = Vec::with_capacity(2);
        while left > 0 {
            let count = left.min(self.per - slot % self.per);
            let rest = split_off(&mut pieces, count as usize * self.block);
            let part = Part {
                op: op.id,
                kind: op.kind,
                slot,
                count,
                pieces: std::mem::replace(&mut pieces, rest),
                urgent: op.urgent,
                since_ns,
                lane: 0,
                asked: false,
                moves: 0,
                due_ns: 0,
                wrong: 0,
            };
            parts.push(self.parts.add(part));
            (slot, left) = (slot + count, left - count);
        }
        parts
    }

    /// The part is over.
    fn end(&mut self, index: u32, result: Result<(), Failure>, ended: &mut Vec<Ended>) {
        let Some(part) = self.parts.take(index) else { return };
        if result.is_ok() && part.kind == OpKind::Write {
            for slot in part.slot..part.slot + part.count {
                if let Some(lost) = &mut self.lost {
                    lost.set(slot, false);
                }
            }
        }
        let Some(open) = self.ops.get_mut(part.op) else { return };
        open.parts -= 1;
        if let Err(failure) = result {
            open.failure.get_or_insert(failure);
        }
        if open.parts > 0 {
            return;
        }
        if let Some(open) = self.ops.take(part.op) {
            self.open -= 1;
            ended.push(Ended { id: part.op, result: open.failure.map_or(Ok(()), Err) });
        }
    }

    /// The part has failed for good.
    fn fail(&mut self, index: u32, why: &str, ended: &mut Vec<Ended>) {
        let key = self.parts.get_mut(index).map(|part| part.slot).map(|slot| self.key_of(slot));
        let why = format!("{why} (key {})", key.unwrap_or_default());
        self.end(index, Err(Failure::lasting(Why::Text(why))), ended);
    }

    fn key_of(&self, slot: u32) -> String {
        String::from_utf8_lossy(&self.space.value(slot / self.per)).into_owned()
    }

    /// Gives a part to its connection, if its value is there.
    fn give(&mut self, index: u32, ring: &mut StoreRing<'_>) {
        let Some(part) = self.parts.get_mut(index) else { return };
        let (value, lane, asked) = (part.slot / self.per, part.lane, part.asked);
        if part.kind == OpKind::Write && self.values[value as usize] != Value::There {
            if self.per > 1 || !self.is_announced(value) {
                self.aside.push(index);
                self.create(value, lane, asked);
                return;
            }
            // The write of its one block makes it.
            self.values[value as usize] = Value::There;
            self.created += 1;
        }
        if asked {
            self.ask(lane, Ask::Asking, &[b"ASKING"]);
        }
        let Some(part) = self.parts.get_mut(index) else { return };
        let key = self.space.value(value);
        let from = (part.slot % self.per) as usize * self.block;
        let bytes = part.count as usize * self.block;
        let mut text = Vec::with_capacity(160);
        let number = |number: usize| number.to_string().into_bytes();
        let command = match part.kind {
            OpKind::Read => {
                resp::command(&mut text, &[b"GETRANGE", &key, &number(from), &number(from + bytes - 1)]);
                let want = Want::Bytes(part.pieces.clone());
                Command { name: Ask::Part(index), text, pieces: Vec::new(), want }
            }
            OpKind::Write if self.per == 1 => {
                resp::open(&mut text, 3);
                [b"SET", &key[..]].iter().for_each(|word| resp::text(&mut text, word));
                resp::header(&mut text, '$', bytes + MARK.len());
                let mut pieces = part.pieces.clone();
                pieces.push(Piece::new(MARK.as_ptr() as usize, MARK.len()));
                Command { name: Ask::Part(index), text, pieces, want: Want::Reply }
            }
            OpKind::Write => {
                resp::open(&mut text, 4);
                [b"SETRANGE", &key[..], &number(from)].iter().for_each(|word| resp::text(&mut text, word));
                resp::header(&mut text, '$', bytes);
                Command { name: Ask::Part(index), text, pieces: part.pieces.clone(), want: Want::Reply }
            }
        };
        self.lanes[lane].bytes += bytes;
        // SAFETY: the pieces are those of an operation that has not ended, and does not before the
        // part is answered or the connection is down.
        unsafe { self.lanes[lane].connection.give(command) };
        self.lanes[lane].connection.go_on(ring);
    }

    /// Asks something that has no pieces.
    fn ask(&mut self, lane: usize, name: Ask, words: &[&[u8]]) {
        // Where there is no connection it is asked for when there is: nothing comes before `HELLO`.
        if self.lanes[lane].connection.is_used() {
            // SAFETY: there are no pieces.
            unsafe { self.lanes[lane].connection.give(plain(name, words)) };
        }
    }

    fn is_announced(&self, value: u32) -> bool {
        self.acks == 0 && self.is_registered && value < self.announced
    }

    /// Has a value made, once.
    fn create(&mut self, value: u32, lane: usize, asked: bool) {
        if self.values[value as usize] != Value::Absent {
            return;
        }
        if !self.is_registered || value >= self.announced {
            self.register(value);
        }
        // Elsewhere in a cluster: what is set aside waits until that is done.
        if !self.is_announced(value) {
            return;
        }
        if self.per == 1 {
            self.take_aside(value).into_iter().for_each(|index| self.queue(index, true));
            return;
        }
        self.values[value as usize] = Value::Asked;
        if asked {
            self.ask(lane, Ask::Asking, &[b"ASKING"]);
        }
        // The last byte: so all before it are taken now, as zeros.
        let (key, last) = (self.space.value(value), (self.value_bytes() - 1).to_string());
        self.ask(lane, Ask::Create(value), &[b"SETRANGE", &key, last.as_bytes(), MARK]);
    }

    /// Announces the namespace, and values of it, before there are any: first what it is, then its
    /// name, by which others come to look at it.
    fn register(&mut self, value: u32) {
        self.announce = self.announce.max((value / ANNOUNCED + 1) * ANNOUNCED);
        let (all, registry) = (namespace::all(&self.server.prefix), self.space.registry());
        let (list, lane) = (self.lane_of_key(&all), self.lane_of_key(&registry));
        if self.kind == Kind::Cluster {
            let is_ready = self.lanes[lane].ready && self.lanes[list].ready;
            self.lanes[lane].wanted |= !is_ready;
            self.lanes[list].wanted |= !is_ready;
            if self.acks > 0 || !is_ready || now_ns() < self.register_ns {
                return;
            }
            self.acks = 2;
            self.register_ns = now_ns() + PAUSE_NS;
        }
        self.is_registered = true;
        self.announced = self.announce;
        let fields = self.holder.fields(self.announced, self.block);
        let mut words: Vec<&[u8]> = vec![b"HSET", &registry];
        fields.iter().for_each(|(name, value)| words.extend([name.as_bytes(), value.as_bytes()]));
        self.ask(lane, Ask::Register, &words);
        if self.kind != Kind::Cluster {
            self.list();
        }
        self.ask(lane, Ask::Time, &[b"TIME"]);
    }

    /// Adds the name to those of all.
    fn list(&mut self) {
        let all = namespace::all(&self.server.prefix);
        let lane = self.lane_of_key(&all);
        self.ask(lane, Ask::List, &[b"SADD", &all, self.space.name().as_bytes()]);
    }

    /// Lets the connections do what there is to do, making them where there are none.
    fn go_on(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        self.guide_on(ring, ended);
        // In a cluster it is to be registered, elsewhere, before anything is made.
        let is_due = !self.is_registered || self.announce > self.announced;
        if is_due && self.acks == 0 && self.kind == Kind::Cluster && !self.aside.is_empty() {
            self.register(0);
        }
        for index in 0..self.lanes.len() {
            if self.lanes[index].ready {
                while self.lanes[index].bytes < UNDER_WAY[index % CLASSES] {
                    let Some(part) = self.lanes[index].waiting.pop_front() else { break };
                    if self.reads_lost(part) && !is_planted(Planted::LostIsRead) {
                        let why = self.why_lost.clone();
                        self.fail(part, &why, ended);
                        continue;
                    }
                    self.give(part, ring);
                }
                self.lanes[index].wanted = false;
            } else if !self.lanes[index].connection.is_used()
                && self.lanes[index].is_missed()
                && now_ns() >= self.lanes[index].retry_ns
            {
                self.dial(index, ring, ended);
            }
        }
        // What was set aside has had its value asked for of the other one.
        for lane in &mut self.lanes {
            lane.connection.go_on(ring);
        }
        self.arm(ring);
    }

    /// Whether a part reads slots that were lost since it was begun: what is there now is not what
    /// was written.
    fn reads_lost(&mut self, index: u32) -> bool {
        let (Some(lost), Some(part)) = (&self.lost, self.parts.get_mut(index)) else { return false };
        part.kind == OpKind::Read && (part.slot..part.slot + part.count).any(|slot| lost.get(slot))
    }

    fn dial(&mut self, index: usize, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        let node = &self.nodes[index / CLASSES];
        if node.addresses.is_empty() && self.kind != Kind::Alone {
            self.guide.wanted = true;
            return self.guide_on(ring, ended);
        }
        let place = node.addresses.get(node.dialled % node.addresses.len().max(1)).copied();
        let address = match &self.server.address {
            Address::Unix(path) => ring::Address::unix(path),
            Address::Tcp(..) => place.map(ring::Address::from),
        };
        self.lanes[index].place = place;
        let session = self.server.tls.then(|| Session::new(&self.server)).transpose();
        let dialled = match (address, session) {
            (Some(address), Ok(session)) => self.lanes[index].connection.dial(ring, address, session),
            (None, _) => Err("it has no address".to_owned()),
            (_, Err(why)) => Err(why),
        };
        if let Err(why) = dialled {
            self.down(index, &why, &[], &[], ended);
        }
    }

    /// Arms the clocks that are needed.
    fn arm(&mut self, ring: &mut StoreRing<'_>) {
        let is_busy = self.open > 0
            || self.guide.wanted
            || self.guide.connection.is_used()
            || self.lanes.iter().any(|lane| lane.wanted || lane.is_between());
        if is_busy && !self.ticks {
            self.ticks = ring.timeout(TICK_NS, TICK).is_ok();
        }
        if (self.is_registered || self.created > 0) && !self.beats {
            self.beats = ring.timeout(BEAT_NS, BEAT).is_ok();
        }
        if self.is_sweeping() && !self.sweeper.ticks {
            self.sweeper.ticks = ring.timeout(sweep::STEP_NS, SWEEP).is_ok();
        }
    }

    /// Why nothing is to be had of a slot's server.
    fn given_up(&self, lane: usize, kind: OpKind) -> Option<String> {
        match (kind, &self.nodes[lane / CLASSES].given_up) {
            (_, Some(GivenUp { why, writes_until_ns: None })) => Some(why.clone()),
            (OpKind::Write, Some(GivenUp { why, writes_until_ns: Some(until_ns) }))
                if now_ns() < *until_ns =>
            {
                Some(why.clone())
            }
            _ => None,
        }
    }
}

impl Store for Far {
    fn name(&self) -> String {
        self.server.shown()
    }

    fn slots(&self) -> u32 {
        self.slots
    }

    fn grow(&mut self) -> Result<(), Error> {
        let now = self.values.len() as u32;
        // An extent takes more than a value has.
        let least = self.values_for(self.slots + self.per_extent());
        if least > self.most_values() {
            self.look_now();
        }
        let most = self.most_values();
        if least > most {
            let mib = (u64::from(now) * self.value_bytes() as u64) >> 20;
            let why = match self.server.limit_bytes {
                Some(limit) if limit / self.value_bytes() as u64 <= u64::from(most) => {
                    format!("all of limit= ({} MiB) is in use", limit >> 20)
                }
                _ => format!(
                    "{mib} MiB are in use by this process, and nine tenths of the server's maxmemory by all: raise that, or give --store another place"
                ),
            };
            return Err(Error::Full { name: self.name(), why });
        }
        let values = least.max(now.saturating_add(GROWTH).min(most));
        self.values.resize(values as usize, Value::Absent);
        self.used_of.resize(values as usize, 0);
        self.slots = values * self.per / self.per_extent() * self.per_extent();
        Ok(())
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        let slots = op.slot..op.slot + (op.bytes() / self.block) as u32;
        let lane = self.lane_of(op.slot / self.per, op.kind, op.urgent);
        let is_lost = |lost: &Bits| slots.clone().any(|slot| lost.get(slot));
        let failure = match &self.lost {
            Some(lost) if op.kind == OpKind::Read && is_lost(lost) => Some(self.why_lost.clone()),
            _ => self.given_up(lane, op.kind),
        };
        let failure = failure
            .map(|why| Failure::lasting(Why::Text(format!("{why} (key {})", self.key_of(op.slot)))))
            .or_else(|| self.failure_of_lane(lane, now_ns()));
        if let Some(failure) = failure {
            ended.push(Ended::badly(op.id, failure));
            // It may come back, for those that wait longer.
            self.lanes[lane].wanted |= !self.lanes[lane].ready;
            self.go_on(ring, ended);
            return;
        }
        if op.kind == OpKind::Write {
            for slot in slots.clone() {
                if !self.used.get(slot) {
                    self.used.set(slot, true);
                    self.used_of[(slot / self.per) as usize] += 1;
                }
            }
        }
        let parts = self.split(&op);
        self.ops.put(op.id, Open { parts: parts.len() as u32, failure: None });
        self.open += 1;
        parts.into_iter().for_each(|part| self.queue(part, false));
        self.go_on(ring, ended);
    }

    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        match done.tag {
            TICK => {
                self.ticks = false;
                self.tick(ring, ended);
            }
            BEAT => {
                self.beats = false;
                self.beat();
            }
            SWEEP => {
                self.sweeper.ticks = false;
                self.sweep_on();
            }
            token => {
                let index = Connection::<Ask>::number_of(token) as usize;
                let mut events = Vec::new();
                let connection = match index {
                    GUIDE => &mut self.guide.connection,
                    index => &mut self.lanes[index].connection,
                };
                connection.event(ring, done, &mut events);
                events.into_iter().for_each(|event| self.happened(index, event, ring, ended));
                self.lie_down(ring, ended);
            }
        }
        self.go_on(ring, ended);
    }

    /// After another server has taken over, bytes that are twice wrong are older ones.
    fn judge(
        &mut self,
        _ring: &mut StoreRing<'_>,
        _id: u32,
        slots: Range<u32>,
        good: bool,
        _ended: &mut Vec<Ended>,
    ) {
        let Some(why) = self.why_stale() else { return };
        let was_wrong = self.doubted.get(slots.start);
        self.doubted.set(slots.start, !good && !was_wrong);
        if !good && was_wrong {
            self.why_lost = why;
            let lost = self.lost.get_or_insert_default();
            slots.for_each(|slot| lost.set(slot, true));
        }
    }

    fn forget(&mut self, slots: Range<u32>) {
        for slot in slots {
            if !self.used.get(slot) {
                continue;
            }
            self.used.set(slot, false);
            let value = slot / self.per;
            self.used_of[value as usize] -= 1;
            let is_empty = self.used_of[value as usize] == 0;
            if !is_empty || self.values[value as usize] != Value::There || !self.is_own {
                continue;
            }
            let key = self.space.value(value);
            let lane = self.lane_of_key(&key);
            if self.lanes[lane].ready {
                self.values[value as usize] = Value::Absent;
                self.created -= 1;
                self.ask(lane, Ask::Unlink(value), &[b"UNLINK", &key]);
            }
        }
    }

    fn share(&mut self, fork: u32) -> Result<(), Error> {
        if !self.is_registered {
            self.holder.share_nothing();
            return Ok(());
        }
        let until = Instant::now() + self.server.stall;
        loop {
            let shared = life::share(&self.reach(), &self.space, &mut self.holder, fork, CLOSE_TIME);
            match shared {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > until => {
                    let why = format!("cannot be told of a fork: it {error}");
                    return Err(Error::Unfit { name: self.name(), why });
                }
                Err(_) => std::thread::sleep(Duration::from_nanos(PAUSE_NS)),
            }
        }
    }

    fn unshare(&mut self, fork: u32) {
        self.holder.child_gone(fork);
    }

    fn leaving(&mut self, ring: &mut StoreRing<'_>, leaves: bool) -> bool {
        let lane = self.lane_of_key(&self.space.registry());
        match (leaves, self.leaving) {
            _ if !self.is_registered || !self.lanes[lane].ready => return true,
            (true, Leaving::No) => self.leave(),
            (true, asked) => return asked == Leaving::Noted,
            (false, Leaving::No) => return true,
            (false, _) => self.stay(),
        }
        self.lanes[lane].connection.go_on(ring);
        false
    }

    fn inherit(&mut self) -> Result<(), Error> {
        self.is_own = false;
        self.leaving = Leaving::No;
        for lane in &mut self.lanes {
            lane.connection.forget();
        }
        self.guide.begin_anew();
        self.lanes = (0..self.lanes.len()).map(Lane::new).collect();
        (self.sweeper, self.acks) = (Sweeper::default(), 0);
        self.parts.clear();
        self.ops.clear();
        self.aside.clear();
        self.paused.clear();
        (self.open, self.ticks, self.beats) = (0, false, false);
        self.holder.inherit();
        Ok(())
    }

    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        self.go_on(ring, ended);
    }

    fn close(&mut self) {
        let mut clients = Vec::new();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let place = self.nodes[index / CLASSES].addresses.first().copied();
            clients.extend(lane.client.iter().chain(&lane.dead).map(|&client| (place, client)));
            lane.connection.hang_up();
        }
        self.guide.connection.hang_up();
        if self.is_registered {
            let gone = life::let_go(&self.reach(), &self.space, &self.holder, CLOSE_TIME, &clients);
            if let (Err(error), None) = (gone, self.trouble_now()) {
                say(&format!(
                    "terapage: warning: what was kept on {} could not be removed: it {error} (later: terapage far sweep)\n",
                    self.server.shown()
                ));
            }
        }
    }

    fn condition(&self) -> Option<String> {
        let given_up = self.nodes.iter().find_map(|node| node.given_up.as_ref());
        match (given_up, &self.lost) {
            (Some(given_up), _) => Some(given_up.why.clone()),
            (None, Some(_)) => Some(self.why_lost.clone()),
            _ if self.taken_over.is_some() => self.why_taken_over(),
            _ if self.warned => Some("the server may throw blocks away".to_owned()),
            _ => None,
        }
    }
}

/// This connection's number, from the answer to `HELLO`.
fn client_of(reply: &Reply) -> Option<u64> {
    let pairs = reply.elements().chunks_exact(2);
    pairs.into_iter().find_map(|pair| match (pair[0].text().as_deref(), &pair[1]) {
        (Some("id"), Reply::Integer(id)) => u64::try_from(*id).ok(),
        _ => None,
    })
}

/// Leaves the first `bytes` and gives the rest.
fn split_off(pieces: &mut Vec<Piece>, mut bytes: usize) -> Vec<Piece> {
    for index in 0..pieces.len() {
        let piece = pieces[index];
        if bytes < piece.len() {
            let mut rest = pieces.split_off(index);
            rest[0] = Piece::new(piece.at() + bytes, piece.len() - bytes);
            if bytes > 0 {
                pieces.push(Piece::new(piece.at(), bytes));
            }
            return rest;
        }
        bytes -= piece.len();
    }
    Vec::new()
}
