//! A cluster's slots: the slot of each key, and the server of each slot.

use crate::resp::Reply;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// Slots of a cluster.
pub const SLOTS: u16 = 16384;

/// The slot of a key: of the text between its first `{` and the next `}`, if there is any.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16 in the XMODEM variant (polynomial 0x1021, from zero), which clusters use.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| crc << 1 ^ if crc >> 15 != 0 { 0x1021 } else { 0 })
    })
}

/// The servers of all slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Slots and the server to which they can be written.
    pub ranges: Vec<(RangeInclusive<u16>, SocketAddr)>,
    /// Servers that follow others.
    pub replicas: Vec<SocketAddr>,
    /// The hosts' names, and their addresses.
    names: Vec<(String, IpAddr)>,
}

impl Map {
    /// One server for all slots.
    pub fn whole(server: SocketAddr) -> Map {
        Map { ranges: vec![(0..=SLOTS - 1, server)], ..Map::default() }
    }

    /// Parses the answer to `CLUSTER SLOTS`, which `asked` gave. All versions know this command,
    /// and it returns the ports for the way in which it was sent.
    ///
    /// # Errors
    /// The reply is invalid, or no slot has a server.
    pub fn parse(reply: &Reply, asked: SocketAddr) -> Result<Map, String> {
        let mut map = Map::default();
        for range in reply.elements() {
            let [Reply::Integer(from), Reply::Integer(to), servers @ ..] = range.elements() else {
                return Err("its list of slots is not understood".to_owned());
            };
            let fits = |&slot: &i64| (0..i64::from(SLOTS)).contains(&slot);
            if !fits(from) || !fits(to) {
                return Err("it names slots that do not exist".to_owned());
            }
            let mut servers = servers.iter().map(|server| map.place(server, asked)).collect::<Vec<_>>();
            let master = (!servers.is_empty()).then(|| servers.remove(0)).flatten();
            map.replicas.extend(servers.into_iter().flatten());
            map.ranges.extend(master.map(|master| (*from as u16..=*to as u16, master)));
        }
        map.ranges.sort_by_key(|(slots, _)| *slots.start());
        if map.ranges.is_empty() { Err("its cluster has no slots yet".to_owned()) } else { Ok(map) }
    }

    /// The address of a server. A host name is useful only if its address is known.
    fn place(&mut self, server: &Reply, asked: SocketAddr) -> Option<SocketAddr> {
        let [host, port, more @ ..] = server.elements() else { return None };
        let port: u16 = port.text()?.parse().ok().filter(|&port| port > 0)?;
        let host = host.text().unwrap_or_default();
        if host.is_empty() {
            return Some(SocketAddr::new(asked.ip(), port));
        }
        if let Ok(number) = host.parse() {
            return Some(SocketAddr::new(number, port));
        }
        let told = more.get(1).map(Reply::elements).unwrap_or_default();
        let number = told.chunks_exact(2).find(|pair| pair[0].text().as_deref() == Some("ip"))?;
        let number = number[1].text()?.parse().ok()?;
        self.names.push((host, number));
        Some(SocketAddr::new(number, port))
    }

    /// The server that has a slot.
    pub fn owner(&self, slot: u16) -> Option<SocketAddr> {
        let range = self.ranges.partition_point(|(slots, _)| *slots.end() < slot);
        self.ranges.get(range).filter(|(slots, _)| slots.contains(&slot)).map(|&(_, server)| server)
    }

    /// The servers that have slots, each once.
    pub fn masters(&self) -> Vec<SocketAddr> {
        let mut all: Vec<_> = self.ranges.iter().map(|&(_, server)| server).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The target of `-MOVED slot host:port` or `-ASK slot host:port`; `asked` has sent it.
    pub fn redirect(&self, refusal: &str, asked: SocketAddr) -> Option<Redirect> {
        let mut words = refusal.split(' ');
        let word = words.next()?;
        let slot: u16 = words.next()?.parse().ok().filter(|&slot| slot < SLOTS)?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let port: u16 = port.parse().ok().filter(|&port| port > 0)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let by_name = || self.names.iter().find(|(name, _)| name == host).map(|&(_, number)| number);
        let number = if host.is_empty() { Some(asked.ip()) } else { host.parse().ok().or_else(by_name) };
        let to = SocketAddr::new(number?, port);
        match word {
            "MOVED" => Some(Redirect::Moved(slot, to)),
            "ASK" => Some(Redirect::Ask(to)),
            _ => None,
        }
    }
}

/// The server to which a command must be sent instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// There, and so is all of that slot from now on.
    Moved(u16, SocketAddr),
    /// There, this time, behind `ASKING`.
    Ask(SocketAddr),
}

