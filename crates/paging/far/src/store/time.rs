//! Losses, expired times, and the work of every ten seconds.

use super::*;

impl Far {
    pub(super) fn lose(&mut self, values: Range<u32>, why: &str) {
        self.why_lost = why.to_owned();
        let lost = self.lost.get_or_insert_default();
        for value in values {
            let slots = value * self.per..(value + 1) * self.per;
            let used = slots.clone().filter(|&slot| self.used.get(slot));
            used.for_each(|slot| lost.set(slot, true));
            if self.is_copy {
                self.untold.push(slots);
            }
            if self.values[value as usize] == Value::There {
                self.values[value as usize] = Value::Absent;
                self.created -= 1;
            }
        }
    }

    /// The server was started again.
    pub(super) fn lose_all(&mut self) {
        let values = self.values.len() as u32;
        self.lose(
            0..values,
            "the server was started again (another run_id), and the blocks that \
                              it held are lost",
        );
        for value in &mut self.values {
            *value = Value::Absent;
        }
        (self.created, self.announced) = (0, 0);
        (self.is_registered, self.has_beat, self.is_doubtful) = (false, false, false);
        self.holder.forgotten();
        // The server's numbers of connections begin again.
        self.lanes.iter_mut().for_each(|lane| lane.dead.clear());
    }

    pub(super) fn tick(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        let now_ns = now_ns();
        let stall_ns = self.server.stall.as_nanos() as u64;
        let patience_ns = PATIENCE_NS.min(stall_ns / 3);
        let waits_ns = |part: &Part| now_ns.saturating_sub(part.since_ns);
        let most_ns = self.parts.iter().map(waits_ns).max().unwrap_or(0);
        let is_late = most_ns > stall_ns;
        self.is_slow = most_ns > SLOW_NS;
        for lane in &mut self.lanes {
            let idle_ns = lane.connection.idle_ns(now_ns);
            let is_quick = self.is_copy && lane.ready;
            let patience_ns = if is_quick { lane.patience_ns.min(patience_ns) } else { patience_ns };
            if idle_ns > patience_ns || is_late && idle_ns > 0 {
                lane.connection.cut(ring, &format!("no answer for {} ms", idle_ns / MS));
                if is_quick && lane.down_since_ns == 0 {
                    // What it has under way fails as soon as nothing of it is in the ring. One that
                    // is only slow gets more time the next time.
                    lane.down_since_ns = now_ns - idle_ns.max(QUICK_NS + 1);
                    lane.patience_ns = (lane.patience_ns * 2).min(PATIENCE_NS);
                }
            } else if is_quick {
                lane.connection.listen(ring);
            }
        }
        for index in std::mem::take(&mut self.paused) {
            let Some(part) = self.parts.get_mut(index) else { continue };
            if part.due_ns > now_ns {
                self.paused.push(index);
            } else {
                self.queue(index, false);
            }
        }
        self.hurry_guide(ring);
        self.lie_down(ring, ended);
        self.expire(now_ns, ended);
    }

    /// Operations that have waited too long, and are on no connection, fail.
    pub(super) fn expire(&mut self, now_ns: u64, ended: &mut Vec<Ended>) {
        for index in 0..self.lanes.len() {
            if let Some(failure) = self.failure_of_lane(index, now_ns) {
                for part in std::mem::take(&mut self.lanes[index].waiting) {
                    self.end(part, Err(failure.clone()), ended);
                }
            }
        }
        let stall_ns = self.server.stall.as_nanos() as u64;
        let waiting = self.lanes.iter().flat_map(|lane| &lane.waiting);
        let idle: Vec<u32> = waiting.chain(&self.paused).chain(&self.aside).copied().collect();
        for index in idle {
            let late = |part: &mut Part| now_ns.saturating_sub(part.since_ns) > stall_ns;
            if !self.parts.get_mut(index).is_some_and(late) {
                continue;
            }
            self.lanes.iter_mut().for_each(|lane| lane.waiting.retain(|&other| other != index));
            self.paused.retain(|&other| other != index);
            self.aside.retain(|&other| other != index);
            let node = self.parts.get_mut(index).map_or(0, |part| part.lane / CLASSES);
            let why = self.nothing_done();
            let writes_until_ns = self.lanes[node * CLASSES + REST].ready.then_some(now_ns + BACKOFF_NS_MAX);
            self.nodes[node].given_up = Some(GivenUp { why: why.clone(), writes_until_ns });
            self.fail(index, &why, ended);
        }
    }

    pub(super) fn nothing_done(&self) -> String {
        format!("nothing was done for {} s: {}", self.server.stall.as_secs_f64(), self.trouble)
    }

    /// The server's failure, if it is known not to answer.
    pub(super) fn trouble_now(&self) -> Option<&str> {
        self.lanes.iter().any(|lane| lane.down_since_ns != 0).then_some(&*self.trouble)
    }

