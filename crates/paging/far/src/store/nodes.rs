//! The servers of a store, the connections to them, and the server of each value.
//!
//! A store on one server has one node. In a cluster there is a node for each server ever seen, and
//! a route for each of the cluster's slots. With sentinels there is one node, whose address is
//! requested again when its connection is lost.

use super::*;
use crate::slots::{Map, Redirect, SLOTS, is_of_cluster, slot_of};

/// Nodes that there may be.
const NODES_MAX: usize = 1000;

/// The route of a slot without a server.
const NOWHERE: u16 = u16::MAX;

/// After this number of redirections a part rests.
const MOVES: u32 = 4;

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One server.
    Alone,
    /// The server that sentinels name.
    Sentinel,
    /// The servers of a cluster.
    Cluster,
}

/// A server.
pub(super) struct Node {
    /// Its addresses, which are tried in turn.
    pub addresses: Vec<SocketAddr>,
    pub dialled: usize,
    /// The number of the cluster's slots that it has; a single server has all.
    pub share: u32,
    pub run_id: String,
    pub info: Info,
    /// The number of values when the server was last queried.
    pub created_at_info: u32,
    pub info_ns: u64,
    pub given_up: Option<GivenUp>,
}

impl Node {
    pub fn new(addresses: Vec<SocketAddr>, share: u32) -> Node {
        Node {
            addresses,
            dialled: 0,
            share,
            run_id: String::new(),
            info: Info::default(),
            created_at_info: 0,
            info_ns: 0,
            given_up: None,
        }
    }

    /// The number of values for which it has room, together with those of other nodes, each of
    /// which has its share.
    pub fn most_values(&self, value_bytes: u64) -> u64 {
        match self.info.room_bytes() {
            Some(room) if self.info_ns > 0 && self.share > 0 => {
                let room = u128::from(room) * u128::from(SLOTS) / u128::from(self.share);
                u64::from(self.created_at_info).saturating_add((room / u128::from(value_bytes)) as u64)
            }
            _ => u64::MAX,
        }
    }
}

/// A connection and its purpose.
pub(super) struct Lane {
    pub connection: Connection<Ask>,
    /// The address to which it is connected.
    pub place: Option<SocketAddr>,
    /// Whether it has logged in, and the server is the same as before.
    pub ready: bool,
    /// Its number on the server.
    pub client: Option<u64>,
    /// Earlier connections whose writes the server may still execute.
    pub dead: Vec<u64>,
    /// The missing answers to the requests to end those.
    pub kills: usize,
    /// A request is due though no part waits.
    pub wanted: bool,
    pub waiting: VecDeque<u32>,
    pub bytes: usize,
    pub backoff_ns: u64,
    pub retry_ns: u64,
    /// The time since which there is no connection; 0 if there is one, or none was wanted.
    pub down_since_ns: u64,
    /// How long no answer is waited for, in a mirror.
    pub patience_ns: u64,
}

impl Lane {
    pub fn new(number: usize) -> Lane {
        Lane {
            connection: Connection::new(number as u64),
            place: None,
            ready: false,
            client: None,
            dead: Vec::new(),
            kills: 0,
            wanted: false,
            waiting: VecDeque::new(),
            bytes: 0,
            backoff_ns: 0,
            retry_ns: 0,
            down_since_ns: 0,
            patience_ns: QUICK_NS,
        }
    }

    /// Whether there is a connection that cannot be used yet, or is being closed.
    pub fn is_between(&self) -> bool {
        self.connection.is_used() && !self.ready
    }

    /// Whether operations wait for it.
    pub fn is_missed(&self) -> bool {
        self.wanted || !self.waiting.is_empty()
    }
}

impl Far {
    /// The node with a key.
    fn node_of(&self, key: &[u8]) -> usize {
        match self.routes.get(usize::from(slot_of(key))) {
            Some(&node) if node != NOWHERE => usize::from(node),
            _ => 0,
        }
    }

    /// The lane for operations that no thread waits for, on the server with a key.
    pub(super) fn lane_of_key(&self, key: &[u8]) -> usize {
        let node = if self.routes.is_empty() { 0 } else { self.node_of(key) };
        node * CLASSES + REST
    }

    /// The lane for slots of a value.
    pub(super) fn lane_of(&self, value: u32, kind: OpKind, urgent: bool) -> usize {
        let class = if urgent && kind == OpKind::Read { URGENT } else { REST };
        let node = if self.routes.is_empty() { 0 } else { self.node_of(&self.space.value(value)) };
        node * CLASSES + class
    }

