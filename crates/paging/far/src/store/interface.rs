//! The pager's calls of a store, for a store on servers.

use super::*;

impl Store for Far {
    fn name(&self) -> String {
        self.server.shown()
    }

    fn slots(&self) -> u32 {
        self.slots
    }

    fn grow(&mut self) -> Result<(), Error> {
        let now = self.values.len() as u32;
        // An extent needs more than one value.
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
                    "{mib} MiB are in use by this process, and nine tenths of the server's \
                     maxmemory by all clients: raise maxmemory, or use another --store"
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

    fn below(&self) -> Below<'_> {
        Below::Nothing
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Nothing
    }

    /// A value that is one block is replaced as a whole.
    fn may_split(&self, more: usize) -> bool {
        let most = u32::MAX as usize / (self.per as usize * more) - 1;
        self.per > 1 && self.values.len() < most
    }

    /// The bytes of a value stay where they are.
    fn split(&mut self, more: usize) {
        let numbers = more as u32;
        self.used.split(numbers);
        self.doubted.split(numbers);
        self.lost.iter_mut().for_each(|lost| lost.split(numbers));
        self.untold.iter_mut().for_each(|slots| *slots = slots.start * numbers..slots.end * numbers);
        self.used_of.iter_mut().for_each(|count| *count *= numbers);
        self.slots *= numbers;
        self.per *= numbers;
        self.block /= more;
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        let slots = op.slot..op.slot + (op.bytes() / self.block) as u32;
        let lane = self.lane_of(op.slot / self.per, op.kind, op.urgent);
        let is_lost = |lost: &Bits| slots.clone().any(|slot| lost.get(slot));
        // What a child has lost its parent may have written again. A mirror compares what it reads
        // there with the checksums.
        let may_be_back = self.is_copy && self.role != Role::Owner;
        if self.role != Role::Owner {
            (self.claims, self.is_left) = (true, false);
        }
        let failure = match &self.lost {
            Some(lost) if op.kind == OpKind::Read && !may_be_back && is_lost(lost) => {
                Some(self.why_lost.clone())
            }
            _ => self.given_up(lane, op.kind),
        };
        let failure = failure
            .map(|why| Failure::lasting(Why::Text(format!("{why} (key {})", self.key_of(op.slot)))))
            .or_else(|| self.failure_of_lane(lane, now_ns()));
        if let Some(failure) = failure {
            ended.push(Ended::badly(op.id, failure));
            // It may come back, for operations that wait longer.
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
        let parts = self.cut(&op);
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

    /// After another server has taken over, bytes that are wrong twice are older bytes.
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
            self.lost.iter_mut().for_each(|lost| lost.set(slot, false));
            let value = slot / self.per;
            self.used_of[value as usize] -= 1;
            let is_empty = self.used_of[value as usize] == 0;
            if !is_empty || self.values[value as usize] != Value::There || self.role != Role::Owner {
                continue;
            }
            let key = self.space.value(value);
            let lane = self.lane_of_key(&key);
            if self.lanes[lane].ready {
                self.values[value as usize] = Value::Absent;
                self.created -= 1;
                self.ask(lane, Ask::Unlink(value), &[b"UNLINK", &key]);
                self.tell_made();
            }
        }
        if self.role != Role::Owner && self.claims && self.used.count() == 0 {
            self.is_left = true;
            self.release();
        }
    }

    /// A copy of a mirror is asked once for each call, for a moment, and not the first time if its
    /// server is known not to answer.
    fn share(&mut self, fork: u32) -> Result<(), Error> {
        let holds = self.holds();
        self.holder.will_fork(fork, holds);
        if !holds {
            return Ok(());
        }
        let now = Instant::now();
        let is_first = self.asked_to_note.is_none_or(|(last, _)| last != fork);
        let since = if is_first { now } else { self.asked_to_note.map_or(now, |(_, since)| since) };
        self.asked_to_note = Some((fork, since));
        let is_deaf = self.trouble_now().is_some() || self.is_deaf;
        if self.is_copy && is_first && is_deaf {
            return Err(Error::Later { name: self.name(), why: self.trouble.clone() });
        }
        shelf::read_again(&mut self.server);
        let quick = Duration::from_nanos(QUICK_NS);
        let time = if self.is_copy { quick } else { CLOSE_TIME }.min(self.server.stall);
        loop {
            let shared = life::share(&self.reach(), &self.space, &mut self.holder, time);
            self.is_deaf = self.is_copy && shared.is_err();
            let Err(error) = shared else { return Ok(()) };
            let (name, why) = (self.name(), format!("cannot note a fork: the server {error}"));
            if since.elapsed() > self.server.stall {
                return Err(Error::Unfit { name, why });
            }
            if self.is_copy {
                return Err(Error::Later { name, why });
            }
            std::thread::sleep(Duration::from_nanos(PAUSE_NS));
        }
    }

