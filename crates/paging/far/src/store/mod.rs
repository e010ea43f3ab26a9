//! The store on one server, or on a cluster: turns operations into commands, and answers into
//! completions.
//!
//! There are three kinds of failures. After a cut connection a new one is made and the operations
//! under way are sent again. A write that may have reached the server is sent again only after the
//! old connection is certainly dead there (`CLIENT KILL`), because the old write could overtake a
//! newer one. After a refusal that may pass, the store waits. After a loss the blocks are lost: a
//! restarted server, a missing key. No wait exceeds `stall`.

mod answers;
mod driving;
#[cfg(test)]
mod forks;
mod guide;
mod interface;
mod nodes;
mod parts;
mod planted;
#[cfg(test)]
mod protocol;
mod sweep;
mod time;
mod values;

use crate::away;
use crate::bits::Bits;
use crate::client;
use crate::connection::{Command, Connection, Event, plain};
use crate::fleet;
use crate::holder::Holder;
use crate::info::Info;
use crate::life;
use crate::list::Member;
use crate::namespace::{self, Namespace};
use crate::receiver::{Answer, Want};
use crate::refusals::{self, Remedy};
use crate::resp::{self, Reply};
use crate::shelf;
use crate::tls::Session;
use crate::url::{Address, Server};
use guide::{GUIDE, Guide};
use nodes::{Kind, Lane, Node};
use planted::{Planted, is_planted};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sweep::Sweeper;
use terapage_store::{
    Below, BelowMut, EXTENT, Ended, Error, Failure, Notes, Op, OpKind, Presence, Store, StoreRing, Why,
};
use terapage_sys::ring::{self, Done, Piece};
use terapage_sys::thread::{now_ns, say};

/// The number of values of one growth.
const GROWTH: u32 = 8;

/// Values have numbers of 24 bits.
const EXTENTS_MAX: u32 = 1 << 24;

/// The number of values that are announced in the registry at once.
const ANNOUNCED: u32 = 64;

/// The most bytes under way on a connection, unless it is a single operation: for reads that a
/// thread waits for, and for other operations.
const UNDER_WAY: [usize; 2] = [1 << 20, 4 << 20];

/// The connections to each server: for reads that a thread waits for, and for other operations.
const URGENT: usize = 0;
const REST: usize = 1;
const CLASSES: usize = 2;

/// The last byte of a value.
static MARK: &[u8; 1] = b"\x01";

/// Tokens that belong to no connection.
const TICK: u64 = 1 << 13;
const BEAT: u64 = 2 << 13;
const SWEEP: u64 = 3 << 13;

const MS: u64 = 1_000_000;

/// The interval at which slow operations are checked, while anything is under way.
const TICK_NS: u64 = 100 * MS;

/// The interval between signs of life of a namespace, and their number between two checks of the
/// server.
const BEAT_NS: u64 = 10_000 * MS;
const BEATS_OF_LOOK: u32 = 6;

/// A fork's child gives its first sign of life after this time: one that soon ends, or executes
/// another program, connects to no server for that.
const FRESH_NS: u64 = 1_000 * MS;

/// A connection without progress for this time is given up, if `stall` is not shorter.
const PATIENCE_NS: u64 = 5_000 * MS;

/// After this time without a connection, operations fail for now: a mirror then uses another copy.
/// The caller tries again. If the caller's patience may be shorter than `stall`, this store waits
/// instead.
const QUICK_NS: u64 = 500 * MS;
const TRIED_FOR: Duration = Duration::from_secs(30);

/// An operation that waits for longer is reported.
const SLOW_NS: u64 = 1_000 * MS;

/// How long what is said of a server that took another's place stays in the condition.
const TOLD_S: u64 = 3600;

/// How long a refused operation rests, and the longest time between two tries to connect.
const PAUSE_NS: u64 = 250 * MS;
const BACKOFF_NS_MAX: u64 = 2_000 * MS;

/// The longest time for the end of a process, and for asking before a growth is refused.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// The purpose of a command.
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
    Note,
    Noted(u32),
    Holders,
    Drain,
    Look,
    Asking,
    Map,
    Names,
    Described(u64),
    Lock(u64),
    Swept,
    Leave,
}

/// What this process is to the namespace ([`holder`](crate::holder) has the model).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It has made it, and writes to it.
    Owner,
    /// It was forked, and only reads.
    Reader,
    /// It was forked, and the owner has ended: it may write again what the server has lost.
    Heir,
}

