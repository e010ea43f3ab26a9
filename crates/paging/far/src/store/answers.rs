//! The server's answers, and their effects.

use super::*;
use crate::slots::is_of_cluster;

impl Far {
    pub(super) fn happened(
        &mut self,
        index: usize,
        event: Event<Ask>,
        ring: &mut StoreRing<'_>,
        ended: &mut Vec<Ended>,
    ) {
        if index == GUIDE {
            return self.guided(event, ring, ended);
        }
        match event {
            Event::Up => self.greet(index),
            Event::Answered(name, answer) => self.answered(index, name, answer, ring, ended),
            Event::Down { why, unsure, unsent } => self.down(index, &why, &unsure, &unsent, ended),
        }
    }

    /// A connection is established: it logs in, and asks for the server's identity.
    pub(super) fn greet(&mut self, index: usize) {
        let words = client::hello(&self.server);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.ask(index, Ask::Hello, &words);
        if self.server.database != 0 {
            let database = self.server.database.to_string();
            self.ask(index, Ask::Select, &[b"SELECT", database.as_bytes()]);
        }
        self.ask(index, Ask::Session, &[b"INFO"]);
    }

    pub(super) fn answered(
        &mut self,
        index: usize,
        name: Ask,
        answer: Answer,
        ring: &mut StoreRing<'_>,
        ended: &mut Vec<Ended>,
    ) {
        self.is_deaf = false;
        let answer = match answer {
            Answer::Filled => None,
            Answer::Reply(reply) => Some(reply),
        };
        if let Some(Reply::Error(why)) = &answer {
            self.guide.wanted |= self.kind == Kind::Cluster && is_of_cluster(why);
            if self.kind == Kind::Sentinel && is_of_cluster(why) {
                self.lanes[index].connection.cut(ring, &refusals::told(why));
            }
        }
        match (name, answer) {
            (Ask::Part(part), answer) => self.part_answered(index, part, answer, ring, ended),
            (Ask::Hello | Ask::Select | Ask::Session, Some(Reply::Error(why))) => {
                self.not_let_in(index, &why, ring, ended);
            }
            (Ask::Hello, Some(reply)) => self.lanes[index].client = client_of(&reply),
            (Ask::Session, Some(reply)) => self.session(index, &reply, ring, ended),
            (Ask::Kill(client), answer) => self.killed(index, client, answer.as_ref(), ended),
            (Ask::Create(value), Some(reply)) => self.made(index, value, &reply, ended),
            (Ask::Register | Ask::List, Some(Reply::Error(why))) => {
                (self.is_registered, self.acks) = (false, 0);
                self.trouble = refusals::told(&why);
            }
            (Ask::Register, Some(_)) if self.acks > 0 => {
                self.acks = 1;
                self.list();
            }
            (Ask::List, Some(_)) if self.acks > 0 => self.registered(),
            (Ask::Time, Some(reply)) => {
                let seconds = reply.elements().first().and_then(Reply::text).unwrap_or_default();
                self.time_s = seconds.parse().unwrap_or(0);
                self.show_life(&seconds);
                if std::mem::take(&mut self.sweeper.is_due) {
                    self.look_for_dead();
                }
            }
            (Ask::Drain, Some(Reply::Bulk(says))) => {
                self.drains = !says.is_empty();
                self.member.iter().for_each(|member| member.note_drain(self.drains));
            }
            (Ask::Beat, Some(Reply::Integer(new))) => self.has_shown_life(new),
            (Ask::Noted(last), Some(Reply::Integer(_))) => self.holder.noted(last),
            (Ask::Holders, Some(reply)) => self.is_held = self.holder.has_others(&life::hash(&reply)),
            (Ask::Leave, _) if self.leaving == Leaving::Asked => self.leaving = Leaving::Noted,
            (Ask::Look, Some(reply)) => self.looked(index / CLASSES, &reply.text().unwrap_or_default()),
            (Ask::Names, Some(reply)) => self.named(&reply),
            (Ask::Described(id), Some(reply)) => self.described(id, &reply),
            (Ask::Lock(id), reply) => self.locked(id, reply.as_ref()),
            _ => {}
        }
    }