    /// Puts a part before, or after, those that wait for the server with its value.
    pub(super) fn queue(&mut self, index: u32, first: bool) {
        let Some(part) = self.parts.get_mut(index) else { return };
        part.asked = false;
        let (value, kind, urgent) = (part.slot / self.per, part.kind, part.urgent);
        let lane = self.lane_of(value, kind, urgent);
        self.queue_in(lane, index, first);
    }

    fn queue_in(&mut self, lane: usize, index: u32, first: bool) {
        if let Some(part) = self.parts.get_mut(index) {
            part.lane = lane;
            let waiting = &mut self.lanes[lane].waiting;
            if first { waiting.push_front(index) } else { waiting.push_back(index) }
        }
    }

    /// A message about a node, with its name if there are several.
    pub(super) fn said_of(&self, node: usize, why: &str) -> String {
        match (self.kind, self.nodes[node].addresses.first()) {
            (Kind::Alone, _) | (_, None) => why.to_owned(),
            (_, Some(address)) => format!("{address}: {why}"),
        }
    }

    /// The server, by the names of the nodes that are known to be at that address now.
    pub(super) fn reach(&self) -> Server {
        let mut server = self.server.clone();
        if self.kind == Kind::Cluster {
            server.cluster = Some(true);
            let known =
                self.nodes.iter().filter(|node| node.share > 0).filter_map(|node| node.addresses.first());
            server.seeds.extend(known.map(|address| (address.ip().to_string(), address.port())));
        }
        server
    }

    /// The server of only one node.
    pub(super) fn reach_node(&self, node: usize) -> Server {
        match (self.kind, self.nodes[node].addresses.first()) {
            (Kind::Alone, _) | (_, None) => self.server.clone(),
            (_, Some(&address)) => self.server.at(address),
        }
    }

    /// The node with this address, which is made if it does not exist.
    fn node_at(&mut self, address: SocketAddr) -> Option<usize> {
        if let Some(known) = self.nodes.iter().position(|node| node.addresses.contains(&address)) {
            return Some(known);
        }
        let is_free = |&index: &usize| {
            let lanes = &self.lanes[index * CLASSES..(index + 1) * CLASSES];
            let is_idle = lanes
                .iter()
                .all(|lane| !lane.connection.is_used() && !lane.is_missed() && lane.dead.is_empty());
            self.nodes[index].addresses.is_empty() || self.nodes[index].share == 0 && is_idle
        };
        if let Some(free) = (0..self.nodes.len()).find(is_free) {
            self.nodes[free] = Node::new(vec![address], 0);
            return Some(free);
        }
        if self.nodes.len() == NODES_MAX {
            return None;
        }
        self.nodes.push(Node::new(vec![address], 0));
        for _ in 0..CLASSES {
            self.lanes.push(Lane::new(self.lanes.len()));
        }
        Some(self.nodes.len() - 1)
    }

    /// The server is part of a cluster: the slots are requested before anything else.
    pub(super) fn is_of_cluster(&mut self, ring: &mut StoreRing<'_>) {
        self.kind = Kind::Cluster;
        self.nodes[0].addresses.clear();
        self.guide.wanted = true;
        for lane in &mut self.lanes {
            lane.connection.cut(ring, "the cluster is asked which server has which slots");
        }
    }

    /// The servers of all slots are known.
    pub(super) fn take_map(&mut self, map: Map, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        let before = std::mem::replace(&mut self.guide.map, map);
        if self.kind == Kind::Sentinel {
            return self.follow(ring);
        }
        if before == self.guide.map {
            return;
        }
        let old = std::mem::replace(&mut self.routes, vec![NOWHERE; usize::from(SLOTS)]);
        self.nodes.iter_mut().for_each(|node| node.share = 0);
        for (slots, address) in self.guide.map.ranges.clone() {
            let Some(node) = self.node_at(address) else { continue };
            self.nodes[node].share += slots.len() as u32;
            self.routes[usize::from(*slots.start())..=usize::from(*slots.end())].fill(node as u16);
        }
        self.note_takeover(&old);
        for index in 0..self.lanes.len() {
            if self.nodes[index / CLASSES].share == 0 {
                self.lanes[index].wanted = false;
                self.lanes[index].connection.cut(ring, "its slots belong to another server");
            }
        }
        let waiting: Vec<u32> = self.lanes.iter_mut().flat_map(|lane| lane.waiting.drain(..)).collect();
        waiting.into_iter().for_each(|part| self.queue(part, false));
        self.lie_down(ring, ended);
    }