/// Whether the server has noted that the process leaves.
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
    /// The lane in which it waits, or was sent.
    lane: usize,
    /// Whether it is sent after `ASKING`, to a server that is about to get its value.
    asked: bool,
    /// The number of redirections.
    moves: u32,
    /// The time when it is sent again, if it was refused.
    due_ns: u64,
    /// Answers of a wrong length.
    wrong: u32,
    /// It reads slots that were lost before it began, as they may have been written again since.
    anew: bool,
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

/// Nothing happened for too long: later operations do not wait again.
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
    role: Role,
    /// Of a reader, or an heir: it may have a claim there.
    claims: bool,
    /// It needs nothing there any more, and is to take its claim back.
    is_left: bool,
    /// Of a reader, or an heir: it has given no sign of life yet.
    is_fresh: bool,
    /// The last fork that servers are asked to note, and since when.
    asked_to_note: Option<(u32, Instant)>,
    /// The server gave no answer when it was asked to note a fork, and none to anything since: it
    /// is not asked again, if another copy's server can be.
    is_deaf: bool,
    pub(crate) is_registered: bool,
    /// In a cluster: the missing answers to its registration, and when registration may be
    /// repeated.
    acks: u32,
    register_ns: u64,
    /// The number of announced values, and the intended number.
    announced: u32,
    announce: u32,
    values: Vec<Value>,
    created: u32,
    used: Bits,
    /// For each value, the number of slots in use.
    used_of: Vec<u32>,
    /// Slots whose bytes are lost, and those that no mirror has taken note of yet.
    lost: Option<Bits>,
    untold: Vec<Range<u32>>,
    why_lost: String,
    /// It is a copy of a mirror: what gets no answer soon fails for now.
    is_copy: bool,
    /// Somebody wants the server to be emptied.
    drains: bool,
    /// What is known of the server as one of a list.
    member: Option<Arc<Member>>,
    /// Other processes may read it, as far as is known.
    is_held: bool,
    /// Of a copy: since when the server refuses what may be tried again, ns, and why.
    refusing: Option<(u64, String)>,
    /// An operation has waited for a second.
    is_slow: bool,
    /// A key was gone: the server is asked whether others are, too.
    is_doubtful: bool,
    /// Since when the server has not answered, ns; 0: it does.
    away_since_ns: u64,
    /// A sign of life was noted in the registry, which was there before.
    has_beat: bool,
    /// A server has taken the place of another, and may lack what was written last; when that was,
    /// in seconds since 1970.
    taken_over: Option<(String, u64)>,
    /// Slots whose bytes were wrong since then.
    doubted: Bits,
    parts: Notes<Part>,
    ops: Notes<Open>,
    open: usize,
    /// Parts that wait until their value is made.
    aside: Vec<u32>,
    /// Parts that were refused for now.
    paused: Vec<u32>,
    lanes: Vec<Lane>,
    sweeper: Sweeper,
    /// The server's time, seconds; 0 if it was not asked.
    time_s: u64,
    /// The last failure.
    trouble: String,
    ticks: bool,
    beats: bool,
    beat: u32,
    warned: bool,
    leaving: Leaving,
}

impl Far {
    /// A store on `server`, of slots of `block` bytes. It sends nothing to the server yet.
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
        // The others are asked for their nodes.
        let node = if kind == Kind::Alone { addresses.clone() } else { Vec::new() };
        let space = Namespace::new(&server.prefix);
        let space = space.map_err(|error| unfit(format!("has a name that cannot be found: {error}")))?;
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
            role: Role::Owner,
            claims: false,
            is_left: false,
            is_fresh: false,
            asked_to_note: None,
            is_deaf: false,
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
            untold: Vec::new(),
            is_copy: false,
            drains: false,
            member: None,
            is_held: true,
            refusing: None,
            is_slow: false,
            is_doubtful: false,
            away_since_ns: 0,
            has_beat: false,
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

    /// The same store, on a server of a list.
    #[must_use]
    pub(crate) fn in_list(self, member: Arc<Member>) -> Far {
        Far { member: Some(member), ..self }
    }

    /// The namespace on the server.
    pub fn namespace(&self) -> &Namespace {
        &self.space
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Whether this process has, or may have, a claim there.
    fn holds(&self) -> bool {
        if self.role == Role::Owner { self.is_registered || self.created > 0 } else { self.claims }
    }

    /// Bytes of a value: its blocks, and one more byte. That byte distinguishes a value that was
    /// made on purpose from one that was lost and made again by a write.
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
}

/// This connection's number, from the answer to `HELLO`.
fn client_of(reply: &Reply) -> Option<u64> {
    let pairs = reply.elements().chunks_exact(2);
    pairs.into_iter().find_map(|pair| match (pair[0].text().as_deref(), &pair[1]) {
        (Some("id"), Reply::Integer(id)) => u64::try_from(*id).ok(),
        _ => None,
    })
}