    pub(super) fn part_answered(
        &mut self,
        lane: usize,
        index: u32,
        answer: Option<Reply>,
        ring: &mut StoreRing<'_>,
        ended: &mut Vec<Ended>,
    ) {
        let (value_bytes, block, is_whole) = (self.value_bytes(), self.block, self.per == 1);
        let Some(part) = self.parts.get_mut(index) else { return };
        let bytes = part.count as usize * block;
        self.lanes[lane].bytes -= bytes.min(self.lanes[lane].bytes);
        match (part.kind, answer) {
            (OpKind::Read, None) => self.end(index, Ok(()), ended),
            (_, Some(Reply::Error(why))) => {
                if !self.redirected(lane, &[index], &why) {
                    self.refused(index, &why, ended);
                }
            }
            (OpKind::Write, Some(Reply::Integer(len))) if len == value_bytes as i64 => {
                self.end(index, Ok(()), ended);
            }
            (OpKind::Write, Some(Reply::Simple(_))) if is_whole => self.end(index, Ok(()), ended),
            (OpKind::Write, Some(Reply::Integer(_))) => {
                // The value was gone, and the write has made a new one: the other contents of the
                // value are lost.
                let value = part.slot / self.per;
                let why = self.why_gone("its key was gone");
                self.lose(value..value + 1, &why);
                self.queue(index, true);
                self.doubt();
            }
            (OpKind::Read, Some(Reply::Null)) => self.gone(index, ended),
            (OpKind::Read, Some(Reply::Bulk(bytes))) if bytes.is_empty() => self.gone(index, ended),
            (OpKind::Read, Some(Reply::Bulk(got))) if part.wrong > 0 => {
                let why = format!("the server returned {} bytes where {bytes} were asked for", got.len());
                self.fail(index, &why, ended);
            }
            _ => {
                // The read is repeated on another connection, because this connection may have
                // caused the error.
                part.wrong += 1;
                self.queue(index, true);
                let why = "an answer does not fit the question";
                self.lanes[lane].connection.cut(ring, why);
            }
        }
    }

    pub(super) fn gone(&mut self, index: u32, ended: &mut Vec<Ended>) {
        let why = match self.lost {
            Some(_) if !self.why_lost.is_empty() => self.why_lost.clone(),
            _ => self.why_gone("its key is gone"),
        };
        self.fail(index, &why, ended);
        self.doubt();
    }

    /// Why a value is missing, as far as is known.
    fn why_gone(&self, what: &str) -> String {
        match self.why_stale() {
            Some(why) => format!("{what}: {why}"),
            None => format!("{what} (FLUSHALL, eviction, another client)"),
        }
    }

    /// All servers know the namespace: operations that waited for this continue.
    fn registered(&mut self) {
        self.acks = 0;
        for index in std::mem::take(&mut self.aside) {
            self.queue(index, false);
        }
    }

    /// The server says no to a part.
    pub(super) fn refused(&mut self, index: u32, why: &str, ended: &mut Vec<Ended>) {
        let told = refusals::told(why);
        if refusals::remedy(why) == Remedy::Stop {
            return self.fail(index, &told, ended);
        }
        self.trouble.clone_from(&told);
        if self.is_copy {
            // Another copy goes on at once, as if there were no answer.
            let now_ns = now_ns();
            let (since_ns, _) = self.refusing.take().unwrap_or((now_ns, String::new()));
            self.refusing = Some((since_ns, told.clone()));
            let is_over = now_ns.saturating_sub(since_ns) > self.server.stall.as_nanos() as u64;
            let lasting = || Failure::lasting(Why::Text(self.nothing_done()));
            let failure = if is_over { lasting() } else { Failure::passing(Why::Text(told)) };
            return self.end(index, Err(failure), ended);
        }
        if let Some(part) = self.parts.get_mut(index) {
            part.due_ns = now_ns() + PAUSE_NS;
            self.paused.push(index);
        }
    }