    /// Sentinels name another server, or the same one again.
    fn follow(&mut self, ring: &mut StoreRing<'_>) {
        let now = self.guide.map.masters();
        for lane in &mut self.lanes {
            if lane.place.is_some_and(|place| !now.contains(&place)) {
                lane.connection.cut(ring, "another server has taken its place");
            }
        }
        self.nodes[0].addresses = now;
    }

    /// Notes that values may be older than the last writes, if a slot with values has moved to
    /// another server.
    fn note_takeover(&mut self, old: &[u16]) {
        let made = (0..self.values.len() as u32).filter(|&value| self.values[value as usize] == Value::There);
        let moved = made.map(|value| usize::from(slot_of(&self.space.value(value)))).find(|&slot| {
            old.get(slot).is_some_and(|&before| before != NOWHERE && before != self.routes[slot])
        });
        let Some(slot) = moved else { return };
        let name = |node: u16| {
            let address = self.nodes.get(usize::from(node)).and_then(|node| node.addresses.first());
            address.map_or("nobody".to_owned(), SocketAddr::to_string)
        };
        let (from, to) = (name(old[slot]), name(self.routes[slot]));
        self.takes_over(format!("slots went from {from} to {to}"));
    }

    /// Another server answers at that address now.
    pub(super) fn is_another(&mut self, node: usize) {
        self.lanes[node * CLASSES..(node + 1) * CLASSES].iter_mut().for_each(|lane| lane.dead.clear());
        if self.kind == Kind::Alone {
            return self.lose_all();
        }
        // Notes that were requested from it may be missing there.
        (self.is_registered, self.announced, self.acks) = (false, 0, 0);
        let address = self.nodes[node].addresses.first().map(SocketAddr::to_string).unwrap_or_default();
        self.takes_over(format!("another server answers at {address}, or the server was started again"));
    }

    fn takes_over(&mut self, how: String) {
        self.taken_over = Some((how, life::now_s()));
    }

    /// Why written bytes are missing, or older.
    pub(super) fn why_stale(&self) -> Option<String> {
        let (why, _) = self.taken_over.as_ref()?;
        Some(format!("{why}, and the last writes are missing there (use a mirror of two stores)"))
    }

    /// What messages say of it for a while, if nothing is known to be lost.
    pub(super) fn why_taken_over(&self) -> Option<String> {
        let (why, at_s) = self.taken_over.as_ref()?;
        let is_told = life::now_s().saturating_sub(*at_s) < TOLD_S;
        let (hour, minute) = (at_s / 3600 % 24, at_s / 60 % 60);
        is_told.then(|| format!("{why} at {hour:02}:{minute:02} UTC: the last writes before may be lost"))
    }

    /// The server redirects one or more parts to another server: sends them there. Returns whether
    /// it redirects.
    pub(super) fn redirected(&mut self, lane: usize, parts: &[u32], why: &str) -> bool {
        if self.kind != Kind::Cluster || !is_of_cluster(why) {
            return false;
        }
        self.guide.wanted = true;
        let asked = self.nodes[lane / CLASSES].addresses.first();
        let Some(to) = asked.and_then(|&asked| self.guide.map.redirect(why, asked)) else { return false };
        let (address, is_asked) = match to {
            Redirect::Moved(_, address) => (address, false),
            Redirect::Ask(address) => (address, true),
        };
        let Some(node) = self.node_at(address) else { return false };
        if let Redirect::Moved(slot, _) = to {
            self.routes[usize::from(slot)] = node as u16;
            self.nodes[node].share = self.nodes[node].share.max(1);
        }
        for &index in parts {
            let Some(part) = self.parts.get_mut(index) else { continue };
            part.moves += 1;
            if part.moves.is_multiple_of(MOVES) {
                self.trouble = refusals::told(why);
                part.due_ns = now_ns() + PAUSE_NS / 5;
                self.paused.push(index);
                continue;
            }
            self.queue_in(node * CLASSES + lane % CLASSES, index, true);
            if let Some(part) = self.parts.get_mut(index) {
                part.asked = is_asked;
            }
        }
        true
    }
}
