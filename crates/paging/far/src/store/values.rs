//! Values are announced in the registry before they are made, so that nothing on a server is
//! unknown.

use super::*;

impl Far {
    pub(super) fn is_announced(&self, value: u32) -> bool {
        self.acks == 0 && self.is_registered && value < self.announced
    }

    /// Requests the making of a value, once.
    pub(super) fn create(&mut self, value: u32, lane: usize, asked: bool) {
        if self.values[value as usize] != Value::Absent {
            return;
        }
        if !self.is_registered || value >= self.announced {
            self.register(value);
        }
        // In a cluster, parts on other nodes wait until their values are announced.
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
        // Writing the last byte reserves all bytes before it, as zeros.
        let (key, last) = (self.space.value(value), (self.value_bytes() - 1).to_string());
        self.ask(lane, Ask::Create(value), &[b"SETRANGE", &key, last.as_bytes(), MARK]);
    }

    /// Announces the namespace, and its values, before there are any: first its description, then
    /// its name, by which others find it.
    pub(super) fn register(&mut self, value: u32) {
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
        // Others know a value's bytes by the block that it was made for.
        let block = (EXTENT - self.per as usize * self.block).max(self.block);
        let values = self.holder.values_field(self.role == Role::Owner);
        let fields = life::fields(&self.holder, (values, self.announced), block);
        self.ask(lane, Ask::Register, &life::set_all(&registry, &fields));
        if self.kind != Kind::Cluster {
            self.list();
        }
        self.ask(lane, Ask::Time, &[b"TIME"]);
    }

    /// Adds the name to the set of all names.
    pub(super) fn list(&mut self) {
        let all = namespace::all(&self.server.prefix);
        let lane = self.lane_of_key(&all);
        self.ask(lane, Ask::List, &[b"SADD", &all, self.space.name().as_bytes()]);
    }
}