    /// A value was made, or not.
    pub(super) fn made(&mut self, lane: usize, value: u32, reply: &Reply, ended: &mut Vec<Ended>) {
        let is_made = *reply == Reply::Integer(self.value_bytes() as i64);
        self.values[value as usize] = if is_made { Value::There } else { Value::Absent };
        self.created += u32::from(is_made);
        if is_made {
            self.refusing = None;
            self.tell_made();
        }
        let aside = self.take_aside(value);
        if let Reply::Error(why) = reply
            && self.redirected(lane, &aside, why)
        {
            return;
        }
        for index in aside {
            match reply {
                _ if is_made => self.queue(index, false),
                Reply::Error(why) => self.refused(index, why, ended),
                _ => self.fail(index, "another client uses its key", ended),
            }
        }
    }

    pub(super) fn take_aside(&mut self, value: u32) -> Vec<u32> {
        let aside = std::mem::take(&mut self.aside);
        let per = self.per;
        let mut of_value = |&index: &u32| {
            let part = self.parts.get_mut(index);
            part.is_some_and(|part| part.slot / per == value)
        };
        let (taken, left) = aside.into_iter().partition(|index| of_value(index));
        self.aside = left;
        taken
    }

    /// The server does not let this user in, or not now.
    pub(super) fn not_let_in(
        &mut self,
        index: usize,
        why: &str,
        ring: &mut StoreRing<'_>,
        ended: &mut Vec<Ended>,
    ) {
        let told = refusals::told(why);
        // What is in a file may be changed there.
        let may_change = self.server.password_file.is_some() && refusals::is_about_password(why);
        if refusals::remedy(why) == Remedy::Stop && !may_change {
            self.fail_all(index / CLASSES, &told, ended);
        }
        self.lanes[index].connection.cut(ring, &told);
    }

    pub(super) fn session(
        &mut self,
        index: usize,
        reply: &Reply,
        ring: &mut StoreRing<'_>,
        ended: &mut Vec<Ended>,
    ) {
        let info = Info::parse(&reply.text().unwrap_or_default());
        let node = index / CLASSES;
        if info.is_cluster && self.kind == Kind::Alone && self.server.cluster.is_none() {
            return self.is_of_cluster(ring);
        }
        if self.kind == Kind::Alone {
            self.server.cluster = Some(false);
        }
        if info.is_replica() && self.kind != Kind::Alone {
            return self.lanes[index].connection.cut(ring, "it has become a replica");
        }
        if let Some(why) = info.refusal() {
            if self.nodes[node].run_id.is_empty() {
                self.fail_all(node, &format!("the server {why}"), ended);
            }
            return self.lanes[index].connection.cut(ring, &format!("the server {why}"));
        }
        if info.is_loading {
            return self.lanes[index].connection.cut(ring, "the server is loading its data");
        }
        let is_known = !self.nodes[node].run_id.is_empty();
        if is_known && self.nodes[node].run_id != info.run_id && !is_planted(Planted::AnyRun) {
            self.is_another(node);
        }
        self.nodes[node].run_id.clone_from(&info.run_id);
        self.note(node, info);
        let dead = self.lanes[index].dead.clone();
        self.lanes[index].kills = dead.len();
        for client in &dead {
            self.ask(index, Ask::Kill(*client), &[b"CLIENT", b"KILL", b"ID", client.to_string().as_bytes()]);
        }
        if dead.is_empty() {
            self.ready(index);
        }
    }

    pub(super) fn ready(&mut self, index: usize) {
        self.lanes[index].ready = true;
        (self.lanes[index].backoff_ns, self.lanes[index].down_since_ns) = (0, 0);
        self.nodes[index / CLASSES].given_up = None;
        if std::mem::take(&mut self.away_since_ns) != 0 && self.kind == Kind::Alone {
            away::forget(&self.server);
        }
        // What the server has not acknowledged is sent again at once.
        let is_due = self.role != Role::Owner && self.holds() || !self.holder.unnoted().0.is_empty();
        if index == self.lane_of_key(&self.space.registry()) && is_due {
            self.ask(index, Ask::Time, &[b"TIME"]);
        }
    }