    /// The failure of an operation that would wait for a missing connection.
    pub(super) fn failure_of_lane(&self, index: usize, now_ns: u64) -> Option<Failure> {
        let since_ns = self.lanes[index].down_since_ns;
        let down_ns = if since_ns == 0 { 0 } else { now_ns.saturating_sub(since_ns) };
        if down_ns > self.server.stall.as_nanos() as u64 {
            return Some(Failure::lasting(Why::Text(self.nothing_done())));
        }
        let is_quick = down_ns > QUICK_NS && (self.is_copy || self.server.stall <= TRIED_FOR);
        is_quick.then(|| Failure::passing(Why::Text(self.trouble.clone())))
    }

    /// A node returns nothing.
    pub(super) fn fail_all(&mut self, node: usize, why: &str, ended: &mut Vec<Ended>) {
        let why = self.said_of(node, why);
        self.nodes[node].given_up = Some(GivenUp { why: why.clone(), writes_until_ns: None });
        let lanes = &mut self.lanes[node * CLASSES..(node + 1) * CLASSES];
        let mut all: Vec<u32> = lanes.iter_mut().flat_map(|lane| lane.waiting.drain(..)).collect();
        for others in [&mut self.paused, &mut self.aside] {
            let is_its =
                |index: &u32| self.parts.get_mut(*index).is_some_and(|part| part.lane / CLASSES == node);
            let (its, rest) = std::mem::take(others).into_iter().partition(is_its);
            *others = rest;
            all.extend::<Vec<u32>>(its);
        }
        all.into_iter().for_each(|index| self.fail(index, &why, ended));
    }

    pub(super) fn lie_down(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        let mut events = Vec::new();
        self.guide.connection.lie_down(&mut events);
        events.into_iter().for_each(|event| self.guided(event, ring, ended));
        for index in 0..self.lanes.len() {
            let mut events = Vec::new();
            self.lanes[index].connection.lie_down(&mut events);
            events.into_iter().for_each(|event| self.happened(index, event, ring, ended));
        }
    }

    /// Gives a sign of life for the namespace, and checks the server.
    pub(super) fn beat(&mut self) {
        self.beat = self.beat.wrapping_add(1);
        self.is_fresh = false;
        for lane in &mut self.lanes {
            lane.patience_ns = (lane.patience_ns / 2).max(QUICK_NS);
        }
        let lane = self.lane_of_key(&self.space.registry());
        if !self.lanes[lane].ready {
            self.lanes[lane].wanted = true;
            return;
        }
        if self.is_left {
            return self.release();
        }
        if self.role != Role::Reader && !self.is_registered && self.acks == 0 {
            // The server was full when the registration was sent.
            self.register(0);
        }
        self.ask(lane, Ask::Time, &[b"TIME"]);
        if self.is_copy {
            let key = namespace::drain(&self.server.prefix);
            let lane = self.lane_of_key(&key);
            if self.lanes[lane].ready {
                self.ask(lane, Ask::Drain, &[b"GETRANGE", &key, b"0", b"0"]);
            }
            // A server that is to be emptied: whether children have left it.
            if self.presence().drains && self.role == Role::Owner {
                let registry = self.space.registry();
                self.ask(self.lane_of_key(&registry), Ask::Holders, &[b"HGETALL", &registry]);
            }
        }
        if self.beat.is_multiple_of(BEATS_OF_LOOK) {
            let ready = (REST..self.lanes.len()).step_by(CLASSES).filter(|&lane| self.lanes[lane].ready);
            ready.collect::<Vec<_>>().into_iter().for_each(|lane| self.ask(lane, Ask::Look, &[b"INFO"]));
        }
        // By the time that the server is about to tell.
        self.sweeper.is_due |= self.beat % BEATS_OF_LOOK == 1;
    }

    /// Writes a sign of life, and any changes, to the registry.
    pub(super) fn show_life(&mut self, seconds: &str) {
        let registry = self.space.registry();
        let made = self.created.to_string();
        let (name, claim) = self.holder.claim();
        let mut words: Vec<&[u8]> = vec![b"HSET", &registry, b"beat", seconds.as_bytes()];
        words.extend([name.as_bytes(), claim.as_bytes()]);
        if self.role == Role::Owner {
            words.extend([b"made", made.as_bytes()]);
        }
        let lane = self.lane_of_key(&registry);
        self.ask(lane, Ask::Beat, &words);
        let (children, last) = self.holder.unnoted();
        if !children.is_empty() {
            self.ask(lane, Ask::Noted(last), &life::set_all(&registry, &children));
        }
        let gone = self.holder.take_gone();
        if !gone.is_empty() {
            let mut words: Vec<&[u8]> = vec![b"HDEL", &registry];
            words.extend(gone.iter().map(String::as_bytes));
            self.ask(lane, Ask::Note, &words);
        }
    }

