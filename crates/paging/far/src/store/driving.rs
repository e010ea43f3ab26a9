//! Missing connections are made, and get the operations that wait for them.

use super::*;

impl Far {
    /// Lets the connections do all possible work, and makes missing ones.
    pub(super) fn go_on(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        self.guide_on(ring, ended);
        // In a cluster the namespace must be registered, on another server, before anything is
        // made.
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
        // For parts that were set aside, the value was requested on the other connection.
        for lane in &mut self.lanes {
            lane.connection.go_on(ring);
        }
        self.arm(ring);
    }

    pub(super) fn dial(&mut self, index: usize, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        if self.is_copy && self.lanes[index].down_since_ns == 0 {
            self.lanes[index].down_since_ns = now_ns();
        }
        shelf::read_again(&mut self.server);
        let node = &self.nodes[index / CLASSES];
        if node.addresses.is_empty() && self.kind != Kind::Alone {
            self.guide.wanted = true;
            return self.guide_on(ring, ended);
        }
        let place = node.addresses.get(node.dialled % node.addresses.len().max(1)).copied();
        let address = match &self.server.address {
            Address::Unix(path) => ring::Address::unix(path),
            Address::Tcp(..) | Address::List(_) => place.map(ring::Address::from),
        };
        self.lanes[index].place = place;
        let session = self.server.tls.then(|| Session::new(&self.server)).transpose();
        let dialled = match (address, session) {
            (Some(address), Ok(session)) => self.lanes[index].connection.dial(ring, address, session),
            (None, _) => Err("the name has no address".to_owned()),
            (_, Err(why)) => Err(why),
        };
        if let Err(why) = dialled {
            self.down(index, &why, &[], &[], ended);
        }
    }

    /// Arms the clocks that are needed.
    pub(super) fn arm(&mut self, ring: &mut StoreRing<'_>) {
        let is_busy = self.open > 0
            || self.guide.wanted
            || self.guide.connection.is_used()
            || self.lanes.iter().any(|lane| lane.wanted || lane.is_between());
        if is_busy && !self.ticks {
            self.ticks = ring.timeout(self.tick_ns(), TICK).is_ok();
        }
        if self.holds() && !self.beats {
            self.beats = ring.timeout(if self.is_fresh { FRESH_NS } else { BEAT_NS }, BEAT).is_ok();
        }
        if self.is_sweeping() && !self.sweeper.ticks {
            self.sweeper.ticks = ring.timeout(sweep::STEP_NS, SWEEP).is_ok();
        }
    }

    /// When it is to be looked at what takes long: where a server is missed that nobody waits for,
    /// when that is tried next.
    fn tick_ns(&self) -> u64 {
        let is_idle = |lane: &Lane| !lane.is_between() && lane.waiting.is_empty();
        if self.open > 0
            || self.guide.wanted
            || self.guide.connection.is_used()
            || !self.lanes.iter().all(is_idle)
        {
            return TICK_NS;
        }
        let missed = self.lanes.iter().filter(|lane| lane.wanted && !lane.ready);
        let next_ns = missed.map(|lane| lane.retry_ns.saturating_sub(now_ns())).min();
        next_ns.map_or(TICK_NS, |ns| ns.max(TICK_NS))
    }

    /// Why a slot's server does not answer.
    pub(super) fn given_up(&self, lane: usize, kind: OpKind) -> Option<String> {
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