    /// An earlier connection is dead on the server: its commands are over. If the server does not
    /// confirm that, earlier commands could undo later writes: so nothing is written.
    pub(super) fn killed(
        &mut self,
        index: usize,
        client: u64,
        answer: Option<&Reply>,
        ended: &mut Vec<Ended>,
    ) {
        let lane = &mut self.lanes[index];
        lane.kills = lane.kills.saturating_sub(1);
        match answer {
            Some(Reply::Error(why)) if !why.contains("No such client") => {
                let told = refusals::told(why);
                self.trouble = format!(
                    "a connection was cut in a write, and cannot be ended for certain: \
                             {told}"
                );
            }
            _ => lane.dead.retain(|&dead| dead != client),
        }
        if self.lanes[index].kills > 0 {
            return;
        }
        self.ready(index);
        if self.lanes[index].dead.is_empty() {
            return;
        }
        let why = self.trouble.clone();
        self.nodes[index / CLASSES].given_up =
            Some(GivenUp { why: why.clone(), writes_until_ns: Some(u64::MAX) });
        for part in std::mem::take(&mut self.lanes[index].waiting) {
            if self.parts.get_mut(part).is_some_and(|part| part.kind == OpKind::Write) {
                self.fail(part, &why, ended);
            } else {
                self.lanes[index].waiting.push_back(part);
            }
        }
    }

    /// A connection is down.
    pub(super) fn down(
        &mut self,
        index: usize,
        why: &str,
        unsure: &[Ask],
        unsent: &[Ask],
        ended: &mut Vec<Ended>,
    ) {
        let node = index / CLASSES;
        self.trouble = self.said_of(node, why);
        let lane = &mut self.lanes[index];
        // A connection that has worked is made again at once.
        lane.backoff_ns =
            if lane.ready { 0 } else { (lane.backoff_ns * 2).clamp(TICK_NS / 2, BACKOFF_NS_MAX) };
        lane.retry_ns = now_ns() + lane.backoff_ns;
        (lane.ready, lane.bytes) = (false, 0);
        // A copy of a mirror is made whole again as soon as it answers.
        lane.wanted |= self.is_copy;
        self.nodes[node].dialled += usize::from(lane.backoff_ns > 0);
        let client = lane.client.take();
        let mut may_change = false;
        let mut again = Vec::new();
        for (names, sent) in [(unsure, true), (unsent, false)] {
            for &name in names {
                match name {
                    Ask::Part(part) if sent && is_planted(Planted::UnknownIsDone) => {
                        self.end(part, Ok(()), ended);
                    }
                    Ask::Part(part) => {
                        again.push(part);
                        if let Some(part) = self.parts.get_mut(part).filter(|_| sent) {
                            may_change |= part.kind == OpKind::Write;
                        }
                    }
                    Ask::Create(value) => {
                        may_change |= sent;
                        self.values[value as usize] = Value::Absent;
                        again.extend(self.take_aside(value));
                    }
                    Ask::Unlink(_) => may_change |= sent,
                    Ask::Register | Ask::List => (self.is_registered, self.acks) = (false, 0),
                    Ask::Lock(id) => self.locked(id, None),
                    Ask::Leave => self.leaving = Leaving::No,
                    _ => {}
                }
            }
        }
        again.into_iter().rev().for_each(|part| self.queue(part, true));
        let lane = &mut self.lanes[index];
        if lane.down_since_ns == 0 && lane.is_missed() {
            lane.down_since_ns = now_ns();
        }
        self.is_doubtful = false;
        if self.lanes[index].down_since_ns != 0 && self.kind == Kind::Alone {
            if self.away_since_ns == 0 {
                self.away_since_ns = self.lanes[index].down_since_ns;
            }
            away::note(&self.server, self.away_since_ns, &self.trouble);
        }
        if may_change && !is_planted(Planted::NoKill) {
            // A number that no connection has cannot be ended: then nothing is written any more.
            self.lanes[index].dead.push(client.unwrap_or(0));
        }
        // The slot may belong to another server by now.
        self.guide.wanted |= self.kind != Kind::Alone;
        if self.kind == Kind::Sentinel {
            self.nodes[node].addresses.clear();
        }
        self.expire(now_ns(), ended);
    }
}