    /// The registry has noted a sign of life, and this number of fields that it did not have. If
    /// the registry had these fields the last time, the server has since lost them, and all blocks.
    pub(super) fn has_shown_life(&mut self, new: i64) {
        self.is_doubtful = false;
        let was_there = std::mem::replace(&mut self.has_beat, true);
        if new == 0 || !was_there || self.kind != Kind::Alone {
            return;
        }
        if self.is_copy {
            let values = self.values.len() as u32;
            self.lose(0..values, "its keys were gone (FLUSHALL, eviction, another client)");
        }
        (self.is_registered, self.has_beat) = (false, false);
        self.holder.forgotten();
        if self.role != Role::Reader {
            self.register(0);
        }
    }

    /// A key of a copy was gone: asks at once whether the description is, too. Until the answer is
    /// there, the copy does not count.
    pub(super) fn doubt(&mut self) {
        let lane = self.lane_of_key(&self.space.registry());
        if self.is_copy && self.role == Role::Owner && self.kind == Kind::Alone && self.lanes[lane].ready {
            self.is_doubtful = true;
            self.ask(lane, Ask::Time, &[b"TIME"]);
        }
    }

    /// The server is known not to answer: no operation waits for it for long. Each connection is
    /// tried until it is there, though no operation needs it: the copy counts again only then.
    pub(super) fn is_known_away(&mut self) {
        let since_ns = now_ns().saturating_sub(QUICK_NS + 1).max(1);
        for lane in &mut self.lanes {
            (lane.down_since_ns, lane.wanted) = (since_ns, true);
        }
    }

    /// A child needs nothing there any more: takes its claim back.
    pub(super) fn release(&mut self) {
        let registry = self.space.registry();
        let lane = self.lane_of_key(&registry);
        if !self.lanes[lane].ready {
            return;
        }
        self.claims = false;
        let (children, last) = self.holder.unnoted();
        if !children.is_empty() {
            self.ask(lane, Ask::Noted(last), &life::set_all(&registry, &children));
        }
        let ended: Vec<String> = self.holder.ended().collect();
        let mut words: Vec<&[u8]> = vec![b"HDEL", &registry];
        words.extend(ended.iter().map(String::as_bytes));
        self.ask(lane, Ask::Note, &words);
    }

    /// Tells the registry how many values there are: without waiting for the next sign of life, so
    /// that `terapage far ls` is right.
    pub(super) fn tell_made(&mut self) {
        let registry = self.space.registry();
        let lane = self.lane_of_key(&registry);
        let is_known = self.role == Role::Owner && self.is_registered && self.acks == 0;
        if is_known && self.lanes[lane].ready {
            let made = self.created.to_string();
            self.ask(lane, Ask::Note, &[b"HSET", &registry, b"made", made.as_bytes()]);
        }
    }

    /// Notes on the servers that the process leaves. No process acts on the note while the process
    /// gives signs of life.
    pub(super) fn leave(&mut self) {
        self.leaving = Leaving::Asked;
        let (name, value) = self.holder.leave();
        let registry = self.space.registry();
        let lane = self.lane_of_key(&registry);
        self.ask(lane, Ask::Leave, &[b"HSET", &registry, name.as_bytes(), value.as_bytes()]);
    }

    /// Notes that the process stays: by its next sign of life, which is sent at once.
    pub(super) fn stay(&mut self) {
        self.leaving = Leaving::No;
        let lane = self.lane_of_key(&self.space.registry());
        self.ask(lane, Ask::Time, &[b"TIME"]);
    }

    pub(super) fn note(&mut self, node: usize, info: Info) {
        let node = &mut self.nodes[node];
        node.info = info;
        (node.created_at_info, node.info_ns) = (self.created, now_ns());
    }

    pub(super) fn looked(&mut self, node: usize, text: &str) {
        let info = Info::parse(text);
        let loses = info.policy.starts_with("allkeys") || info.evicted > self.nodes[node].info.evicted;
        if loses && !self.warned {
            say(&format!(
                "terapage: warning: store {} discards keys when it is full (maxmemory-policy {}): \
                 blocks may be lost\n",
                self.server.shown(),
                info.policy
            ));
        }
        // Of several servers one may lose keys and another not.
        self.warned = loses || self.warned && self.nodes.len() > 1;
        self.note(node, info);
    }

    /// Asks the server for its present contents, before growth is refused.
    pub(super) fn look_now(&mut self) {
        let time = if self.is_copy { Duration::from_nanos(QUICK_NS) } else { CLOSE_TIME };
        for node in 0..self.nodes.len() {
            if self.nodes[node].share == 0 {
                continue;
            }
            let info = client::Client::connect(&self.reach_node(node), time)
                .and_then(|mut client| client.call(&[b"INFO"]))
                .map(|reply| Info::parse(&reply.text().unwrap_or_default()));
            if let Ok(info) = info
                && info.run_id == self.nodes[node].run_id
            {
                self.note(node, info);
            }
        }
    }
}