    fn unshare(&mut self, fork: u32) {
        self.holder.child_gone(fork);
    }

    fn leaving(&mut self, ring: &mut StoreRing<'_>, leaves: bool) -> bool {
        let lane = self.lane_of_key(&self.space.registry());
        match (leaves, self.leaving) {
            _ if !self.holds() || !self.lanes[lane].ready => return true,
            (true, Leaving::No) => self.leave(),
            (true, asked) => return asked == Leaving::Noted,
            (false, Leaving::No) => return true,
            (false, _) => self.stay(),
        }
        self.lanes[lane].connection.go_on(ring);
        false
    }

    fn inherit(&mut self) -> Result<(), Error> {
        let holds = self.holds();
        self.claims = self.holder.inherit() && holds;
        (self.role, self.is_fresh) = (Role::Reader, true);
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
        self.untold.clear();
        (self.open, self.ticks, self.beats) = (0, false, false);
        (self.has_beat, self.is_doubtful, self.refusing) = (false, false, None);
        self.asked_to_note = None;
        if self.is_copy && (self.away_since_ns != 0 || std::mem::take(&mut self.is_deaf)) {
            self.is_known_away();
        }
        Ok(())
    }

    /// Whether a copy of a mirror is there is known from the start.
    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        let is_wanted = self.is_copy && self.role == Role::Owner;
        self.lanes.iter_mut().for_each(|lane| lane.wanted |= is_wanted);
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
        let is_away = self.is_copy && self.trouble_now().is_some();
        // The claim of a child is removed by its parent, too.
        if !self.holds() || is_away && self.role != Role::Owner {
            return;
        }
        shelf::read_again(&mut self.server);
        let time = if is_away { Duration::from_nanos(QUICK_NS) } else { CLOSE_TIME };
        let gone = life::let_go(&self.reach(), &self.space, &self.holder, time, &clients);
        let leaves_some = self.role == Role::Owner && self.created > 0 && self.trouble_now().is_none();
        if let (Err(error), true) = (gone, leaves_some) {
            say(&format!(
                "terapage: warning: blocks on {} could not be removed: the server {error} \
                 (later: terapage far sweep)\n",
                self.server.shown()
            ));
        }
    }

    fn condition(&self) -> Option<String> {
        let now_ns = now_ns();
        let lasts = |given_up: &&GivenUp| given_up.writes_until_ns.is_none_or(|until_ns| until_ns > now_ns);
        let given_up = self.nodes.iter().find_map(|node| node.given_up.as_ref().filter(lasts));
        match (given_up, &self.lost) {
            (Some(given_up), _) => Some(given_up.why.clone()),
            // A mirror tells it by the slots that its copy is to be written again.
            (None, Some(lost)) if lost.count() > 0 && !self.is_copy => Some(self.why_lost.clone()),
            _ => {
                let is_slow = self.is_slow && self.open > 0 && !self.is_copy;
                let slow = is_slow.then_some("it has not answered for a second or longer");
                let refuses = (is_slow && !self.paused.is_empty()).then_some(&*self.trouble);
                let down = self.trouble_now().filter(|_| self.is_copy || is_slow).or(refuses);
                if let Some(why) = down.or(slow) {
                    return Some(format!("{}: {why}", self.name()));
                }
                if let Some((_, why)) = &self.refusing {
                    return Some(format!("{}: {why}", self.name()));
                }
                let evicts = self.warned.then(|| "the server may discard blocks".to_owned());
                self.why_taken_over().or(evicts)
            }
        }
    }

    fn whereabouts(&self, slot: u32) -> Option<String> {
        Some(format!("key {}", self.key_of(slot)))
    }

    fn is_copy(&mut self) {
        self.is_copy = true;
        if self.kind == Kind::Alone
            && let Some(away) = away::of(&self.server)
        {
            (self.away_since_ns, self.trouble) = (away.since_ns, away.why);
            self.is_known_away();
        }
    }

    fn adopt(&mut self) {
        if self.role == Role::Reader {
            self.role = Role::Heir;
        }
    }

    fn presence(&self) -> Presence<'_> {
        Presence {
            answers: self.trouble_now().is_none() && !self.is_doubtful,
            since_ns: self.away_since_ns,
            drains: self.drains || self.member.as_ref().is_some_and(|member| member.is_left()),
            is_held: self.is_held,
            server: &self.nodes[0].run_id,
        }
    }

    fn take_lost(&mut self, tell: &mut dyn FnMut(Range<u32>)) {
        self.untold.drain(..).for_each(tell);
    }
}