/// Whether a refusal shows that the known state of a cluster is outdated.
pub fn is_of_cluster(refusal: &str) -> bool {
    let word = refusal.split(' ').next().unwrap_or_default();
    ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "MASTERDOWN"].contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp;
    use proptest::prelude::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn parse(text: &str) -> Result<Map, String> {
        let (reply, _) = resp::parse(text.as_bytes()).unwrap().unwrap();
        Map::parse(&reply, at("10.0.0.9:7000"))
    }

    #[test]
    fn keys_are_in_the_slots_that_servers_put_them_in() {
        // The check value of this CRC, and a server's answer to CLUSTER KEYSLOT.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b"a{foo}b{bar}"), 12182);
        assert_eq!(slot_of(b"{}foo"), crc16(b"{}foo") % SLOTS);
        assert_eq!(slot_of(b"t:tp:{00.01}"), slot_of(b"{00.01}"));
    }

    #[test]
    fn a_map_is_read_from_what_servers_say() {
        let node = |host: &str, port| format!("*3\r\n${}\r\n{host}\r\n:{port}\r\n$2\r\nid\r\n", host.len());
        let range = |from, to, nodes: &[String]| {
            format!("*{}\r\n:{from}\r\n:{to}\r\n{}", 2 + nodes.len(), nodes.concat())
        };
        let named = "*4\r\n$1\r\nh\r\n:7002\r\n$2\r\nid\r\n*2\r\n$2\r\nip\r\n$8\r\n10.0.0.3\r\n".to_owned();
        let text = format!(
            "*3\r\n{}{}{}",
            range(8192, 16383, &[named]),
            range(0, 99, &[node("10.0.0.1", 7000), node("10.0.0.2", 7001)]),
            range(100, 8191, &[node("", 7003)]),
        );
        let map = parse(&text).unwrap();
        assert_eq!(map.owner(99), Some(at("10.0.0.1:7000")));
        assert_eq!(map.owner(100), Some(at("10.0.0.9:7003")));
        assert_eq!(map.owner(16383), Some(at("10.0.0.3:7002")));
        assert_eq!((map.masters().len(), &*map.replicas), (3, &[at("10.0.0.2:7001")][..]));
        assert_eq!(
            map.redirect("MOVED 5 h:7005", at("10.0.0.1:1")),
            Some(Redirect::Moved(5, at("10.0.0.3:7005")))
        );
        assert!(parse("*0\r\n").unwrap_err().contains("no slots"));
        assert!(parse("*1\r\n*2\r\n:0\r\n:16384\r\n").is_err());
        let gap = parse(&format!("*1\r\n{}", range(5, 9, &[node("10.0.0.1", 1)]))).unwrap();
        assert_eq!((gap.owner(4), gap.owner(10)), (None, None));
    }

    #[test]
    fn redirections_are_read() {
        let map = Map::default();
        let to = |text| map.redirect(text, at("10.0.0.1:1"));
        assert_eq!(to("MOVED 1 ::1:7000"), Some(Redirect::Moved(1, at("[::1]:7000"))));
        assert_eq!(to("ASK 16383 :7000"), Some(Redirect::Ask(at("10.0.0.1:7000"))));
        for text in ["MOVED 16384 1.1.1.1:1", "MOVED 1 h:1", "ASK 1 1.1.1.1:0", "ASK", "ERR 1 1.1.1.1:1"] {
            assert_eq!(to(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_redirection_or_none(text in "(MOVED|ASK)? ?[0-9]{0,6} ?.{0,30}") {
            Map::default().redirect(&text, at("10.0.0.1:1"));
        }
    }
}
