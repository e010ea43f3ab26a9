//! Which server has which slots: the guide asks a cluster's servers, or sentinels, one after
//! another, on a temporary connection.

use super::*;
use crate::fleet;
use crate::slots::Map;
use crate::tls::Session;

/// The number of its connection.
pub(super) const GUIDE: usize = (1 << 11) - 1;

/// How long one server may take to answer before another is asked.
const TURN_NS: u64 = 1_000 * MS;

/// Between two answers, and between two tries.
const REST_NS: u64 = 200 * MS;

pub(super) struct Guide {
    pub connection: Connection<Ask>,
    /// The last answer.
    pub map: Map,
    /// Whether to ask.
    pub wanted: bool,
    /// The addresses of the named servers.
    named: Vec<SocketAddr>,
    /// The index of the server to ask next.
    turn: usize,
    asked: Option<SocketAddr>,
    /// A sentinel wants the password.
    with_password: bool,
    retry_ns: u64,
    is_answered: bool,
}

impl Guide {
    pub fn new(named: Vec<SocketAddr>) -> Guide {
        Guide {
            connection: Connection::new(GUIDE as u64),
            map: Map::default(),
            wanted: false,
            named,
            turn: 0,
            asked: None,
            with_password: false,
            retry_ns: 0,
            is_answered: false,
        }
    }

    /// In a fork's child.
    pub fn begin_anew(&mut self) {
        self.connection.forget();
        (self.wanted, self.retry_ns, self.is_answered) = (false, 0, false);
    }
}

impl Far {
    /// Asks, if requested.
    pub(super) fn guide_on(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        if self.kind == Kind::Alone {
            return;
        }
        let guide = &self.guide;
        if guide.wanted && !guide.connection.is_used() && now_ns() >= guide.retry_ns {
            self.ask_who(ring, ended);
        }
        self.guide.connection.go_on(ring);
    }

    fn ask_who(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        let mut all = self.guide.named.clone();
        if self.kind == Kind::Cluster {
            all.extend(self.guide.map.masters());
            all.extend(&self.guide.map.replicas);
            all.sort_unstable();
            all.dedup();
        }
        let Some(&address) = all.get(self.guide.turn % all.len().max(1)) else { return };
        self.guide.asked = Some(address);
        self.guide.is_answered = false;
        let session = self.server.tls.then(|| Session::new(&self.server)).transpose();
        let dialled = session.and_then(|session| self.guide.connection.dial(ring, address.into(), session));
        if let Err(why) = dialled {
            self.guide_down(&why, ended);
        }
    }

    pub(super) fn guided(&mut self, event: Event<Ask>, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        match event {
            Event::Up => self.guide_up(),
            Event::Answered(Ask::Hello, Answer::Reply(Reply::Error(why))) => {
                self.guide_refused(&why, ring);
            }
            Event::Answered(Ask::Map, Answer::Reply(reply)) => self.guide_said(&reply, ring, ended),
            Event::Answered(..) => {}
            Event::Down { why, .. } => self.guide_down(&why, ended),
        }
    }

    fn guide_up(&mut self) {
        let Some(address) = self.guide.asked else { return };
        let is_sentinel = self.kind == Kind::Sentinel;
        let server = if is_sentinel {
            self.server.sentinel_at(address, self.guide.with_password)
        } else {
            self.server.at(address)
        };
        let name = self.server.sentinel.clone().unwrap_or_default();
        let words = client::hello(&server);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let question: &[&[u8]] = if is_sentinel {
            &[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name.as_bytes()]
        } else {
            &[b"CLUSTER", b"SLOTS"]
        };
        // SAFETY: there are no pieces.
        unsafe {
            self.guide.connection.give(plain(Ask::Hello, &words));
            self.guide.connection.give(plain(Ask::Map, question));
        }
    }

    fn guide_refused(&mut self, why: &str, ring: &mut StoreRing<'_>) {
        let wants = why.contains("NOAUTH") && self.kind == Kind::Sentinel && self.server.password.is_some();
        if wants && !self.guide.with_password {
            self.guide.with_password = true;
            // The same server is asked again.
            self.guide.turn = self.guide.turn.wrapping_sub(1);
        }
        self.guide.connection.cut(ring, &refusals::told(why));
    }

    fn guide_said(&mut self, reply: &Reply, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        let Some(asked) = self.guide.asked else { return };
        let map = match (&self.server.sentinel, reply) {
            (Some(name), reply) => fleet::master(reply, name).map(Map::whole),
            (None, Reply::Error(why)) => Err(refusals::told(why)),
            (None, reply) => Map::parse(reply, asked),
        };
        match map {
            Ok(map) => {
                self.guide.is_answered = true;
                self.guide.wanted = false;
                self.guide.connection.cut(ring, "it has answered");
                self.take_map(map, ring, ended);
            }
            Err(why) => self.guide.connection.cut(ring, &why),
        }
    }

    fn guide_down(&mut self, why: &str, ended: &mut Vec<Ended>) {
        self.guide.retry_ns = now_ns() + REST_NS;
        if self.guide.is_answered {
            return;
        }
        self.guide.turn = self.guide.turn.wrapping_add(1);
        let asked = self.guide.asked.map(|address| address.to_string()).unwrap_or_default();
        self.trouble = format!("{asked}: {why}");
        let now_ns = now_ns();
        for index in 0..self.lanes.len() {
            let is_lost = self.nodes[index / CLASSES].addresses.is_empty();
            let lane = &mut self.lanes[index];
            if is_lost && lane.is_missed() && lane.down_since_ns == 0 {
                lane.down_since_ns = now_ns;
            }
        }
        self.expire(now_ns, ended);
    }

    /// Gives up a server that takes too long.
    pub(super) fn hurry_guide(&mut self, ring: &mut StoreRing<'_>) {
        let idle_ns = self.guide.connection.idle_ns(now_ns());
        if idle_ns > TURN_NS {
            self.guide.connection.cut(ring, &format!("no answer for {} ms", idle_ns / MS));
        }
    }
}
